// Asks a server with public libraries: check.mjs URL. Answers, refusals and events are held against
// the server's own description, tables against its answers.
import assert from "node:assert/strict";
import SwaggerParser from "@apidevtools/swagger-parser";
import Ajv from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { DuckDBInstance } from "@duckdb/node-api";
import { parquetReadObjects } from "hyparquet";
import { tableFromIPC } from "apache-arrow";
import { writeFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const base = process.argv[2];
const get = (path) => fetch(base + path);
const document = await (await get("/openapi.json")).json();
await SwaggerParser.validate(structuredClone(document));

const ajv = new Ajv({ strict: false, discriminator: true, formats: { double: true, int64: true } });
addFormats(ajv);
ajv.addFormat("double", true).addFormat("int64", true);
ajv.addSchema(document, "api");
const check = (name, value) => {
  const valid = ajv.getSchema(`api#/components/schemas/${name}`);
  assert.ok(valid(value), `${name}: ${ajv.errorsText(valid.errors)}`);
};

const health = await (await get("/api/v1/health")).json();
check("Health", health);
assert.equal(health.source, "store");
const range = `from=${health.stored.first}&to=${health.stored.last}`;
const first = (await (await get(`/api/v1/cells?${range}`)).json()).cells[0];
const questions = {
  Cells: `cells?${range}`, Matrix: `matrix?${range}`, Locations: `locations?${range}`, Timeline: `timeline?step=1s&${range}`,
  Path: `path?src=${first.src}&dst=${first.dst}&${range}`, Flows: `flows?${range}`, Findings: `findings?${range}`, Fabric: "fabric",
};
for (const [name, path] of Object.entries(questions)) {
  const answer = await get("/api/v1/" + path);
  assert.equal(answer.status, 200, path);
  check(name, await answer.json());
}
for (const [path, status] of Object.entries({ "cells?signal=x": 404, [`cells?signal=x&${range}`]: 422, nothing: 404, "admin/clients": 403 })) {
  const answer = await get("/api/v1/" + path);
  assert.equal(answer.status, status, path);
  check("Problem", await answer.json());
}

const cells = (await (await get(`/api/v1/cells?${range}`)).json()).cells;
const table = async (format) => Buffer.from(await (await get(`/api/v1/export?format=${format}&${range}`)).arrayBuffer());
const lines = (await table("ndjson")).toString().trim().split("\n").map((line) => JSON.parse(line));
for (const line of lines) check("ExportedCell", line);
// In tables, lists are texts with spaces between.
const flat = (value, path = []) => Object.entries(value).flatMap(([name, inner]) =>
  inner !== null && typeof inner === "object" && !Array.isArray(inner) ? flat(inner, [...path, name])
    : [[[...path, name].join("_"), Array.isArray(inner) ? inner.join(" ") : inner]]);
const want = lines.map((line) => Object.fromEntries(flat(line)));
assert.equal(want.length, cells.length);

const same = (who, rows) => {
  assert.equal(rows.length, want.length, who);
  rows.forEach((row, i) => {
    for (const [name, value] of Object.entries(want[i])) {
      const got = typeof row[name] === "bigint" ? Number(row[name]) : row[name];
      const time = ["from", "to", "since"].includes(name); // of a type of its own
      assert.deepEqual(time ? new Date(got) : got, time ? new Date(value) : value, `${who}: ${name}`);
    }
  });
};
const parquet = await table("parquet");
same("hyparquet", await parquetReadObjects({ file: parquet.buffer.slice(parquet.byteOffset, parquet.byteOffset + parquet.length) }));
same("apache-arrow", tableFromIPC(await table("arrow")).toArray().map((row) => row.toJSON()));
const folder = await mkdtemp(join(tmpdir(), "clients-"));
try {
  await writeFile(join(folder, "cells.parquet"), parquet);
  const duck = await (await DuckDBInstance.create(":memory:")).connect();
  same("duckdb", (await duck.runAndReadAll(`SELECT * FROM '${join(folder, "cells.parquet")}'`)).getRowObjectsJS());
} finally {
  await rm(folder, { recursive: true });
}
console.log(`clients: ${Object.keys(questions).length} questions, ${lines.length} rows of tables, as described`);
