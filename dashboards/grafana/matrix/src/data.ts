// Turns the frames of a query into the cells that the page's matrix draws. Its functions are pure: they
// know neither React nor the panel.

import type { DataFrame, Field } from "@grafana/data";
import { Axes, folds, type Item } from "../../../page/static/axes.js";
import { parse, type RGB } from "../../../page/static/color.js";
import { STATES, type At, type Cells } from "../../../page/static/matrix.js";
import { Palette } from "../../../page/static/palette.js";
import { domain, severity, type Domain } from "../../../page/static/scale.js";

/** Maximum number of groups of one axis: all their pairs are in memory. */
export const MOST = 1024;

/** One cell of a query's answer. Unknown numbers are NaN. */
export interface Cell {
  src: string;
  dst: string;
  state: string;
  /** start of the first congested window, Unix ms; NaN unless the cell is congested */
  since: number;
  mean: number;
  /** observations, and those with a value */
  observations: number;
  measured: number;
  /** shares of the observations */
  heavy: number;
  trimmed: number;
  /** the location that most heavy observations name, empty for none, and their number */
  mode: string;
  named: number;
  /** other ports that may be the mode */
  others: number;
  second: string;
  secondNamed: number;
}

/** A group of the axes, in the fabric's order. */
export interface Group {
  name: string;
  parent: string;
  level: string;
}

/** A location that cells name as their mode, the most named first. */
export interface Place {
  id: string;
  rgb: RGB;
  rank: number;
  named: number;
  /** share of all heavy observations with a location */
  share: number;
  color?: string;
}

/** The contents of a panel: cells row by row, and details of each. */
export interface Drawing {
  rows: Item[];
  columns: Item[];
  cells: Cells;
  places: Place[];
  scale: Domain;
  /** numbers of congested cells and of cells with data */
  congested: number;
  known: number;
  /** number of groups left out because of MOST */
  left: number;
  /** whether groups are in several pods */
  pods: boolean;
  /** details of the cell at a place */
  under(at: At): Under;
}

/** Details at a place of the matrix. A folded cell has its own state and mode. */
export interface Under {
  /** numbers of cells with data and of all cells: 1, unless the place is a folded cell */
  cells: Cell[];
  of: number;
  state: string;
  mode: string;
}

/** The viewer's choices, which both matrices of a dashboard follow. */
export interface Selection {
  /** show only rows and columns with a congested cell */
  congested: boolean;
  /** fold groups into their parents */
  folded: boolean;
  /** names of the opened pair of parents; null for all */
  inside: { src: string; dst: string } | null;
}

const UNRANKED: RGB = [138, 143, 152];

/** cellsOf reads the frame of cells; null for a frame of another query. */
export function cellsOf(frames: DataFrame[]): Cell[] | null {
  const frame = frames.find((f) => ["src", "dst", "state"].every((name) => f.fields.some((field) => field.name === name)));
  if (!frame) return null;
  const column = (name: string) => (name === "mean" ? meanOf([frame]) : frame.fields.find((f) => f.name === name))?.values ?? [];
  const text = (name: string) => { const c = column(name); return (i: number) => String(c[i] ?? ""); };
  const number = (name: string) => { const c = column(name); return (i: number) => (c[i] === null || c[i] === undefined ? NaN : Number(c[i])); };
  const [src, dst, state, mode, second] = ["src", "dst", "state", "mode", "second"].map(text);
  const [since, mean, observations, measured, heavy, trimmed, named, others, secondNamed] =
    ["since", "mean", "observations", "measured", "heavy", "trimmed", "named", "others", "second_named"].map(number);
  return Array.from({ length: frame.length }, (_, i) => ({
    src: src(i), dst: dst(i), state: state(i), since: since(i), mean: mean(i), observations: observations(i), measured: measured(i),
    heavy: heavy(i), trimmed: trimmed(i), mode: mode(i), named: named(i), others: others(i), second: second(i), secondNamed: secondNamed(i),
  }));
}

/** meanOf finds the column of means, whose name contains the signal if its unit depends on it. */
export function meanOf(frames: DataFrame[]): Field | undefined {
  return frames.flatMap((f) => f.fields).find((f) => f.name === "mean" || f.name.startsWith("mean "));
}

/** groupsOf reads the frame of groups, in its order. */
export function groupsOf(frames: DataFrame[]): Group[] {
  const frame = frames.find((f) => ["name", "parent", "level"].every((name) => f.fields.some((field) => field.name === name)));
  if (!frame) return [];
  const [name, parent, level] = ["name", "parent", "level"].map((n) => frame.fields.find((f) => f.name === n)!.values);
  return Array.from({ length: frame.length }, (_, i) => ({ name: String(name[i]), parent: String(parent[i]), level: String(level[i]) }));
}

/**
 * axis returns the groups of the cells, and silent groups of the same levels, since silence must be
 * visible. Names without a group come last.
 */
