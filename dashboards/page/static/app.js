// What the page shows, and how it changes. The state is one object; every change goes
// through show(), which draws once per animation frame.

import * as Address from "./address.js";
import * as Color from "./color.js";
import * as Detail from "./detail.js";
import * as Header from "./header.js";
import * as Live from "./live.js";
import { FabricMap } from "./map.js";
import { Matrix } from "./matrix.js";
import { LEVEL_FIELDS, Model } from "./model.js";
import { Palette } from "./palette.js";
import * as Panels from "./panels.js";
import { find } from "./panels.js";
import * as Source from "./source.js";
import { Timeline } from "./timeline.js";

export const view = {
  signal: "", level: "location", window: -1, highlight: -1, cell: null, chosen: null, utc: false, theme: "dark",
  colors: "auto", range: "all", from: "", to: "", step: "", live: false,
};
export const matrices = [new Matrix(find("mean"), "mean"), new Matrix(find("mode"), "mode")];
export const timeline = new Timeline(find("timeline"));
export const map = new FabricMap(find("map"));
const BLINK = 120; // ms
export const dark = window.matchMedia("(prefers-color-scheme: dark)");
export let model = null;
export let signal = null;
export let frame = null;
let player = 0;
let pending = 0;
export let waiting = false; // the frame that is drawn is not that of the window
let waitedSince = 0;
let direction = 1; // of who scrubs
const colors = new Map(); // of locations that were among the most heavily loaded, by id
let wanted = {}; // what an address asks of the data that comes next

// at is where a cell of two groups is in the matrices, and cellAt which cell is there.
const at = ({ src, dst }) => ({ row: src, column: dst });
export const cellAt = (place) => place && { src: place.row, dst: place.column };

const names = (cell) => [model.groups[cell.src].name, model.groups[cell.dst].name];

// open shows a bundle. What was selected before stays selected where it can.
export function open(bundle) {
  const last = model && view.window === model.windows.length - 1;
  const moment = model && view.window >= 0 ? model.windows[view.window] : null;
  const highlighted = model && view.highlight >= 0 ? model.locations[view.highlight].name : null;
  const chosen = view.chosen ? names(view.chosen) : null;
  model?.close();
  model = new Model(bundle, Source.fetchFrames, framesCame);
  if (!model.signal(view.signal)) {
    view.signal = bundle.data.length ? bundle.signals[bundle.data[0].signal].name : "";
  }
  if (!bundle.levels.includes(view.level)) view.level = bundle.levels[0];
  if (moment !== null) view.window = last ? model.windows.length - 1 : model.windows.indexOf(moment);
  view.highlight = model.locationNamed(highlighted);
  view.chosen = chosen && model.cellNamed(...chosen);
  view.cell = null;
  settle();
  find("main").hidden = !view.signal;
  if (view.signal) relayout();
}

// settle does what an address asked for and the data can give.
function settle() {
  const moment = Address.parse(wanted.t);
  if (moment !== null) view.window = model.windowAt(moment);
  if (wanted.src) view.chosen = model.cellNamed(wanted.src, wanted.dst);
  if (wanted.at) view.highlight = model.locationNamed(wanted.at);
  wanted = {};
}

// apply takes over the state that an address holds, where it makes sense. What it does
// not name is as on a fresh page.
export function apply(state) {
  wanted = state;
  view.signal = state.signal || view.signal;
  view.level = Object.hasOwn(LEVEL_FIELDS, state.level) ? state.level : "location";
  view.utc = state.utc === "1";
  view.colors = ["dark", "light"].includes(state.theme) ? state.theme : "auto";
  view.live = state.live === "1";
  view.step = state.step || "";
  view.from = view.to = "";
  view.range = state.range || "all";
  if (Address.parse(state.from) !== null && Address.parse(state.to) !== null) {
    [view.range, view.from, view.to] = ["fixed", state.from, state.to];
  }
  view.window = view.live ? Live.NOW : -1;
  view.highlight = -1;
  view.cell = view.chosen = null;
  paintPage();
}

// remember puts what is shown into the address. A moment or a cell would be another one
// in another range, so it comes with the range that it was seen in.
function remember() {
  const { windows, step, locations } = model;
  const [src, dst] = view.chosen ? names(view.chosen) : ["", ""];
  const pinned = !view.live && (view.range === "fixed" || view.window >= 0 || view.chosen);
  Address.write({
    signal: view.signal, level: view.level === "location" ? "" : view.level,
    range: pinned || view.range === "all" || view.range === "fixed" ? "" : view.range,
    from: pinned ? Address.moment(windows[0]) : "", to: pinned ? Address.moment(windows.at(-1) + BigInt(step)) : "",
    step: view.step, t: view.window >= 0 && !view.live ? Address.moment(windows[view.window]) : "",
    src, dst, at: view.highlight >= 0 ? locations[view.highlight].name : "",
    live: view.live ? "1" : "", theme: view.colors === "auto" ? "" : view.colors, utc: view.utc ? "1" : "",
  });
}

