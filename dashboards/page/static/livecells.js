import { FrameCache } from "./frames.js";

// The cells of the newest window from a stream of frames: complete, or as changes to the previous
// ones. Groups and locations have their own indexes here, since every new bundle has another model.
export class LiveCells {
  static NAMES = ["kind", "state", "observations", "samples", "heavy", "trimmed", "untouched", "mean", "min", "max"];
  static COUNTS = ["mode_count", "mode_evidence", "runner_up_count", "runner_up_evidence"];
  static MODES = ["mode", "runner_up", ...LiveCells.COUNTS];

  constructor() {
    this.groups = new Map(); // indexes by ID, in index order
    this.locations = new Map();
    this.columns = null;
  }

  // take reads base64 frames that replace the cells or change them.
  take(base64, change) {
    const text = atob(base64);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    if (!change) {
      this.groups.clear();
      this.locations.clear();
    }
    const place = (index) => (id) => {
      if (!index.has(id)) index.set(id, index.size);
      return index.get(id);
    };
    const [frame] = FrameCache.read(bytes.buffer, place(this.groups), place(this.locations), "");
    const came = frame ? LiveCells.plain(frame.columns) : LiveCells.empty();
    this.columns = change ? LiveCells.merge(this.columns, came) : came;
  }

  // plain returns columns whose modes are indexes from 1, 0 for none.
  static plain(columns) {
    const { "": { places, ...modes } } = columns.modes;
    const out = { rows: columns.rows, src: columns.src, dst: columns.dst };
    for (const name of LiveCells.NAMES) out[name] = columns[name];
    for (const name of LiveCells.COUNTS) out[name] = modes[name];
    for (const name of ["mode", "runner_up"]) out[name] = LiveCells.lift(Int32Array, modes[name], columns.rows, places.map((at) => at + 1));
    return out;
  }

  // lift replaces a column's indexes by the list's values.
  static lift(Type, column, rows, list) {
    const out = new Type(rows);
    for (let i = 0; i < rows; i++) out[i] = list[column[i]];
    return out;
  }

  static empty() {
    return Object.fromEntries([["rows", 0], ...["src", "dst", ...LiveCells.NAMES, ...LiveCells.MODES].map((name) => [name, []])]);
  }

  // merge applies changes to the previous cells. Cells without observations are removed.
  static merge(before, changes) {
    const key = (c, i) => c.src[i] * 65536 + c.dst[i];
    const changed = new Set(Array.from({ length: changes.rows }, (_, i) => key(changes, i)));
    const kept = [];
    for (let i = 0; i < before.rows; i++) if (!changed.has(key(before, i))) kept.push(i);
    const came = [];
    for (let i = 0; i < changes.rows; i++) if (changes.observations[i] > 0) came.push(i);
    const rows = kept.length + came.length;
    const out = { rows };
    for (const name of ["src", "dst", ...LiveCells.NAMES, ...LiveCells.MODES]) {
      const column = new Float64Array(rows);
      kept.forEach((row, i) => { column[i] = before[name][row]; });
      came.forEach((row, i) => { column[kept.length + i] = changes[name][row]; });
      out[name] = column;
    }
    return out;
  }

  // under returns the columns with a model's indexes and modes at a level, and whether they have
  // IDs that the model lacks.
  under(model, level) {
    const c = this.columns;
    const groups = Array.from(this.groups.keys(), (id) => model.groupIndex.get(id) ?? FrameCache.UNKNOWN);
    const locations = [-1, ...Array.from(this.locations.keys(), (id) => model.locationIndex.get(id) ?? -1)];
    const strange = groups.includes(FrameCache.UNKNOWN) || locations.includes(-1, 1);
    const modes = Object.fromEntries(LiveCells.COUNTS.map((name) => [name, c[name]]));
    for (const name of ["mode", "runner_up"]) modes[name] = LiveCells.lift(Int32Array, c[name], c.rows, locations);
    const [src, dst] = [c.src, c.dst].map((column) => LiveCells.lift(Uint16Array, column, c.rows, groups));
    return { columns: { ...c, src, dst, modes: { [level]: modes } }, strange };
  }
}
