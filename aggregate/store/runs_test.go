package store

import (
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// runTest replays one capture under several configurations; each pass counts a
// number of observations of its own, which tells which of them is visible.
type runTest struct {
	*testing.T
	s *Store
}

func (t runTest) run(epoch uint64, mode RunMode) Run {
	return Run{Source: aggregate.Source{Producer: 77, Incarnation: 5, Epoch: epoch}, Mode: mode, Name: "capture.pcap"}
}

func (t runTest) begin(r Run) {
	t.Helper()
	if err := t.s.BeginRun(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := t.s.WriteBlock(t.Context(), blockOf([]row{{
		source: r.Source, resolution: int64(time.Second), window: testStart.UnixNano(),
		signal: uint8(csig.MinABWRatio), kind: 1, src: 10, dst: 11, location: 5,
		observations: r.Epoch,
	}})); err != nil {
		t.Fatal(err)
	}
	if err := t.s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (t runTest) end(r Run) {
	t.Helper()
	if err := t.s.EndRun(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func (t runTest) want(when string, observations uint64) {
	t.Helper()
	q := testQuery()
	q.Step = time.Second
	cells, err := t.s.Cells(t.Context(), q)
	if err != nil || len(cells) != 1 {
		t.Fatalf("%s: %d cells, %v", when, len(cells), err)
	}
	windows, err := t.s.LocationWindows(t.Context(), q)
	if err != nil || len(windows) != 1 {
		t.Fatalf("%s: %d windows, %v", when, len(windows), err)
	}
	extent, err := t.s.Extent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := cells[0].Observations; got != observations || windows[0].Observations != observations || extent.Observations != observations {
		t.Errorf("%s: %d observations in cells, %d in windows, %d in the extent, want %d",
			when, got, windows[0].Observations, extent.Observations, observations)
	}
}

func TestReplaysSupersede(t *testing.T) {
	sequential(t)
	rt := runTest{t, openStore(t)}
	first, second, third := rt.run(100, RunReplay), rt.run(20, RunReplay), rt.run(3, RunReplay)
	rt.begin(first)
	rt.want("the only run, under way", 100)
	rt.begin(second)
	rt.want("none done: the latest started", 20)
	rt.end(first)
	rt.want("one done", 100)
	rt.end(second)
	rt.want("both done: the latest", 20)
	rt.begin(third)
	rt.want("a third under way", 20)
	rt.begin(first)
	rt.want("the first repeated, under way", 20)
	rt.end(first)
	rt.want("the first repeated, done", 100)
	rt.begin(first)
	rt.want("a visible run repeated, under way", 100)
}

// TestPartialRuns are those whose numbers are shown and not whole.
func TestPartialRuns(t *testing.T) {
	sequential(t)
	rt := runTest{t, openStore(t)}
	want := func(when string, epochs ...uint64) {
		t.Helper()
		list, err := rt.s.PartialRuns(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		for _, r := range list {
			got = append(got, r.Epoch)
			if r.Name != "capture.pcap" || time.Since(r.Started) > time.Hour {
				t.Errorf("%s: %+v", when, r)
			}
		}
		if !slices.Equal(got, epochs) {
			t.Errorf("%s: epochs %v, want %v", when, got, epochs)
		}
		infos := 0
		err = rt.s.Verify(t.Context(), VerifyOptions{Now: time.Now()}, func(f Finding) error {
			if f.Check == "run under way or interrupted" && f.Info {
				infos += int(f.Count)
			}
			return nil
		})
		if err != nil || infos != len(epochs) {
			t.Errorf("%s: verified %d, %v, want %d", when, infos, err, len(epochs))
		}
	}
	first, second := rt.run(100, RunReplay), rt.run(20, RunReplay)
	want("nothing stored")
	rt.begin(first)
	want("a first pass under way", 100)
	rt.begin(second)
	want("none done: the latest is shown", 20)
	rt.end(first)
	want("one done: it is shown")
	rt.begin(first)
	want("the one that is done, repeated")
	live := rt.run(3, RunLive)
	live.Producer = 78
	rt.begin(live)
	want("a live run")
}

func TestLiveRunsAddUp(t *testing.T) {
	sequential(t)
	rt := runTest{t, openStore(t)}
	for _, epoch := range []uint64{100, 20} {
		r := rt.run(epoch, RunLive)
		rt.begin(r)
		rt.end(r)
	}
	rt.want("two lives", 120)
}

// TestOtherProducersStay has two captures in one store.
func TestOtherProducersStay(t *testing.T) {
	sequential(t)
	rt := runTest{t, openStore(t)}
	other := rt.run(1000, RunReplay)
	other.Producer = 78
	rt.begin(other)
	rt.end(other)
	for _, epoch := range []uint64{100, 20} {
		r := rt.run(epoch, RunReplay)
		rt.begin(r)
		rt.end(r)
	}
	rt.want("one capture replayed twice, another once", 1020)
}

// TestEndEarlier: of a producer that has one life at a time, those before the latest one
// are over.
func TestEndEarlier(t *testing.T) {
	sequential(t)
	s := openStore(t)
	life := func(producer, incarnation, epoch uint64) Run {
		return Run{Source: aggregate.Source{Producer: producer, Incarnation: incarnation, Epoch: epoch}, Mode: RunLive, Name: "host/eth0"}
	}
	latest := []Run{life(1, 12, 5), life(2, 7, 5)}
	other := life(3, 1, 5)
	if err := s.BeginRuns(t.Context(), append([]Run{life(1, 11, 4), life(1, 11, 5), other, life(1, 1<<63, 5)}, latest...)); err != nil {
		t.Fatal(err)
	}
	if err := s.EndRun(t.Context(), life(1, 11, 4)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.EndEarlier(t.Context(), latest); err != nil {
			t.Fatal(err)
		}
	}
	got := readStrings(t, s, "SELECT concat(toString(producer), ' ', toString(incarnation), ' ', toString(epoch), ' ', name) FROM csigscope.runs FINAL WHERE state = 'done' ORDER BY producer, incarnation, epoch")
	if want := []string{"1 11 4 host/eth0", "1 11 5 host/eth0"}; !slices.Equal(got, want) {
		t.Errorf("ended %q, want %q", got, want)
	}
}

// TestWriteGaps: gaps of one beginning are apart by what they are of, and replace
// themselves.
func TestWriteGaps(t *testing.T) {
	sequential(t)
	s := openStore(t)
	g := Gap{Source: aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}, From: testStart, To: testStart.Add(time.Minute), Reason: "exporter_full"}
	first, second, third := g, g, g
	first.Resolution, first.Rows, first.Observations, first.ID = time.Second, 4, 40, 9
	second.Resolution, second.Rows, second.Observations, second.ID = time.Minute, 1, 40, 9
	third.Resolution, third.Rows, third.Observations, third.ID = time.Second, 2, 7, 10
	for range 2 {
		if err := s.WriteGaps(t.Context(), []Gap{g, first, second, third}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := readStrings(t, s, "SELECT concat(toString(resolution_ns), ' ', toString(count()), ' ', toString(sum(rows)), ' ', toString(sum(observations))) FROM csigscope.gaps FINAL GROUP BY resolution_ns ORDER BY resolution_ns")
	if want := []string{"0 1 0 0", "1000000000 2 6 47", "60000000000 1 1 40"}; !slices.Equal(got, want) {
		t.Errorf("gaps %q, want %q", got, want)
	}
}