// relayout follows changes of data, signal, level, theme or size of the window.
export function relayout() {
  if (!model || !view.signal) return;
  signal = model.signal(view.signal);
  view.theme = view.colors === "auto" ? (dark.matches ? "dark" : "light") : view.colors;
  const scale = window.devicePixelRatio || 1;
  const panel = find("mean").parentElement;
  const width = panel.clientWidth - 28;
  // Beside each other they share the window's height with what is below; one below the
  // other each may be as tall as it is wide.
  const stacked = find("mode").parentElement.offsetTop > panel.offsetTop;
  const height = stacked ? width : Math.max(260, window.innerHeight - 446);
  const ranked = signal.byLocation(view.level);
  Palette.spread(model.locations, ranked, colors);
  const palette = new Palette(Color.theme(view.theme), model.locations);
  for (const m of matrices) {
    m.layout(model.groups, model.groups, { width, height: Math.max(Math.min(height, width), 120), scale });
    m.dress(palette);
  }
  const tallest = Math.max(panel.offsetHeight, find("mode").parentElement.offsetHeight);
  find("legend").parentElement.style.height = `${tallest}px`;
  Panels.legend(signal, ranked, view.highlight, highlight);
  find("map-panel").hidden = false; // to be measured
  find("map-panel").hidden = !map.layout(model, find("map-panel").clientWidth - 28, scale, view.theme);
  // The time heatmap takes what the window has left, and never less than ten rows.
  const taken = find("map-panel").hidden ? 0 : find("map-panel").offsetHeight + 12;
  const below = window.innerHeight - find("timeline").getBoundingClientRect().top - window.scrollY - 80 - taken;
  const shown = ranked.slice(0, Math.max(10, Math.floor(below / Timeline.ROW))).map((c) => c.location);
  timeline.layout(signal, view.level, shown, find("timeline").parentElement.clientWidth - 28, scale);
  Header.show({ view, model, signal, matrices, timeline, ranked });
  show();
}

export function show() {
  if (!pending) pending = requestAnimationFrame(drawAll);
}

export function drawAll() {
  if (pending) cancelAnimationFrame(pending);
  pending = 0;
  if (!signal) return; // a window may close before anything of it is stored
  const now = view.window === Live.NOW;
  const next = now ? Live.frame(signal, view.level) : signal.frame(view.window, direction);
  waiting = !next;
  waitedSince = waiting ? waitedSince || performance.now() : 0;
  if (next) frame = next;
  else if (frame?.signal !== signal) frame = signal.frame(-1);
  else if (performance.now() - waitedSince < BLINK) return linger();
  const marks = { waiting: waiting || (now && Live.stale()), highlight: view.highlight, pointer: view.cell && at(view.cell), chosen: view.chosen && at(view.chosen) };
  for (const m of matrices) m.draw(frame.cells(view.level), marks);
  timeline.draw(view);
  map.draw(frame, view, marks.waiting);
  Header.moment({ view, model, frame, waiting, map });
  Detail.show({ view, model, signal, frame, waiting });
  remember();
}

// linger leaves what is drawn for a moment: most of what is waited for comes sooner than
// an eye takes to see that it pales.
function linger() {
  setTimeout(show, BLINK);
  timeline.draw(view);
  Header.moment({ view, model, frame, waiting, map });
  remember();
}

// framesCame draws what was waited for.
function framesCame() {
  if (signal?.frames.strange) {
    signal.frames.strange = false;
    Source.refresh(); // groups or locations that are new since the bundle was made
  }
  if (waiting) show();
}

export function setWindow(index) {
  if (index === Live.NOW) return setNow();
  const next = Math.max(-1, Math.min(Math.trunc(index), model.windows.length - 1));
  direction = next < view.window ? -1 : 1;
  view.window = next;
  show();
}

// setNow shows the newest window, whichever it is.
function setNow() {
  view.window = Live.on() ? Live.NOW : model.windows.length - 1;
  show();
}

export function setSignal(name) {
  if (!model.bundle.signals.some((s) => s.name === name)) return;
  if (!model.signal(name)) return Source.fetchBundle(name, view.level).then(() => setSignal(name), () => {});
  view.signal = name;
  Live.restart();
  relayout();
}

export function setLevel(level) {
  if (!model.bundle.levels.includes(level)) {
    return Source.fetchBundle(view.signal, level).then(() => setLevel(level), () => {});
  }
  view.level = level;
  view.highlight = -1;
  Live.restart();
  relayout();
}

export function highlight(location) {
  view.highlight = view.highlight === location ? -1 : location;
  Panels.legend(signal, signal.byLocation(view.level), view.highlight, highlight);
  show();
}

export function setUTC(utc) {
  view.utc = utc;
  relayout();
}

// setColors takes "auto", "dark" or "light".
export function setColors(colors) {
  view.colors = colors;
  paintPage();
  relayout();
}

// paintPage gives all but the drawings the chosen colours.
function paintPage() {
  if (view.colors === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = view.colors;
  find("theme").textContent = view.colors;
}

export function play(on) {
  clearInterval(player);
  player = on ? setInterval(() => setWindow((Math.max(view.window, -1) + 1) % model.windows.length), 250) : 0;
  find("play").textContent = on ? "\u23f8" : "\u25b6";
  find("play").ariaLabel = on ? "Pause" : "Play";
}

// showCell points at a cell in both matrices and says beside it what is known of it.
export function showCell(matrix, cell, speak) {
  view.cell = cell;
  show();
  if (!cell) return Panels.hideTip();
  const box = matrix.canvas.getBoundingClientRect();
  const r = matrix.rect(at(cell));
  const known = frame.cell(cell.src, cell.dst, view.level);
  const rows = waiting ? [["state", "loading"]] : Panels.cellRows(known, signal);
  if (view.window === Live.NOW && Live.stale()) rows.unshift(["stale", "nothing newer has come"]);
  const heading = `${known.src} \u2192 ${known.dst}`;
  Panels.tip(heading, rows, { left: box.left + r.x, right: box.left + r.x + r.width, top: box.top + r.y });
  if (speak) Panels.say(heading, rows);
}

// choose keeps a cell in view wherever the pointer goes; null lets go of it.
export function choose(cell) {
  view.chosen = cell;
  relayout();
}

export const playing = () => player !== 0;
