// Sends typical queries of the npm client to the engine at argv[2], and prints the outcomes as one
// JSON object, which the Go test checks.
import { createClient } from "@clickhouse/client";

const url = process.argv[2];
const result = {};

// outcome is a promise's value, or the client's error.
async function outcome(promise) {
  try {
    return await promise;
  } catch (e) {
    return { code: e.code, type: e.type, message: e.message.slice(0, 200) };
  }
}

async function rows(client, query, params = {}) {
  const answer = await client.query({ query, format: "JSONEachRow", ...params });
  return answer.json();
}

for (const [name, options] of Object.entries({
  plain: {},
  gzip: { compression: { response: true, request: true } },
  session: { session_id: "mine", username: "me", password: "secret" },
})) {
  const client = createClient({ url, clickhouse_settings: { max_memory_usage: "0", readonly: "0" }, ...options });
  const r = (result[name] = {});
  r.ping = (await client.ping()).success;
  r.pingBySelect = (await client.ping({ select: true })).success;
  r.params = await rows(client, "SELECT {n: UInt64} + 1 AS n, {s: String} AS s, {a: Array(String)} AS a", {
    query_params: { n: 41, s: "it's\ta 'test'\n", a: ["x", "y'z"] },
  });
  r.form = await rows(client, "SELECT {s: String} AS s", { query_params: { s: "in a form" }, use_multipart_params: true });

  const whole = await client.query({ query: "SELECT sum(n) AS sum, count() AS count FROM cells", format: "JSON" });
  r.queryId = whole.query_id.length > 0;
  const document = await whole.json();
  r.sum = document.data;

  // Rows as they arrive.
  const stream = (await client.query({ query: "SELECT n FROM cells ORDER BY n", format: "JSONCompactEachRow" })).stream();
  let count = 0;
  let sum = 0n;
  for await (const batch of stream) {
    for (const row of batch) {
      count++;
      sum += BigInt(row.json()[0]);
    }
  }
  r.streamed = { count, sum: String(sum) };

  const csv = await client.query({ query: "SELECT n, s FROM cells ORDER BY n LIMIT 2", format: "CSVWithNames" });
  r.csv = await csv.text();

  r.missing = await outcome(rows(client, "SELECT * FROM missing"));
  r.syntax = await outcome(rows(client, "SELECT FROM WHERE"));
  r.insert = await outcome(client.insert({ table: "cells", values: [{ n: 1, s: "" }], format: "JSONEachRow" }));
  r.command = await outcome(client.command({ query: "TRUNCATE TABLE cells" }));
  r.file = await outcome(rows(client, "SELECT * FROM file('/etc/hostname', 'LineAsString')"));
  r.late = await outcome(
    (async () => {
      const failing = await client.query({
        query: "SELECT throwIf(number = 600000) AS x FROM numbers(1000000)",
        format: "JSONEachRow",
      });
      for await (const batch of failing.stream()) batch.length;
      return "no error";
    })(),
  );

  const controller = new AbortController();
  const aborted = outcome(
    rows(client, "SELECT sum(sipHash64(number)) FROM numbers(100000000000)", { abort_signal: controller.signal }),
  );
  setTimeout(() => controller.abort(), 200);
  r.aborted = (await aborted).message;
  r.afterwards = await rows(client, "SELECT 1 AS one");
  await client.close();
}

console.log(JSON.stringify(result));
