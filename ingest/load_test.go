package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/ingest/credential/credentialtest"
)

// storeSink is the real store as a collector's sink and directory.
type storeSink struct{ *store.Store }

func (s storeSink) BeginRuns(ctx context.Context, list []Run) error {
	var runs []store.Run
	for _, r := range list {
		runs = append(runs, store.Run{Source: r.Source, Mode: store.RunLive, Name: r.Exporter + "/" + r.Stream})
	}
	return s.Store.BeginRuns(ctx, runs)
}

// lazyDisk does not wait for the disk: hundreds of exporters that are simulated on one
// machine would wait for its one disk, which in the field are hundreds.
type lazyDisk struct{ outbox.OS }

func (lazyDisk) SyncDir(string) error { return nil }

func (lazyDisk) Open(name string, flag int) (outbox.File, error) {
	f, err := outbox.OS{}.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return lazyFile{f}, nil
}

type lazyFile struct{ outbox.File }

func (lazyFile) Sync() error { return nil }

// load is exporters against a collector with the real store.
type load struct {
	testing.TB
	cells    int
	engine   *chdb.Engine
	store    *store.Store
	reader   driver.Conn
	server   *collector
	clients  []*exporterUnderTest
	observed uint64 // handed in

	mu     sync.Mutex
	handed []time.Time     // when blocks were handed in
	delays []time.Duration // until they could be asked for
}

func newLoad(t testing.TB, exporters, cells int) *load {
	t.Helper()
	l := &load{TB: t, cells: cells}
	l.engine = chdbtest.Start(t)
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	var err error
	l.store, err = store.Open(t.Context(), store.Options{
		Writer: l.engine.ClickHouseOptions(chdb.RoleWriter), Migrator: l.engine.ClickHouseOptions(chdb.RoleMigrator),
		Reader: l.engine.ClickHouseOptions(chdb.RoleReader), Logger: logger, Outbox: &store.Outbox{Dir: filepath.Join(t.TempDir(), "outbox")},
	})
	if err == nil {
		err = l.store.Migrate(t.Context())
	}
	if err == nil {
		l.reader, err = clickhouse.Open(l.engine.ClickHouseOptions(chdb.RoleReader))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.reader.Close(); err != nil {
			t.Error(err)
		}
		if err := l.store.Close(); err != nil {
			t.Error(err)
		}
	})
	l.start(exporters)
	return l
}

func (l *load) start(exporters int) {
	l.Helper()
	ca := credentialtest.NewAuthority(l)
	cfg := testConfig(l)
	cfg.Auth, cfg.CommitEvery = Auth{TLS: ca.Server()}, 0
	s, err := NewServer(cfg, storeSink{l.store}, storeSink{l.store})
	if err != nil {
		l.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.Serve(ctx, ln); err != nil {
			l.Error(err)
		}
	})
	l.Cleanup(func() { cancel(); done.Wait() })
	l.server = &collector{Server: s}
	for i := range exporters {
		cfg := clientConfig(l, "https://"+ln.Addr().String())
		cfg.TLS, cfg.FS, cfg.SpoolEvery = ca.Issue(fmt.Sprintf("host%03d", i), time.Now().Add(time.Hour)), lazyDisk{}, 0
		l.clients = append(l.clients, startClient(l, cfg))
	}
}

