package chdb_test

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// tool finds a program. Without it the test fails in CI and is skipped elsewhere.
func tool(t *testing.T, name, install string) string {
	t.Helper()
	path, err := osexec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is missing: %s", name, install)
	}
	t.Skipf("SKIPPED, NOTHING IS TESTED WITH %s: %s", strings.ToUpper(name), install)
	return ""
}

func TestCurl(t *testing.T) {
	skipShort(t)
	curl := tool(t, "curl", "run apt-get install curl")
	engine := chdbtest.Start(t)
	exec(t, open(t, engine, chdb.RoleMigrator), "CREATE TABLE cells (n UInt64, s String) ENGINE = MergeTree ORDER BY n",
		"INSERT INTO cells SELECT number, concat('a,\"', toString(number), '\n') FROM numbers(150000)")
	base := listen(t, engine)
	dir := t.TempDir()
	zipped := filepath.Join(dir, "query.gz")
	writeGzip(t, zipped, "SELECT 1 + 2")
	for _, tt := range []struct {
		name string
		args []string
		want string // the whole output, or a part of it after "…"
	}{
		{"ping", []string{base + "/ping"}, "Ok.\n"},
		{"get", []string{base + "/?query=SELECT%201"}, "1\n"},
		{"get with its own encoding", []string{"-G", base, "--data-urlencode", "query=SELECT count() FROM cells FORMAT CSV"}, "150000\n"},
		{"post", []string{base, "-d", "SELECT count() FROM cells"}, "150000\n"},
		{"name and password", []string{"-u", "me:secret", base, "-d", "SELECT 1"}, "1\n"},
		{"name and password as parameters", []string{base + "/?user=me&password=secret&session_id=1&session_check=1&role=r&quota_key=k", "-d", "SELECT 1"}, "1\n"},
		{"name and password as headers", []string{"-H", "X-ClickHouse-User: me", "-H", "X-ClickHouse-Key: secret", base, "-d", "SELECT 1"}, "1\n"},
		{"token", []string{"-H", "Authorization: Bearer abc", base, "-d", "SELECT 1"}, "1\n"},
		{"format header", []string{"-H", "X-ClickHouse-Format: JSONCompactEachRow", base, "-d", "SELECT 1, 'a'"}, "[1, \"a\"]\n"},
		{"default_format before the header", []string{"-H", "X-ClickHouse-Format: CSV", base + "/?default_format=TSV", "-d", "SELECT 'a'"}, "a\n"},
		{"database header", []string{"-H", "X-ClickHouse-Database: system", base, "-d", "SELECT currentDatabase()"}, "system\n"},
		{"compressed", []string{"--compressed", base, "-d", "SELECT sum(n) FROM cells"}, "11249925000\n"},
		{"gzip", []string{"-H", "Accept-Encoding: gzip", "-o", filepath.Join(dir, "gzip"), "-w", "%header{content-encoding}", base, "-d", "SELECT 1"}, "gzip"},
		{"zstd", []string{"-H", "Accept-Encoding: zstd;q=1.0, gzip;q=0.5", "-o", filepath.Join(dir, "zstd"), "-w", "%header{content-encoding}", base, "-d", "SELECT 1"}, "zstd"},
		{"gzip is not wanted", []string{"-H", "Accept-Encoding: gzip;q=0, br", base, "-d", "SELECT 1"}, "1\n"},
		{"compression off by setting", []string{"-H", "Accept-Encoding: gzip", base + "/?enable_http_compression=0", "-d", "SELECT 1"}, "1\n"},
		{"gzip request", []string{"-H", "Content-Encoding: gzip", base, "--data-binary", "@" + zipped}, "3\n"},
		{"unknown request encoding", []string{"-H", "Content-Encoding: br", base, "-d", "SELECT 1"}, "…Code: 48. "},
		{"request that is not gzip", []string{"-H", "Content-Encoding: gzip", base, "-d", "SELECT 1"}, "…Code: 210. "},
		{"form", []string{base, "-F", "query=SELECT {a:UInt8} + 1, {s:String}", "-F", "param_a=4", "-F", "param_s=it's"}, "5\tit\\'s\n"},
		{"external table", []string{base, "-F", "query=SELECT 1", "-F", "t=@" + zipped}, "…external tables are not supported"},
		{"settings are dropped", []string{base + "/?readonly=0&max_memory_usage=0&allow_introspection_functions=1", "-d", "SELECT getSetting('readonly')"}, "1\n"},
		{"wait for the end", []string{base + "/?wait_end_of_query=1&buffer_size=1000", "-d", "SELECT throwIf(number = 9000000) FROM numbers(10000000)"}, "…Code: 395. "},
		{"late failure", []string{base, "-d", "SELECT throwIf(number = 9000000) FROM numbers(10000000)"}, "…__exception__\r\n"},
		{"read rows", []string{"-o", filepath.Join(dir, "rows"), "-w", "%header{x-clickhouse-summary}", base + "/?wait_end_of_query=1&send_progress_in_http_headers=1", "-d", "SELECT sum(n) FROM cells"}, `…"read_rows":"150000"`},
		{"query id", []string{"-o", filepath.Join(dir, "id"), "-w", "%header{x-clickhouse-query-id}", base + "/?query_id=mine", "-d", "SELECT 1"}, "mine"},
		{"zone", []string{"-o", filepath.Join(dir, "zone"), "-w", "%header{x-clickhouse-timezone} %header{x-clickhouse-format} %header{content-type}", base, "-d", "SELECT 1 FORMAT CSVWithNames"}, "… CSVWithNames text/csv; charset=UTF-8; header=present"},
		{"unknown page", []string{base + "/play"}, "…404"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := run(t, curl, append([]string{"-sS", "--max-time", "60", "--noproxy", "*"}, tt.args...)...)
			if part, ok := strings.CutPrefix(tt.want, "…"); ok && strings.Contains(out, part) || out == tt.want {
				return
			}
			t.Errorf("got %.300q, want %q", out, tt.want)
		})
	}
}

