package chdb_test

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// TestNodeClient queries with the npm client @clickhouse/client.
func TestNodeClient(t *testing.T) {
	skipShort(t)
	node := tool(t, "node", "run make deps")
	const installed = "testdata/nodeclient/node_modules/@clickhouse/client"
	if _, err := os.Stat(installed); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("the npm client is not installed: run make deps")
		}
		t.Skip("SKIPPED, NOTHING IS TESTED WITH THE NPM CLIENT: run make deps")
	}
	engine := chdbtest.Start(t)
	exec(t, open(t, engine, chdb.RoleMigrator), "CREATE TABLE cells (n UInt64, s String) ENGINE = MergeTree ORDER BY n",
		"INSERT INTO cells SELECT number, concat('a \"quoted\" ', toString(number)) FROM numbers(150000)")
	out := run(t, node, "testdata/nodeclient/client.mjs", listen(t, engine))
	var got map[string]map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	row := func(pairs ...any) []any {
		m := make(map[string]any)
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i].(string)] = pairs[i+1]
		}
		return []any{m}
	}
	want := map[string]any{
		"ping": true, "pingBySelect": true, "queryId": true,
		"params":   row("n", 42.0, "s", "it's\ta 'test'\n", "a", []any{"x", "y'z"}),
		"form":     row("s", "in a form"),
		"sum":      row("sum", 11249925000.0, "count", 150000.0),
		"streamed": row("count", 150000.0, "sum", "11249925000")[0],
		"csv":      "\"n\",\"s\"\n0,\"a \"\"quoted\"\" 0\"\n1,\"a \"\"quoted\"\" 1\"\n",
		"aborted":  "The user aborted a request.", "afterwards": row("one", 1.0),
	}
	for _, name := range []string{"plain", "gzip", "session"} {
		for key, value := range want {
			if !reflect.DeepEqual(got[name][key], value) {
				t.Errorf("%s: %s: got %v, want %v", name, key, got[name][key], value)
			}
		}
		for key, code := range map[string]string{
			"missing": "60", "syntax": "62", "insert": "164", "command": "164", "file": "164", "late": "395",
		} {
			failure, _ := got[name][key].(map[string]any)
			if failure["code"] != code {
				t.Errorf("%s: %s: got %v, want code %s", name, key, got[name][key], code)
			}
		}
	}
}
