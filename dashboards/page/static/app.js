// The page's state and its changes. The state is one object; every change calls show(), which draws
// once per animation frame.

import * as Address from "./address.js";
import { Axes, folds } from "./axes.js";
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
import * as Verdict from "./verdict.js";

export const view = {
  signal: "", level: "location", window: -1, highlight: -1, cell: null, chosen: null, utc: false, theme: "dark",
  congested: false, worst: false, fold: false, focus: null, marked: [], selection: null, colors: "auto", range: "all", from: "", to: "", step: "", live: false,
};
export const matrices = [new Matrix(find("mean"), "mean"), new Matrix(find("mode"), "mode")];
export const timeline = new Timeline(find("timeline"));
export const map = new FabricMap(find("map"));
const BLINK = 120; // ms
const narrow = window.matchMedia("(max-width: 1000px)");
export const dark = window.matchMedia("(prefers-color-scheme: dark)");
export let model = null;
export let signal = null;
export let frame = null;
let ports = null; // frame of the map, at the level location
export let axes = null;
export let cells = null; // of the frame, on the axes
let player = 0;
let pending = 0;
export let waiting = false; // the drawn frame is not yet that of the window
let waitedSince = 0;
let direction = 1; // of scrubbing
const colors = new Map(); // by id: colors of locations that were among those with the most heavy observations
let wanted = {}; // state requested for the next data: by an address, or a signal, a level, a statement of the verdict

const names = (cell) => [model.groups[cell.src].name, model.groups[cell.dst].name];

// asked returns the signal and the level of the next data.
export const asked = () => ({ signal: wanted.signal || view.signal, level: wanted.level || view.level });

// open shows a bundle. Earlier selections stay if they exist in it.
export function open(bundle) {
  const { signal: shown, level } = view;
  const last = model && view.window === model.windows.length - 1;
  const moment = model && view.window >= 0 ? model.windows[view.window] : null;
  const highlighted = model && view.highlight >= 0 ? model.locations[view.highlight].name : null;
  const chosen = view.chosen ? names(view.chosen) : null;
  const focus = view.focus && [view.focus.rows, view.focus.columns].map((list) => list.map((i) => model.groups[i].name));
  const marked = view.marked.map(names);
  model?.close();
  model = new Model(bundle, Source.fetchFrames, framesCame);
  if (!model.signal(view.signal)) {
    view.signal = bundle.data.length ? bundle.signals[bundle.data[0].signal].name : "";
  }
  view.level = model.level;
  if (moment !== null) view.window = last ? model.windows.length - 1 : model.windowAt(moment);
  view.highlight = view.level === level ? model.locationNamed(highlighted) : -1;
  view.chosen = chosen && model.cellNamed(...chosen);
  view.selection = null;
  if (focus) focusOn(...focus.map((list) => list.map((name) => model.groups.findIndex((g) => g.name === name)).filter((i) => i >= 0)), marked.map((pair) => model.cellNamed(...pair)).filter(Boolean));
  settle();
  find("main").hidden = !view.signal;
  find("loading").hidden = true;
  if (view.signal) relayout();
  Verdict.ask(model, view.signal !== shown || view.level !== level);
}

// settle applies the requested state, as far as the data allows.
function settle() {
  const moment = Address.parse(wanted.t);
  if (moment !== null) view.window = model.windowAt(moment);
  if (wanted.src) view.chosen = model.cellNamed(wanted.src, wanted.dst);
  if (wanted.at) view.highlight = model.locationNamed(wanted.at);
  if (wanted.statement) focusOnCells(wanted.statement);
  wanted = {};
}

// giveUp keeps the shown signal and level after a failure to load others. A page without data asks again, and so does
// one whose address asks for others.
export function giveUp() {
  const { signal: name, level } = asked();
  if (!model || (name === view.signal && level === view.level)) return;
  if (!wanted.linked) {
    if (wanted.statement) forgetStatement();
    delete wanted.signal;
    delete wanted.level;
  }
  relayout();
}