export function axis(cells: Cell[], groups: Group[]): Group[] {
  const seen = new Set(cells.flatMap((c) => [c.src, c.dst]));
  const levels = new Set(groups.filter((g) => seen.has(g.name)).map((g) => g.level));
  const known = groups.filter((g) => levels.has(g.level));
  const names = new Set(known.map((g) => g.name));
  return [...known, ...[...seen].filter((name) => !names.has(name)).map((name) => ({ name, parent: "", level: "" }))];
}

/** rank returns the locations that cells name, the most named first. kept has the colours of earlier calls. */
export function rank(cells: Cell[], colors: Record<string, string>, kept: Map<string, RGB>): Place[] {
  const votes = new Map<string, number>();
  let all = 0;
  for (const c of cells) {
    if (c.mode) votes.set(c.mode, (votes.get(c.mode) ?? 0) + c.named);
    if (c.mode) all += c.named;
  }
  const places = [...votes]
    .sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))
    .map(([id, named], i) => ({ id, named, rank: i + 1, share: named / all, rgb: /^#[0-9a-f]{6}$/i.test(colors[id] ?? "") ? parse(colors[id]) : UNRANKED }));
  Palette.spread(places, places.map((_, location) => ({ location })), kept);
  return places;
}

/** The page's names of Grafana's units. The scale of any other unit begins at 0. */
const UNITS: Record<string, string> = { percentunit: "ratio", bps: "bit/s", ns: "ns" };

/** draw arranges cells for the page's matrix. unit is Grafana's name of the unit. */
export function draw(
  all: Cell[], groups: Group[], selection: Selection, about: { unit: string; direction: "min" | "max"; colors: Record<string, string>; kept: Map<string, RGB> },
): Drawing {
  const places = rank(all, about.colors, about.kept);
  // Congested cells keep their places at all levels, and the scale is that of the whole matrix.
  const scale = domain(UNITS[about.unit] ?? "", [all.filter((c) => c.state !== "too_few").map((c) => c.mean)], 0);
  const known = axis(all, groups);
  const members = known.slice(0, MOST);
  const { cells, behind } = lay(all, members, places, scale, about.direction);
  const { inside } = selection;
  const indexes = (parent: string) => [...members.keys()].filter((i) => (members[i].parent || members[i].name) === parent);
  const focus = inside && { rows: indexes(inside.src), columns: indexes(inside.dst) };
  const pods = folds(members);
  const axes = new Axes(members, cells, { congested: selection.congested, worst: false, fold: selection.folded && !inside && pods, focus });
  const drawn = axes.project(cells);
  const having = (state: string) => drawn.state.reduce((n, s) => n + (STATES[s] === state ? 1 : 0), 0);
  const under = (at: At): Under => {
    const { rows, columns } = axes.groups(at);
    const here = at.row * axes.columns.length + at.column;
    const list = rows.flatMap((src) => columns.map((dst) => behind[src * members.length + dst])).filter((c) => c !== undefined);
    return { cells: list, of: rows.length * columns.length, state: STATES[drawn.state[here]], mode: places[drawn.location[here]]?.id ?? "" };
  };
  return {
    rows: axes.rows, columns: axes.columns, cells: drawn, places, scale, pods, under, left: known.length - members.length,
    congested: having("congested"), known: drawn.state.length - having("no_data"),
  };
}

/** stands reports that the cell is or was congested, or that something in it was heavy. */
const stands = (c: Cell) => c.state === "congested" || c.state === "brief";

/** lay assigns each cell its place among the pairs of groups. */
function lay(cells: Cell[], groups: Group[], places: Place[], scale: Domain, direction: "min" | "max") {
  const size = groups.length ** 2;
  const out: Cells = {
    state: new Uint8Array(size), severity: new Float32Array(size).fill(NaN), share: new Float32Array(size),
    location: new Int32Array(size).fill(-1), trimmed: new Uint8Array(size),
  };
  const behind: Array<Cell | undefined> = new Array(size).fill(undefined);
  const index = new Map(groups.map((g, i) => [g.name, i]));
  const place = new Map(places.map((p, i) => [p.id, i]));
  for (const c of cells) {
    const [src, dst] = [index.get(c.src), index.get(c.dst)];
    if (src === undefined || dst === undefined) continue;
    const at = src * groups.length + dst;
    behind[at] = c;
    out.state[at] = Math.max(STATES.indexOf(c.state), 0);
    out.severity[at] = Number.isNaN(c.mean) ? NaN : severity(c.mean, scale, direction);
    // Only cells that are not clear have the colour of their location, since it stands for congestion.
    out.share[at] = stands(c) ? c.heavy || 0 : 0;
    out.location[at] = c.mode ? place.get(c.mode) ?? -1 : -1;
    out.trimmed[at] = c.trimmed > 0 ? 1 : 0;
  }
  return { cells: out, behind };
}
