package store

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// fakeServer keeps one copy of each row that it is sent, and fails as configured.
type fakeServer struct {
	mu     sync.Mutex
	err    error // of every call
	refuse uint64
	dies   int                  // inserts whose token it keeps but whose rows it loses
	rows   map[rowSample]uint64 // observations
	raw    int                  // rows, including duplicates
	tokens map[string]int       // rows by token
	gaps   map[gap]bool

	records map[string]int // rows by table
	pins    []fabric.Name
	ended   []Run
	endErr  error    // of ends of runs
	order   []string // of all calls
}

func newFakeServer() *fakeServer {
	return &fakeServer{rows: map[rowSample]uint64{}, tokens: map[string]int{}, gaps: map[gap]bool{}, records: map[string]int{}}
}

var errAway = &net.OpError{Op: "dial", Err: errors.New("refused")}

func (f *fakeServer) setErr(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeServer) sendBatch(_ context.Context, b *batch, token string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	if _, known := f.tokens[token]; known && token != "" {
		return nil
	}
	if f.dies > 0 {
		f.dies--
		f.tokens[token] = 0
		return errAway
	}
	for i := range b.rows() {
		p := b.probe(i)
		if f.refuse != 0 && p.Producer == f.refuse {
			return &clickhouse.Exception{Code: codeTypeMismatch}
		}
		f.rows[p] = b.words[observationsColumn][i]
	}
	f.order = append(f.order, "rows")
	f.raw += b.rows()
	f.tokens[token] += b.rows()
	return nil
}

func (f *fakeServer) sendGaps(_ context.Context, list []gap) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range list {
		f.gaps[g] = true
	}
	if f.err == nil {
		f.order = append(f.order, "gaps")
	}
	return f.err
}

func (f *fakeServer) sendRecords(_ context.Context, in insertion) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		table, _, _ := strings.Cut(in.into, " ")
		f.records[table] += in.rows
		f.order = append(f.order, table)
	}
	return f.err
}

func (f *fakeServer) pinNames(_ context.Context, list []fabric.Name) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.pins = append(f.pins, list...)
	}
	return f.err
}

func (f *fakeServer) endRuns(_ context.Context, e *ending) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := cmp.Or(f.err, f.endErr); err != nil {
		return err
	}
	f.ended = slices.Concat(f.ended, e.Done, e.Killed)
	f.order = append(f.order, "ends")
	return nil
}

func (*fakeServer) keeps(_ context.Context, class int) (time.Duration, error) {
	if class == fineTable {
		return 6 * time.Hour, nil
	}
	return 14 * 24 * time.Hour, nil
}

func (f *fakeServer) present(_ context.Context, class int, probes []rowSample) (map[rowSample]bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := map[rowSample]bool{}
	for _, p := range probes {
		if _, ok := f.rows[p]; ok || class == flowsClass && f.records["flows"] > 0 {
			found[p] = true
		}
	}
	return found, f.err
}

func (*fakeServer) trimmed(_ context.Context, _ int, list []lossExtent) ([]bool, error) {
	return make([]bool, len(list)), nil
}

// forget loses the rows of a block.
func (f *fakeServer) forget(seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.rows, func(p rowSample, _ uint64) bool { return p.Seq == seq })
}

func (f *fakeServer) observations() (sum uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.rows {
		sum += n
	}
	return sum
}

// storeBefore is a store in front of a fake server.
func storeBefore(t *testing.T, f *fakeServer, o *Outbox) *Store {
	t.Helper()
	s := &Store{host: "fake", logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if err := s.openOutboxes(o, f, time.Minute); err != nil {
		t.Fatal(err)
	}
	s.writer = newWriter(s.deliveries[0].take, true, attempts{logger: s.logger})
	s.writer.start()
	return s
}

// put writes a block of rows that differ in their window.
func put(t *testing.T, s *Store, producer, seq uint64, resolution time.Duration, rows int) {
	t.Helper()
	list := make([]row, rows)
	for i := range list {
		list[i] = row{
			resolution: int64(resolution), window: testStart.UnixNano(), source: aggregate.Source{Producer: producer},
			seq: seq, kind: 1, src: uint64(i), observations: 1,
		}
	}
	if err := s.WriteBlock(t.Context(), blockOf(list)); err != nil {
		t.Fatal(err)
	}
	if err := s.writer.flush(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

func closeStore(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestServerAway: rows that a server refuses for an hour wait, and are sent in the end.
func TestServerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), &Outbox{Dir: t.TempDir()}
		s := storeBefore(t, f, o)
		f.setErr(errAway)
		for seq := range uint64(20) {
			put(t, s, 1, seq, time.Second, 10)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if got := s.WriterStats(); got.Waiting != 200 {
			t.Errorf("%d rows wait, want 200", got.Waiting)
		}
		if err := s.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("flush while the server is away: %v", err)
		}
		f.setErr(nil)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := f.observations(); got != 200 || f.raw != 200 {
			t.Errorf("%d observations in %d rows, want 200", got, f.raw)
		}
		if got := s.WriterStats(); got.Retries < 10 || got.Batches > 2 || got != (WriterStats{Rows: 200, Batches: got.Batches, Retries: got.Retries}) {
			t.Errorf("stats %+v, want 200 rows in the batch that was tried and one of all others", got)
		}
		closeStore(t, s)
	})
}

