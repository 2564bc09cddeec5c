package store

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

func TestWindows(t *testing.T) {
	sequential(t)
	s := openStore(t)
	writeAncestry(t, s)
	rng := rand.New(rand.NewPCG(7, 7))
	g := traffic{resolution: 10 * time.Millisecond, windows: 7, groups: 4, locations: 12, signals: allSignals}
	fine := g.rows(rng, aggregate.Source{Producer: 1})
	g.resolution = time.Second
	seconds := g.rows(rng, aggregate.Source{Producer: 1, Incarnation: 1})
	write(t, s, blocks(append(fine[:len(fine):len(fine)], seconds...)))

	cases := []struct {
		rows             []row
		resolution, step time.Duration
	}{
		{fine, 10 * time.Millisecond, 10 * time.Millisecond},
		{fine, 10 * time.Millisecond, 30 * time.Millisecond},
		{seconds, time.Second, time.Second},
		{seconds, time.Second, 3 * time.Second},
		{seconds, time.Second, time.Hour},
	}
	for i, c := range cases {
		for signal, level := range signalsAndLevels(i, len(cases)) {
			q := testQuestion()
			q.Signal, q.Level, q.Resolution, q.Step = signal, level, c.resolution, c.step
			q.To = q.From.Add(20 * c.resolution)
			compareWindows(t, s, c.rows, q)
		}
	}
}