// apply applies the valid parts of an address's state. Missing parts get the defaults of a new
// page.
export function apply(state) {
  wanted = { ...state, linked: true, level: Object.hasOwn(LEVEL_FIELDS, state.level) ? state.level : "location" };
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
  view.chosen = view.focus = view.selection = null;
  view.marked = [];
  view.congested = state.only === "congested";
  view.worst = state.sort === "worst";
  view.fold = state.fold === "1";
  Verdict.forget();
  paintPage();
}

// remember writes the state into the address. A window or cell would mean something else in another
// range, so its range is included. An address whose data has not come stays.
function remember() {
  if (wanted.linked) return;
  const { windows, locations } = model;
  const { signal: name, level } = asked();
  const [src, dst] = view.chosen ? names(view.chosen) : ["", ""];
  const pinned = !view.live && (view.range === "fixed" || view.window >= 0 || view.chosen);
  Address.write({
    signal: name, level: level === "location" ? "" : level,
    range: pinned || view.range === "all" || view.range === "fixed" ? "" : view.range,
    from: pinned ? Address.moment(windows[0]) : "", to: pinned ? Address.moment(model.end()) : "",
    step: view.step, t: view.window >= 0 && !view.live ? Address.moment(windows[view.window]) : "",
    src, dst, at: view.highlight >= 0 ? locations[view.highlight].name : "",
    live: view.live ? "1" : "", theme: view.colors === "auto" ? "" : view.colors, utc: view.utc ? "1" : "",
    only: view.congested ? "congested" : "", sort: view.worst ? "worst" : "", fold: view.fold ? "1" : "",
  });
}

// relayout follows changes of data, signal, level, theme or window size.
export function relayout() {
  if (!model || !view.signal) return;
  signal = model.signal(view.signal);
  Live.restart();
  view.theme = view.colors === "auto" ? (dark.matches ? "dark" : "light") : view.colors;
  const scale = window.devicePixelRatio || 1;
  const panel = find("mean").parentElement;
  const width = panel.clientWidth - 28;
  // Side by side, the matrices share the window's height with the panels below. One below the
  // other, each may be as tall as it is wide.
  const stacked = find("mode").parentElement.offsetTop > panel.offsetTop;
  const height = stacked ? width : Math.max(260, window.innerHeight - 520);
  const ranked = signal.byLocation(view.level);
  Palette.spread(model.locations, ranked, colors);
  if (!folds(model.groups)) view.fold = false;
  axes = new Axes(model.groups, signal.frame(-1).cells(view.level), view);
  cells = null;
  view.selection = null;
  if (view.cell && (view.cell.row >= axes.rows.length || view.cell.column >= axes.columns.length)) view.cell = null;
  const palette = new Palette(Color.theme(view.theme), model.locations);
  for (const m of matrices) {
    m.layout(axes.rows, axes.columns, { width, height: Math.max(Math.min(height, width), 120), scale });
    m.dress(palette);
  }
  const tallest = Math.max(panel.offsetHeight, find("mode").parentElement.offsetHeight);
  find("legend").parentElement.style.height = `${tallest}px`;
  Panels.legend(signal, ranked, lit(), highlight);
  find("map-panel").hidden = false; // to measure it
  find("map-panel").hidden = !map.layout(model, find("map-panel").clientWidth - 28, scale, view.theme);
  // The time heatmap uses the rest of the window's height, at least ten rows.
  const taken = find("map-panel").hidden ? 0 : find("map-panel").offsetHeight + 12;
  const below = window.innerHeight - find("timeline").getBoundingClientRect().top - window.scrollY - 80 - taken;
  const shown = ranked.slice(0, Math.max(10, Math.floor(below / Timeline.ROW))).map((c) => c.location);
  timeline.layout(signal, view.level, shown, find("timeline").parentElement.clientWidth - 28, scale);
  Header.show({ view, model, signal, axes, matrices, timeline, ranked });
  show();
}