// TestNextCommandSends: a store that closes while the server is unreachable leaves its rows to
// the next one, which sends them with the same tokens.
func TestNextCommandSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), &Outbox{Dir: t.TempDir()}
		s := storeBefore(t, f, o)
		put(t, s, 1, 1, time.Second, 10)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.setErr(errAway)
		put(t, s, 1, 2, time.Second, 10)
		put(t, s, 1, 3, time.Minute, 10)
		before := time.Now()
		closeStore(t, s)
		if waited := time.Since(before); waited > closePatience {
			t.Errorf("closing took %s", waited)
		}

		f.setErr(nil)
		s = storeBefore(t, f, o)
		other := storeBefore(t, f, o) // a parallel command has an outbox of its own
		put(t, other, 2, 1, time.Second, 5)
		if err := errors.Join(s.Flush(t.Context()), other.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
		if got := f.observations(); got != 35 || f.raw != 35 || len(f.tokens) != 4 {
			t.Errorf("%d observations in %d rows of %d tokens, want 35 in 4", got, f.raw, len(f.tokens))
		}
		closeStore(t, s)

		f.setErr(errAway)
		put(t, other, 2, 2, time.Second, 5)
		closeStore(t, other)
		f.setErr(nil)
		s = storeBefore(t, f, o) // takes over both
		if err := s.Flush(t.Context()); err != nil || f.observations() != 40 {
			t.Errorf("%d observations, %v, want 40", f.observations(), err)
		}
		closeStore(t, s)
	})
}

// TestServerForgets: a server that lost rows gets them again, as long as they are kept.
func TestServerForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), &Outbox{Dir: t.TempDir(), Keep: 10 * time.Minute}
		s := storeBefore(t, f, o)
		send := func(seq uint64) {
			put(t, s, 1, seq, time.Second, 10)
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		want := func(when string, n uint64) {
			t.Helper()
			synctest.Wait()
			if got := f.observations(); got != n {
				t.Errorf("%s: %d observations, want %d", when, got, n)
			}
		}
		send(1)
		send(2)
		f.setErr(errAway)
		f.forget(1)
		put(t, s, 1, 3, time.Second, 10)
		time.Sleep(time.Minute)
		f.setErr(nil)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want("after an outage", 30)
		f.forget(2)
		time.Sleep(20 * time.Minute)
		want("before they are deleted", 30)
		f.forget(3)
		time.Sleep(time.Hour)
		want("when they are no longer kept", 20)
		send(4)
		closeStore(t, s)
		f.forget(4)
		s = storeBefore(t, f, o)
		s.deliveries[0].start()
		time.Sleep(time.Minute)
		want("in the next command", 30)
		closeStore(t, s)
		if f.tokens[""] != 30 {
			t.Errorf("%d rows without a token, want those that were forgotten", f.tokens[""])
		}
	})
}

// TestExpired: rows that are missing because they expired are not sent again by the next command.
func TestExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), &Outbox{Dir: t.TempDir()}
		for _, after := range []struct {
			time.Duration
			want uint64
		}{{5 * time.Hour, 10}, {7 * time.Hour, 0}} {
			s := storeBefore(t, f, o)
			put(t, s, 1, 1, 10*time.Millisecond, 10)
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			closeStore(t, s)
			f.forget(1)
			time.Sleep(after.Duration)
			s = storeBefore(t, f, o)
			s.deliveries[0].start()
			time.Sleep(20 * time.Minute) // until they are no longer kept
			if got := f.observations(); got != after.want {
				t.Errorf("after %s: %d observations, want %d", after.Duration, got, after.want)
			}
			closeStore(t, s)
			f.forget(1)
		}
	})
}

