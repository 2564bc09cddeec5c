// Pointer, keyboard and controls: user actions become changes of the state.

import * as App from "./app.js";
import { view, matrices, timeline, map } from "./app.js";
import * as Format from "./format.js";
import * as Live from "./live.js";
import * as Panels from "./panels.js";
import { find } from "./panels.js";

const PAGE = 10;
let before = 0n; // start of the window that the whole range replaced, or Live.NOW
let keyed = false; // the highlighted cell was reached with the keyboard

// moves maps keys to steps between cells.
const moves = {
  ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
  PageUp: [-PAGE, 0], PageDown: [PAGE, 0], Home: [0, -Infinity], End: [0, Infinity],
};

function onMatrix(matrix) {
  const { canvas } = matrix;
  let from = null; // start of a drag
  let dragged = false; // suppresses the click at the end of a drag
  canvas.addEventListener("pointerdown", (event) => {
    dragged = false;
    from = event.pointerType === "mouse" && event.button === 0 ? matrix.hit(event.offsetX, event.offsetY) : null;
  });
  canvas.addEventListener("pointermove", (event) => {
    const to = matrix.hit(event.offsetX, event.offsetY);
    if (from && !(event.buttons & 1)) from = null;
    if (from && to && (to.row !== from.row || to.column !== from.column)) dragged = true;
    view.selection = from && to && dragged ? { from, to } : null;
    keyed = false;
    App.showCell(matrix, to, false);
  });
  canvas.addEventListener("pointerup", () => {
    from = null;
    if (view.selection) App.zoom(view.selection);
  });
  canvas.addEventListener("pointerleave", () => {
    from = view.selection = null;
    App.showCell(matrix, null, false);
  });
  canvas.addEventListener("blur", () => App.showCell(matrix, null, false));
  canvas.addEventListener("click", (event) => {
    if (!dragged) App.press(matrix.hit(event.offsetX, event.offsetY));
  });
  canvas.addEventListener("keydown", (event) => {
    if (modified(event)) return;
    const step = moves[event.key];
    if (event.key === "Enter") App.press(view.cell);
    if (!step) return;
    take(event);
    if (!matrix.rows.length || !matrix.columns.length) return;
    const at = view.cell || (view.chosen && App.axes.at(view.chosen)) || { row: 0, column: 0 };
    const move = (v, by, list) => Math.max(0, Math.min(list.length - 1, v + (view.cell ? by : 0)));
    keyed = true;
    App.showCell(matrix, { row: move(at.row, step[0], matrix.rows), column: move(at.column, step[1], matrix.columns) }, true);
  });
}

// leave clears, in order, the cell highlighted with the keyboard, the selected cell, the zoom, or the
// marked location. A tooltip at the pointer closes too.
function leave() {
  Panels.hideTip();
  const kept = view.cell && keyed;
  if (view.cell) App.showCell(matrices[0], null, false);
  if (kept) return;
  if (view.chosen) App.choose(null);
  else if (view.focus) App.widen();
  else if (view.highlight >= 0) App.highlight(-1);
}

const modified = (event) => event.ctrlKey || event.metaKey || event.altKey;

function take(event) {
  event.preventDefault();
  event.stopPropagation();
}

// moment describes a point of the time heatmap.
function moment(hit, at) {
  const { model, seen } = App.signal;
  const location = model.locations[timeline.locations[hit.index]];
  const row = timeline.rows[hit.index];
  if (!row || hit.window >= model.windows.length) return null;
  const all = seen[hit.window];
  const rows = all
    ? [["heavy here", `${Format.count(row.heavy[hit.window])}, ${Format.share(row.heavy[hit.window] / all)} of the window's observations`],
      ["naming it", `${Format.count(row.observations[hit.window])}, heavy or not`], ["in the window", `${Format.count(all)} observations`]]
    : [["state", "no data: nothing was observed"]];
  const heading = `${location.name} \u00b7 ${Format.clock(model.windows[hit.window], model, view.utc)}`;
  return [heading, rows, at];
}

function onTimeline() {
  const { canvas } = timeline;
  let index = 0; // row with the keyboard focus
  canvas.addEventListener("click", (event) => {
    const hit = timeline.hit(event.offsetX, event.offsetY);
    if (hit) App.setWindow(hit.window);
  });
  canvas.addEventListener("pointerleave", Panels.hideTip);
  canvas.addEventListener("blur", Panels.hideTip);
  canvas.addEventListener("pointermove", (event) => {
    const hit = timeline.hit(event.offsetX, event.offsetY);
    if (!hit) return Panels.hideTip();
    Panels.tip(() => moment(hit, { left: event.clientX, right: event.clientX, top: event.clientY }));
  });
  canvas.addEventListener("keydown", (event) => {
    const step = moves[event.key];
    if (!step || modified(event) || !timeline.locations.length) return;
    take(event);
    const last = App.model.windows.length - 1;
    index = Math.max(0, Math.min(timeline.locations.length - 1, index + step[0]));
    App.setWindow(Math.max(0, Math.min(last, (view.window === Live.NOW ? last : Math.max(view.window, 0)) + step[1])));
    const box = canvas.getBoundingClientRect();
    const at = timeline.place(view.window, index);
    const hit = { window: view.window, index };
    Panels.tip(() => moment(hit, { left: box.left + at.x, right: box.left + at.x, top: box.top + at.y }), true);
  });
}

