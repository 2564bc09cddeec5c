// Details of the selected cell: its bottleneck with the evidence, its timeline, the affected flows,
// and the findings on its path.

import * as Address from "./address.js";
import * as App from "./app.js";
import { Chart } from "./chart.js";
import * as Format from "./format.js";
import * as Live from "./live.js";
import * as Panels from "./panels.js";
import { find, element } from "./panels.js";
import * as Source from "./source.js";

const PATIENCE = 300; // ms of rest before flows and findings are requested
const ROWS = 8;
const chart = new Chart(find("detail-chart"), (window) => App.setWindow(window));
let shown = {}; // state of the present drawings
let series = null;
let asked = ""; // range of the present flows and findings
let portsOf = ""; // range of the present ports
let subject = ""; // cell, signal, level and window of the present lists
let request = null;
let timer = 0;
let portsTimer = 0;

// show follows every change of the page. state is the object from which App draws.
export function show(state) {
  const { view, model, signal } = state;
  find("detail").hidden = !view.chosen;
  if (!view.chosen) return reset();
  const { src, dst } = view.chosen;
  const same = shown.signal === signal && shown.src === src && shown.dst === dst;
  const dressed = shown.theme === view.theme && shown.utc === view.utc && shown.level === view.level && shown.width === find("detail-chart").clientWidth;
  const still = same && shown.window === view.window && shown.level === view.level;
  if (!same) asked = portsOf = "";
  const about = JSON.stringify([model.groups[src].name, model.groups[dst].name, signal.info.name, view.level, view.window]);
  if (about !== subject) for (const list of ["ports", "flows", "findings"]) fill(list, [], "\u2026", 0);
  subject = about;
  shown = { signal, src, dst, theme: view.theme, utc: view.utc, level: view.level, window: view.window, width: find("detail-chart").clientWidth };
  find("detail-title").replaceChildren(...Panels.pair(model.groups[src].name, model.groups[dst].name));
  if (!same) load(state);
  else if (series && !dressed) chart.show(signal, series, view);
  else if (!still) chart.follow();
  facts(state);
  if (!known(state)) return;
  const fixed = { ...state, view: { ...view } }; // the page may have moved on once it is asked for
  askPorts(fixed);
  ask(fixed);
}

function reset() {
  if (!shown.signal) return;
  request?.abort();
  clearTimeout(timer);
  clearTimeout(portsTimer);
  chart.clear();
  shown = {};
  series = null;
  asked = portsOf = "";
}

async function load({ view, signal }) {
  request?.abort();
  request = new AbortController();
  const { signal: aborted } = request;
  series = null;
  chart.clear();
  try {
    const got = await signal.series(view.chosen.src, view.chosen.dst, aborted);
    if (aborted.aborted) return;
    series = got;
    chart.show(signal, series, view);
    App.show();
  } catch (error) {
    if (error.name !== "AbortError") Panels.banner(error.message);
  }
}

// known returns the cell in the present window, with everything in the series.
function known({ view, signal, frame, waiting }) {
  const { src, dst } = view.chosen;
  const point = view.window >= 0 ? series?.[view.window] : null;
  if (point) return point.frame.describe(point.row, src, dst, view.level);
  return waiting ? null : frame.cell(src, dst, view.level);
}

function facts(state) {
  const { view, model, signal } = state;
  const cell = known(state);
  const rows = cell ? Panels.cellRows(cell, signal).filter(([name]) => !["mode", "runner-up", "one of", "stands for"].includes(name)) : [["state", "loading"]];
  rows.unshift(...Live.caveats(view.window));
  rows.push(["last window", lastWindow(model, view)]);
  find("detail-facts").replaceChildren(...rows.flatMap(([name, value]) => [Panels.explain(element("dt", "", name)), element("dd", "", value)]));
  find("detail-places").replaceChildren(...places(cell, model));
}

// lastWindow tells when the cell's last window with data ended.
function lastWindow(model, view) {
  if (!series) return "\u2026";
  const last = series.length - 1; // a sparse array ends at its last entry
  if (last < 0) return "none in this range";
  const end = model.end(last);
  const text = `ended ${Format.time(end, model.step, view.utc, true)}`;
  const age = Date.now() - Number(end / 1000000n);
  return age > 0 && age < 864e5 ? `${text}, ${Format.duration(age * 1e6)} ago` : text;
}

// places lists the mode, the runner-up and the rest, with their candidate ports.
function places(cell, model) {
  if (!cell?.heavy) return [element("li", "empty", !cell ? "\u2026" : cell.observations ? "Nothing was heavy." : "No data.")];
  const items = [["mode", cell.mode], ["runner-up", cell.runnerUp]].filter(([, place]) => place).map(([role, { location, share, evidence }]) => {
    const bar = element("span", "share");
    bar.style.width = `${100 * (share || 0)}%`;
    bar.style.background = location.color;
    const item = element("li", "", Panels.swatch(location), element("b", "", location.name), ` ${role}`,
      element("span", "number", Number.isFinite(share) ? Format.share(share) + Panels.ofSet(location, model) : ""), bar);
    const about = [location.stage, location.orientation, location.capacity_bps ? Format.quantity(location.capacity_bps, "bit/s") : ""];
    about.push(...Panels.portsOf(location, model, 12, "those named are below").map((row) => row.join(" ")), Panels.by(evidence));
    item.append(element("small", "", about.filter(Boolean).join(" \u00b7 ")));
    return item;
  });
  const others = 1 - (cell.mode?.share || 0) - (cell.runnerUp?.share || 0);
  if (cell.mode && others > 0.0005) items.push(element("li", "", "all others", element("span", "number", Format.share(others))));
  if (!items.length) items.push(element("li", "empty", "Every hop adds to this signal, so that no single hop is the bottleneck."));
  return items;
}

