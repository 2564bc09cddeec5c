// Sends a query (argv[3]) to the engine at argv[2] that takes longer than the client waits for a
// silent connection, without and with progress, and prints the outcomes as JSON.
import { createClient } from "@clickhouse/client";

const [, , url, query] = process.argv;
const result = {};

async function outcome(settings, sql, patience = 2000) {
  const client = createClient({ url, request_timeout: patience, clickhouse_settings: settings });
  try {
    const answer = await client.query({ query: sql, format: "JSONEachRow" });
    return (await answer.json())[0].c;
  } catch (e) {
    return e.code ? { code: e.code, message: e.message.slice(0, 200) } : e.message;
  } finally {
    await client.close();
  }
}

const progress = { send_progress_in_http_headers: 1, http_headers_progress_interval_ms: "200" };
result.silent = await outcome({}, query);
result.progress = await outcome(progress, query);
result.late = await outcome(progress, "SELECT throwIf(sleepEachRow(0.5) = 0) AS c FROM numbers(2)", 60000);
console.log(JSON.stringify(result));
