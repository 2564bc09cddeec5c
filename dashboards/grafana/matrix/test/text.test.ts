import assert from "node:assert/strict";
import { test } from "node:test";
import type { Cell } from "../src/data";
import { fitting, lines } from "../src/text";

const pointer = { src: "r1", dst: "r2" };
const under = (...cells: Cell[]) => ({ cells, of: 1, state: cells[0]?.state ?? "no_data", mode: "" });
const cell = {
  ...pointer, state: "too_few", since: NaN, mean: NaN, observations: 1200, measured: 0, heavy: 0.05, trimmed: 0, mode: "", named: 0, others: 0, second: "", secondNamed: 0,
};

test("a cell without a row is silent, not healthy", () => {
  assert.deepEqual(lines(pointer, under(), String), ["r1 to r2", "no data: silence, not health"]);
});

test("numbers that are not known have no line", () => {
  assert.deepEqual(lines(pointer, under(cell), String), ["r1 to r2", "too few", "5.0 % of 1,200 observations heavy"]);
});

test("modes have their shares, and ports that may be it as well", () => {
  const full = { ...cell, state: "congested", mean: 0.5, trimmed: 0.2, mode: "up1", named: 45, others: 2, second: "up2", secondNamed: 15 };
  assert.deepEqual(lines(pointer, under(full), (v) => `<${v}>`).slice(2), [
    "mean <0.5>", "5.0 % of 1,200 observations heavy", "up1 or 2 others: 75 % of them", "then up2: 25 %", "20 % trimmed",
  ]);
});

test("a folded cell is the gravest of its cells", () => {
  const two = [{ ...cell, state: "clear", heavy: 0 }, { ...cell, state: "congested", observations: 400, heavy: 0.4 }];
  assert.deepEqual(lines(pointer, { cells: two, of: 4, state: "congested", mode: "up1" }, String).slice(1), [
    "congested: the gravest of 4 cells", "10 % of 1,600 observations heavy", "up1, named by most", "click for its cells",
  ]);
});

test("a legend has no more places than its two lines hold", () => {
  const places = ["1 leaf14:down2 21 %", "2 leaf5:up4 18 %", "3 spine3:down5 17 %", "4 spine4:down5 15 %", "5 leaf5:up2 9 %", "6 leaf5:up1 8 %", "7 leaf5:up3 5 %", "8 spine2:down5 4 %", "9 spine1:down5 3 %"];
  const tail = ["clear", "too few", "no data"];
  assert.equal(fitting(places, 8, tail, 2000), 8);
  assert.equal(fitting(places, 8, tail, 604), 6); // half of a window of 1600 pixels: all 8 took three lines
  assert.equal(fitting(places.slice(0, 2), 8, tail, 604), 2);
  assert.equal(fitting(places, 8, tail, 50), 1);
  assert.equal(fitting([], 8, tail, 604), 0);
});
