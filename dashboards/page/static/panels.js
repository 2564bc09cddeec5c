// The text parts of the page: header, tabs, legend, tooltip. All text is inserted as text nodes,
// never as markup, since names come from files and the network.

import * as Format from "./format.js";
import { STATES as ORDER } from "./matrix.js";

const SIGNALS = {
  min_abw: ["min ABW", "Mean available bandwidth"],
  min_abw_ratio: ["min ABW/C", "Mean available bandwidth / capacity"],
  max_delay: ["max delay", "Mean of the maximum per-hop delay"],
  max_nqd: ["max nQD", "Mean of the maximum normalized queue depth"],
};
const STATES = { congested: "congested", brief: "brief", clear: "clear", too_few: "too few", not_judged: "not judged", no_data: "no data" };
const LEVELS = {
  location: "Ports, or the smallest set of them that a tag leaves possible", set: "Sets of ports, such as the uplinks of a leaf",
  device: "Switches", stage: "Stages of the fabric, such as leaf or spine", far_end: "All links into the same switch or host",
};

export const find = (id) => document.getElementById(id);

// words maps the terms in the help to their explanations.
const words = new Map([...find("words").querySelectorAll("dt")].map((term) => [term.textContent, term.nextElementSibling]));

// explain links an element to the explanation of its term in the help.
export function explain(item, name = item.textContent) {
  if (words.has(name)) item.dataset.word = name;
  return item;
}

// meaning sets the explanation as the tooltip of an element.
export function meaning(item) {
  item.title = words.get(item.dataset.word).textContent;
}

export function element(name, className, ...children) {
  const out = document.createElement(name);
  if (className) out.className = className;
  out.append(...children);
  return out;
}

// How hops aggregate the value of a configured signal type.
const AGGREGATIONS = {
  min: "the minimum of", max: "the maximum of", sum: "the sum over hops of", count: "the count of hops of",
};

export const short = (name) => (SIGNALS[name] || [name.replace(/[_:]/g, " ")])[0];

export function title(info) {
  if (SIGNALS[info.name]) return SIGNALS[info.name][1];
  const how = AGGREGATIONS[info.aggregation];
  return how ? `Mean of ${how} ${short(info.name)}` : `${short(info.name)}: no table gives it a value`;
}

// pair names a cell. Each name has its own direction: between two of a right-to-left script, the arrow
// would point from the destination to the source.
export const pair = (src, dst) => [element("bdi", "", src), " \u2192 ", element("bdi", "", dst)];

export function facts(pairs) {
  find("facts").replaceChildren(...pairs.map(([name, value, hint, range = ""]) => {
    const item = element("div", "", explain(element("dt", "", name + range), name), element("dd", "", value));
    if (hint) item.title = hint;
    return item;
  }));
}

export function tabs(signals, current, choose) {
  const before = document.activeElement?.dataset?.signal;
  find("signals").replaceChildren(...signals.map((s, i) => {
    const tab = explain(element("button", "", short(s.name)));
    tab.type = "button";
    tab.role = "tab";
    tab.dataset.signal = s.name;
    tab.ariaSelected = String(s.name === current);
    tab.tabIndex = s.name === current ? 0 : -1;
    tab.addEventListener("click", () => choose(s.name));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const to = signals[(i + step + signals.length) % signals.length].name;
      find("signals").querySelector(`[data-signal="${CSS.escape(to)}"]`).focus();
      choose(to);
    });
    return tab;
  }));
  find("signals").querySelector(`[data-signal="${CSS.escape(before || "")}"]`)?.focus();
}

export function levels(names, current, choose) {
  const box = find("levels");
  box.querySelectorAll("label").forEach((l) => l.remove());
  box.append(...names.map((name) => {
    const input = element("input");
    input.type = "radio";
    input.name = "level";
    input.checked = name === current;
    input.addEventListener("change", () => choose(name));
    const label = element("label", "", input, element("span", "", name.replace("_", " ")));
    label.title = LEVELS[name] || "";
    return label;
  }));
  box.hidden = names.length < 2;
}

// rule says when a cell is congested.
export function rule({ onset_ratio: onset, clear_ratio: clear }) {
  return `congested from ${Format.exactly(onset)} heavy until below ${Format.exactly(clear)}`;
}

