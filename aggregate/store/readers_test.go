package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// storeWithReadonlyClients opens a store in an engine of its own, whose address such clients
// may use.
func storeWithReadonlyClients(t *testing.T, o Options) (s *Store, address string) {
	t.Helper()
	engine := chdbtest.Start(t)
	address, err := engine.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Writer, o.Migrator = engine.ClickHouseOptions(chdb.RoleWriter), engine.ClickHouseOptions(chdb.RoleMigrator)
	o.Reader = engine.ClickHouseOptions(chdb.RoleReader)
	s = open(t, o)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, address
}

// TestReadersDoNotDelayWrites stores blocks beside readers that query everything, through the
// store itself and as read-only clients who never read their answers.
func TestReadersDoNotDelayWrites(t *testing.T) {
	s, address := storeWithReadonlyClients(t, Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	window := 0
	store := func() time.Duration {
		t.Helper()
		began := time.Now()
		if err := s.WriteBlock(t.Context(), hourOfCells(window)); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		window++
		return time.Since(began)
	}
	before, samples := 200, 20
	if testing.Short() { // the race detector dominates the times
		before, samples = 20, 5
	}
	measure := func() []time.Duration {
		times := make([]time.Duration, samples)
		for i := range times {
			times[i] = store()
		}
		slices.Sort(times)
		return times
	}
	for range before {
		if err := s.WriteBlock(t.Context(), hourOfCells(window)); err != nil {
			t.Fatal(err)
		}
		window++
	}
	store()
	alone := measure()

	for name, begin := range map[string]func(ctx context.Context, busy *sync.WaitGroup){
		"heavy questions": func(ctx context.Context, busy *sync.WaitGroup) {
			q := testQuestion()
			q.To, q.Step = q.From.Add(time.Hour), time.Second
			for range 3 {
				busy.Go(func() {
					for ctx.Err() == nil {
						if _, err := s.CellWindows(ctx, q); err != nil && ctx.Err() == nil {
							t.Errorf("question: %v", err)
							return
						}
					}
				})
			}
		},
		"read-only clients that do not read": func(ctx context.Context, busy *sync.WaitGroup) {
			for range 4 {
				conn := unread(t, address, "SELECT a.*, b.* FROM csigscope.partials_1s AS a, csigscope.partials_1s AS b FORMAT CSV")
				busy.Go(func() { <-ctx.Done(); conn.Close() })
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var busy sync.WaitGroup
			begin(ctx, &busy)
			waitQuestions(t, s, true)
			beside := measure()
			cancel()
			busy.Wait()
			waitQuestions(t, s, false) // their queries end once the engine notices the closed connection
			n := len(beside)
			t.Logf("a block of 1700 rows: median %v, slowest %v; alone %v, %v", beside[n/2], beside[n-1], alone[n/2], alone[n-1])
			// Readers take one core of two, but never delay the writer: a writer that waited for
			// them would wait for seconds.
			if bound := 4*alone[n/2] + time.Second; beside[n/2] > bound {
				t.Errorf("median %v beside readers, want at most %v", beside[n/2], bound)
			}
		})
	}
}

// waitQuestions waits until the engine runs some queries, or none.
func waitQuestions(t *testing.T, s *Store, some bool) {
	t.Helper()
	const asked = "query_kind = 'Select' AND position(query, 'system.processes') = 0"
	for range 6000 {
		var n uint64
		if err := s.migrator.QueryRow(t.Context(), "SELECT count() FROM system.processes WHERE "+asked).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 == some {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited for a minute for questions to be under way: %v", some)
}

// unread sends a query over a connection with a small window and reads no answer.
func unread(t *testing.T, address, sql string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", address, len(sql), sql)
	return conn
}

// TestReadersAreLimited: an expensive question ends by the store's limits, and one of a
// read-only client by the engine's.
func TestReadersAreLimited(t *testing.T) {
	s, address := storeWithReadonlyClients(t, Options{Limits: Limits{ResultRows: 1000}})
	for window := range 3 {
		if err := s.WriteBlock(t.Context(), hourOfCells(window)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := testQuestion()
	if _, err := s.Cells(t.Context(), q); !errors.Is(err, ErrTooManyRows) {
		t.Errorf("an answer of 4096 rows: %v, want ErrTooManyRows", err)
	}
	s.maxRows = 3 // not for the store's own lists
	if dropped, err := s.Trim(t.Context(), 0); !errors.Is(err, ErrDisk) || len(dropped) == 0 {
		t.Errorf("a trim under a limit of 3 rows of answer: %v, %v", dropped, err)
	}
	s.limits.Time = time.Second
	err := s.query(t.Context(), s.reader, "ask", "SELECT sum(sipHash64(number)) FROM numbers(1000000000000)", nil)
	if err == nil {
		t.Error("a question without end met no error")
	}
	for sql, want := range map[string]string{
		"SELECT length(groupArray(number)) FROM numbers(100000000000)":                              "Code: 241.",
		"SELECT 1 SETTINGS max_execution_time = 0, max_memory_usage = 0":                            "Code: ",
		"SELECT name, value FROM system.settings WHERE name = 'max_execution_time' AND value = '0'": "",
	} {
		response, err := http.Post("http://"+address, "text/plain", strings.NewReader(sql))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !strings.HasPrefix(string(text), want) || want == "" && len(text) > 0 {
			t.Errorf("%s: %v, %.200s, want %q", sql, err, text, want)
		}
	}
}
