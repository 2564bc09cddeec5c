import * as Color from "./color.js";
import { FrameCache } from "./frames.js";
import { STATES } from "./matrix.js";
import { domain, severity } from "./scale.js";

// A bundle in the form that the drawings need: frames of cells per signal and window, details of
// cells, and counts per location.
export const LEVEL_FIELDS = { location: null, set: "set", device: "device_index", stage: "stage_index", far_end: "far_end_index" };

const END_OF_TIME = 4291747200000000000n; // aggregate.EndOfTime

export class Model {
  // fetchFrames(signal, level, from, to, lean, cell, aborted) returns the cells of windows as
  // frames. changed is called after frames have arrived.
  constructor(bundle, fetchFrames, changed) {
    this.bundle = bundle;
    this.groups = bundle.groups;
    this.size = bundle.groups.length;
    this.locations = bundle.locations.map((l) => ({ ...l, rgb: Color.parse(l.color) }));
    this.groupIndex = new Map(this.groups.map((g, i) => [g.id, i]));
    this.locationIndex = new Map(this.locations.map((l, i) => [l.id, i]));
    this.windows = bundle.windows.map((text) => BigInt(text));
    this.step = bundle.step_ns;
    this.level = bundle.levels.at(-1); // of the matrices; location, which the map needs too, comes first
    this.fetchFrames = fetchFrames;
    this.changed = changed;
    this.prepared = new Map();
  }

  close() {
    for (const { frames, mapped } of this.prepared.values()) for (const cache of [frames, mapped]) cache.close();
  }

  // signal prepares the data of a signal once. It returns null if the bundle has none.
  signal(name) {
    const index = this.bundle.signals.findIndex((s) => s.name === name);
    const data = this.bundle.data.find((d) => d.signal === index);
    if (!data) return null;
    if (!this.prepared.has(name)) {
      this.prepared.set(name, new SignalModel(this, this.bundle.signals[index], data));
    }
    return this.prepared.get(name);
  }

  // locationNamed and cellNamed return -1 and null for unknown names.
  locationNamed(name) {
    return this.locations.findIndex((l) => l.name === name);
  }

  cellNamed(src, dst) {
    const [from, to] = [src, dst].map((name) => this.groups.findIndex((g) => g.name === name));
    return from < 0 || to < 0 ? null : { src: from, dst: to };
  }

  // windowAt returns the window that contains a time (Unix ns, BigInt), or -1.
  windowAt(time) {
    const at = Number((time - this.windows[0]) / BigInt(this.step));
    return time < this.windows[0] || at >= this.windows.length ? -1 : at;
  }

  // end returns the end of a window, by default the last one, but no time that the API refuses.
  end(window = this.windows.length - 1) {
    const end = this.windows[window] + BigInt(this.step);
    return end < END_OF_TIME ? end : END_OF_TIME;
  }

  // lift returns the index of the location that represents another one at a level.
  lift(location, level) {
    const field = LEVEL_FIELDS[level];
    return field ? this.locations[location][field] : location;
  }

  // lit returns the locations that a highlighted one stands for at a level: for a device, those of its
  // ports. It returns null for -1.
  lit(location, level) {
    if (location < 0) return null;
    const own = this.locations.flatMap((l, i) => (l.device_index === location ? [this.lift(i, level)] : []));
    return new Set([this.lift(location, level), ...own]);
  }
}

// columnsOf converts the columns of a bundle's cells to numbers; NaN means no value.
function columnsOf(cells) {
  const values = (list) => Float64Array.from(list, (v) => v ?? NaN);
  return {
    rows: cells.src.length, src: Uint16Array.from(cells.src), dst: Uint16Array.from(cells.dst), kind: Uint8Array.from(cells.kind),
    state: Uint8Array.from(cells.state), observations: Float64Array.from(cells.observations), samples: Float64Array.from(cells.samples), heavy: Float64Array.from(cells.heavy),
    trimmed: Float64Array.from(cells.trimmed), untouched: Float64Array.from(cells.untouched),
    mean: values(cells.mean), min: values(cells.min), max: values(cells.max), modes: cells.modes,
  };
}