func compareWindows(t *testing.T, s *Store, rows []row, q Question) {
	t.Helper()
	level := ancestry(q.Level)
	cells, err := s.CellWindows(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	want := cellWindowsOf(rows, q.Signal, level, q.Step)
	judgeWindows(rows, &q, want)
	if diff := cmp.Diff(want, cells); diff != "" {
		t.Fatalf("cell windows of %+v (-want +got):\n%s", q, diff)
	}
	locations, err := s.LocationWindows(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(locationWindowsOf(rows, q.Signal, level, q.Step), locations); diff != "" {
		t.Fatalf("location windows of %+v (-want +got):\n%s", q, diff)
	}
	top, err := s.TopLocations(t.Context(), q, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(topLocationsOf(rows, q.Signal, level), top); diff != "" {
		t.Fatalf("top locations of %+v (-want +got):\n%s", q, diff)
	}
}

// TestEqualLocations: of locations with equally many heavy observations, the one with the more severe mean
// comes first, then the one with the lower id.
func TestEqualLocations(t *testing.T) {
	sequential(t)
	s := openStore(t)
	for signal, want := range map[csig.Signal][]aggregate.LocationID{csig.MinABWRatio: {7, 5, 6}, csig.MaxDelay: {5, 6, 7}} {
		var rows []row
		for location, mean := range map[uint64]uint64{5: 200, 6: 200, 7: 100} {
			rows = append(rows, row{
				resolution: int64(time.Second), window: testStart.UnixNano(), signal: uint8(signal), kind: 1, src: 10, dst: 11, location: location,
				observations: 20, heavy: 20, heavySum: 20 * mean,
			})
		}
		write(t, s, blocks(rows))
		top, err := s.TopLocations(t.Context(), Question{Signal: signal, From: testStart, To: testStart.Add(time.Minute), Resolution: time.Second}, 3)
		var got []aggregate.LocationID
		for _, l := range top {
			got = append(got, l.Location)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: locations %d, %v, want %d", signal, got, err, want)
		}
	}
}

// TestFilters asks for single cells and for parts of the range.
func TestFilters(t *testing.T) {
	sequential(t)
	s := openStore(t)
	rng := rand.New(rand.NewPCG(3, 3))
	g := traffic{resolution: time.Second, windows: 60, groups: 4, locations: 6, signals: []csig.Signal{csig.MinABWRatio}}
	rows := g.rows(rng, aggregate.Source{Producer: 1})
	write(t, s, blocks(rows))
	src, dst := aggregate.GroupID(11), aggregate.GroupID(12)
	from, to := testStart.Add(17*time.Second), testStart.Add(43*time.Second)

	q := Question{Signal: csig.MinABWRatio, From: from, To: to, Resolution: time.Second, Src: &src, Dst: &dst}
	got, err := s.Cells(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(judgedCells(rows, &q, ancestry(0)), got, cmpopts.IgnoreSliceElements(func(c aggregate.CellStats) bool { return c.Src != src || c.Dst != dst })); diff != "" || len(got) != 1 {
		t.Errorf("%d cells (-want +got):\n%s", len(got), diff)
	}
}

// TestResolution has 1 min rows with fewer observations than the 1 s rows, which shows which of
// them answered.
func TestResolution(t *testing.T) {
	sequential(t)
	s := openStore(t)
	r := row{
		resolution: int64(time.Second), signal: uint8(csig.MinABWRatio), kind: 1,
		src: 10, dst: 11, location: 5, observations: 20,
	}
	if err := s.BeginRun(t.Context(), Run{Source: r.source, Mode: RunLive}); err != nil {
		t.Fatal(err)
	}
	for i := range 120 {
		r.window = testStart.Add(time.Duration(i) * time.Second).UnixNano()
		write(t, s, blocks([]row{r}))
	}
	r.resolution, r.window, r.observations = int64(time.Minute), testStart.UnixNano(), 1
	write(t, s, blocks([]row{r}))
	ask := func(from, to time.Duration) uint64 {
		t.Helper()
		cells, err := s.Cells(t.Context(), Question{Signal: csig.MinABWRatio, From: testStart.Add(from), To: testStart.Add(to)})
		if err != nil || len(cells) != 1 {
			t.Fatalf("%d cells, %v", len(cells), err)
		}
		return cells[0].Observations
	}
	for _, c := range []struct {
		name     string
		from, to time.Duration
		want     uint64
	}{
		{"a whole minute that is closed", 0, time.Minute, 1},
		{"a minute of which no 1 min rows came yet", 0, 2 * time.Minute, 2400},
		{"part of a minute", 0, 90 * time.Second, 1800},
		{"from within a minute", 30 * time.Second, time.Minute, 600},
	} {
		if got := ask(c.from, c.to); got != c.want {
			t.Errorf("%s: %d observations, want %d", c.name, got, c.want)
		}
	}
	_, err := s.Cells(t.Context(), Question{Signal: csig.MinABWRatio, From: testStart, To: testStart.Add(time.Millisecond)})
	if !errors.Is(err, ErrQuestion) {
		t.Errorf("range below 1 s without a resolution: %v", err)
	}
}

// TestResolutionOfProcesses: windows of 1 min answer if every process has them up to its last second.
// Otherwise windows of 1 s answer, while they are stored.
func TestResolutionOfProcesses(t *testing.T) {
	sequential(t)
	s := openStore(t)
	first, second, otherEpoch := aggregate.Source{Producer: 1, Incarnation: 1, Epoch: 1}, aggregate.Source{Producer: 2}, aggregate.Source{Producer: 1, Incarnation: 1, Epoch: 2}
	before, replay := aggregate.Source{Producer: 3, Incarnation: 1}, aggregate.Source{Producer: 3, Incarnation: 2}
	later := aggregate.Source{Producer: 4, Incarnation: uint64(testStart.Add(10 * time.Minute).UnixNano())}
	if err := s.BeginRuns(t.Context(), []Run{
		{Source: first, Mode: RunLive},
		{Source: otherEpoch, Mode: RunLive},
		{Source: second, Mode: RunLive},
		{Source: later, Mode: RunLive},
		{Source: before, Mode: RunReplay},
		{Source: replay, Mode: RunReplay},
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.EndRun(t.Context(), Run{Source: replay, Mode: RunReplay}); err != nil {
		t.Fatal(err)
	}
	type stored struct {
		source           aggregate.Source
		seconds, minutes []int // the minutes in which it has a row of 1 s, of 20 observations, and of 1 min, of one
	}
	for i, c := range []struct {
		name string
		to   int // minute
		of   [2]stored
		want uint64 // observations
	}{
		{"one began within the range and was killed before it closed a minute", 20, [2]stored{{first, []int{0, 19}, []int{0, 19}}, {later, []int{11}, nil}}, 60},
		{"all minutes are closed", 2, [2]stored{{first, []int{0, 1}, []int{0, 1}}, {second, []int{0, 1}, []int{0, 1}}}, 4},
		{"one was killed before it closed its last minute", 2, [2]stored{{first, []int{0, 1}, []int{0, 1}}, {second, []int{0, 1}, []int{0}}}, 80},
		{"one was killed before it closed a minute", 3, [2]stored{{first, []int{0, 1, 2}, []int{0, 1, 2}}, {second, []int{0}, nil}}, 80},
		{"one resumed after a while, and its minute is open", 20, [2]stored{{first, []int{0, 19, 40}, []int{0, 19, 40}}, {second, []int{0, 19}, []int{0}}}, 80},
		{"one resumed after a while before the end of the range", 50, [2]stored{{second, []int{0, 19}, []int{0}}}, 40},
		{"one fell silent", 2, [2]stored{{first, []int{0, 1}, []int{0, 1}}, {second, []int{0}, []int{0}}}, 3},
		{"all fell silent", 2, [2]stored{{first, []int{0}, []int{0}}, {second, []int{0}, []int{0}}}, 2},
		{"the first seconds are no longer stored", 3, [2]stored{{first, []int{2}, []int{0, 1}}, {second, []int{2}, []int{0, 1}}}, 4},
		{"new settings within a minute", 2, [2]stored{{first, []int{0, 1}, []int{0}}, {otherEpoch, []int{1}, []int{1}}}, 2},
		{"an unfinished replay that was repeated", 2, [2]stored{{before, []int{0, 1}, nil}, {replay, []int{0, 1}, []int{0, 1}}}, 2},
	} {
		from := testStart.Add(time.Duration(i) * time.Hour)
		var rows []row
		for _, p := range c.of {
			r := row{source: p.source, signal: uint8(csig.MinABWRatio), kind: 1, src: 10, dst: 11, location: 5}
			add := func(at time.Time, resolution time.Duration, observations uint64) {
				r.window, r.resolution, r.observations, r.seq = at.UnixNano(), int64(resolution), observations, uint64(i*100+len(rows))
				rows = append(rows, r)
			}
			for _, m := range p.seconds {
				add(from.Add(time.Duration(m)*time.Minute+30*time.Second), time.Second, 20)
			}
			for _, m := range p.minutes {
				add(from.Add(time.Duration(m)*time.Minute), time.Minute, 1)
			}
		}
		write(t, s, blocks(rows))
		cells, err := s.Cells(t.Context(), Question{Signal: csig.MinABWRatio, From: from, To: from.Add(time.Duration(c.to) * time.Minute)})
		if err != nil || len(cells) != 1 || cells[0].Observations != c.want {
			t.Errorf("%s: %+v, %v; want %d observations", c.name, cells, err, c.want)
		}
	}
	var gone []Run
	for i := range uint64(6000) {
		gone = append(gone, Run{Source: aggregate.Source{Producer: 1<<63 + i, Incarnation: 1 << 60}, Mode: RunLive})
	}
	if err := s.BeginRuns(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if cells, err := s.Cells(t.Context(), Question{Signal: csig.MinABWRatio, From: testStart, To: testStart.Add(20 * time.Minute)}); err != nil || len(cells) != 1 {
		t.Errorf("many killed processes: %+v, %v", cells, err)
	}
}

func TestBadQuestions(t *testing.T) {
	sequential(t)
	s := openStore(t)
	for name, change := range map[string]func(*Question){
		"empty range":       func(q *Question) { q.To = q.From },
		"before 1970":       func(q *Question) { q.From = time.Unix(-1, 0) },
		"after 2105":        func(q *Question) { q.To = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC) },
		"level":             func(q *Question) { q.Level = fabric.LevelFarEnd + 1 },
		"step of nothing":   func(q *Question) { q.Step = 0 },
		"step not multiple": func(q *Question) { q.Step = 1500 * time.Millisecond },
		"too many windows":  func(q *Question) { q.To = q.From.Add(365 * 24 * time.Hour) },
		"resolution":        func(q *Question) { q.Resolution = 7 * time.Second; q.Step = 7 * time.Second },
	} {
		q := testQuestion()
		q.Step = time.Second
		change(&q)
		if _, err := s.CellWindows(t.Context(), q); err == nil {
			t.Errorf("%s: answered", name)
		}
	}
}