// judges returns the length in ns of the windows that judge, if it differs from that of the verdict.
function judges({ bundle, windows, step }) {
  const length = bundle.resolution_ns;
  return length !== 0 && length !== (windows.length * step > 36e11 ? 6e10 : 1e9) && length;
}

// definition is the rule for somebody who does not know the word, with the windows that it judges. If
// their length is 0, they are those of the verdict.
export function definition({ onset_ratio: onset, clear_ratio: clear, resolution_ns: length }) {
  return `from a window with at least ${Format.exactly(onset)} heavy observations until one with less than ${Format.exactly(clear)}. `
    + `Here these are windows of ${length ? `${Format.duration(length)}; in the verdict windows of ` : ""}1 s, or of 1 min if the range is longer than an hour`;
}

// meanings explains the states of a signal's cells, and what to do about them.
export function meanings({ info, model: { bundle } }) {
  return {
    congested: rule(bundle), brief: "brief: something was heavy in the last 300 windows, but the cell is not congested at the end",
    clear: "clear: nothing was heavy in the last 300 windows",
    too_few: `too few samples: fewer than ${bundle.min_observations}, now and in each of the last 300 windows`, no_data: "no data: nothing was observed, or nothing in the last 300 windows",
    not_judged: `not judged: ${info.not_judged_hint}`,
  };
}

// states counts the cells by state; end says at which time.
export function states(counts, signal, end) {
  const about = meanings(signal);
  const length = judges(signal.model);
  find("states").replaceChildren(element("li", "end", `${end}${length ? `, judged by windows of ${Format.duration(length)}` : ""}:`), ...Object.entries(STATES).map(([state, name]) => {
    const item = element("li", state, element("b", "", Format.count(counts[state])), ` ${name}`);
    item.title = about[state];
    return item;
  }));
}

export function legend(signal, ranked, lit, choose) {
  const heavy = signal.sum.heavy || 1;
  find("legend-note").textContent = ranked.length ? "share of heavy observations in the whole range" : "";
  const items = ranked.map((c) => {
    const location = signal.model.locations[c.location];
    const bar = element("span", "share");
    bar.style.width = `${(100 * c.heavy) / ranked[0].heavy}%`;
    bar.style.background = location.color;
    const button = element("button", "", swatch(location), element("span", "name", location.name),
      element("span", "number", Format.share(c.heavy / heavy)), bar);
    button.type = "button";
    button.ariaPressed = String(Boolean(lit?.has(c.location)));
    button.title = `${place(location)}\n${Format.count(c.heavy)} heavy of ${Format.count(c.observations)} observations`;
    button.addEventListener("click", () => choose(c.location));
    return element("li", "", button);
  });
  if (!items.length) {
    items.push(element("li", "empty", signal.sum.heavy && !signal.located
      ? "Every hop adds to this signal, so that no single hop is the bottleneck."
      : signal.sum.observations ? "Nothing was heavy in this range." : "No data in this range."));
  }
  find("legend").replaceChildren(...items);
}

function place(location) {
  const parts = [location.name];
  const role = [location.stage, location.orientation].filter(Boolean).join(", ");
  if (role) parts.push(role);
  if (location.capacity_bps) parts.push(Format.quantity(location.capacity_bps, "bit/s"));
  return parts.join(" \u00b7 ");
}

// ofSet marks a share that belongs to a set of ports, which tags named.
export function ofSet(location, { level }) {
  return level === "location" && location.candidate_count > 1 ? ", of the set" : "";
}

// portsOf returns a row about the ports of a location, if they are several. Only those of the level
// location were named; above it, they are all that the location sums up.
export function portsOf({ candidates, candidate_count: count }, { level }, most, below, each = "") {
  if (!(count > 1)) return [];
  if (level !== "location") return [["stands for", `${count} ports; ${below}`]];
  const more = count > most ? ` and ${count - most} more` : "";
  return [["one of", candidates.slice(0, most).join(", ") + more + each]];
}

// by names the evidence for a location; evidence has the bits of aggregate.Evidence.
export function by(evidence) {
  if (evidence === undefined) return "";
  const words = ["its path", "its hash", "taps"].filter((_, i) => evidence >> i & 1);
  return `by ${words.join(" and ") || "its locator"}`;
}

