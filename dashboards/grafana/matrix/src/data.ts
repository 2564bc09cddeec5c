// From the frames of a query to the cells that the page's matrix draws. Pure: it knows neither
// React nor the panel.

import type { DataFrame, Field } from "@grafana/data";
import { parse, type RGB } from "../../../page/static/color.js";
import { STATES, type Cells, type Item } from "../../../page/static/matrix.js";
import { Palette } from "../../../page/static/palette.js";
import { domain, severity, type Domain } from "../../../page/static/scale.js";

/** Groups of one axis, at most: a browser draws more, but nobody reads them. */
export const MOST = 512;

/** One cell of a query's answer. Numbers that are not known are NaN. */
export interface Cell {
  src: string;
  dst: string;
  state: string;
  /** of the first congested window, Unix ms; NaN unless the cell is congested */
  since: number;
  mean: number;
  /** observations, and those with a value */
  observations: number;
  measured: number;
  /** shares of the observations */
  heavy: number;
  trimmed: number;
  /** the location that most heavy observations name, empty for none, and how many do */
  mode: string;
  named: number;
  /** ports that may be it as well */
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
  /** of all located heavy observations */
  share: number;
  color?: string;
}

/** What a panel draws: cells row by row, and what is behind each of them. */
export interface Drawing {
  rows: Item[];
  columns: Item[];
  cells: Cells;
  /** by the index of cells; undefined where nothing was observed */
  behind: Array<Cell | undefined>;
  places: Place[];
  scale: Domain;
  /** cells that are congested or were heavy, of how many with data */
  congested: number;
  known: number;
  /** groups beyond MOST, which are left out */
  left: number;
}

/** What the viewer chose to see. Both matrices of a dashboard follow. */
export interface Selection {
  /** rows and columns with a congested cell alone */
  congested: boolean;
  /** groups by what they are in */
  folded: boolean;
  /** the pair of parents that is opened, names; null for all */
  inside: { src: string; dst: string } | null;
}

const UNRANKED: RGB = [138, 143, 152];

/** cellsOf reads the frame of cells; null for one of another query. */
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

/** meanOf finds the column of means, which has the signal in its name where that decides its unit. */
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
 * axis are the groups that cells have, with silent ones of the same levels: silence must be seen.
 * Names that no group has come last.
 */
export function axis(cells: Cell[], groups: Group[]): Group[] {
  const seen = new Set(cells.flatMap((c) => [c.src, c.dst]));
  const levels = new Set(groups.filter((g) => seen.has(g.name)).map((g) => g.level));
  const known = groups.filter((g) => levels.has(g.level));
  const names = new Set(known.map((g) => g.name));
  return [...known, ...[...seen].filter((name) => !names.has(name)).map((name) => ({ name, parent: "", level: "" }))];
}

/**
 * fold adds cells up by the parents of their groups. The mean is exact; the mode is the location that
 * most heavy observations name among the first two of each cell.
 */
export function fold(cells: Cell[], groups: Group[]): { cells: Cell[]; groups: Group[] } {
  const parents = new Map(groups.map((g) => [g.name, g.parent || g.name]));
  const of = (name: string) => parents.get(name) ?? name;
  const sums = new Map<string, { cell: Cell; votes: Map<string, number>; sum: number; heavy: number; trimmed: number }>();
  for (const c of cells) {
    const [src, dst] = [of(c.src), of(c.dst)];
    const key = JSON.stringify([src, dst]);
    let s = sums.get(key);
    if (!s) {
      const cell = { ...c, src, dst, state: "no_data", since: NaN, observations: 0, measured: 0, others: 0 };
      sums.set(key, (s = { cell, votes: new Map(), sum: 0, heavy: 0, trimmed: 0 }));
    }
    s.cell.observations += c.observations;
    s.cell.state = worse(s.cell.state, c.state);
    if (c.since < s.cell.since || Number.isNaN(s.cell.since)) s.cell.since = c.since;
    if (c.measured > 0) [s.cell.measured, s.sum] = [s.cell.measured + c.measured, s.sum + c.mean * c.measured];
    s.heavy += c.heavy * c.observations || 0;
    s.trimmed += c.trimmed * c.observations || 0;
    if (c.mode) s.votes.set(c.mode, (s.votes.get(c.mode) ?? 0) + c.named);
    if (c.second) s.votes.set(c.second, (s.votes.get(c.second) ?? 0) + c.secondNamed);
  }
  const out = [...sums.values()].map(({ cell, votes, sum, heavy, trimmed }) => {
    const [first, second] = [...votes].sort((a, b) => b[1] - a[1]);
    return {
      ...cell, mean: cell.measured > 0 ? sum / cell.measured : NaN, heavy: heavy / cell.observations, trimmed: trimmed / cell.observations,
      mode: first?.[0] ?? "", named: first?.[1] ?? 0, second: second?.[0] ?? "", secondNamed: second?.[1] ?? 0,
    };
  });
  const names = [...new Set(groups.map((g) => g.parent || g.name))];
  return { cells: out, groups: names.map((name) => ({ name, parent: "", level: "parent" })) };
}