// TestStreamedFormats compares results that come in pieces with the same result in one piece.
func TestStreamedFormats(t *testing.T) {
	skipShort(t)
	engine := chdbtest.Start(t)
	base := listen(t, engine)
	const sql = "SELECT number AS n, concat('a\t,\"\n', toString(number)) AS `odd \"\nname` FROM numbers(70000) ORDER BY n FORMAT "
	for _, format := range []string{
		"TSV", "TSVWithNames", "TabSeparatedWithNamesAndTypes", "CSV", "CSVWithNames", "CSVWithNamesAndTypes",
		"JSONEachRow", "JSONStringsEachRow", "JSONCompactEachRow", "JSONCompactEachRowWithNames", "JSONCompactEachRowWithNamesAndTypes",
		"RowBinary", "RowBinaryWithNames", "RowBinaryWithNamesAndTypes",
		// These are not streamed.
		"JSONCompact", "Values",
	} {
		t.Run(format, func(t *testing.T) {
			_, pieces, _ := request(t, "POST", base+"/?max_block_size=1000", sql+format, nil)
			status, whole, _ := request(t, "POST", base+"/?wait_end_of_query=1", sql+format, nil)
			if cut := strings.Index(whole, `"statistics"`); cut >= 0 {
				pieces, whole = pieces[:min(cut, len(pieces))], whole[:cut]
			}
			if status != 200 || len(whole) < 500_000 || pieces != whole {
				t.Errorf("status %d: pieces of %d bytes make up %d, which differ", status, len(pieces), len(whole))
			}
			_, empty, _ := request(t, "POST", base, "SELECT 1 AS n WHERE 0 FORMAT "+format, nil)
			_, wholeEmpty, _ := request(t, "POST", base+"/?wait_end_of_query=1", "SELECT 1 AS n WHERE 0 FORMAT "+format, nil)
			if cut := strings.Index(wholeEmpty, `"statistics"`); cut < 0 && empty != wholeEmpty {
				t.Errorf("no rows: got %q, want %q", empty, wholeEmpty)
			}
		})
	}
}
