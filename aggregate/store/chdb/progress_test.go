package chdb_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

const progressSettings = "send_progress_in_http_headers=1&http_headers_progress_interval_ms="

// slowTable makes a table and a query that reads it for about two seconds.
func slowTable(t *testing.T, engine *chdb.Engine) string {
	t.Helper()
	exec(t, open(t, engine, chdb.RoleMigrator), "CREATE TABLE many (n UInt64) ENGINE = MergeTree ORDER BY n SETTINGS index_granularity = 50",
		"INSERT INTO many SELECT number FROM numbers(1000)")
	return "SELECT count() AS c, sum(sleepEachRow(0.002)) AS s FROM many WHERE n >= 0"
}

// head reads the lines of an answer's head as they arrive, with the time of each.
func head(t *testing.T, conn net.Conn) (lines []string, at []time.Duration, body *bufio.Reader) {
	t.Helper()
	began := time.Now()
	_ = conn.SetReadDeadline(began.Add(awaited))
	body = bufio.NewReader(conn)
	for {
		line, err := body.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, lines)
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			return lines, at, body
		}
		lines, at = append(lines, line), append(at, time.Since(began))
	}
}

// post writes a request by hand.
func post(t *testing.T, base, parameters, sql string) net.Conn {
	t.Helper()
	address := strings.TrimPrefix(base, "http://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST /?%s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", parameters, address, len(sql), sql)
	return conn
}

// TestProgressWhileItRuns: lines of the head arrive while the query runs, with its progress so
// far.
func TestProgressWhileItRuns(t *testing.T) {
	engine := chdbtest.Start(t)
	base, sql := listen(t, engine), slowTable(t, engine)
	lines, at, _ := head(t, post(t, base, progressSettings+"100", sql))
	var reports []map[string]string
	var first, last time.Duration
	for i, line := range lines {
		if text, ok := strings.CutPrefix(line, "X-ClickHouse-Progress: "); ok && len(reports) < 100 {
			var report map[string]string
			if err := json.Unmarshal([]byte(text), &report); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			reports = append(reports, report)
			if last = at[i]; first == 0 {
				first = at[i]
			}
		}
	}
	if len(reports) < 4 || first > last-500*time.Millisecond || !strings.HasPrefix(lines[0], "HTTP/1.1 200") {
		t.Fatalf("%d lines of progress from %s to %s in %q", len(reports), first, last, lines)
	}
	t.Logf("%d lines from %v to %v, such as %v", len(reports), first, last, reports[len(reports)/2])
	for _, key := range []string{"read_rows", "read_bytes", "total_rows_to_read", "elapsed_ns", "memory_usage"} {
		if reports[0][key] == "" {
			t.Errorf("no %s in %v", key, reports[0])
		}
	}
	if reports[len(reports)-2]["elapsed_ns"] <= "0" {
		t.Errorf("no time passed: %v", reports)
	}
	response, err := http.Post(base+"/?"+progressSettings+"100", "text/plain", strings.NewReader(sql))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	if err != nil || line != "1000\t0\n" || len(response.Header["X-Clickhouse-Progress"]) < 4 {
		t.Errorf("got %q, %v, head %v", line, err, response.Header)
	}
}

// TestProgressOfShortAndOfFailing: an answer within the interval has no progress lines, and a
// query that fails after its status was sent reports the error in the body.
func TestProgressOfShortAndOfFailing(t *testing.T) {
	engine := chdbtest.Start(t)
	base := listen(t, engine)
	const late = "SELECT sleepEachRow(0.5), throwIf(number = 0) FROM numbers(1)"
	for _, tt := range []struct {
		name, interval, sql string
		status              int
		code, body          string
	}{
		{"short", "60000", "SELECT 1", 200, "", "1\n"},
		{"short and failing", "60000", "SELECT * FROM missing", 500, "60", "Code: 60."},
		{"failing late", "100", late, 200, "395", "__exception__"},
		{"failing late, before a line", "60000", late, 500, "395", "Code: 395."},
	} {
		status, body, header := request(t, http.MethodPost, base+"/?"+progressSettings+tt.interval, tt.sql, nil)
		if status != tt.status || header.Get("X-ClickHouse-Exception-Code") != tt.code || !strings.Contains(body, tt.body) {
			t.Errorf("%s: %d, code %s, %q", tt.name, status, header.Get("X-ClickHouse-Exception-Code"), body)
		}
	}
}

// TestHangUpDuringProgress: hanging up kills the query, even after the connection was taken from
// net/http.
func TestHangUpDuringProgress(t *testing.T) {
	engine := chdbtest.Start(t)
	base, sql := listen(t, engine), "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)"
	migrator := open(t, engine, chdb.RoleMigrator)
	for range 4 { // more than the read-only clients' connections
		conn := post(t, base, progressSettings+"100", sql)
		reader := bufio.NewReader(conn)
		for line := ""; !strings.HasPrefix(line, "X-ClickHouse-Progress"); {
			var err error
			if line, err = reader.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		conn.Close()
		waitForQuery(t, migrator, sql[:40], false)
	}
	if status, text := ask(t, base, "SELECT 1"); status != 200 || text != "1\n" {
		t.Errorf("afterwards: %d %q", status, text)
	}
}

// TestClickHouseGoWithProgress reads a long answer and a late failure with the client.
func TestClickHouseGoWithProgress(t *testing.T) {
	engine := chdbtest.Start(t)
	base, sql := listen(t, engine), slowTable(t, engine)
	conn, err := clickhouse.Open(&clickhouse.Options{
		Protocol: clickhouse.HTTP, Addr: []string{strings.TrimPrefix(base, "http://")},
		Settings:    clickhouse.Settings{"send_progress_in_http_headers": 1, "http_headers_progress_interval_ms": 100},
		Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		var count, slept uint64
		if err := conn.QueryRow(t.Context(), "SELECT c, toUInt64(s) FROM ("+sql+")").Scan(&count, &slept); err != nil || count != 1000 || slept != 0 {
			t.Errorf("%d rows, %v, want 1000", count, err)
		}
		for sql, code := range map[string]int32{"SELECT sleepEachRow(0.5), throwIf(number = 0) FROM numbers(1)": 395, "SELECT * FROM missing": 60} {
			rows, err := conn.Query(t.Context(), sql)
			if err == nil {
				for rows.Next() {
				}
				err = rows.Err()
				rows.Close()
			}
			wantCode(t, err, code)
		}
	}
}

// TestNodeClientWithProgress: the npm client closes a connection that is silent for longer than
// its request_timeout, and waits for one with progress.
func TestNodeClientWithProgress(t *testing.T) {
	skipShort(t)
	node := tool(t, "node", "run make deps")
	if _, err := os.Stat("testdata/nodeclient/node_modules/@clickhouse/client"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("the npm client is not installed: run make deps")
		}
		t.Skip("SKIPPED, NOTHING IS TESTED WITH THE NPM CLIENT: run make deps")
	}
	engine := chdbtest.Start(t)
	base, sql := listen(t, engine), slowTable(t, engine)
	var got map[string]any
	sql = strings.Replace(sql, "0.002", "0.0029", 1) // 3 s, as long as a query may sleep, and the client waits for 2
	out := run(t, node, "testdata/nodeclient/progress.mjs", base, sql)
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got["silent"] != "Timeout error." || fmt.Sprint(got["progress"]) != "1000" {
		t.Errorf("got %v, want a timeout without progress and 1000 rows with it", got)
	}
	failure, _ := got["late"].(map[string]any)
	if failure["code"] != "395" {
		t.Errorf("a late failure: %v, want code 395", got["late"])
	}
}