class SignalModel {
  constructor(model, info, data) {
    this.model = model;
    this.info = info;
    this.sum = data.sum;
    this.located = !["sum", "count"].includes(info.aggregation);
    this.locations = data.locations;
    this.total = columnsOf(data.total);
    const cache = (level) => new FrameCache(this, level, (from, to, lean) => model.fetchFrames(info.name, level, from, to, lean || level !== model.level), model.changed);
    this.frames = cache(model.level);
    this.mapped = model.level === "location" ? this.frames : cache("location"); // for the map
    this.seen = new Float64Array(model.windows.length);
    data.locations.window.forEach((w, i) => { this.seen[w] += data.locations.observations[i]; });
    // A window's mean is always within the minimum and maximum of its cell.
    const { mean, min, max } = this.total;
    this.domain = domain(info.unit, [mean, min, max], Math.max(0, ...model.locations.map((l) => l.capacity_bps || 0)));
  }

  // frame returns one window, or the whole range for -1; null while it loads. The last frame is kept,
  // since it is redrawn on every pointer move.
  frame(window, direction, cache = this.frames) {
    if (window >= 0) cache.want(window, direction);
    const columns = window < 0 ? this.total : cache.get(window);
    if (columns && cache.last?.columns !== columns) cache.last = new Frame(this, columns);
    return columns ? cache.last : null;
  }

  // series returns one cell over time: for each window its frame and row, or nothing.
  async series(src, dst, aborted) {
    const out = [];
    const { model } = this;
    const cell = { src: model.groups[src].id, dst: model.groups[dst].id };
    const buffer = await model.fetchFrames(this.info.name, model.level, 0, model.windows.length, false, cell, aborted);
    const only = this.kinds()[src * model.size + dst] ? 2 : 1;
    for (const [w, columns] of FrameCache.decode(model, buffer, model.level).frames) {
      if (columns.kind[0] === only) out[w] = { frame: new Frame(this, columns), row: 0 };
    }
    return out;
  }

  // kinds returns, for each cell, whether it consists of reflections in this range.
  kinds() {
    if (!this.reflected) {
      const { size } = this.model;
      this.reflected = new Uint8Array(size * size);
      const { src, dst, kind } = this.total;
      for (let i = 0; i < src.length; i++) this.reflected[src[i] * size + dst[i]] = kind[i] === 2 ? 1 : 0;
    }
    return this.reflected;
  }

  // byLocation counts heavy observations per location of a level, most first.
  byLocation(level) {
    const { location, observations, heavy } = this.locations;
    const counts = new Map();
    location.forEach((l, i) => {
      if (l < 0) return;
      const at = this.model.lift(l, level);
      const c = counts.get(at) || { location: at, observations: 0, heavy: 0 };
      c.observations += observations[i];
      c.heavy += heavy[i];
      counts.set(at, c);
    });
    const name = (c) => this.model.locations[c.location].name;
    return [...counts.values()].filter((c) => c.heavy > 0)
      .sort((a, b) => b.heavy - a.heavy || (name(a) < name(b) ? -1 : 1));
  }

  // overTime returns the heavy and all observations of the given locations at a level, one number
  // per window.
  overTime(level, locations) {
    const width = this.model.windows.length;
    const rows = new Map(locations.map((l) => [l, { heavy: new Float64Array(width), observations: new Float64Array(width) }]));
    const columns = this.locations;
    columns.location.forEach((l, i) => {
      const row = l < 0 ? undefined : rows.get(this.model.lift(l, level));
      if (!row) return;
      row.heavy[columns.window[i]] += columns.heavy[i];
      row.observations[columns.window[i]] += columns.observations[i];
    });
    return locations.map((l) => rows.get(l));
  }
}

