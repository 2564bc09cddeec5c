// The rows and columns of both matrices: their groups, their order, and the resulting cells. Groups
// may be left out, sorted, or folded into their parents.

import { STATES } from "./matrix.js";

/** @typedef {import("./matrix.js").Cells} Cells */

/**
 * @typedef {object} Item  a row or column
 * @property {string} name
 * @property {string} [band]
 * @property {number[]} members  indexes of groups: one, or those of a folded group
 */

/**
 * @typedef {object} Wish  the requested arrangement of the matrices
 * @property {boolean} congested only rows and columns with heavy observations in the range
 * @property {boolean} worst     worst first, else in group order
 * @property {boolean} fold      one row and column for all groups of a parent
 * @property {{rows: number[], columns: number[]} | null} focus the only groups to show
 */

const [NO_DATA, TOO_FEW, CLEAR, CONGESTED, BRIEF, NOT_JUDGED] = STATES.keys();
/** States by gravity: a folded cell has the gravest state of its cells. */
const GRAVEST = [CONGESTED, BRIEF, NOT_JUDGED, CLEAR, TOO_FEW, NO_DATA];
const GRAVITY = Uint8Array.from(STATES, (_, state) => GRAVEST.length - GRAVEST.indexOf(state));

/**
 * folds reports whether groups can be folded: they must have at least two different parents.
 * @param {{parent?: string}[]} groups
 */
export function folds(groups) {
  return new Set(groups.map((g) => g.parent).filter(Boolean)).size > 1;
}

export class Axes {
  /**
   * @param {{name: string, parent?: string}[]} groups
   * @param {Cells} cells of the whole range, for the congestion of groups
   * @param {Wish} wish
   */
  constructor(groups, cells, wish) {
    const size = groups.length;
    const all = groups.map((_, i) => i);
    const whole = !wish.focus && !wish.congested && !wish.worst && !wish.fold;
    const [down, across] = whole ? [null, null] : loads(size, cells, wish.focus);
    /** @param {number[]} members @param {Float64Array | null} load */
    const arrange = (members, load) => {
      const left = members.filter((i) => !wish.congested || (load && load[i] > 0));
      const items = wish.fold ? fold(groups, left) : left.map((i) => item(groups, i, !wish.worst));
      /** @param {Item} one */
      const worst = (one) => Math.max(...one.members.map((i) => (load ? load[i] : 0)));
      return wish.worst ? items.sort((a, b) => worst(b) - worst(a)) : items;
    };
    this.size = size;
    this.whole = whole;
    this.rows = arrange(wish.focus?.rows ?? all, down);
    this.columns = arrange(wish.focus?.columns ?? all, across);
    this.rowOf = places(size, this.rows);
    this.columnOf = places(size, this.columns);
  }

  /**
   * at returns the row and column of a pair of groups, or null if it is not shown.
   * @param {{src: number, dst: number}} cell
   */
  at({ src, dst }) {
    const [row, column] = [this.rowOf[src], this.columnOf[dst]];
    return row < 0 || column < 0 ? null : { row, column };
  }

  /**
   * groups returns the groups of a row and a column.
   * @param {{row: number, column: number}} at
   */
  groups({ row, column }) {
    return { rows: this.rows[row].members, columns: this.columns[column].members };
  }

  /**
   * project returns the cells of these rows and columns, made from those of all pairs of groups.
   * @param {Cells} cells
   * @returns {Cells}
   */
  project(cells) {
    if (this.whole) return cells;
    const out = blank(this.rows.length * this.columns.length);
    let at = 0;
    for (const row of this.rows) {
      for (const column of this.columns) this.join(cells, row.members, column.members, out, at++);
    }
    return out;
  }

  /**
   * join merges the cells between two lists of groups into one.
   * @param {Cells} cells
   * @param {number[]} sources
   * @param {number[]} destinations
   * @param {Cells} out
   * @param {number} at
   */
  join(cells, sources, destinations, out, at) {
    if (sources.length === 1 && destinations.length === 1) return copy(cells, sources[0] * this.size + destinations[0], out, at);
    let [severity, measured, share, heard] = [0, 0, 0, 0];
    /** @type {Map<number, number>} */
    const votes = new Map();
    for (const src of sources) {
      for (const dst of destinations) {
        const from = src * this.size + dst;
        const state = cells.state[from];
        if (GRAVITY[state] > GRAVITY[out.state[at]]) out.state[at] = state;
        if (state === NO_DATA) continue;
        if (cells.severity[from] >= 0) [severity, measured] = [severity + cells.severity[from], measured + 1];
        [share, heard] = [share + cells.share[from], heard + 1];
        const place = cells.location[from];
        if (place >= 0) votes.set(place, (votes.get(place) || 0) + cells.share[from]);
        out.trimmed[at] |= cells.trimmed[from];
      }
    }
    if (measured) out.severity[at] = severity / measured;
    if (heard) out.share[at] = share / heard;
    let most = 0;
    for (const [place, weight] of votes) if (weight > most) [out.location[at], most] = [place, weight];
  }
}

/** @param {number} length */
function blank(length) {
  return {
    state: new Uint8Array(length), severity: new Float32Array(length).fill(NaN), share: new Float32Array(length),
    location: new Int32Array(length).fill(-1), trimmed: new Uint8Array(length),
  };
}

/**
 * @param {Cells} cells
 * @param {number} from
 * @param {Cells} out
 * @param {number} at
 */
function copy(cells, from, out, at) {
  out.state[at] = cells.state[from];
  out.severity[at] = cells.severity[from];
  out.share[at] = cells.share[from];
  out.location[at] = cells.location[from];
  out.trimmed[at] = cells.trimmed[from];
}

/**
 * loads returns the load of each group as a source and as a destination: the sum of its cells' heavy
 * shares, as far as they are judged.
 * @param {number} size
 * @param {Cells} cells
 * @param {{rows: number[], columns: number[]} | null} focus
 */
function loads(size, cells, focus) {
  const [down, across] = [new Float64Array(size), new Float64Array(size)];
  const all = Array.from(down, (_, i) => i);
  for (const src of focus?.rows ?? all) {
    for (const dst of focus?.columns ?? all) {
      const at = src * size + dst;
      const state = cells.state[at];
      if (state === NO_DATA || state === TOO_FEW || state === NOT_JUDGED || !(cells.share[at] > 0)) continue;
      down[src] += cells.share[at];
      across[dst] += cells.share[at];
    }
  }
  return [down, across];
}

/**
 * @param {{name: string, parent?: string}[]} groups
 * @param {number} i
 * @param {boolean} banded
 * @returns {Item}
 */
function item(groups, i, banded) {
  const { name, parent } = groups[i];
  return { name, band: banded && folds(groups) ? parent : undefined, members: [i] };
}

/**
 * fold returns one item per parent. Groups without a parent stay single.
 * @param {{name: string, parent?: string}[]} groups
 * @param {number[]} members
 */
function fold(groups, members) {
  /** @type {Map<string, Item>} */
  const out = new Map();
  for (const i of members) {
    const name = groups[i].parent || groups[i].name;
    const known = out.get(name);
    if (known) known.members.push(i);
    else out.set(name, { name, members: [i] });
  }
  return [...out.values()];
}

/**
 * places returns each group's item, -1 for none.
 * @param {number} size
 * @param {Item[]} items
 */
function places(size, items) {
  const out = new Int32Array(size).fill(-1);
  items.forEach(({ members }, at) => members.forEach((i) => { out[i] = at; }));
  return out;
}
