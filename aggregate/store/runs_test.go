package store

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/decode/csig"
)

// runTest replays one capture under several configurations; each run has a different number of
// observations, which shows which run is visible.
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
	q := testQuestion()
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
	complete := func() bool {
		list, err := rt.s.Replayed(t.Context(), []uint64{first.Producer, 78})
		if err != nil || list[78] {
			t.Errorf("complete replays: %v, %v", list, err)
		}
		return list[first.Producer]
	}
	if complete() {
		t.Error("none done: a complete replay")
	}
	rt.end(first)
	rt.want("one done", 100)
	if !complete() {
		t.Error("one done: no complete replay")
	}
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

// TestPartialRuns lists the runs whose numbers are visible and incomplete.
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

// TestEndEarlier: for a producer with one incarnation at a time, all but the latest have ended.
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

// TestRunsOutliveKill: names, starts and ends of runs accepted by a killed process reach the next
// one. Names come before rows, ends after the rows before them.
func TestRunsOutliveKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), &Outbox{Dir: t.TempDir(), Interval: 10 * time.Second}
		f.setErr(errAway)
		s := storeBefore(t, f, o)
		run := Run{Source: aggregate.Source{Producer: 1}, Mode: RunLive, Name: "eth0"}
		killed := Run{Source: aggregate.Source{Producer: 2}, Mode: RunLive, Name: "eth0"}
		put(t, s, 1, 1, time.Second, 10)
		put(t, s, 1, 2, time.Minute, 10)
		if err := errors.Join(
			s.WriteEpoch(t.Context(), 7, "text"),
			s.PinNames(t.Context(), []fabric.Name{{Group: &fabric.Group{ID: 7, Name: "rack"}, Exporter: "a", Pinned: true}}),
			s.BeginRun(t.Context(), run), s.EndRun(t.Context(), run), s.EndKilled(t.Context(), []Run{killed}),
		); err != nil {
			t.Fatal(err)
		}
		next := *o
		next.Dir = t.TempDir()
		if err := os.CopyFS(next.Dir, os.DirFS(o.Dir)); err != nil { // as after a kill
			t.Fatal(err)
		}
		closeStore(t, s)
		f.setErr(nil)
		s = storeBefore(t, f, &next)
		s.deliveries[0].start()
		time.Sleep(time.Minute) // no caller hurries
		synctest.Wait()
		if want := []string{"epochs", "runs", "rows", "rows", "ends", "ends"}; !slices.Equal(f.order, want) || !slices.Equal(f.ended, []Run{run, killed}) || len(f.pins) != 1 {
			t.Errorf("came %q, want %q; pinned %v, ended %v", f.order, want, f.pins, f.ended)
		}
		closeStore(t, s)
	})
}

// TestEndsWait: runs end once the rows that earlier processes left in other outboxes are sent.
// While an end fails, rows and names are sent.
func TestEndsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), &Outbox{Dir: t.TempDir()}
		f.setErr(errAway)
		first, second := storeBefore(t, f, o), storeBefore(t, f, o)
		run := Run{Source: aggregate.Source{Producer: 2}, Mode: RunLive, Name: "eth0"}
		put(t, second, 2, 1, time.Second, 10)
		closeStore(t, second)
		closeStore(t, first)

		f.setErr(nil)
		s := storeBefore(t, f, o) // has both outboxes
		if err := s.EndKilled(t.Context(), []Run{run}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(f.order) != 0 {
			t.Errorf("came %q before the other outbox is sent", f.order)
		}
		f.endErr = errAway
		s.deliveries[1].start()
		time.Sleep(time.Minute)
		put(t, s, 3, 1, time.Second, 10)
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := s.BeginRun(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		f.endErr = nil
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := []string{"rows", "rows", "runs", "ends"}; !slices.Equal(f.order, want) {
			t.Errorf("came %q, want %q", f.order, want)
		}
		closeStore(t, s)
	})
}

// TestNamesFindNoRoom: names displace live rows in a full outbox, and without any left they
// return an error instead of leaving a gap.
func TestNamesFindNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), smallOutbox(t)
		f.setErr(errAway)
		s := storeBefore(t, f, o)
		if err := s.BeginRun(t.Context(), Run{Mode: RunLive}); err != nil {
			t.Fatal(err)
		}
		for seq := range uint64(60) {
			put(t, s, 1, seq, 10*time.Millisecond, 40)
		}
		var err error
		named, text := 0, strings.Repeat("x", 1000)
		for ; err == nil; named++ {
			err = s.WriteEpoch(t.Context(), uint64(named), text)
		}
		log := s.deliveries[0].log.Stats()
		if !errors.Is(err, outbox.ErrFull) || named < 20 || log.Lost[lostFull].Weight == 0 || log.Waiting.Weight >= 60*40 {
			t.Errorf("%v after %d names, %+v", err, named, log)
		}
		f.setErr(nil)
		if err := s.Flush(t.Context()); err != nil || f.records["epochs"] != named-1 {
			t.Errorf("%v, %d names came, want %d", err, f.records["epochs"], named-1)
		}
		closeStore(t, s)
	})
}

// TestWriteGaps: gaps with the same start differ in source, reason or resolution, and replace
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
