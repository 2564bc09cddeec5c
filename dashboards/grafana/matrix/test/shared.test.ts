import assert from "node:assert/strict";
import { test } from "node:test";
import { Shared } from "../src/shared";

test("listeners are called once a change, and not for none", () => {
  const shared = new Shared({ a: 1, b: "x" });
  let calls = 0;
  const stop = shared.subscribe(() => calls++);
  shared.set({ a: 2 });
  shared.set({ a: 2, b: "x" });
  assert.equal(calls, 1);
  const before = shared.get();
  shared.set({ b: "y" });
  assert.notEqual(shared.get(), before);
  stop();
  shared.set({ a: 3 });
  assert.deepEqual([calls, shared.get()], [2, { a: 3, b: "y" }]);
});