// TestLostAfterOutage: rows that a server loses soon after it took them are sent again, although they waited for it longer
// than it keeps rows.
func TestLostAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		s := storeBefore(t, f, &Outbox{Dir: t.TempDir()})
		f.setErr(errAway)
		put(t, s, 1, 1, 10*time.Millisecond, 10)
		time.Sleep(7 * time.Hour)
		f.setErr(nil)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.forget(1)
		time.Sleep(20 * time.Minute)
		if got := f.observations(); got != 10 {
			t.Errorf("%d observations, want 10", got)
		}
		closeStore(t, s)
	})
}

// TestRefusedIsReleased: a record that the server refuses does not keep the outbox from releasing later ones.
func TestRefusedIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		f.refuse = 1
		s := storeBefore(t, f, &Outbox{Dir: t.TempDir()})
		for producer := range uint64(3) {
			put(t, s, producer, 1, time.Second, 10)
			if err := s.Flush(t.Context()); err != nil && producer != 1 {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		if kept := s.deliveries[0].log.Acked(); len(kept) > 0 || f.observations() != 20 {
			t.Errorf("%d segments are kept, %d observations stored, want 0 and 20", len(kept), f.observations())
		}
		closeStore(t, s)
	})
}

// TestSteadyStream: sent records are dropped while others keep coming.
func TestSteadyStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		s := storeBefore(t, f, &Outbox{Dir: t.TempDir(), Keep: 2 * time.Second, Interval: time.Second})
		for seq := range uint64(1500) {
			put(t, s, 1, seq, time.Second, 1)
			time.Sleep(20 * time.Millisecond)
		}
		if kept, sent := s.deliveries[0].log.Acked(), s.WriterStats().Rows; len(kept) > 6 || sent < 1400 {
			t.Errorf("%d segments are kept for 2 s after %d rows were sent", len(kept), sent)
		}
		closeStore(t, s)
	})
}

// TestServerDies: a server that dies in an insert may come back with the token and without the
// rows. They are sent again before they are acknowledged, in this process or the next.
func TestServerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), &Outbox{Dir: t.TempDir()}
		s := storeBefore(t, f, o)
		put(t, s, 1, 1, time.Second, 10)
		if err := s.Flush(t.Context()); err != nil || f.observations() != 10 {
			t.Fatalf("%d observations, %v, want 10", f.observations(), err)
		}
		f.dies = 1
		put(t, s, 1, 2, time.Second, 10)
		if err := s.Flush(t.Context()); err != nil || f.observations() != 20 {
			t.Errorf("%d observations, %v, want 20", f.observations(), err)
		}
		f.dies = 1 << 20 // repeatedly, until the process ends
		put(t, s, 1, 3, time.Second, 10)
		closeStore(t, s)
		f.dies = 0
		s = storeBefore(t, f, o)
		put(t, s, 1, 4, time.Minute, 10) // sent first
		if err := s.Flush(t.Context()); err != nil || f.observations() != 40 {
			t.Errorf("%d observations, %v, want 40", f.observations(), err)
		}
		closeStore(t, s)
	})
}

// TestOrder: after an outage names are sent before windows, and windows before the rest. Rows
// that wait for others hold up nothing.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, source := newFakeServer(), aggregate.Source{Producer: 1}
		f.setErr(errAway)
		s := storeBefore(t, f, &Outbox{Dir: t.TempDir(), Interval: 10 * time.Second})
		few := func(seq uint64) error {
			return errors.Join(
				s.WriteTaps(t.Context(), []TapRow{aTap(source, seq, testStart)}),
				writeFlows(t.Context(), s, []FlowRow{aFlow(source, seq, testStart, 1)}),
				s.WriteFindings(t.Context(), []FindingRow{aFinding(source, seq, testStart)}),
				s.WriteGaps(t.Context(), []Gap{{Source: source, From: testStart, To: testStart.Add(time.Second), Reason: GapDrops}}),
			)
		}
		if err := errors.Join(s.WriteEpoch(t.Context(), 7, "text"), few(1), s.WriteEpoch(t.Context(), 8, "another")); err != nil {
			t.Fatal(err)
		}
		put(t, s, 1, 1, time.Second, 10)
		put(t, s, 1, 2, time.Minute, 10)
		f.setErr(nil)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := []string{"epochs", "epochs", "rows", "rows", "gaps", "findings", "flows", "taps"}; !slices.Equal(f.order, want) {
			t.Errorf("came %q, want %q", f.order, want)
		}
		f.order = nil
		put(t, s, 1, 3, time.Second, 10)
		if err := few(2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		slices.Sort(f.order)
		if want := []string{"findings", "gaps", "taps"}; !slices.Equal(f.order, want) {
			t.Errorf("came %q while rows wait for others, want %q", f.order, want)
		}
		closeStore(t, s)
	})
}

