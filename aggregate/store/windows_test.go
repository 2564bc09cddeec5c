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

// TestEither: answers of rows of 1 min, and of those of 1 s where they are open or only in part in the range, are
// those of rows of 1 s alone.
func TestEither(t *testing.T) {
	sequential(t)
	s := openStore(t)
	writeAncestry(t, s)
	rng := rand.New(rand.NewPCG(11, 11))
	const signal, windows = csig.MaxDelay, 900
	running, killed := aggregate.Source{Producer: 1}, aggregate.Source{Producer: 2}
	if err := s.BeginRuns(t.Context(), []Run{{Source: running, Mode: RunLive}, {Source: killed, Mode: RunLive}}); err != nil {
		t.Fatal(err)
	}
	g := traffic{resolution: time.Second, windows: windows, groups: 3, locations: 12, signals: []csig.Signal{signal}}
	rows := g.rows(rng, running)
	g.windows = 400 // until within the seventh minute, of which it closed five
	rows = append(rows, g.rows(rng, killed)...)
	var closed []row
	for _, r := range folded(rows, time.Minute) {
		if r.window < testStart.Add(5*time.Minute).UnixNano() || r.source == running && r.window < testStart.Add(13*time.Minute).UnixNano() {
			closed = append(closed, r)
		}
	}
	write(t, s, blocks(append(rows[:len(rows):len(rows)], closed...)))
	for i, span := range [][2]int{{0, windows}, {37, 811}, {420, 780}} {
		q := Question{
			Signal: signal, From: testStart.Add(time.Duration(span[0]) * time.Second), To: testStart.Add(time.Duration(span[1]) * time.Second),
			Step: 2 * time.Minute, Level: fabric.Level(2 * i),
		}
		seconds := q
		seconds.Resolution = time.Second
		compare := func(what string, ask func(Question) (any, error)) {
			t.Helper()
			want, err := ask(seconds)
			got, otherErr := ask(q)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(aggregate.CellLocation{}, "Last", "LastMeasured", "LastSum", "LaterMeasured", "LaterSum"), cmpopts.IgnoreFields(aggregate.CellStats{}, "LaterMeasured", "LaterSum"), cmpopts.IgnoreFields(Coverage{}, "Lost", "GapNS", "GapShare")); diff != "" || err != nil || otherErr != nil {
				t.Errorf("%s of %v: %v, %v (-1 s +either):\n%s", what, span, err, otherErr, diff)
			}
		}
		compare("locations of cells", func(q Question) (any, error) { return s.CellLocations(t.Context(), q) })
		compare("codes", func(q Question) (any, error) { return s.Codes(t.Context(), q) })
		compare("signals", func(q Question) (any, error) { return s.Signals(t.Context(), q) })
		compare("coverage of cells", func(q Question) (any, error) { return s.CoverageCells(t.Context(), q) })
		compare("coverage", func(q Question) (any, error) { return s.CoverageWindows(t.Context(), q) })
		compare("cells", func(q Question) (any, error) { return s.Cells(t.Context(), q) })
		compare("locations", func(q Question) (any, error) { return s.TopLocations(t.Context(), q, 100) })
		compare("windows of locations", func(q Question) (any, error) { return s.LocationWindows(t.Context(), q) })
		compare("windows", func(q Question) (any, error) {
			list, err := s.CellWindows(t.Context(), q)
			for i := range list { // windows of 1 min decide the states
				list[i].Verdict, list[i].State = aggregate.Verdict{}, 0
			}
			return list, err
		})
	}
	long := Question{Signal: signal, From: testStart.Add(-time.Hour), To: testStart.Add(5 * time.Minute)}
	minutes := long
	minutes.Resolution = time.Minute
	got, err := s.Cells(t.Context(), long)
	want, otherErr := s.Cells(t.Context(), minutes)
	if diff := cmp.Diff(want, got); diff != "" || err != nil || otherErr != nil || len(want) == 0 {
		t.Errorf("a long range: %v, %v (-1 min +either):\n%s", err, otherErr, diff)
	}
}

