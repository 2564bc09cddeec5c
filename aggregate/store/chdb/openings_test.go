package chdb_test

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/ClickHouse/ch-go/compress"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// TestOpeningQuestions sends the first queries of connecting programs in their own way: each gets
// its answer, or an exception with the right code.
func TestOpeningQuestions(t *testing.T) {
	skipShort(t)
	engine := chdbtest.Start(t)
	exec(t, open(t, engine, chdb.RoleMigrator),
		"CREATE DATABASE fabric", "CREATE TABLE fabric.cells (n UInt64, at DateTime64(9, 'UTC'), s LowCardinality(String)) ENGINE = MergeTree ORDER BY n",
		"INSERT INTO fabric.cells SELECT number, now64(9), 'a' FROM numbers(10)",
		"CREATE VIEW fabric.above AS SELECT n FROM fabric.cells WHERE n > {low:UInt64}")
	base := listen(t, engine)
	const grafana, jdbc, connect = "default_format=Native&client_protocol_version=54460&database=fabric", "compress=1&wait_end_of_query=1", "session_id=5&database=fabric"
	for _, tt := range []struct {
		client, values, sql string
		code                string // of the exception, or ""
	}{
		{"grafana", grafana, "SELECT version()", ""},
		{"grafana", grafana, "SHOW DATABASES", ""},
		{"grafana", grafana, `SHOW TABLES FROM "fabric"`, ""},
		{"grafana", grafana, `DESC TABLE "fabric"."cells"`, ""},
		{"grafana", grafana, "SELECT name, type, table FROM system.columns WHERE database IN ('fabric')", ""},
		{"grafana", grafana, "SELECT name, is_aggregate, case_insensitive, alias_to, origin, description, syntax, arguments, returned_value, examples, categories FROM system.functions LIMIT 10000", ""},
		{"grafana", grafana, "SELECT toStartOfInterval(at, INTERVAL 60 second) AS time, count() FROM fabric.cells WHERE at >= fromUnixTimestamp64Milli(0) GROUP BY time ORDER BY time", ""},
		{"grafana", grafana, "SELECT n FROM above(low = 3)", ""},
		{"grafana", grafana, "SELECT n FROM fabric.cells SETTINGS max_execution_time=10", "164"},
		{"connect", connect, "SELECT version(), timezone()", ""},
		{"connect", connect, "SELECT name, value, readonly as readonly FROM system.settings LIMIT 10000\n FORMAT Native", ""},
		{"connect", connect + "&client_protocol_version=54405", "SELECT 1 AS check\n FORMAT Native", ""},
		{"connect", connect, "SELECT * FROM fabric.cells LIMIT 0\n FORMAT JSON", ""},
		{"connect", connect, "SELECT n FROM fabric.cells\n FORMAT ArrowStream", ""},
		{"jdbc", jdbc, "SELECT currentUser() AS user, timezone() AS timezone, version() AS version LIMIT 1", ""},
		{"jdbc", jdbc, "SELECT name AS TABLE_SCHEM, null AS TABLE_CATALOG FROM system.databases ORDER BY name", ""},
		{"jdbc", jdbc, "SELECT t.database, t.name, t.engine, t.comment FROM system.tables t JOIN system.databases d ON t.database = d.name WHERE t.database LIKE 'fab%'", ""},
		{"jdbc", jdbc, "SELECT database, table, name, type, position, default_expression, comment FROM system.columns WHERE database = 'fabric'", ""},
		{"jdbc", jdbc, "SELECT name FROM system.table_engines", ""},
		{"jdbc", jdbc, "SELECT create_table_query FROM system.tables WHERE name = 'cells'", ""},
		{"jdbc", jdbc, "SELECT * FROM fabric.cells", ""},
		{"jdbc", jdbc, "SELECT * FROM system.parts", ""},
		{"jdbc", jdbc, "SHOW CREATE TABLE fabric.cells", ""},
		{"jdbc", jdbc, "SELECT * FROM fabric.nothing", "60"},
		{"jdbc", jdbc, "USE fabric", "164"},
		{"jdbc", jdbc, "SET max_result_rows = 200", "164"},
		{"jdbc", jdbc, "CREATE TABLE fabric.mine (n Int8) ENGINE = Memory", "164"},
	} {
		t.Run(tt.client+"/"+tt.sql, func(t *testing.T) {
			header := map[string]http.Header{
				"grafana": {"Accept-Encoding": {"gzip"}, "Authorization": {"Basic Z3JhZmFuYTpzZWNyZXQ="}},
				"connect": {"Accept-Encoding": {"lz4,zstd,gzip,deflate,br"}, "Content-Type": {"text/plain; charset=utf-8"}},
				"jdbc":    {"X-Clickhouse-Format": {"RowBinaryWithNamesAndTypes"}, "X-Clickhouse-Database": {"fabric"}, "X-Clickhouse-User": {"default"}},
			}[tt.client]
			status, body, got := request(t, "POST", base+"/?"+tt.values, tt.sql, header)
			text := plain(t, body, got.Get("Content-Encoding"), strings.Contains(tt.values, "compress=1"))
			if tt.code != "" {
				if status == 200 || got.Get("X-ClickHouse-Exception-Code") != tt.code || !strings.HasPrefix(text, "Code: "+tt.code+". DB::Exception: ") {
					t.Errorf("got status %d (%.200q), want code %s", status, text, tt.code)
				}
				return
			}
			if status != 200 || text == "" {
				t.Errorf("got status %d (%.300q), want an answer", status, text)
			}
			for _, name := range []string{"X-ClickHouse-Summary", "X-ClickHouse-Timezone", "X-ClickHouse-Server-Display-Name", "X-ClickHouse-Query-Id", "X-ClickHouse-Format"} {
				if got.Get(name) == "" {
					t.Errorf("the answer has no %s", name)
				}
			}
		})
	}
	// clickhouse-connect checks this to see whether the server understands revisions.
	_, text, _ := request(t, "POST", base+"/?client_protocol_version=54405&query="+url.QueryEscape("SELECT 1 AS check FORMAT Native"), "", nil)
	if len(text) < 16 || text[8:16] != "\x01\x01\x05check" {
		t.Errorf("a block of revision 54405 is %q", text)
	}
}

// plain removes the compression of an answer.
func plain(t *testing.T, body, encoding string, blocks bool) string {
	t.Helper()
	if body == "" {
		return ""
	}
	var in io.Reader = strings.NewReader(body)
	if encoding != "" {
		decoder, err := chdb.NewDecoder(encoding, in)
		if err != nil {
			t.Fatal(err)
		}
		defer decoder.Close()
		in = decoder
	}
	var out bytes.Buffer
	if !blocks {
		if _, err := io.Copy(&out, in); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	// The reader reports the end of the body as a missing header.
	reader := compress.NewReader(in)
	for {
		chunk := make([]byte, 4096)
		n, err := reader.Read(chunk)
		out.Write(chunk[:n])
		if err != nil {
			return out.String()
		}
	}
}