export function show() {
  if (!pending) pending = requestAnimationFrame(drawAll);
}

export function drawAll() {
  if (pending) cancelAnimationFrame(pending);
  pending = 0;
  if (!signal) return; // a window may close before anything is stored
  const now = view.window === Live.NOW;
  const next = now ? Live.frame(signal, view.level) : signal.frame(view.window, direction);
  // A stream has modes of one level only.
  const own = view.level === "location" || !map.plan || (now && Live.streamed());
  const mapped = own ? next : signal.frame(now ? model.windows.length - 1 : view.window, direction, signal.mapped);
  waiting = !next || !mapped;
  waitedSince = waiting ? waitedSince || performance.now() : 0;
  if (!waiting) [frame, ports] = [next, mapped];
  else if (frame?.signal !== signal) frame = ports = signal.frame(-1);
  else if (performance.now() - waitedSince < BLINK) return linger();
  if (cells?.of !== frame) cells = { of: frame, ...axes.project(frame.cells(view.level)) };
  const marks = {
    waiting: waiting || (now && Live.stale()), highlight: lit(), pointer: view.cell, chosen: view.chosen && axes.at(view.chosen),
    marked: view.marked.map((cell) => axes.at(cell)).filter(Boolean), selection: view.selection,
  };
  for (const m of matrices) m.draw(cells, marks);
  timeline.draw(view, marks.highlight);
  map.draw(ports, view.level, marks);
  Header.moment({ view, model, frame, waiting, map });
  Detail.show({ view, model, signal, frame, waiting });
  Panels.retell();
  remember();
}

// linger keeps the present drawing for a moment, since most data arrives before a fade would be
// noticed.
function linger() {
  setTimeout(show, BLINK);
  timeline.draw(view, lit());
  Header.moment({ view, model, frame, waiting, map });
  remember();
}

// framesCame draws frames after they have arrived.
function framesCame() {
  if (signal?.frames.strange || signal?.mapped.strange) {
    signal.frames.strange = signal.mapped.strange = false;
    Source.refresh(true); // loads groups or locations that are newer than the bundle
  }
  if (waiting) show();
}

export function setWindow(index) {
  delete wanted.t;
  if (index === Live.NOW) return setNow();
  const next = Math.max(-1, Math.min(Math.trunc(index), model.windows.length - 1));
  direction = next < view.window ? -1 : 1;
  view.window = next;
  show();
}

// setNow shows the newest window and follows it; without live, it shows the newest one of the range.
function setNow() {
  view.window = Live.on() ? Live.NOW : (model?.windows.length ?? 0) - 1;
  show();
}

// setSignal and setLevel load another signal or level. It is shown once its data is there, unless something else is
// asked for before.
export function setSignal(name) {
  if (name === asked().signal || !model.bundle.signals.some((s) => s.name === name)) return;
  wanted.signal = name;
  Panels.tabs(model.bundle.signals, name, setSignal); // selects the pressed tab before its data arrives
  Source.refresh();
}

export function setLevel(level) {
  if (level === asked().level) return;
  wanted.level = level;
  Source.refresh();
}

// highlight marks the cells of a location; -1, or the same location again, ends that.
export function highlight(location) {
  delete wanted.at;
  if (wanted.statement) forgetStatement(); // it would highlight its own
  view.highlight = view.highlight === location ? -1 : location;
  Panels.legend(signal, signal.byLocation(view.level), lit(), highlight);
  show();
}

// lit returns the highlighted locations, null for none.
export const lit = () => model.lit(view.highlight, view.level);

export function setUTC(utc) {
  view.utc = utc;
  relayout();
}

// setColors sets the theme: "auto", "dark" or "light".
export function setColors(colors) {
  view.colors = colors;
  paintPage();
  relayout();
}