// TestRefused: rows that the server refuses permanently are given up, with a gap, and their run
// does not end. Others are sent.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), &Outbox{Dir: t.TempDir()}
		f.refuse = 7
		s := storeBefore(t, f, o)
		put(t, s, 7, 1, time.Second, 10)
		put(t, s, 1, 2, time.Second, 10)
		if err := s.EndRun(t.Context(), Run{Source: aggregate.Source{Producer: 7}, Mode: RunReplay}); !errors.Is(err, ErrRowsLost) {
			t.Errorf("end of the run: %v, want ErrRowsLost", err)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.observations() != 10 || len(f.gaps) != 1 {
			t.Errorf("%d observations and gaps %v, want 10 and one", f.observations(), f.gaps)
		}
		for g := range f.gaps {
			if g.Producer != 7 || g.Rows != 10 || g.Observations != 10 || g.Reason != "refused" || g.From != testStart.UnixNano() || g.To-g.From != 1e9 {
				t.Errorf("gap %+v", g)
			}
		}
		if s.lostOf(aggregate.Source{Producer: 1}) != 0 {
			t.Error("the other producer lost rows")
		}
		closeStore(t, s)
	})
}

// TestDenied: a flush does not wait for a server that denies access; the rows stay.
func TestDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), &Outbox{Dir: t.TempDir()}
		f.setErr(&clickhouse.Exception{Code: codeNotEnoughRights})
		s := storeBefore(t, f, o)
		put(t, s, 1, 1, time.Second, 10)
		if err := s.Flush(t.Context()); !errors.Is(err, ErrDenied) {
			t.Errorf("%v, want ErrDenied", err)
		}
		f.setErr(nil)
		time.Sleep(time.Minute)
		if err := s.Flush(t.Context()); err != nil || f.observations() != 10 {
			t.Errorf("%d observations, %v, want 10", f.observations(), err)
		}
		closeStore(t, s)
	})
}

// smallOutbox has room for some 100 batches.
func smallOutbox(t *testing.T) *Outbox { return &Outbox{Dir: t.TempDir(), MaxBytes: 256 << 10} }

// TestFullLive: live rows make room, the finest first, and leave gaps that add up.
func TestFullLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), smallOutbox(t)
		s := storeBefore(t, f, o)
		s.deliveries[0].live.Store(true)
		f.setErr(errAway)
		for seq := range uint64(250) {
			put(t, s, 1, seq, 10*time.Millisecond, 40)
			if seq%5 == 0 {
				put(t, s, 1, seq, time.Second, 20)
			}
		}
		f.setErr(nil)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		gaps, records := uint64(0), uint64(0)
		for g := range f.gaps {
			if g.Resolution != int64(10*time.Millisecond) || g.Reason != "full" || g.LogClass != "partials_fine" {
				t.Errorf("gap %+v, want fine rows", g)
			}
			gaps += g.Observations
			records += g.LastSeq - g.FirstSeq + 1
		}
		if records*40 != gaps {
			t.Errorf("gaps of %d records of 40 observations and of %d observations", records, gaps)
		}
		lost := s.deliveries[0].log.Stats().Lost[outbox.Reason("full")]
		if gaps == 0 || f.raw+int(gaps) != 11_000 || lost.Weight != gaps {
			t.Errorf("%d rows stored, %d in gaps, %d counted, want 11,000 together", f.raw, gaps, lost.Weight)
		}
		closeStore(t, s)
	})
}

// TestFullReplay: rows that can be read again wait for room.
func TestFullReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), smallOutbox(t)
		s := storeBefore(t, f, o)
		f.setErr(errAway)
		go func() {
			time.Sleep(10 * time.Minute)
			f.setErr(nil)
		}()
		for seq := range uint64(200) {
			put(t, s, 1, seq, 10*time.Millisecond, 100)
			if got := s.deliveries[0].log.Stats().Bytes; got > o.MaxBytes {
				t.Fatalf("%d bytes on disk", got)
			}
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.raw != 20_000 || len(f.gaps) != 0 {
			t.Errorf("%d rows and %d gaps, want 20,000 and none", f.raw, len(f.gaps))
		}
		log := s.deliveries[0].log
		closeStore(t, s)
		if got := log.Stats().Bytes; got > o.MaxBytes/16 {
			t.Errorf("%d bytes stay on disk, want at most a 16th of %d", got, o.MaxBytes)
		}
	})
}
