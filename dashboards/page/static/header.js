// Text around the drawings: facts, titles, scales, the present time.

import * as App from "./app.js";
import { folds } from "./axes.js";
import * as Color from "./color.js";
import * as Format from "./format.js";
import * as Live from "./live.js";
import { STATES } from "./matrix.js";
import { LEVEL_FIELDS } from "./model.js";
import * as Panels from "./panels.js";
import { find } from "./panels.js";
import { Timeline } from "./timeline.js";

// show follows changes of data, signal, level or theme.
export function show({ view, model, signal, axes, matrices, timeline, ranked }) {
  const { bundle } = model;
  const { unit, direction } = signal.info;
  document.title = `csigscope${bundle.fabric ? ` \u2013 ${bundle.fabric}` : ""}`;
  find("fabric").textContent = bundle.fabric;
  find("mean-title").textContent = Panels.title(signal.info);
  for (const m of matrices) {
    m.canvas.ariaLabel = `${m.kind === "mean" ? Panels.title(signal.info) : "Mode of the bottleneck"}, source by destination group`;
  }
  find("ramp").style.background = Color.gradient(view.theme, "right");
  find("map-ramp").style.background = Color.gradient(view.theme, "right", 0.35);
  const { low, high, log } = signal.domain;
  const [calm, worst] = direction === "min" ? [high, low] : [low, high];
  find("scale-calm").textContent = Format.quantity(calm, unit);
  find("scale-worst").textContent = `${Format.quantity(worst, unit)}, worst${log ? " (log)" : ""}`;
  find("time-ramp").style.background = Color.gradient(view.theme, "right", Timeline.FAINTEST);
  find("time-high").textContent = Format.share(timeline.peak || 1);
  find("few-note").textContent = `fewer than ${bundle.min_observations}`;
  find("congested-note").textContent = Panels.rule(bundle);
  find("congested-word").textContent = Panels.definition(bundle);
  find("detail-lines").textContent = `Left axis: the mean. Right axis: the heavy share, with lines at ${Format.exactly(bundle.onset_ratio)} (congested from) and ${Format.exactly(bundle.clear_ratio)} (until below).`;
  const unjudged = signal.total.state.some((state) => STATES[state] === "not_judged");
  find("judge-note").textContent = unjudged ? `${Panels.meanings(signal).not_judged}.` : "";
  find("judge-word").textContent = signal.info.not_judged_hint;
  const zones = new Set([model.windows[0], model.windows.at(-1)].map((at) => Format.zone(at, view.utc)));
  const notes = ["share of each window's observations", `times in ${[...zones].join(" and ")}`];
  const rows = timeline.locations.length;
  if (ranked.length > rows) notes.push(`the first ${rows} of ${ranked.length} locations`);
  find("timeline-note").textContent = notes.join(", ");
  facts(view, model, signal);
  arrangement(view, model, axes, signal);
  Panels.tabs(bundle.signals, App.asked().signal, App.setSignal);
  Panels.levels(Object.keys(LEVEL_FIELDS), App.asked().level, App.setLevel);
  find("scrubber").max = model.windows.length - 1;
  find("zone").textContent = view.utc ? "Show local time" : "Show UTC";
  if (bundle.heavy_only) {
    Panels.banner("Rows below 1 s exist only where something was heavy: here, cells without data may be clear, and means lean to the heavy side.");
  }
}

// arrangement shows the matrices' arrangement in the controls.
function arrangement(view, model, axes, signal) {
  find("congested").checked = view.congested;
  find("sort").value = view.worst ? "worst" : "name";
  find("fold").checked = view.fold;
  const parents = [...new Set(model.groups.map((g) => g.parent).filter(Boolean))];
  find("fold-label").hidden = !folds(model.groups);
  find("fold-label").title = `One row and column for each of ${parents.length} groups: press a cell to see what it is made of`;
  find("widen").hidden = !view.focus;
  const some = (items) => `${items.reduce((n, item) => n + item.members.length, 0)} of ${model.size}`;
  const part = axes.rows.length && axes.columns.length ? `${some(axes.rows)} sources, ${some(axes.columns)} destinations` : signal.sum.observations ? "nothing is heavy in this range" : "no data in this range";
  find("arrangement").textContent = view.focus || view.congested ? part : "";
}

function facts(view, model, signal) {
  const { bundle } = model;
  const { sum } = signal;
  const share = (v) => Format.share(v / sum.observations);
  const end = model.end();
  const whole = ", whole range";
  Panels.facts([
    ["from", Format.time(model.windows[0], model.step, view.utc, true)],
    ["to", Format.time(end, model.step, view.utc, true)],
    ["window", Format.duration(model.step), bundle.resolution_ns ? `made from rows of ${Format.duration(bundle.resolution_ns)}` : ""],
    ["observations", Format.shortCount(sum.observations), `${Format.count(sum.observations)} of ${Panels.short(view.signal)}`, whole],
    ["heavy", share(sum.heavy), "share of heavy observations", whole],
    ["trimmed", share(sum.trimmed), "share of observations from trimmed packets", whole],
    ["untouched", share(sum.untouched), "share of observations that no hop updated", whole],
  ]);
}

// moment follows the present window.
export function moment({ view, model, frame, waiting, map }) {
  const whole = view.window === -1;
  const now = view.window === Live.NOW;
  const end = whole ? "at the end of the range" : now ? Live.when(view.utc) : "at the end of the window";
  const states = frame.states();
  if (!waiting) Panels.states(states, frame.signal, end);
  const calm = waiting ? "not known: the window is not loaded"
    : now && Live.stale() ? "not known now: nothing new has come"
      : map.blind ? "not known now at this level: choose the level location"
        : !(states.congested + states.brief + states.clear) ? `no ${states.no_data === frame.rows.length ? "data" : "cell is judged"} ${end}`
          : `no cell is congested ${end}${whole ? " (choose a window to see earlier ones)" : ""}`;
  find("map-note").textContent = map.most && !waiting ? `colour: the number of cells, congested ${end}, whose bottleneck it is` : calm;
  find("map-scale").hidden = !map.most;
  find("map-low").hidden = map.most === 1;
  find("map-high").textContent = map.most > 1 ? `${map.most} cells` : "1 cell";
  find("whole").ariaPressed = String(whole);
  find("now").hidden = !Live.on();
  find("now").ariaPressed = String(now);
  find("scrubber").classList.toggle("idle", view.window < 0);
  if (!whole) find("scrubber").value = now ? model.windows.length - 1 : view.window;
  find("when").textContent = when(view, model) + (waiting ? ", loading" : "");
  find("scrubber").ariaValueText = find("when").textContent;
}

function when(view, model) {
  if (view.window === -1) return `whole range, ${model.windows.length} window${model.windows.length === 1 ? "" : "s"}`;
  const now = view.window === Live.NOW;
  const start = now ? Live.moment() : model.windows[view.window];
  if (start === null) return "now";
  const time = Format.time(start, model.step, view.utc, true);
  return now ? `${Live.stale() ? "last window" : "now"}: ${time}` : `${time} \u00b7 ${view.window + 1} / ${model.windows.length}`;
}
