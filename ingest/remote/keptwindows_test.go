package remote

import (
	"math"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/wire"
)

// pushBlocks sends blocks to a collector as the exporter host1, and returns their outcomes.
func pushBlocks(t *testing.T, s *Server, list ...*wire.Block) []wire.Outcome {
	t.Helper()
	d := testDescription()
	e := s.client("host1", &s.limits, false)
	defer e.inFlight.Add(-1)
	m := &wire.PushRequest{Descriptions: []*wire.Description{d.toWire()}, Blocks: list}
	answer, err := s.take(t.Context(), callOfTest(e), m)
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetOutcomes()
}

// numbered makes a block one of an exporter, with rows that follow others of its window.
func numbered(b *aggregate.Block, incarnation, seq, before uint64) *wire.Block {
	d := testDescription()
	m := wholeToWire(b)
	m.Stream, m.Incarnation, m.Seq, m.Description, m.RowsBefore = "eth0", incarnation, seq, descriptionID(d.toWire()), before
	m.Flows.RowsBefore = before
	return m
}

// TestRowsBeforeLies: a stream that claims that each of its blocks is a window's first keeps no
// more rows than its limit, with any order of numbers and any number of incarnations.
func TestRowsBeforeLies(t *testing.T) {
	const limit, rows = 1000, 100
	at := time.Now().Truncate(time.Minute)
	for name, seq := range map[string]func(n uint64) uint64{
		"ascending": func(n uint64) uint64 { return n + 1 }, "descending": func(n uint64) uint64 { return 500 - n },
	} {
		t.Run(name, func(t *testing.T) {
			cfg, l := testConfig(t), newLedger()
			cfg.Logger, cfg.Limits = nil, Limits{MaxWindowRows: limit, MaxWindowFlows: math.MaxInt32}
			s := startCollector(t, cfg, l, "")
			refused := 0
			push := func(incarnation, seq uint64, at time.Time) {
				b := testBlock(newRand(t, incarnation<<32|seq), at, rows)
				switch got := pushBlocks(t, s.Server, numbered(b, incarnation, seq, 0))[0]; got {
				case wire.Outcome_OUTCOME_STORED:
				case wire.Outcome_OUTCOME_INVALID:
					refused++
				default:
					t.Fatal(got)
				}
			}
			for n := range uint64(30) {
				push(1, seq(n), at)
			}
			if len(l.rows) != limit || refused != 20 || s.Stats().Total.Refused[ReasonInvalid] != 20 {
				t.Errorf("%d rows kept, %d blocks refused, want %d and 20", len(l.rows), refused, limit)
			}
			push(1, 501, at.Add(time.Second))
			if len(l.rows) != limit+rows {
				t.Errorf("%d rows of another window kept", len(l.rows)-limit)
			}
			for n := range uint64(2 * maxIncarnations) {
				for i := range uint64(limit / rows) {
					push(2+n, 1+i, at)
				}
			}
			if n := len(l.rows) - rows; n > maxIncarnations*limit {
				t.Errorf("%d rows of all incarnations kept, want at most %d", n, maxIncarnations*limit)
			}
			checkConservation(t, s.Stats().Total)
		})
	}
}

// TestTrueCountsAreNeverRefused: an exporter that counts its rows is never refused, and its
// blocks give the same rows each time: in any order, repeated after disk failures, at two
// collectors that restart, and under limits that change.
func TestTrueCountsAreNeverRefused(t *testing.T) {
	rng := newRand(t, 11)
	const limit = 700
	at := time.Now().Truncate(time.Minute)
	l := newLedger()
	start := func() *Server {
		cfg := testConfig(t)
		cfg.Logger, cfg.Limits = nil, Limits{MaxWindowRows: limit, MaxWindowFlows: 30, RowRate: 1e9}
		return startCollector(t, cfg, l, "").Server
	}
	servers := []*Server{start(), start()}
	var list []*aggregate.Block
	var before []uint64
	total := uint64(0)
	for range 40 {
		list = append(list, testBlock(rng, at, 1+rng.IntN(60)))
		before = append(before, total)
		total += uint64(list[len(list)-1].Len())
	}
	if total < limit {
		t.Fatalf("%d rows: the limit is never reached", total)
	}
	waiting := rng.Perm(len(list))
	for step := 0; len(waiting) > 0; step++ {
		if step%10 == 9 {
			servers[rng.IntN(2)] = start()
		}
		i, s := waiting[0], servers[rng.IntN(2)]
		fails := rng.IntN(4) == 0
		if fails {
			l.mu.Lock()
			l.fails = errSink
			l.mu.Unlock()
		}
		d := testDescription()
		e := s.client("host1", &s.limits, false)
		m := &wire.PushRequest{Descriptions: []*wire.Description{d.toWire()}, Blocks: []*wire.Block{numbered(list[i].Clone(), 1, uint64(i)+1, before[i])}}
		answer, err := s.take(t.Context(), callOfTest(e), m)
		e.inFlight.Add(-1)
		if fails {
			l.mu.Lock()
			l.fails = nil
			l.mu.Unlock()
		}
		if err != nil && !fails {
			t.Fatal(err)
		}
		if err == nil && answer.GetOutcomes()[0] != wire.Outcome_OUTCOME_STORED && answer.GetOutcomes()[0] != wire.Outcome_OUTCOME_REPEAT {
			t.Fatalf("block %d: %s", i, answer.GetOutcomes()[0])
		}
		if waiting = waiting[1:]; err != nil || rng.IntN(3) == 0 { // the answer is lost
			waiting = append(waiting, i)
		}
	}
	l.mu.Lock()
	changed := l.changed
	l.mu.Unlock()
	if got, want := l.totals()[Producer("host1", "eth0")], totalsOf(list...); got != want || changed {
		t.Errorf("%+v, want %+v; a row came with other values: %t", got, want, changed)
	}
	own := 0
	for id := range l.rows {
		if id.rowKey != overflowOf(id.rowKey) {
			own++
		}
	}
	if own != limit {
		t.Errorf("%d rows kept by their own keys, want %d", own, limit)
	}
	lower := servers[0].limits
	lower.MaxWindowRows = limit / 2
	k := windowKey{Producer("host1", "eth0"), int64(time.Second), at.UnixNano()}
	if !servers[0].kept.take("host1", k, 1, windowRows{rows: 10}, windowRows{uint64(lower.MaxWindowRows), 30}) {
		t.Error("rows that were kept under other limits count under lower ones")
	}
}