export function cellRows(cell, signal) {
  const { unit } = signal.info;
  const rows = [["state", ["congested", "clear"].includes(cell.state) ? cell.state : meanings(signal)[cell.state]]];
  if (cell.state === "no_data") return rows;
  rows.push(["mean", Format.quantity(cell.mean, unit)]);
  if (cell.min >= 0 && cell.max >= 0) {
    rows.push(["min \u2026 max", `${Format.quantity(cell.min, unit)} \u2026 ${Format.quantity(cell.max, unit)}`]);
  }
  if (cell.mode) {
    const share = cell.mode.votes === undefined ? "" : `, ${Format.share(cell.mode.share)} of heavy${ofSet(cell.mode.location, signal.model)}`;
    rows.push(["mode", cell.mode.location.name + share, cell.mode.location]);
    // If other locations are named too, their ports may be more likely.
    const each = cell.mode.share === 1 ? `, ${Format.share(1 / cell.mode.location.candidate_count)} each` : "";
    rows.push(...portsOf(cell.mode.location, signal.model, 6, "press the cell for those named", each));
  }
  if (cell.runnerUp) {
    rows.push(["runner-up", `${cell.runnerUp.location.name}, ${Format.share(cell.runnerUp.share)} of heavy${ofSet(cell.runnerUp.location, signal.model)}`, cell.runnerUp.location]);
  }
  rows.push(["heavy", `${Format.share(cell.heavy / cell.observations)} of all`]);
  rows.push(["observations", `${Format.count(cell.observations)} ${cell.kind}`]);
  rows.push(["samples", Format.count(cell.samples)]);
  if (cell.untouched) rows.push(["untouched", Format.share(cell.untouched / cell.observations)]);
  rows.push(["trimmed", Format.share(cell.trimmed / cell.observations)]);
  return rows;
}

// foldRows returns the details of a folded cell.
export function foldRows(cells, at, count, model) {
  const rows = [["state", cells.state[at] ? `${STATES[ORDER[cells.state[at]]]}: the gravest of ${count} cells` : STATES.no_data]];
  if (!cells.state[at]) return rows;
  const location = model.locations[cells.location[at]];
  if (location) rows.push(["mode", `${location.name}, named by most`, location]);
  rows.push(["heavy", `${Format.share(cells.share[at])}, mean of its cells`], ["press", "shows its cells"]);
  return rows;
}

// swatch returns a location's color with its rank in the legend.
export function swatch({ color, ink, rank }) {
  const out = element("span", rank ? "swatch rank" : "swatch", rank && rank < 100 ? String(rank) : "");
  out.style.background = color;
  out.style.color = ink;
  return out;
}

let about = null; // of the shown tooltip

// tip shows what describe returns beside a rectangle of the viewport: a heading and rows of
// [name, value, location], or nothing. A screen reader speaks it if speak is set.
export function tip(describe, speak) {
  about = describe;
  const shown = retell();
  if (speak && shown) say(shown[1]);
}

// retell follows a change of the data that the tooltip describes.
export function retell() {
  const shown = about?.();
  if (!shown) {
    hideTip();
    return null;
  }
  const [heading, rows, near] = shown;
  const box = find("tip");
  const list = element("dl");
  for (const [name, value, location] of rows) {
    const text = element("dd", "", value);
    if (location) text.prepend(swatch(location));
    list.append(element("dt", "", name), text);
  }
  box.replaceChildren(element("strong", "", ...[heading].flat()), list);
  box.hidden = false;
  const gap = 14;
  const fits = near.right + gap + box.offsetWidth < window.innerWidth;
  box.style.left = `${fits ? near.right + gap : Math.max(4, near.left - gap - box.offsetWidth)}px`;
  box.style.top = `${Math.max(4, Math.min(near.top, window.innerHeight - box.offsetHeight - 8))}px`;
  return shown;
}

// say makes a screen reader speak the tooltip.
function say(rows) {
  find("spoken").textContent = `${find("tip").firstChild.textContent}: ${rows.map(([name, value]) => `${name} ${value}`).join(", ")}`;
}

export function hideTip() {
  about = null;
  find("tip").hidden = true;
}

// busy dims the page and says what it is loading; an empty text ends that.
export function busy(text) {
  find("busy").textContent = text;
  find("busy").hidden = !text;
  find("main").ariaBusy = String(Boolean(text));
}

export function banner(text) {
  find("banner").textContent = text;
  find("banner").hidden = !text;
}