function onMap() {
  const { canvas } = map;
  let at = { row: 0, index: 0 }; // cell with the keyboard focus
  // locate returns the index of a location in the model that is drawn, or -1.
  const tell = (locate, left, top, speak) => Panels.tip(() => {
    const location = locate();
    return location >= 0 && [map.model.locations[location].name, map.about(location), { left, right: left, top }];
  }, speak);
  canvas.addEventListener("pointermove", (event) => tell(() => map.hit(event.offsetX, event.offsetY), event.clientX, event.clientY));
  canvas.addEventListener("pointerleave", Panels.hideTip);
  canvas.addEventListener("blur", Panels.hideTip);
  canvas.addEventListener("click", (event) => mark(map.hit(event.offsetX, event.offsetY)));
  canvas.addEventListener("keydown", (event) => {
    if (modified(event)) return;
    const { stages } = map.plan;
    const device = () => map.plan?.stages[at.row]?.devices[at.index];
    if (event.key === "Enter") mark(device().index);
    const step = moves[event.key];
    if (!step) return;
    take(event);
    const row = Math.max(0, Math.min(stages.length - 1, at.row + Math.sign(step[0])));
    at = { row, index: Math.max(0, Math.min(stages[row].devices.length - 1, at.index + step[1])) };
    const box = canvas.getBoundingClientRect();
    tell(() => device()?.index ?? -1, box.left + device().x + device().width / 2, box.top + device().y, true);
  });
}

// mark highlights a location at the present level.
function mark(location) {
  if (location >= 0) App.highlight(App.model.lift(location, view.level));
}

// The page's shortcuts do not apply to focused elements that use keys themselves. The drawings,
// the scrubber, and the chosen tab and level have no use for the space bar.
function keys(event) {
  if (document.querySelector("dialog[open]") || modified(event)) return;
  if (event.key === "?") return help();
  if (event.target.closest("select")) return;
  const free = ["w", "n", "Escape", ...(event.target.closest("canvas, [type=range], [type=radio], [aria-selected=true]") ? [" "] : [])];
  if (event.target.closest("input, select, button, canvas") && !free.includes(event.key)) return;
  const last = (App.model?.windows.length || 1) - 1;
  const actions = {
    ArrowLeft: () => App.setWindow(Math.max((view.window === Live.NOW ? last : view.window) - 1, 0)),
    ArrowRight: () => App.setWindow(view.window === Live.NOW ? Live.NOW : view.window + 1),
    Home: () => App.setWindow(0),
    End: () => App.setWindow(last),
    " ": () => App.play(!App.playing()),
    w: whole,
    n: () => App.setWindow(Live.NOW),
    Escape: leave,
  };
  if (!App.model || !actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}

// whole shows the whole range or, if it is shown, the window before it again.
function whole() {
  if (view.window === -1) return App.setWindow(before === Live.NOW ? Live.NOW : Math.max(App.model.windowAt(before), 0));
  before = view.window === Live.NOW ? Live.NOW : App.model.windows[view.window];
  App.setWindow(-1);
}

function help() {
  find("keyhelp").showModal();
  find("keyhelp").scrollTop = 0; // the button at its end has the focus
}

function controls() {
  find("scrubber").addEventListener("input", (event) => App.setWindow(Number(event.target.value)));
  find("play").addEventListener("click", () => App.play(!App.playing()));
  find("zone").addEventListener("click", () => App.setUTC(!view.utc));
  find("whole").addEventListener("click", whole);
  find("now").addEventListener("click", () => App.setWindow(Live.NOW));
  const next = { auto: "dark", dark: "light", light: "auto" };
  find("theme").addEventListener("click", () => App.setColors(next[view.colors]));
  find("congested").addEventListener("change", (event) => App.arrange({ congested: event.target.checked }));
  find("sort").addEventListener("change", (event) => App.arrange({ worst: event.target.value === "worst" }));
  find("fold").addEventListener("change", (event) => {
    view.fold = event.target.checked;
    App.widen();
  });
  find("widen").addEventListener("click", App.widen);
  document.addEventListener("pointerover", ({ target }) => {
    if (target instanceof HTMLElement && target.dataset.word) Panels.meaning(target);
  });
  find("detail-close").addEventListener("click", () => App.choose(null));
  find("help").addEventListener("click", help);
  find("keyhelp-close").addEventListener("click", () => find("keyhelp").close());
  document.addEventListener("keydown", keys);
  window.addEventListener("resize", App.relayout);
  App.dark.addEventListener("change", App.relayout);
}

export function start() {
  matrices.forEach(onMatrix);
  onTimeline();
  onMap();
  controls();
}