// TestSentWindows: a stream counts recent windows exactly, and never counts too few rows of
// older ones.
func TestSentWindows(t *testing.T) {
	rng := newRand(t, 12)
	w := &sentWindows{floor: math.MinInt64}
	real := map[int64]windowRows{}
	late := 0
	for n := range int64(10 * minWindows) {
		start := n
		if rng.IntN(10) == 0 {
			start = max(0, n-rng.Int64N(3*minWindows))
		}
		more := windowRows{rng.Uint64N(100), rng.Uint64N(10)}
		got, want := w.add(start, more), real[start]
		real[start] = want.plus(more)
		if got != want {
			late++
		}
		if got.rows < want.rows || got.flows < want.flows || got != want && start > n-minWindows {
			t.Fatalf("window %d of %d: %+v, want %+v", start, n, got, want)
		}
		if len(w.list) >= 2*minWindows {
			t.Fatalf("%d windows are counted", len(w.list))
		}
	}
	if late == 0 {
		t.Error("no window was long past")
	}
}

// TestObservationsBeyondTheLimit: a stream of observations keeps no more rows of a second than
// its limit, with any number of batches, and a batch gives the same rows at each collector.
func TestObservationsBeyondTheLimit(t *testing.T) {
	const limit = 200
	l := newLedger()
	cfg := testConfig(t)
	cfg.Logger, cfg.Limits, cfg.Observations = nil, Limits{MaxWindowRows: limit, RowRate: 1e9}, observing(t)
	servers := []*collector{startCollector(t, cfg, l, ""), startCollector(t, cfg, l, "")}
	push := func(seq uint64) {
		obs := observations(t, seq, 2000) // of three seconds, each with more keys than the limit
		for i := range obs {
			obs[i].Src[13], obs[i].Src[14] = byte(seq), byte(i%100)
		}
		m := observationsToWire(obs)
		m.Stream, m.Incarnation, m.Seq = "nic", 1, seq
		for _, s := range servers {
			if _, err := pushTo(t, s, &wire.PushRequest{Observations: []*wire.Observations{m}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for seq := range uint64(10) {
		push(seq + 1)
	}
	if l.changed {
		t.Error("a batch came to other rows the second time")
	}
	seconds := map[int64]int{}
	for k := range l.rows {
		if k.resolution == int64(time.Second) && k.src != uint64(aggregate.OverflowGroup) {
			seconds[k.start]++
		}
	}
	for start, n := range seconds {
		if n > limit {
			t.Errorf("%d rows of the second at %d, want at most %d", n, start, limit)
		}
	}
	for _, s := range servers {
		total := s.Stats().Total
		if total.Refused[ReasonInvalid] == 0 || total.OverflowObservations == 0 {
			t.Errorf("nothing was refused or folded: %+v", total)
		}
		checkConservation(t, total)
	}
}

// TestKeptOfGoneStream: a stored block that comes again after its stream gave way to another is
// stored as equal rows.
func TestKeptOfGoneStream(t *testing.T) {
	cfg, l := testConfig(t), newLedger()
	cfg.Logger, cfg.Limits = nil, Limits{MaxStreams: 1, MaxWindowRows: 1000, MaxWindowFlows: 1 << 20}
	s := startCollector(t, cfg, l, "")
	at, d := time.Now().Truncate(time.Second), testDescription()
	store := func(stream string, b *aggregate.Block) {
		t.Helper()
		m := numbered(b, 1, 1, 0)
		m.Stream = stream
		end := &wire.Record{Stream: stream, Incarnation: 1, Epoch: d.Epoch(), Description: descriptionID(d.toWire()), What: &wire.Record_End{End: &wire.End{}}}
		if got := pushBlocks(t, s.Server, m); got[0] != wire.Outcome_OUTCOME_STORED {
			t.Errorf("%s: %v", stream, got)
		}
		if _, err := s.take(t.Context(), callOfTest(s.client("host1", &s.limits, false)), &wire.PushRequest{Records: []*wire.Record{end}}); err != nil {
			t.Fatal(err)
		}
	}
	large := testBlock(newRand(t, 1), at, 600)
	store("eth0", large)
	store("eth1", testBlock(newRand(t, 2), at, 10))
	store("eth0", large)
	if l.changed {
		t.Error("the block came to other rows the second time")
	}
}
