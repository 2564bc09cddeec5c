"use strict";

// The bundle as the drawings need it: frames of cells per signal and window, what a
// cell says, and the counts per location.
const LEVEL_FIELDS = { location: null, set: "set", device: "device_index", stage: "stage_index" };

class Model {
  constructor(bundle) {
    this.bundle = bundle;
    this.groups = bundle.groups;
    this.size = bundle.groups.length;
    this.locations = bundle.locations.map((l) => ({ ...l, rgb: Color.parse(l.color) }));
    this.windows = bundle.windows.map((text) => BigInt(text));
    this.step = bundle.step_ns;
    this.prepared = new Map();
  }

  // signal prepares the data of one signal once; null when the bundle has none.
  signal(name) {
    const index = this.bundle.signals.findIndex((s) => s.name === name);
    const data = this.bundle.data.find((d) => d.signal === index);
    if (!data) return null;
    if (!this.prepared.has(name)) {
      this.prepared.set(name, new SignalModel(this, this.bundle.signals[index], data));
    }
    return this.prepared.get(name);
  }

  // locationNamed and cellNamed are -1 and null for names that are not here.
  locationNamed(name) {
    return this.locations.findIndex((l) => l.name === name);
  }

  cellNamed(src, dst) {
    const [from, to] = [src, dst].map((name) => this.groups.findIndex((g) => g.name === name));
    return from < 0 || to < 0 ? null : { src: from, dst: to };
  }

  // windowAt is the window that holds a time (Unix ns, BigInt), -1 outside of all.
  windowAt(time) {
    const at = Number((time - this.windows[0]) / BigInt(this.step));
    return time < this.windows[0] || at >= this.windows.length ? -1 : at;
  }

  // lift is the index of the location that stands for another one at a level.
  lift(location, level) {
    const field = LEVEL_FIELDS[level];
    return field ? this.locations[location][field] : location;
  }
}

class SignalModel {
  constructor(model, info, data) {
    this.model = model;
    this.info = info;
    this.data = data;
    this.sum = data.sum;
    this.located = !["sum", "count"].includes(info.aggregation);
    this.starts = firstRows(data.cells.window, model.windows.length);
    this.seen = new Float64Array(model.windows.length);
    data.cells.window.forEach((w, i) => { this.seen[w] += data.cells.observations[i]; });
    this.domain = meanDomain(info, data, model.locations);
  }

  // frame holds the rows of one window, or of the whole range for -1.
  frame(window) {
    if (window < 0) return new Frame(this, this.data.total, 0, this.data.total.src.length);
    return new Frame(this, this.data.cells, this.starts[window], this.starts[window + 1]);
  }

  // severity places a mean on the ramp: 0 calm, 1 worst.
  severity(mean) {
    const { low, high, log } = this.domain;
    const at = log
      ? (Math.log(Math.max(mean, low)) - Math.log(low)) / (Math.log(high) - Math.log(low))
      : (mean - low) / (high - low || 1);
    const t = Math.min(Math.max(at, 0), 1);
    return this.info.direction === "min" ? 1 - t : t;
  }

  // byLocation counts heavy observations per location of a level, the most first.
  byLocation(level) {
    const { location, observations, heavy } = this.data.locations;
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

  // overTime are the heavy and all observations of the given locations of a level,
  // as rows of one number per window.
  overTime(level, locations) {
    const width = this.model.windows.length;
    const rows = new Map(locations.map((l) => [l, { heavy: new Float64Array(width), observations: new Float64Array(width) }]));
    const columns = this.data.locations;
    columns.location.forEach((l, i) => {
      const row = l < 0 ? undefined : rows.get(this.model.lift(l, level));
      if (!row) return;
      row.heavy[columns.window[i]] += columns.heavy[i];
      row.observations[columns.window[i]] += columns.observations[i];
    });
    return locations.map((l) => rows.get(l));
  }
}

class Frame {
  constructor(signal, columns, from, to) {
    this.signal = signal;
    this.columns = columns;
    this.from = from;
    this.to = to;
    const size = signal.model.size;
    this.rows = new Int32Array(size * size).fill(-1);
    for (let i = from; i < to; i++) this.rows[columns.src[i] * size + columns.dst[i]] = i;
  }

  row(src, dst) {
    return this.rows[src * this.signal.model.size + dst];
  }

  // state counts only observations that measured the whole path: where most packets
  // were trimmed, little was measured, and "clear" would be a guess.
  state(row) {
    if (row < 0) return "none";
    const measured = this.columns.observations[row] - this.columns.trimmed[row];
    if (measured < this.signal.model.bundle.min_observations) return "few";
    return this.columns.heavy[row] > 0 ? "congested" : "clear";
  }

  trimmed(row) {
    return this.columns.trimmed[row] > 0.01 * this.columns.observations[row];
  }

  mode(row, level) {
    return row < 0 ? -1 : this.columns.modes[level].mode[row];
  }

  states() {
    const counts = { congested: 0, clear: 0, few: 0, none: 0 };
    for (const row of this.rows) counts[this.state(row)]++;
    return counts;
  }

  // cell is everything that is known of one cell, for people to read.
  cell(src, dst, level) {
    const row = this.row(src, dst);
    const { model } = this.signal;
    const out = { state: this.state(row), src: model.groups[src].name, dst: model.groups[dst].name };
    if (row < 0) return out;
    const c = this.columns;
    const modes = c.modes[level];
    const place = (index, votes) => (index < 0 ? null : {
      location: model.locations[index], votes, share: votes / c.heavy[row],
    });
    return Object.assign(out, {
      mean: c.mean[row], min: c.min[row], max: c.max[row], kind: c.kind[row] === 2 ? "reflections" : "tags",
      observations: c.observations[row], heavy: c.heavy[row], untouched: c.untouched[row], trimmed: c.trimmed[row],
      mode: place(modes.mode[row], modes.mode_count[row]),
      runnerUp: place(modes.runner_up[row], modes.runner_up_count[row]),
    });
  }
}

// firstRows are the offsets of each window's rows in a column sorted by window.
function firstRows(column, windows) {
  const starts = new Int32Array(windows + 1);
  for (const w of column) starts[w + 1]++;
  for (let w = 0; w < windows; w++) starts[w + 1] += starts[w];
  return starts;
}

// meanDomain is the range of the colour scale, the same for all windows so that
// colours compare over time. Delays span decades and take a logarithmic scale.
function meanDomain(info, data, locations) {
  if (info.unit === "ratio") return { low: 0, high: 1, log: false };
  let low = Infinity;
  let high = 0;
  for (const column of [data.cells.mean, data.total.mean]) {
    for (const v of column) {
      if (v === null) continue;
      high = Math.max(high, v);
      if (v > 0) low = Math.min(low, v);
    }
  }
  if (info.unit === "bit/s") {
    const capacity = Math.max(0, ...locations.map((l) => l.capacity_bps || 0));
    return { low: 0, high: Math.max(high, capacity) || 1, log: false };
  }
  if (high / low > 10) return { low, high, log: true };
  return { low: 0, high: high || 1, log: false };
}
