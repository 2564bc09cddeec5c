// The newest window as it closes: from the server's stream if it has one, else from the newest
// stored data. The page always shows its age, so that a silent source never looks healthy.

import * as App from "./app.js";
import * as Format from "./format.js";
import { LiveCells } from "./livecells.js";
import { Frame } from "./model.js";
import { find } from "./panels.js";
import * as Source from "./source.js";
import { Stream } from "./stream.js";

export const NOW = -2; // window number that means the newest window
const REFRESH = 10000; // ms between two requests for history
const SOON = 2000; // ms until history is requested for unknown names in the newest window
const HEARTBEAT = 2; // s, maximum silence of a stream
const PATIENCE = 3; // windows that may be late before the page says so
const GRACE = 3000; // ms in addition, since windows are stored in batches

let active = false;
let stream = null;
let stored = false; // the newest window is that of the newest stored data
let unsure = false; // the server has not said which
let followed = ""; // signal and level of the stream
let ticks = 0;
let refreshed = 0;
let newest = null; // {start, end, signal, completeness_ratio, final} of the last window
let cells = null; // LiveCells of that window
let told = null; // start of the last window that had its own event
let heard = 0; // performance.now() of the last event with an age
let aged = 0; // age of the newest observations at that time, ms
let connected = false;
let columns = null; // newest as columns of a signal model
let said = "";

export async function start() {
  stop();
  active = true;
  heard = refreshed = performance.now();
  ticks = setInterval(tick, 500);
  await choose();
}

// choose finds out where the newest window comes from. While the server does not say, that is the store.
async function choose() {
  const mine = ticks;
  unsure = false;
  const health = await Source.ask("api/v1/health", {}).catch(() => null);
  if (!active || ticks !== mine) return; // stopped, or started again
  unsure = !health;
  stored = health?.source !== "memory";
  if (!stored) watch();
  tick();
  App.show();
}

export function stop() {
  active = connected = stored = false;
  clearInterval(ticks);
  stream?.close();
  stream = newest = columns = null;
  find("age").hidden = true;
  document.body.classList.remove("stale");
  said = "";
}

// restart follows another signal or level, if the page shows another one.
export function restart() {
  if (stream && String(shown()) !== followed) watch();
}

// shown returns the signal and the level that the page shows, before any data those that it asks for.
function shown() {
  const { signal, level } = App.model ? App.view : App.asked();
  return [signal, level];
}

function watch() {
  stream?.close();
  newest = columns = null;
  [heard, aged] = [performance.now(), 0];
  const [signal, level] = shown();
  followed = String([signal, level]);
  const query = new URLSearchParams({ signal, level, windows: 1, heartbeat: `${HEARTBEAT}s`, encoding: "frames" });
  cells = new LiveCells();
  told = null;
  stream = new Stream(`api/v1/watch?${query}`, {
    take: (name, value) => {
      if (!connected && newest) refreshed = -REFRESH; // after an outage, history and the verdict are old too
      connected = true;
      taken[name]?.(value);
    },
    lost: () => {
      connected = false; // the stream reconnects by itself
      tick();
    },
  });
}

// taken handles each kind of event.
const taken = {
  snapshot: ({ frames, ...about }) => {
    told = null;
    if (!about.windows) {
      newest = columns = null; // the server begins again
      return tick();
    }
    cells.take(frames, false);
    hear({ ...about, start: about.from, end: about.to });
  },
  window: ({ frames, base, ...about }) => {
    if (newest && about.window_start < newest.start) return; // late event of an earlier window
    if (base && base !== told) return watch(); // changes to an unknown base
    told = about.window_start;
    cells.take(frames, Boolean(base));
    hear({ ...about, start: about.window_start, end: about.window_end });
  },
  heartbeat: takeAge,
};

function hear(window) {
  newest = window;
  takeAge(window);
  columns = null;
  tick();
  if (App.view.window === NOW) App.show();
}

// takeAge takes the age of the newest observations; events have none before the first ones.
function takeAge({ age_s }) {
  if (age_s !== undefined) [heard, aged] = [performance.now(), age_s * 1000];
}

// tick checks the clock, since silence causes no event.
function tick() {
  if (!active) return;
  if (performance.now() - refreshed > (App.model ? REFRESH : REFRESH / 5)) {
    refreshed = performance.now();
    Source.refresh(true);
    if (unsure) choose();
  }
  const was = document.body.classList.contains("stale");
  const { text, stale } = status();
  find("age").hidden = false;
  if (text !== said) find("age").textContent = said = text;
  document.body.classList.toggle("stale", stale);
  if (stale !== was) App.show();
}

// age returns the age of the newest observations in ms; without a stream, the age of the newest
// stored window.
function age() {
  if (!stored) return newest ? aged + performance.now() - heard : Infinity;
  const model = App.model;
  return model ? Date.now() - Number(model.end() / 1000000n) : Infinity;
}

function length() {
  if (stored) return (App.model?.step || 1e9) / 1e6 + REFRESH;
  return newest ? Date.parse(newest.end) - Date.parse(newest.start) : 1000;
}

function status() {
  const old = age();
  const limit = PATIENCE * length() + GRACE;
  if (!Number.isFinite(old) && performance.now() - heard < limit) return { stale: false, text: "waiting for a window" };
  const since = Number.isFinite(old) ? Format.duration(Math.max(old, 1000) * 1e6) : "";
  if (stream && !connected) return { stale: true, text: since ? `no connection, newest window ${since} old` : "no connection" };
  if (old > limit) return { stale: true, text: since ? `stale: nothing new for ${since}` : "stale: no window has come" };
  const part = newest && newest.completeness_ratio < 1 ? `, from ${Format.share(newest.completeness_ratio)} of the taps` : "";
  const early = newest && !newest.final ? ", provisional" : "";
  return { stale: false, text: `live${early}${part}` };
}

// frame returns the newest window as a frame of the signal model, or null if there is none.
export function frame(signal, level) {
  if (stored) return signal.frame(signal.model.windows.length - 1, 1);
  if (!newest || newest.signal !== signal.info.name) return null;
  if (columns?.signal !== signal || columns.level !== level) {
    const { columns: known, strange } = cells.under(signal.model, level);
    columns = { signal, level, ...known };
    // The next bundle will have the unknown names.
    if (strange) refreshed = Math.min(refreshed, performance.now() - REFRESH + SOON);
  }
  return new Frame(signal, columns);
}

// moment returns the start of the newest window in Unix ns, or null.
export function moment() {
  if (!stored) return newest && BigInt(Date.parse(newest.start)) * 1000000n;
  return App.model.windows.at(-1);
}

// when says at which time the newest window is: now, unless it is stale.
export const when = (utc) => (stale() && moment() !== null ? `at ${Format.time(moment(), App.model.step, utc, false)}, the last window` : "now");

// streamed reports whether the newest window comes from a stream.
export const streamed = () => stream !== null;

// caveats warns, above the details of a cell, that the newest window is stale.
export const caveats = (window) => (window === NOW && stale() ? [["stale", "no newer window has come"]] : []);

export const stale = () => active && document.body.classList.contains("stale");

export const on = () => active;
