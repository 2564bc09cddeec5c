package remote

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
	"github.com/csigscope/csigscope/ingest/retry"
)

// loadTest runs a collector with the real store in this process, exporters in another one, and
// the engine in a third one, so that the cost of each is known.
type loadTest struct {
	testing.TB
	cells  int
	reader driver.Conn
	store  *store.Store
	server *Server
	engine int // process id

	blocks sync.Mutex // held while a block goes to the store
	mu     sync.Mutex
	handed []int64 // export times of the blocks, Unix ns, in store order

	delays []time.Duration // until they could be queried
	heap   []uint64        // of the collector, MiB, one per second
}

// loadSink records the order in which blocks reach the store, which is the order in which they
// become visible.
type loadSink struct {
	storeSink
	*loadTest
}

// WriteBlock implements Sink.
func (s loadSink) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	s.blocks.Lock()
	defer s.blocks.Unlock()
	at := int64(b.DstGroup[0])
	if err := s.storeSink.WriteBlock(ctx, b); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handed = append(s.handed, at)
	return nil
}

// newLoadTest starts a collector and returns its URL.
func newLoadTest(t testing.TB, ca *edgetest.Authority, cells int) (l *loadTest, url string) {
	t.Helper()
	l = &loadTest{TB: t, cells: cells}
	engine, reader := startEngine(t, t.TempDir())
	l.reader, l.engine = reader, peerOf(t, engine.Socket())
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	var err error
	if l.store, err = openStore(t.Context(), engine, t.TempDir(), logger); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.store.Close(); err != nil {
			t.Error(err)
		}
	})
	sink := storeSink{l.store}
	if l.server, err = NewServer(ServerConfig{Auth: edge.Auth{TLS: ca.Server()}, Admission: Admission{Permits: everybody}, Logger: logger}, loadSink{sink, l}, sink); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := l.server.Serve(ctx, ln); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return l, "https://" + ln.Addr().String()
}

// lookEvery is the resolution of the delays. More frequent queries would take CPU time from the
// engine.
const lookEvery = 100 * time.Millisecond

// watch records when blocks can be queried, until all can.
func (l *loadTest) watch(blocks int, patience time.Duration) {
	l.Helper()
	late, second := time.Now().Add(patience), time.Now()
	for len(l.delays) < blocks {
		retry.Sleep(l.Context(), lookEvery)
		l.look()
		if now := time.Now(); now.Sub(second) >= time.Second {
			second = now
			l.heap = append(l.heap, liveHeap())
		}
		if time.Now().After(late) {
			l.Fatalf("%d of %d blocks did not turn up", blocks-len(l.delays), blocks)
		}
	}
}

// look queries the number of visible rows from the table's metadata: many queries per second of
// the rows themselves would add load.
func (l *loadTest) look() {
	l.Helper()
	var rows uint64
	const query = "SELECT sum(total_rows) FROM system.tables WHERE database = 'csigscope' AND name = 'partials_1s'"
	if err := l.reader.QueryRow(l.Context(), query).Scan(&rows); err != nil {
		l.Fatal(err)
	}
	now := time.Now().UnixNano()
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.delays) < min(int(rows)/l.cells, len(l.handed)) {
		l.delays = append(l.delays, time.Duration(now-l.handed[len(l.delays)]))
	}
}

// peerOf returns the process that serves a socket.
func peerOf(t testing.TB, socket string) int {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var peer *syscall.Ucred
	control := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if control != nil || err != nil {
		t.Fatal(control, err)
	}
	return int(peer.Pid)
}