const WORSE = ["no_data", "too_few", "not_judged", "clear", "brief", "congested"];
const worse = (a: string, b: string) => (WORSE.indexOf(a) > WORSE.indexOf(b) ? a : b);

/** rank are the locations that cells name, the most named first. kept are the colours of earlier calls. */
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

/** What unit of Grafana the scale is of; others begin at 0. */
const UNITS: Record<string, string> = { percentunit: "ratio", bps: "bit/s", ns: "ns" };

/** draw lays cells out for the page's matrix. unit is Grafana's name of it. */
export function draw(
  all: Cell[], groups: Group[], selection: Selection, about: { unit: string; direction: "min" | "max"; colors: Record<string, string>; kept: Map<string, RGB> },
): Drawing {
  const places = rank(all, about.colors, about.kept);
  // Congested cells keep their places at all levels, and the scale is that of the whole matrix.
  const scale = domain(UNITS[about.unit] ?? "", [all.filter((c) => c.state !== "too_few").map((c) => c.mean)], 0);
  let cells = all;
  let members = axis(all, groups);
  const { inside } = selection;
  let [sources, destinations] = [members, members];
  if (selection.folded && !inside) {
    ({ cells, groups: members } = fold(all, members));
    [sources, destinations] = [members, members];
  } else if (inside) {
    sources = members.filter((g) => (g.parent || g.name) === inside.src);
    destinations = members.filter((g) => (g.parent || g.name) === inside.dst);
  }
  if (selection.congested) {
    const hot = cells.filter(stands);
    sources = sources.filter((g) => hot.some((c) => c.src === g.name));
    destinations = destinations.filter((g) => hot.some((c) => c.dst === g.name));
  }
  const left = Math.max(sources.length - MOST, 0) + Math.max(destinations.length - MOST, 0);
  const [rows, columns] = [items(sources), items(destinations)];
  return { rows, columns, places, scale, left, ...fill(cells, rows, columns, places, scale, about.direction) };
}

/** stands out: the cell is or was congested, or something in it was heavy. */
const stands = (c: Cell) => c.state === "congested" || c.state === "brief";

/** items are an axis, with bands where the groups are in several others. */
function items(groups: Group[]): Item[] {
  const several = new Set(groups.map((g) => g.parent)).size > 1;
  return groups.slice(0, MOST).map((g) => (several && g.parent ? { name: g.name, band: g.parent } : { name: g.name }));
}

function fill(cells: Cell[], rows: Item[], columns: Item[], places: Place[], scale: Domain, direction: "min" | "max") {
  const size = rows.length * columns.length;
  const out: Cells = {
    state: new Uint8Array(size), severity: new Float32Array(size).fill(NaN), share: new Float32Array(size),
    location: new Int32Array(size).fill(-1), trimmed: new Uint8Array(size),
  };
  const behind: Array<Cell | undefined> = new Array(size).fill(undefined);
  const row = new Map(rows.map((r, i) => [r.name, i]));
  const column = new Map(columns.map((c, i) => [c.name, i]));
  const place = new Map(places.map((p, i) => [p.id, i]));
  let [congested, known] = [0, 0];
  for (const c of cells) {
    const [r, k] = [row.get(c.src), column.get(c.dst)];
    if (r === undefined || k === undefined) continue;
    const at = r * columns.length + k;
    known++;
    if (c.state === "congested") congested++;
    behind[at] = c;
    out.state[at] = Math.max(STATES.indexOf(c.state), 0);
    out.severity[at] = Number.isNaN(c.mean) ? NaN : severity(c.mean, scale, direction);
    // The colour of a location says that it chokes: cells whose state is clear do not have it.
    out.share[at] = stands(c) ? c.heavy || 0 : 0;
    out.location[at] = c.mode ? place.get(c.mode) ?? -1 : -1;
    out.trimmed[at] = c.trimmed > 0 ? 1 : 0;
  }
  return { cells: out, behind, congested, known };
}
