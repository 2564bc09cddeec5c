package store

import (
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
)

// wireLane writes through a proxy that disturbs every third request.
type wireLane struct {
	home   *errand
	tally  *tally
	rounds int
}

func (w *wireLane) run(t *testing.T, rng *rand.Rand) {
	_, socket := startWire(t, w.home.Socket, 0.3, rng, w.tally)
	e := &errand{Socket: socket, Dir: filepath.Join(t.TempDir(), "outbox"), MaxBytes: 1 << 20, Keep: time.Hour}
	direct := &errand{Socket: w.home.Socket, Dir: filepath.Join(t.TempDir(), "none")}
	look := direct.open(t)
	defer closeStore(t, look)
	s := e.open(t)
	defer closeStore(t, s)
	for producer := range uint64(w.rounds) {
		life := newLife(10_000_000 + producer)
		if err := life.write(t.Context(), s, 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := life.compare(t.Context(), look, always); err != nil {
			t.Fatal(err)
		}
	}
}

// engineLane kills the engine while rows are on their way.
func engineLane(t *testing.T, home *errand, count *tally, rng *rand.Rand, kills int) {
	e := &errand{Socket: home.Socket, Dir: filepath.Join(t.TempDir(), "outbox"), MaxBytes: 4 << 20, Keep: time.Hour}
	s := e.open(t)
	defer closeStore(t, s)
	producer := uint64(20_000_000)
	for range kills {
		first := producer
		killed := make(chan struct{})
		time.AfterFunc(time.Duration(rng.IntN(60))*time.Millisecond, func() {
			defer close(killed)
			signalChildren(t, syscall.SIGKILL)
			count.add("engine kills", "any moment")
		})
		for ; producer < first+20; producer++ {
			if err := newLife(producer).write(t.Context(), s, 0); err != nil {
				t.Fatal(err)
			}
			if err := s.writer.flush(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		<-killed
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for transient(s.ask(t.Context(), s.reader, "ask", "SELECT 1", func(driver.Rows) error { return nil })) {
			time.Sleep(firstPause) // all rows had been sent, and the engine is still away
		}
		for ; first < producer; first++ {
			if err := newLife(first).compare(t.Context(), s, always); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// awayLane writes more rows than memory holds to an outbox that is soon full, while the engine is
// away.
func awayLane(t *testing.T, home *errand, count *tally) {
	const perBlock, blocks = 20_000, 40 // twice maxBufferedRows
	w, socket := startWire(t, home.Socket, 0, rand.New(rand.NewPCG(1, 1)), count)
	e := &errand{Socket: socket, Dir: filepath.Join(t.TempDir(), "outbox"), MaxBytes: 2 << 20, Keep: -1}
	s := e.open(t)
	defer closeStore(t, s)
	w.down.Store(true)
	count.add("outages", "longer than memory holds")
	before := heapInUse()
	source := aggregate.Source{Producer: 40_000_000, Incarnation: 1}
	written := make(chan error, 1)
	go func() {
		for seq := range uint64(blocks) {
			if err := s.WriteBlock(t.Context(), wideBlock(source, seq, perBlock)); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	most := 0
	// Until no more rows are accepted for a while; a slow disk may delay that.
	for calm := 0; calm < 50 || most < maxBufferedRows && calm < 12_000; calm++ {
		if n := s.WriterStats().Buffered; n > most {
			most, calm = n, 0
		}
		time.Sleep(10 * time.Millisecond)
	}
	if len(written) > 0 || most < maxBufferedRows || most > maxBufferedRows+perBlock {
		t.Errorf("%d rows in memory and all taken %v, want %d and the writer to wait", most, len(written) > 0, maxBufferedRows)
	}
	if grown := heapInUse() - before; grown > 500*maxBufferedRows {
		t.Errorf("%d bytes of memory for %d rows", grown, most)
	}
	w.down.Store(false)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rows, observations, cells uint64
	query := "SELECT count(), sum(observations), uniqExact(seq, src_group, dst_group) FROM csigscope.partials_1s FINAL WHERE producer = 40000000"
	if err := s.reader.QueryRow(t.Context(), query).Scan(&rows, &observations, &cells); err != nil {
		t.Fatal(err)
	}
	const want = perBlock * blocks
	if rows != want || cells != want || observations != 3*want {
		t.Errorf("%d rows of %d cells with %d observations, want %d with %d", rows, cells, observations, want, 3*want)
	}
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// wideBlock is a block of one observation size in many cells.
func wideBlock(source aggregate.Source, seq uint64, rows int) *aggregate.Block {
	list := make([]row, rows)
	for i := range list {
		list[i] = row{
			resolution: int64(time.Second), window: testStart.UnixNano(), source: source, seq: seq, kind: 1,
			src: uint64(i / 100), dst: uint64(i % 100), observations: 3, sum: 3, min: 1, max: 1,
			distCode: []uint16{1}, distCount: []uint64{3},
		}
	}
	return blockOf(list)
}