// run hands in a block a second from each exporter.
func (l *load) run(seconds int) {
	var done sync.WaitGroup
	begin := time.Now().Truncate(time.Second).Add(2 * time.Second)
	for i, c := range l.clients {
		stream := c.stream(l, "eth0")
		block := testBlock(newRand(l, uint64(i)), begin, l.cells)
		l.observed += uint64(seconds) * totalsOf(block).observations
		done.Go(func() {
			for n := range seconds {
				// Clocks and lateness differ a little from host to host.
				due := begin.Add(time.Duration(n)*time.Second + time.Duration(i%100)*time.Millisecond)
				if !sleep(l.Context(), time.Until(due)) {
					return
				}
				block.WindowStart = due.Add(-time.Second).Truncate(time.Second).UnixNano()
				l.mu.Lock()
				l.handed = append(l.handed, time.Now())
				l.mu.Unlock()
				if err := stream.WriteBlock(l.Context(), block); err != nil {
					l.Error(err)
					return
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { done.Wait(); close(ended) }()
	l.watch(ended)
}

// watch asks which blocks can be asked for, until there are no more.
func (l *load) watch(ended <-chan struct{}) {
	patience := time.Now().Add(time.Hour)
	for {
		sleep(l.Context(), 20*time.Millisecond)
		select {
		case <-ended:
			patience = time.Now().Add(20 * time.Second)
			ended = nil
		default:
		}
		if missing := l.look(); missing == 0 && ended == nil {
			return
		}
		if time.Now().After(patience) {
			l.Fatal("blocks do not turn up")
		}
	}
}

// look takes the times. How many rows can be asked for is known from the tables' parts:
// questions about the rows themselves, many a second, would be a load of their own. Rows
// are visible in the order in which they were handed in, but for small differences.
func (l *load) look() (missing int) {
	var rows uint64
	const query = "SELECT sum(rows) FROM system.parts WHERE active AND database = 'csigscope' AND table = 'partials_1s'"
	if err := l.reader.QueryRow(l.Context(), query).Scan(&rows); err != nil {
		l.Fatal(err)
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.delays) < int(rows)/l.cells {
		l.delays = append(l.delays, now.Sub(l.handed[len(l.delays)]))
	}
	return len(l.handed) - len(l.delays)
}

// memory is what the heap holds, both sides together.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc >> 20
}

// TestLoad hands in windows of 200 cells a second from many exporters, with TLS, through
// the real store, and asks for them. CSIGSCOPE_INGEST_LOAD=10m (make load) does it for so
// long, with 500 exporters, and holds it to the delay promised; the machine must have
// nothing else to do then.
func TestLoad(t *testing.T) {
	exporters, length := 50, 6*time.Second
	full := os.Getenv("CSIGSCOPE_INGEST_LOAD")
	if full != "" {
		var err error
		if length, err = time.ParseDuration(full); err != nil {
			t.Fatal(err)
		}
		exporters = 500
	}
	if testing.Short() {
		t.Skip("SKIPPED: -short; the load is run without the race detector")
	}
	l := newLoad(t, exporters, 200)
	start := memory()
	l.run(max(int(length/(2*time.Second)), 1))
	half := memory()
	l.run(max(int(length/(2*time.Second)), 1))
	end := memory()
	for _, c := range l.clients {
		c.flush(t)
	}
	if err := l.store.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(l.delays)
	p50, p90, p99 := l.delays[len(l.delays)/2], l.delays[len(l.delays)*9/10], l.delays[len(l.delays)*99/100]
	var rows, observations uint64
	const query = "SELECT count(), sum(observations) FROM csigscope.partials_1s FINAL"
	if err := l.reader.QueryRow(t.Context(), query).Scan(&rows, &observations); err != nil {
		t.Fatal(err)
	}
	blocks := uint64(2 * max(int(length/(2*time.Second)), 1) * exporters)
	t.Logf("%d exporters, %d blocks, %d rows; until they can be asked for: median %s, 90th percentile %s, 99th percentile %s, worst %s; heap %d, %d, %d MiB",
		exporters, blocks, rows, p50, p90, p99, l.delays[len(l.delays)-1], start, half, end)
	if observations != l.observed || rows != blocks*200 {
		t.Errorf("%d rows with %d observations, want %d with %d", rows, observations, blocks*200, l.observed)
	}
	st := l.server.Stats().Total
	checkConservation(t, st)
	if st.StoredItems != blocks || st.StoredObservations != l.observed {
		t.Errorf("%+v, want %d blocks stored", st, blocks)
	}
	if full != "" && (p99 > 2*time.Second || end > half+half/4) {
		t.Errorf("99th percentile %s, heap from %d to %d MiB: want below 2 s, and flat", p99, half, end)
	}
}

var _ aggregate.Sink = storeSink{}