// paintPage applies the theme to everything except the drawings.
function paintPage() {
  if (view.colors === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = view.colors;
  find("theme").textContent = `Colours: ${view.colors}`;
}

export function play(on) {
  clearInterval(player);
  player = on ? setInterval(() => setWindow((Math.max(view.window, -1) + 1) % model.windows.length), 250) : 0;
  find("play").textContent = on ? "\u23f8" : "\u25b6";
  find("play").ariaLabel = on ? "Pause" : "Play";
}

// showCell highlights a cell in both matrices and shows its details in a tooltip.
export function showCell(matrix, cell, speak) {
  view.cell = cell;
  show();
  if (cell) Panels.tip(() => view.cell && describe(matrix, view.cell), speak);
  else Panels.hideTip();
}

function describe(matrix, cell) {
  const box = matrix.canvas.getBoundingClientRect();
  const r = matrix.rect(cell);
  const { rows: sources, columns: destinations } = axes.groups(cell);
  const one = sources.length === 1 && destinations.length === 1;
  const rows = waiting ? [["state", "loading"]]
    : one ? Panels.cellRows(frame.cell(sources[0], destinations[0], view.level), signal)
      : Panels.foldRows(cells, cell.row * axes.columns.length + cell.column, sources.length * destinations.length, model);
  rows.unshift(...Live.caveats(view.window));
  const heading = Panels.pair(axes.rows[cell.row].name, axes.columns[cell.column].name);
  return [heading, rows, { left: box.left + r.x, right: box.left + r.x + r.width, top: box.top + r.y }];
}

// press selects the cell at a row and column, or opens the groups of a folded cell.
export function press(at) {
  if (!at) return;
  const { rows, columns } = axes.groups(at);
  if (rows.length === 1 && columns.length === 1) return choose({ src: rows[0], dst: columns[0] });
  view.fold = false;
  zoom({ from: at, to: at });
}

// choose selects a cell and keeps its details open; null closes them. On narrow screens it scrolls
// to the details below the matrices.
export function choose(cell) {
  delete wanted.src;
  view.chosen = cell;
  relayout();
  if (!cell || !narrow.matches) return;
  drawAll(); // also shows the details
  find("detail").scrollIntoView({ block: "start" });
}

// zoom shows only the groups in a rectangle of cells.
export function zoom({ from, to }) {
  const between = (items, a, b) => items.slice(Math.min(a, b), Math.max(a, b) + 1).flatMap((item) => item.members);
  forgetStatement();
  focusOn(between(axes.rows, from.row, to.row), between(axes.columns, from.column, to.column), []);
  relayout();
}

// widen shows all groups again.
export function widen() {
  forgetStatement();
  view.focus = null;
  view.marked = [];
  relayout();
}

// arrange changes the rows and columns; congested, worst and fold are as in Axes.
export function arrange(change) {
  Object.assign(view, change);
  relayout();
}

function forgetStatement() {
  delete wanted.statement;
  Verdict.forget();
}

function focusOn(rows, columns, marked) {
  view.focus = rows.length && columns.length ? { rows, columns } : null;
  view.marked = view.focus ? marked : [];
}

// showStatement shows only the cells of a verdict statement, for the signal that is most affected, once its data is
// there; null shows all cells again.
export function showStatement(statement) {
  delete wanted.at;
  if (!statement) {
    view.highlight = -1;
    return widen();
  }
  wanted.statement = statement;
  if (statement.signals.length) setSignal(statement.signals[0].signal);
  if (asked().signal !== view.signal) return; // settle shows them
  delete wanted.statement;
  focusOnCells(statement);
  relayout();
}

function focusOnCells({ cells: suffering, locations }) {
  const marked = suffering.map(({ src, dst }) => model.cellNamed(src, dst)).filter(Boolean);
  const distinct = (list) => [...new Set(list)].sort((a, b) => a - b);
  focusOn(distinct(marked.map((c) => c.src)), distinct(marked.map((c) => c.dst)), marked);
  view.fold = false;
  view.highlight = locations.length === 1 ? model.locationNamed(locations[0]) : -1;
}

export const playing = () => player !== 0;
