package chdb_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// stall sends a query with an endless result and never reads it.
func stall(t *testing.T, base, sql string) net.Conn {
	t.Helper()
	address := strings.TrimPrefix(base, "http://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	// A small window, so that the engine blocks soon.
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", address, len(sql), sql)
	return conn
}

// insertTimes stores n batches and returns how long each took, sorted.
func insertTimes(t *testing.T, writer driver.Conn, n int) []time.Duration {
	t.Helper()
	times := make([]time.Duration, n)
	for i := range times {
		batch, err := writer.PrepareBatch(context.Background(), "INSERT INTO stored (n)")
		if err != nil {
			t.Fatal(err)
		}
		if err := batch.Column(0).Append(make([]uint64, 10_000)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := batch.Send(); err != nil {
			t.Fatal(err)
		}
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	return times
}

// TestReadonlyClientsDoNotDelayOthers measures inserts and a reader while such clients occupy all
// of their connections: by not reading, by computing, and by asking for more memory than there is.
func TestReadonlyClientsDoNotDelayOthers(t *testing.T) {
	engine := chdbtest.Start(t)
	base := listen(t, engine)
	writer, reader := open(t, engine, chdb.RoleWriter), open(t, engine, chdb.RoleReader)
	migrator := open(t, engine, chdb.RoleMigrator)
	exec(t, migrator, "CREATE TABLE stored (n UInt64) ENGINE = MergeTree ORDER BY tuple()")
	const batches = 30
	alone := insertTimes(t, writer, batches)
	for name, sql := range map[string]string{
		"native that nobody reads": "SELECT number, toString(number) FROM system.numbers FORMAT Native",
		"text that nobody reads":   "SELECT number, toString(number) FROM system.numbers FORMAT CSVWithNames",
		"computing":                "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)",
		"memory":                   "SELECT length(groupArray(number)) FROM numbers(100000000000)",
	} {
		t.Run(name, func(t *testing.T) {
			var conns []net.Conn
			for range 6 {
				conns = append(conns, stall(t, base, sql))
			}
			if name != "memory" {
				waitForQuery(t, migrator, sql[:40], true)
			}
			beside := insertTimes(t, writer, batches)
			reads := make([]time.Duration, 5)
			for i := range reads {
				began := time.Now()
				value[uint64](t, reader, "SELECT count() FROM stored")
				reads[i] = time.Since(began)
			}
			slices.Sort(reads)
			t.Logf("inserts: median %v, slowest %v; alone %v, %v; readers %v",
				beside[batches/2], beside[batches-1], alone[batches/2], alone[batches-1], reads)
			// A client that had to wait for a read-only client would wait each time, and for long. Other
			// work on the machine only delays some.
			if median := beside[batches/2]; median > 2*time.Second {
				t.Errorf("inserts take %v beside slow read-only clients, want at most 2s", median)
			}
			if median := reads[len(reads)/2]; median > 2*time.Second {
				t.Errorf("readers take %v beside slow read-only clients, want at most 2s", median)
			}
			// Hanging up kills the query.
			for _, conn := range conns {
				conn.Close()
			}
			if status, text := ask(t, base, "SELECT 1"); status != 200 || text != "1\n" {
				t.Errorf("a read-only client after them got %d %q", status, text)
			}
		})
	}
}

// TestAbortedRequests: read-only clients that hang up at any moment leave nothing behind.
func TestAbortedRequests(t *testing.T) {
	engine := chdbtest.Start(t)
	base := listen(t, engine)
	for i := range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*2*time.Millisecond)
		format := []string{"Native", "CSV", "JSON", "RowBinaryWithNamesAndTypes"}[i%4]
		r, err := http.NewRequestWithContext(ctx, "POST", base, strings.NewReader("SELECT number, sipHash64(number) FROM numbers(1000000) FORMAT "+format))
		if err != nil {
			t.Fatal(err)
		}
		if response, err := http.DefaultClient.Do(r); err == nil {
			response.Body.Close()
		}
		cancel()
	}
	waitForQuery(t, open(t, engine, chdb.RoleMigrator), "FROM numbers(1000000)", false)
	for range 8 {
		if status, text := ask(t, base, "SELECT 'clean'"); status != 200 || text != "clean\n" {
			t.Fatalf("afterwards: got %d %q", status, text)
		}
	}
}

// TestReadonlyClientsHaveTheirShareOfMemory: a client's query fails while the engine still has
// memory for others, and a streamed result takes none.
func TestReadonlyClientsHaveTheirShareOfMemory(t *testing.T) {
	skipShort(t)
	options := chdbtest.Options(t, t.TempDir())
	options.MaxMemory = 512 << 20
	engine := start(t, options)
	base := listen(t, engine)
	const hungry = "SELECT length(groupArray(number)) FROM numbers(10000000)"
	if status, text := ask(t, base, hungry); status == 200 || !strings.HasPrefix(text, "Code: 241.") {
		t.Errorf("a read-only client got %d %.100q, want code 241", status, text)
	}
	if got := value[uint64](t, open(t, engine, chdb.RoleReader), hungry); got != 10000000 {
		t.Errorf("a reader got %d", got)
	}
	before := residentBytes(t, engine.ChildPID())
	response, err := http.Post(base, "text/plain", strings.NewReader("SELECT repeat('x', 100) FROM numbers(4000000) FORMAT CSV"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var read, peak int64
	for chunk := make([]byte, 1<<20); ; {
		n, err := response.Body.Read(chunk)
		if read += int64(n); err != nil {
			break
		}
		if read>>20%64 == 0 {
			peak = max(peak, residentBytes(t, engine.ChildPID()))
		}
	}
	if want := int64(4000000 * 103); read != want {
		t.Errorf("read %d bytes, want %d", read, want)
	}
	if grown := peak - before; grown > 256<<20 {
		t.Errorf("a result of %d MiB took %d MiB of memory", read>>20, grown>>20)
	}
}

func residentBytes(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(status))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
