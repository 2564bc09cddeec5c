import assert from "node:assert/strict";
import { test } from "node:test";
import type { DataFrame } from "@grafana/data";
import { STATES } from "../../../page/static/matrix.js";
import { axis, cellsOf, draw, groupsOf, MOST, rank, type Cell, type Group, type Selection } from "../src/data";

const all: Selection = { congested: false, folded: false, inside: null };
const about = () => ({ unit: "percentunit", direction: "min" as const, colors: {} as Record<string, string>, kept: new Map() });

const cell = (src: string, dst: string, more: Partial<Cell> = {}): Cell => ({
  src, dst, state: "clear", since: NaN, mean: 0.75, observations: 100, measured: 100, heavy: 0, trimmed: 0, mode: "", named: 0, others: 0, second: "", secondNamed: 0, ...more,
});
const rack = (name: string, parent = ""): Group => ({ name, parent, level: "rack" });
const frame = (columns: Record<string, unknown[]>): DataFrame => ({
  fields: Object.entries(columns).map(([name, values]) => ({ name, values })), length: Object.values(columns)[0]?.length ?? 0,
}) as unknown as DataFrame;

test("frames are found by their columns, and nulls are no zeros", () => {
  const frames = [
    frame({ name: ["r1", "r2"], parent: ["p", ""], level: ["rack", "rack"] }),
    frame({ src: ["r1"], dst: ["r2"], "mean delay of the worst hop": [null], state: ["too_few"], since: [null], observations: [3], mode: [""], second: [null] }),
  ];
  const [c] = cellsOf(frames) ?? [];
  assert.equal(c.src + c.dst + c.state + c.mode + c.second, "r1r2too_few");
  assert.ok(Number.isNaN(c.mean) && Number.isNaN(c.since) && Number.isNaN(c.trimmed));
  assert.equal(c.observations, 3);
  assert.deepEqual(groupsOf(frames), [rack("r1", "p"), rack("r2")]);
});

test("an empty answer of the data source has no cells", () => {
  for (const frames of [[], [frame({})], [frame({ time: [1], value: [2] })]]) {
    assert.equal(cellsOf(frames), null);
    assert.deepEqual(groupsOf(frames), []);
  }
});

test("axes have silent groups of the same level, in the fabric's order, and unknown names last", () => {
  const groups = [{ name: "p", parent: "", level: "pod" }, rack("r2"), rack("r1"), rack("r3"), { name: "h", parent: "r1", level: "host" }];
  assert.deepEqual(axis([cell("r1", "r2"), cell("unknown", "r1")], groups).map((g) => g.name), ["r2", "r1", "r3", "unknown"]);
});

test("cells are where their groups are, and pairs without a row have no data", () => {
  const d = draw([cell("r1", "r2", { state: "congested", heavy: 0.5, mode: "up1", named: 40, mean: 0.25, trimmed: 0.1 })], [rack("r1"), rack("r2")], all, about());
  assert.deepEqual([d.rows, d.columns].map((a) => a.map((i) => i.name)), [["r1", "r2"], ["r1", "r2"]]);
  assert.deepEqual([...d.cells.state].map((s) => STATES[s]), ["no_data", "congested", "no_data", "no_data"]);
  assert.equal(d.cells.severity[1], 0.75);
  assert.deepEqual([d.cells.share[1], d.cells.location[1], d.cells.trimmed[1]], [0.5, 0, 1]);
  assert.deepEqual(d.under({ row: 0, column: 1 }).cells.map((c) => c.mode), ["up1"]);
  assert.deepEqual(d.under({ row: 0, column: 0 }), { cells: [], of: 1, state: "no_data", mode: "" });
  assert.deepEqual([d.congested, d.known, d.left], [1, 1, 0]);
});

test("a clear cell has no colour of a location, and every state of the store is one of the matrix", () => {
  const d = draw([cell("r1", "r2", { heavy: 0.01, mode: "up1", named: 1 })], [rack("r1"), rack("r2")], all, about());
  assert.equal(d.cells.share[1], 0);
  for (const state of ["too_few", "clear", "congested", "brief", "not_judged"]) assert.ok(STATES.includes(state), state);
});

test("high values are worse where the signal says so", () => {
  const cells = [cell("r1", "r2", { mean: 1 }), cell("r2", "r1", { mean: 0 })];
  const d = draw(cells, [rack("r1"), rack("r2")], all, { ...about(), direction: "max" });
  assert.deepEqual([d.cells.severity[1], d.cells.severity[2]], [1, 0]);
});

test("only with heavy leaves rows and columns with a congested or brief cell", () => {
  const groups = ["r1", "r2", "r3"].map((n) => rack(n));
  const cells = [cell("r1", "r2"), cell("r2", "r3", { state: "brief", heavy: 0.01 }), cell("r3", "r1", { state: "congested", heavy: 0.5 })];
  const d = draw(cells, groups, { ...all, congested: true }, about());
  assert.deepEqual([d.rows, d.columns].map((a) => a.map((i) => i.name)), [["r2", "r3"], ["r1", "r3"]]);
  const none = draw([cell("r1", "r2")], groups, { ...all, congested: true }, about());
  assert.deepEqual([none.rows, none.columns], [[], []]);
});

test("pods fold as on the page, and a pair of them opens", () => {
  const groups = [rack("a1", "A"), rack("a2", "A"), rack("b1", "B"), rack("b2", "B")];
  const cells = [
    cell("a1", "b1", { mean: 1, heavy: 0.2, state: "brief", mode: "x", named: 20 }),
    cell("a2", "b2", { mean: 0, heavy: 0.4, state: "congested", since: 7, mode: "y", named: 40 }),
    cell("a1", "a2", { mean: NaN, measured: 0 }),
  ];
  const d = draw(cells, groups, { ...all, folded: true }, about());
  assert.deepEqual([d.rows, d.columns].map((a) => a.map((i) => i.name)), [["A", "B"], ["A", "B"]]);
  const ab = d.under({ row: 0, column: 1 });
  assert.deepEqual([ab.cells.length, ab.of, ab.state, ab.mode], [2, 4, "congested", "y"]);
  assert.equal(d.cells.severity[1], 0.5);
  assert.ok(Number.isNaN(d.cells.severity[0]));
  assert.deepEqual([d.congested, d.known], [1, 2]);
  const inside = draw(cells, groups, { ...all, folded: true, inside: { src: "A", dst: "B" } }, about());
  assert.deepEqual([inside.rows.map((r) => r.name), inside.columns.map((c) => c.name), inside.congested], [["a1", "a2"], ["b1", "b2"], 1]);
});

test("locations rank by what they slow down, with their own colours where these differ", () => {
  const cells = [cell("r1", "r2", { mode: "b", named: 1 }), cell("r2", "r1", { mode: "a", named: 2 }), cell("r3", "r1", { mode: "a", named: 1 })];
  const places = rank(cells, { a: "#ff0000", b: "#0000ff" }, new Map());
  assert.deepEqual(places.map((p) => [p.id, p.rank, p.share, p.rgb]), [["a", 1, 0.75, [255, 0, 0]], ["b", 2, 0.25, [0, 0, 255]]]);
  const [first, second] = rank(cells, {}, new Map());
  assert.notDeepEqual(first.rgb, second.rgb);
});

test("what is beyond the most groups is counted", () => {
  const groups = Array.from({ length: MOST + 3 }, (_, i) => rack(`r${i}`));
  const d = draw([cell("r0", "r1")], groups, all, about());
  assert.deepEqual([d.rows.length, d.left], [MOST, 3]);
});