// TestResolution has 1 min rows with fewer observations than the 1 s rows, which shows which of
// them answered.
func TestResolution(t *testing.T) {
	sequential(t)
	s := openStore(t)
	r := row{
		resolution: int64(time.Second), signal: uint8(csig.MinABWRatio), kind: 1,
		src: 10, dst: 11, location: 5, observations: 20, sum: 20, distCode: []uint16{1}, distCount: []uint64{20},
	}
	if err := s.BeginRun(t.Context(), Run{Source: r.source, Mode: RunLive}); err != nil {
		t.Fatal(err)
	}
	var rows []row
	for i := range 600 {
		r.window = testStart.Add(time.Duration(i) * time.Second).UnixNano()
		rows = append(rows, r)
	}
	r.resolution, r.observations, r.distCount = int64(time.Minute), 1, []uint64{1}
	for i := range 9 {
		r.window = testStart.Add(time.Duration(i) * time.Minute).UnixNano()
		rows = append(rows, r)
	}
	write(t, s, blocks(rows))
	for _, c := range []struct {
		name     string
		from, to time.Duration
		want     uint64
	}{
		{"closed minutes", 0, 8 * time.Minute, 8},
		{"a minute of which no 1 min rows came yet", 0, 10 * time.Minute, 9 + 1200},
		{"from and to within a minute", 30 * time.Second, 9*time.Minute + 30*time.Second, 8 + 600 + 600},
		{"a short range within minutes", 30 * time.Second, 90 * time.Second, 1200},
	} {
		q := Question{Signal: csig.MinABWRatio, From: testStart.Add(c.from), To: testStart.Add(c.to)}
		cells, err := s.Cells(t.Context(), q)
		if err != nil || len(cells) != 1 || cells[0].Observations != c.want || cells[0].JudgedWindows != uint64(min(300, (c.to-c.from)/time.Second)) {
			t.Errorf("%s: %+v, %v, want %d observations, judged by second", c.name, cells, err, c.want)
		}
		locations, err := s.CellLocations(t.Context(), q)
		if err != nil || len(locations) != 1 || locations[0].Observations != c.want {
			t.Errorf("%s: %+v, %v, want %d observations", c.name, locations, err, c.want)
		}
		q.Step = time.Minute
		windows, err := s.CellWindows(t.Context(), q)
		if n := int((q.To.Sub(q.From.Truncate(time.Minute)) + time.Minute - 1) / time.Minute); err != nil || len(windows) != n {
			t.Errorf("%s: %d windows of 1 min, %v, want %d", c.name, len(windows), err, n)
		}
	}
	_, err := s.Cells(t.Context(), Question{Signal: csig.MinABWRatio, From: testStart, To: testStart.Add(time.Millisecond)})
	if !errors.Is(err, ErrQuestion) {
		t.Errorf("range below 1 s without a resolution: %v", err)
	}
}

// TestResolutionOfProcesses: windows of 1 s answer for the minutes that a process has not closed, while they are
// stored.
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
		{"one began within the range and was killed before it closed a minute", 20, [2]stored{{first, []int{0, 19}, []int{0, 19}}, {later, []int{11}, nil}}, 2 + 20},
		{"all minutes are closed", 2, [2]stored{{first, []int{0, 1}, []int{0, 1}}, {second, []int{0, 1}, []int{0, 1}}}, 4},
		{"one was killed before it closed its last minute", 2, [2]stored{{first, []int{0, 1}, []int{0, 1}}, {second, []int{0, 1}, []int{0}}}, 2 + 40},
		{"one was killed before it closed a minute", 3, [2]stored{{first, []int{0, 1, 2}, []int{0, 1, 2}}, {second, []int{0}, nil}}, 40 + 2},
		{"one resumed after a while, and its minute is open", 20, [2]stored{{first, []int{0, 19, 40}, []int{0, 19, 40}}, {second, []int{0, 19}, []int{0}}}, 2 + 40},
		{"one resumed after a while before the end of the range", 50, [2]stored{{second, []int{0, 19}, []int{0}}}, 1 + 20},
		{"one fell silent", 2, [2]stored{{first, []int{0, 1}, []int{0, 1}}, {second, []int{0}, []int{0}}}, 3},
		{"all fell silent", 2, [2]stored{{first, []int{0}, []int{0}}, {second, []int{0}, []int{0}}}, 2},
		{"the first seconds are no longer stored", 3, [2]stored{{first, []int{2}, []int{0, 1}}, {second, []int{2}, []int{0, 1}}}, 4 + 40},
		{"new settings within a minute", 2, [2]stored{{first, []int{0, 1}, []int{0}}, {otherEpoch, []int{1}, []int{1}}}, 2},
		{"an unfinished replay that was repeated", 2, [2]stored{{before, []int{0, 1}, nil}, {replay, []int{0, 1}, []int{0, 1}}}, 2},
		{"one closes no minutes", 8, [2]stored{{first, []int{0, 7}, []int{0, 7}}, {second, []int{0, 1, 2, 3, 4, 5, 6, 7}, nil}}, 40 + 8*20},
		{"a longer range", 90, [2]stored{{first, []int{0, 30, 89}, []int{0, 30, 89}}, {second, []int{0, 45, 89}, []int{0, 45}}}, 4 + 40},
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