export class Frame {
  constructor(signal, columns) {
    this.signal = signal;
    this.columns = columns;
  }

  // rows returns the row of each cell, source by source; -1 for cells without data.
  get rows() {
    this.indexed ||= this.index();
    return this.indexed;
  }

  index() {
    const { signal, columns: { src, dst, kind } } = this;
    const { size } = signal.model;
    const rows = new Int32Array(size * size).fill(-1);
    const reflected = this.columns === signal.total ? null : signal.kinds();
    for (let i = 0; i < this.columns.rows; i++) {
      const at = src[i] * size + dst[i];
      // A cell that has tags anywhere in the range consists of tags: in windows without tags it has
      // no data. Cells of unknown groups appear with the next bundle.
      if (src[i] === FrameCache.UNKNOWN || dst[i] === FrameCache.UNKNOWN || (reflected && kind[i] === 2 && !reflected[at])) continue;
      rows[at] = i;
    }
    return rows;
  }

  row(src, dst) {
    return this.rows[src * this.signal.model.size + dst];
  }

  // state returns the server's state, which depends on the preceding windows and not only on the
  // frame's counts.
  state(row) {
    return row < 0 ? "no_data" : STATES[this.columns.state[row]];
  }

  // cells returns the matrices' cells, one for each pair of groups, with modes at a level.
  cells(level) {
    if (this.drawn?.level !== level) this.drawn = { level, cells: this.draw(level) };
    return this.drawn.cells;
  }

  draw(level) {
    const { rows, signal, columns: c } = this;
    const { length } = rows;
    const out = {
      state: new Uint8Array(length), severity: new Float32Array(length).fill(NaN), share: new Float32Array(length),
      location: new Int32Array(length).fill(-1), trimmed: new Uint8Array(length),
    };
    for (let at = 0; at < length; at++) {
      const row = rows[at];
      if (row < 0) continue;
      out.state[at] = c.state[row];
      if (c.mean[row] >= 0) out.severity[at] = severity(c.mean[row], signal.domain, signal.info.direction);
      out.share[at] = c.heavy[row] / c.observations[row];
      out.location[at] = this.place(row, level, "mode");
      out.trimmed[at] = c.trimmed[row] > 0.01 * c.observations[row] ? 1 : 0;
    }
    return out;
  }

  mode(row, level) {
    return row < 0 ? -1 : this.place(row, level, "mode");
  }

  // place returns the location in a column of modes, or -1.
  place(row, level, name) {
    const { [name]: column, places } = this.columns.modes[level];
    return places ? places[column[row]] : column[row];
  }

  states() {
    const counts = Object.fromEntries(STATES.map((state) => [state, 0]));
    for (const row of this.rows) counts[this.state(row)]++;
    return counts;
  }

  // cell returns all details of a cell, for people.
  cell(src, dst, level) {
    return this.describe(this.row(src, dst), src, dst, level);
  }

  describe(row, src, dst, level) {
    const { model } = this.signal;
    const out = { state: this.state(row), src: model.groups[src].name, dst: model.groups[dst].name };
    if (row < 0) return out;
    const c = this.columns;
    const modes = c.modes[level];
    // Lean frames have no counts of modes.
    const place = (name) => {
      const index = modes[name] ? this.place(row, level, name) : -1;
      const votes = modes[`${name}_count`]?.[row];
      const evidence = modes[`${name}_evidence`]?.[row];
      return index < 0 ? null : { location: model.locations[index], votes, share: votes / c.heavy[row], evidence };
    };
    return Object.assign(out, {
      mean: c.mean[row], min: c.min?.[row], max: c.max?.[row], kind: c.kind[row] === 2 ? "reflections" : "tags",
      observations: c.observations[row], samples: c.samples[row], heavy: c.heavy[row], untouched: c.untouched?.[row], trimmed: c.trimmed[row],
      mode: place("mode"), runnerUp: place("runner_up"),
    });
  }
}
