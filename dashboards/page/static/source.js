// Requests bundles and frames from the API.

import * as App from "./app.js";
import * as Live from "./live.js";
import * as Panels from "./panels.js";
import { find } from "./panels.js";
import * as Token from "./token.js";

const SHORT = "300"; // s, range shown with the newest window
let request = null; // for a bundle, under way

// refresh requests the signal and the level that the page asks for, over the selected range, and opens the
// result. A newer request aborts an older one. A quiet one shows no loading state and leaves an older one alone.
export async function refresh(quiet = false) {
  if (quiet && request) return;
  request?.abort();
  request = new AbortController();
  const { signal: aborted } = request;
  const { signal, level } = App.asked();
  if (!quiet && App.model) Panels.busy(`Loading ${signal ? Panels.short(signal) : "the range"}\u2026`);
  try {
    const extent = await ask("api/v1/extent", {}, aborted);
    if (extent.empty) throw new Error(await nothing(aborted));
    const note = offerSteps(extent.resolutions_ns);
    const bundle = await ask("api/v1/bundle", question(extent, signal, level), aborted);
    Panels.banner(note);
    App.open(bundle);
  } catch (error) {
    if (aborted.aborted) return;
    find("loading").hidden = true;
    Panels.banner(error.message);
    App.giveUp();
  } finally {
    if (!aborted.aborted) {
      request = null;
      Panels.busy("");
    }
  }
}

const NAMED = 5; // maximum number of silent taps that are named

// nothing says why there is nothing to show yet, and what to do. While the page is live, it asks again
// by itself.
async function nothing(aborted) {
  const { source, age_s: age, expected_producers: taps, missing_producers: silent = [] } = await ask("api/v1/health", {}, aborted);
  const { live } = App.view;
  if (source !== "memory") return `Nothing is stored yet: run csigscope collect or replay${live ? "" : ", then reload the page"}.`;
  const tick = live ? "" : " Tick live to see the first window.";
  if (age !== undefined) return `Nothing is stored yet: the first rows are on their way.${tick}`;
  const names = [...silent.slice(0, NAMED), ...(silent.length > NAMED ? ["\u2026"] : [])].join(", ");
  const all = silent.length ? `: ${taps > 1 ? `all ${taps} taps are` : "the only tap is"} silent (${names})` : "";
  return `No tag or reflection has come yet${all}.${tick}`;
}

const UNITS = { ms: 1e6, s: 1e9, m: 6e10, h: 36e11 }; // in ns, of the values of #step

// offerSteps hides the lengths of windows that the store's rows cannot be merged into. If the chosen one
// is among them, it chooses automatic windows and returns a sentence that says so.
function offerSteps(resolutions) {
  for (const option of find("step").options) {
    const [, number, unit] = option.value.match(/^(\d+)(\w+)$/) || [];
    option.hidden = option.disabled = Boolean(unit) && !resolutions.some((r) => (number * UNITS[unit]) % r === 0);
  }
  const [{ disabled, text }] = find("step").selectedOptions;
  if (!disabled) return "";
  find("step").value = App.view.step = "";
  return `No rows are stored for windows of ${text}: the length of the windows is automatic.`;
}

// question returns the request for the state's range and step.
function question(extent, signal, level) {
  const { range, from, to, step } = App.view;
  const query = { signal: extent.signals.some((s) => s.name === signal) ? signal : extent.signals[0].name, level: [...new Set(["location", level || "location"])].join() };
  if (step) query.step = step;
  if (range === "fixed") return { ...query, from, to };
  if (Number(range) > 0) {
    const begin = BigInt(extent.last_ns) - BigInt(Math.trunc(Number(range))) * 1000000000n;
    query.from = String(begin > BigInt(extent.first_ns) ? begin : extent.first_ns);
  }
  return query;
}

// fetchFrames returns the frames of some windows of the open model, for all cells or one.
export async function fetchFrames(signal, level, from, to, lean, cell, aborted) {
  const { windows, step } = App.model;
  const query = { signal, level, from: String(windows[from]), to: String(App.model.end(to - 1)), step: `${step}ns`, fields: lean ? "lean" : "all", ...cell };
  return (await answer("api/v1/frames", query, aborted)).arrayBuffer();
}

export const ask = async (path, query, aborted) => (await answer(path, query, aborted)).json();

async function answer(path, query, aborted) {
  let response;
  try {
    response = await Token.request(`${path}?${new URLSearchParams(query)}`, { signal: aborted });
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // fetch failures are TypeErrors
    throw new Error("The server does not answer: the numbers on this page may be old.");
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Error(problem.detail || `The server answered ${response.status}.`);
}

// follow starts or stops following the newest window.
function follow(on) {
  App.view.live = on;
  if (on && ["all", "fixed"].includes(App.view.range)) find("range").value = App.view.range = SHORT;
  if (on) Live.start();
  else Live.stop();
  if (on || App.view.window === Live.NOW) App.setWindow(Live.NOW);
  return refresh();
}

// navigate loads the data for a state that an address has set.
export function navigate() {
  const { view } = App;
  find("range").value = view.range;
  if (find("range").selectedIndex < 0) find("range").value = view.range = "all";
  find("step").value = view.step;
  if (find("step").selectedIndex < 0) find("step").value = view.step = "";
  find("follow").checked = view.live;
  return follow(view.live);
}

export function start() {
  Token.start();
  find("range").addEventListener("change", (event) => {
    App.view.range = event.target.value;
    refresh();
  });
  find("step").addEventListener("change", (event) => {
    App.view.step = event.target.value;
    refresh();
  });
  find("reload").addEventListener("click", () => refresh());
  find("follow").addEventListener("change", (event) => follow(event.target.checked));
  return navigate();
}