// used returns the CPU time of a process, and its resident memory in MiB.
func used(t testing.TB, process int) (cpu time.Duration, resident int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	if err != nil {
		t.Fatal(err)
	}
	// The name may contain anything, so parse after it: state is the third field, utime and
	// stime are the 14th and 15th, in hundredths of a second, rss the 24th, in pages.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	number := func(field int) (n int) {
		if _, err := fmt.Sscan(fields[field-3], &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	return time.Duration(number(14)+number(15)) * 10 * time.Millisecond, number(24) * os.Getpagesize() >> 20
}

// TestLoad sends windows of 200 cells a second from many exporters, with TLS, through the real
// store, and measures the time until they can be queried. CSIGSCOPE_TEST_INGEST_LOAD=10m (make
// load) runs it for that long with 500 exporters and checks the promised delay; the machine
// must be otherwise idle.
func TestLoad(t *testing.T) {
	const cells = 200
	exporters, length := 50, 3*time.Second
	full := os.Getenv(loadVariable)
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
	ca := edgetest.NewAuthority(t)
	l, url := newLoadTest(t, ca, cells)
	windows := int(length / time.Second)
	blocks := exporters * windows
	s := newSpread(t, ca, exporters, exporters, exportersErrand{
		URL: url, Dir: t.TempDir(), Cells: cells, Every: time.Second, Count: windows,
	})
	collectorBefore, _ := used(t, os.Getpid())
	engineBefore, _ := used(t, l.engine)
	s.start()
	l.watch(blocks, length+time.Minute)
	collector, resident := used(t, os.Getpid())
	engine, engineResident := used(t, l.engine)
	s.hosts[0].await(time.Minute)
	state := s.hosts[0].cmd.ProcessState
	per := func(d time.Duration) float64 { return d.Seconds() / float64(blocks*cells) * 1e6 }
	t.Logf("%d exporters, %d blocks, %d rows; until they can be asked for: %s", exporters, blocks, blocks*cells, quantiles(l.delays))
	t.Logf("CPU seconds a million rows: exporters %.2f, collector %.2f, engine %.2f; resident: collector %d MiB, engine %d MiB; the collector's heap by quarters of the time, most: %v MiB",
		per(state.UserTime()+state.SystemTime()), per(collector-collectorBefore), per(engine-engineBefore), resident, engineResident, quarters(l.heap))
	l.checkLoad(s, windows)
	p99 := l.delays[len(l.delays)*99/100]
	if q := quarters(l.heap); full != "" && (p99 > 2*time.Second || q[3] > q[1]+q[1]/4) {
		t.Errorf("99th percentile %s, heap of %v MiB: want below 2 s, and flat", p99, q)
	}
}

// checkLoad: nothing is lost, and nothing is stored twice.
func (l *loadTest) checkLoad(s *spread, windows int) {
	l.Helper()
	if err := l.store.Flush(l.Context()); err != nil {
		l.Fatal(err)
	}
	rows, err := l.reader.Query(l.Context(), "SELECT producer, count(), sum(observations) FROM csigscope.partials_1s FINAL GROUP BY producer")
	if err != nil {
		l.Fatal(err)
	}
	defer rows.Close()
	type totals struct{ rows, observations uint64 }
	got, all := map[uint64]totals{}, uint64(0)
	for rows.Next() {
		var producer uint64
		var one totals
		if err := rows.Scan(&producer, &one.rows, &one.observations); err != nil {
			l.Fatal(err)
		}
		got[producer] = one
	}
	if err := rows.Err(); err != nil {
		l.Fatal(err)
	}
	names := s.hosts[0].errand.Names
	for _, name := range names {
		n := uint64(windows)
		want := totals{n * uint64(l.cells), n * totalsOf(loadBlock(name, l.cells)).observations}
		if at := got[Producer(name, "eth0")]; at != want {
			l.Errorf("%s: stored %+v, want %+v", name, at, want)
		}
		all += want.observations
	}
	st := l.server.Stats().Total
	checkConservation(l, st)
	if int(st.StoredItems) != windows*len(names) || st.StoredObservations != all || len(got) != len(names) {
		l.Errorf("%+v, want %d blocks stored with %d observations of %d producers, not %d", st, windows*len(names), all, len(names), len(got))
	}
}

// quantiles sorts and describes delays.
func quantiles(d []time.Duration) string {
	slices.Sort(d)
	at := func(percent int) time.Duration { return d[(len(d)-1)*percent/100].Round(time.Millisecond) }
	return fmt.Sprintf("median %s, 90th percentile %s, 99th percentile %s, worst %s", at(50), at(90), at(99), at(100))
}

// quarters returns the largest value in each quarter of the time.
func quarters(values []uint64) (out [4]uint64) {
	for i, v := range values {
		q := &out[i*4/len(values)]
		*q = max(*q, v)
	}
	return out
}
