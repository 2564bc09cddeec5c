import * as Panels from "./panels.js";

// The cells of windows, which may be too many to fetch at once. Chunks of windows are fetched as
// columns of numbers (FramesHead of the query package) ahead of the scrubber, and evicted within a
// memory budget.
export class FrameCache {
  static BUDGET = 480 << 20; // bytes of cached columns
  static ROWS = 200000; // approximate cells per request
  static WHOLE = 2000000; // ranges with up to this many cells are fetched with all columns
  static PARALLEL = 2; // requests at a time
  static AHEAD = 6; // requests ahead in the direction of scrubbing
  static PATIENCE = 5000; // ms until a failed request is repeated

  // fetch(from, to, lean) returns the frames of the windows in [from, to), with modes at a level.
  constructor(signal, level, fetch, changed) {
    const windows = signal.model.windows.length;
    const cells = Math.max(signal.total.src.length, 1);
    this.signal = signal;
    this.level = level;
    this.fetch = fetch;
    this.changed = changed;
    this.size = Math.max(1, Math.min(60, Math.floor(FrameCache.ROWS / cells)));
    this.lean = cells * windows > FrameCache.WHOLE;
    this.count = Math.ceil(windows / this.size);
    this.chunks = new Map(); // by index, least recently used first
    this.loading = 0;
    this.bytes = 0;
    this.strange = false; // a frame has IDs that are not in the bundle
    this.target = { chunk: 0, direction: 1 };
  }

  // get returns a window's columns, or undefined if they are not loaded.
  get(window) {
    const index = Math.floor(window / this.size);
    const chunk = this.chunks.get(index);
    if (!chunk?.frames) return undefined;
    this.chunks.delete(index);
    this.chunks.set(index, chunk);
    return chunk.frames.get(window) || FrameCache.EMPTY;
  }

  // want requests a window and those likely to be viewed next.
  want(window, direction) {
    this.target = { chunk: Math.floor(window / this.size), direction: direction || 1 };
    this.pump();
  }

  pump() {
    while (!this.closed && this.loading < FrameCache.PARALLEL) {
      const index = this.next();
      if (index < 0) return;
      this.load(index);
    }
  }

  // next returns the next chunk to request, or -1 if all near ones are loaded.
  next() {
    const { chunk, direction } = this.target;
    const order = Array.from({ length: FrameCache.AHEAD + 1 }, (_, i) => chunk + i * direction);
    order.push(chunk - direction);
    const missing = (i) => i >= 0 && i < this.count
      && (!this.chunks.has(i) || this.chunks.get(i).failed < performance.now() - FrameCache.PATIENCE);
    return order.find(missing) ?? -1;
  }

  async load(index) {
    const chunk = { frames: null, bytes: 0, failed: Infinity };
    this.chunks.set(index, chunk);
    this.loading++;
    const end = Math.min((index + 1) * this.size, this.signal.model.windows.length);
    try {
      const buffer = await this.fetch(index * this.size, end, this.lean);
      if (this.closed) return;
      const { frames, strange } = FrameCache.decode(this.signal.model, buffer, this.level);
      chunk.frames = frames;
      this.strange ||= strange;
      chunk.bytes = buffer.byteLength;
      this.bytes += buffer.byteLength;
      this.forget(index);
    } catch (error) {
      chunk.failed = performance.now();
      if (!this.closed) Panels.banner(error.message);
    } finally {
      this.loading--;
    }
    this.changed();
    this.pump();
  }

  // forget evicts the least recently used chunks, but not the newest one.
  forget(newest) {
    for (const [index, chunk] of this.chunks) {
      if (this.bytes <= FrameCache.BUDGET) return;
      if (index === newest || !chunk.frames) continue;
      this.bytes -= chunk.bytes;
      this.chunks.delete(index);
    }
  }

  close() {
    this.closed = true;
    this.chunks.clear();
  }

  // decode returns the columns of each window, with modes at a level, and whether they have IDs that
  // the model lacks. Columns are views of the buffer.
  static decode(model, buffer, level) {
    let strange = false;
    const know = (index, none) => (id) => {
      const at = index.get(id) ?? none;
      strange ||= at === none;
      return at;
    };
    const list = FrameCache.read(buffer, know(model.groupIndex, FrameCache.UNKNOWN), know(model.locationIndex, -1), level);
    const frames = new Map();
    for (const { window, columns } of list) {
      const at = model.windowAt(window);
      if (at >= 0) frames.set(at, columns);
    }
    return { frames, strange };
  }

  // read returns the frames of a buffer. group and location map IDs to indexes; modes are at a
  // level.
  static read(buffer, group, location, level) {
    const length = new DataView(buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    if (head.version !== 1) throw new Error("The page and the server are of different versions: load the page again.");
    const start = 4 + length;
    const groups = head.groups.map(group);
    const places = Int32Array.from([-1, ...head.locations.map(location)]);
    const layouts = head.layouts.map(({ rows, src, dst }) => {
      const ends = [src, dst].map((at) => new Uint16Array(buffer, start + at, rows));
      for (const column of ends) for (let i = 0; i < rows; i++) column[i] = groups[column[i]];
      return { rows, src: ends[0], dst: ends[1] };
    });
    return head.frames.map((f) => {
      const columns = FrameCache.columns(f, layouts[f.layout], buffer, start, level);
      columns.modes[level].places = places;
      return { window: BigInt(f.window), columns };
    });
  }

  static columns(frame, { rows, src, dst }, buffer, start, level) {
    const column = (name) => {
      const c = frame.columns[name];
      if (!c) return null;
      return c.type ? new FrameCache.TYPES[c.type](buffer, start + (c.at || 0), rows) : constant(c.value || 0, rows);
    };
    const modes = {
      mode: column("mode"), mode_count: column("mode_count"), mode_evidence: column("mode_evidence"),
      runner_up: column("runner_up"), runner_up_count: column("runner_up_count"), runner_up_evidence: column("runner_up_evidence"),
    };
    return {
      rows, src, dst, kind: column("kind"), state: column("state"), observations: column("observations"), samples: column("samples"), heavy: column("heavy"), trimmed: column("trimmed"),
      untouched: column("untouched"), mean: column("mean"), min: column("min"), max: column("max"), modes: { [level]: modes },
    };
  }
}

FrameCache.UNKNOWN = 0xffff; // a group that is not in the bundle
FrameCache.TYPES = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f32: Float32Array, f64: Float64Array };
FrameCache.EMPTY = {
  rows: 0, src: [], dst: [], kind: [], state: [], observations: [], samples: [], heavy: [], trimmed: [], untouched: [], mean: [], min: [], max: [], modes: {},
};

// constant returns a column with one value; columns of the most frequent values are shared.
const constant = (() => {
  const shared = new Map();
  return (value, rows) => {
    if (value > 2) return new Float64Array(rows).fill(value);
    if ((shared.get(value)?.length ?? -1) < rows) shared.set(value, new Uint8Array(rows).fill(value));
    return shared.get(value);
  };
})();