// ask requests flows and findings once the page rests.
function ask(state) {
  const question = `${state.view.level} ${state.view.window}`;
  if (asked === question) return;
  asked = question;
  clearTimeout(timer);
  timer = setTimeout(() => records(state, question, request.signal), PATIENCE);
}

// rangeOf returns the whole seconds from the first window to the last.
const rangeOf = (model, first, last) => Address.seconds(model.windows[first], model.end(last));

// askPorts requests the candidate ports of the bottleneck with their probabilities, once the page
// rests. They depend on data that the page does not have: how often each set of ports was named.
function askPorts(state) {
  const { view, model, signal } = state;
  const now = view.window === Live.NOW;
  const question = `${view.window} ${now ? Live.moment() : ""}`;
  if (portsOf === question) return;
  portsOf = question;
  clearTimeout(portsTimer);
  const [first, last] = view.window >= 0 ? [view.window, view.window] : [0, model.windows.length - 1];
  const rounded = [model.windows[first], model.end(last)].some((at) => at % 1000000000n) ? "in whole seconds" : "";
  find("detail-ports-note").textContent = now ? "" : rounded;
  find("detail-flows-note").textContent = now ? "in the whole range" : rounded;
  if (!signal.located || !known(state).heavy) return fill("ports", [], "None: nothing names a port here.", 0);
  portsTimer = setTimeout(() => ports(state, question, request.signal), PATIENCE);
}

async function ports({ view, model, signal }, question, aborted) {
  const last = model.windows.length - 1;
  const [first, end] = view.window >= 0 ? [view.window, view.window] : [view.window === Live.NOW ? last : 0, last];
  const when = view.window === Live.NOW && Live.streamed() ? [["windows", "1"]] : rangeOf(model, first, end);
  const cell = [["src", model.groups[view.chosen.src].name], ["dst", model.groups[view.chosen.dst].name]];
  try {
    const { cells } = await Source.ask("api/v1/cells", [["signal", signal.info.name], ["level", "location"], ...cell, ...when], aborted);
    if (portsOf === question) fill("ports", portItems(cells[0] || {}, model), "No port is known here: locations are raw locator metadata.", 0);
  } catch (error) {
    if (error.name !== "AbortError" && portsOf === question) fill("ports", [], error.message, 0);
  }
}

function portItems({ candidates = [], probabilities = [] }, model) {
  const items = candidates.map((name, i) => {
    const bar = element("span", "share");
    bar.style.width = `${100 * probabilities[i]}%`;
    bar.style.background = model.locations[model.locationNamed(name)]?.color || "currentcolor";
    return element("li", "", name, element("span", "number", Format.share(probabilities[i])), bar);
  });
  const rest = 1 - probabilities.reduce((sum, p) => sum + p, 0);
  if (items.length && rest > 0.0005) items.push(element("li", "", "ports that are not listed", element("span", "number", Format.share(rest))));
  return items;
}

async function records(state, question, aborted) {
  const { view, model, signal } = state;
  const cell = known(state);
  const places = [cell?.mode, cell?.runnerUp].filter(Boolean).map((p) => p.location);
  const last = view.window < 0 ? model.windows.length - 1 : view.window;
  const range = [...rangeOf(model, Math.max(view.window, 0), last), ["limit", String(ROWS)]];
  const [src, dst] = [model.groups[view.chosen.src].name, model.groups[view.chosen.dst].name];
  const devices = [...new Set(places.map((l) => l.device).filter(Boolean))];
  const load = async (path, query, list, row, nothing) => {
    try {
      const answer = await Source.ask(path, [...query, ...range], aborted);
      if (asked === question) fill(list, answer[list].map(row), nothing, answer.total);
    } catch (error) {
      if (error.name !== "AbortError" && asked === question) fill(list, [], error.message, 0);
    }
  };
  load("api/v1/flows", [["signal", signal.info.name], ["src", src], ["dst", dst]], "flows", flow, "No flow of this cell is stored in this range.");
  if (!devices.length) return fill("findings", [], "No device is named here that findings could be about.", 0);
  load("api/v1/findings", devices.map((d) => ["device", d]), "findings", finding, `No finding about ${devices.join(" or ")} is stored in this range. csigscope report looks for more kinds.`);
}

function fill(list, rows, nothing, total) {
  if (total > rows.length && rows.length) rows.push(element("li", "empty", `and ${Format.count(total - rows.length)} more`));
  find(`detail-${list}`).replaceChildren(...(rows.length ? rows : [element("li", "empty", nothing)]));
}

function flow(f) {
  const end = (address, port) => (address.includes(":") ? `[${address}]` : address) + (port ? `:${port}` : "");
  const heavy = Format.shortCount(f.heavy);
  // A row of a named flow counts only its heavy observations.
  const [name, about] = f.others
    ? ["everything else in these windows, also of named flows", [`observations: ${Format.shortCount(f.observations)}, heavy: ${heavy}`]]
    : [`${end(f.src_address, f.src_port)} \u2192 ${end(f.dst_address, f.dst_port)}`, [`heavy observations: ${heavy}`]];
  if (f.mode) about.push(`at ${f.mode.location}`);
  if (f.sampled) about.push(`estimated from ${Format.shortCount(f.sampled)} samples`);
  return element("li", "", name, element("small", "", about.join(", ")));
}

function finding(f) {
  const where = f.location || f.port || f.device;
  const about = [`${Format.count(f.count)} times`, where ? `at ${where}` : "", f.last ? "" : "at an unknown time", f.evidence || ""];
  return element("li", f.severity, `${f.kind} (${f.severity})`, element("small", "", about.filter(Boolean).join(", ")));
}

export const loaded = () => series !== null;

// data returns the chart's data, for tests.
export const data = () => chart.data();
