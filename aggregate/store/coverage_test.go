package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// notExpiredGap is the time of the tests' gaps, from which they expire.
var notExpiredGap = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// covered writes windows 0, 1 and 3 of 1 s of one cell, the last with an overflow, and gaps of
// two producers.
func covered(t *testing.T) *Store {
	t.Helper()
	s := openStore(t)
	r := row{
		resolution: int64(time.Second), window: testStart.UnixNano(), source: aggregate.Source{Producer: 1}, signal: uint8(csig.MaxDelay), kind: 1,
		src: 10, dst: 11, location: 5, observations: 10, untouched: 3, trimmed: 2,
	}
	reflected, other, overflow := r, r, r
	reflected.kind, reflected.observations, reflected.untouched, reflected.trimmed = 2, 4, 0, 0
	other.window += int64(time.Second)
	other.source.Producer, other.signal = 2, uint8(csig.MinABW)
	overflow.window += 3 * int64(time.Second)
	overflow.location, overflow.src, overflow.dst = 1, 1, 1
	write(t, s, blocks([]row{r}))
	write(t, s, blocks([]row{reflected}))
	write(t, s, blocks([]row{other}))
	write(t, s, blocks([]row{overflow}))
	at := func(d time.Duration) int64 { return testStart.Add(d).UnixNano() }
	gap := func(producer uint64, resolution time.Duration, from, to time.Duration, observations uint64) lossExtent {
		return lossExtent{Producer: producer, Resolution: int64(resolution), From: at(from), To: at(to), Rows: 1, Observations: observations}
	}
	gaps := gapsOf([]lossExtent{
		gap(1, time.Second, time.Second, 3*time.Second, 100),
		gap(2, time.Second, 2*time.Second, 3*time.Second, 7),
		gap(0, 0, 2500*time.Millisecond, 3500*time.Millisecond, 10), // of an unknown producer
		gap(1, time.Minute, 0, time.Minute, 1000),                   // of others
		gap(1, 0, 0, time.Minute, 0),                                // of records
	}, "full", 1, notExpiredGap)
	if err := s.sendGaps(t.Context(), append(gaps, gapsOf(nil, "missing", 2, notExpiredGap)...)); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCoverageWindows(t *testing.T) {
	sequential(t)
	s := covered(t)
	q := Question{From: testStart, To: testStart.Add(4 * time.Second), Resolution: time.Second, Step: time.Second}
	at := func(i int) time.Time { return testStart.Add(time.Duration(i) * time.Second) }
	want := []Coverage{
		{Window: at(0), Observations: 14, Tags: 10, Reflections: 4, Untouched: 3, Trimmed: 2, Producers: 1},
		{Window: at(1), Observations: 10, Tags: 10, Untouched: 3, Trimmed: 2, Producers: 1, Lost: 50, GapNS: 1e9, GapShare: 1},
		{Window: at(2), Lost: 50 + 7 + 5, GapNS: 1e9, GapShare: 1},
		{Window: at(3), Observations: 10, Tags: 10, Untouched: 3, Trimmed: 2, Overflow: 10, Producers: 1, Lost: 5, GapNS: 5e8, GapShare: 0.5},
	}
	got, err := s.CoverageWindows(t.Context(), q)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	// Steps are cut at the range, and overlapping gaps in one window count once.
	q.From, q.To, q.Step = at(1), at(4), time.Minute
	want = []Coverage{{
		Window: testStart, Observations: 20, Tags: 20, Untouched: 6, Trimmed: 4, Overflow: 10, Producers: 2,
		Lost: 117, GapNS: 2_500_000_000, GapShare: 2.5 / 3,
	}}
	got, err = s.CoverageWindows(t.Context(), q)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("minutes: %v (-want +got):\n%s", err, diff)
	}
}

// TestCoverageOfWhatNobodyTook: time is missing while no process captured; packets are missing
// while the kernel dropped some.
func TestCoverageOfWhatNobodyTook(t *testing.T) {
	sequential(t)
	s := openStore(t)
	at := func(ms int) time.Time { return testStart.Add(time.Duration(ms) * time.Millisecond) }
	of := aggregate.Source{Producer: 7, Incarnation: 1, Epoch: 1}
	if err := s.WriteGaps(t.Context(), []Gap{
		{Source: of, From: at(500), To: at(2000), Reason: GapRestart},
		{Source: of, From: at(1000), To: at(3000), Reason: GapDrops, Observations: 40},
		{Source: of, From: at(2000), To: at(2500), Reason: GapMirror, Observations: 3},
	}); err != nil {
		t.Fatal(err)
	}
	want := []Coverage{
		{Window: at(0), GapNS: 5e8, GapShare: 0.5},
		{Window: at(1000), Lost: 20, GapNS: 1e9, GapShare: 1},
		{Window: at(2000), Lost: 23},
	}
	for _, resolution := range []time.Duration{time.Second, 10 * time.Millisecond} {
		got, err := s.CoverageWindows(t.Context(), Question{From: testStart, To: at(4000), Resolution: resolution, Step: time.Second})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("at %s: %v (-want +got):\n%s", resolution, err, diff)
		}
	}
}

func TestCoverageCells(t *testing.T) {
	sequential(t)
	s := covered(t)
	q := Question{Signal: csig.MaxDelay, From: testStart, To: testStart.Add(4 * time.Second), Resolution: time.Second}
	want := []CellCoverage{
		{Src: 1, Dst: 1, Observations: 10, Tags: 10, Untouched: 3, Trimmed: 2, Overflow: 10, Producers: 1, Covered: 0.25},
		{Src: 10, Dst: 11, Observations: 14, Tags: 10, Reflections: 4, Untouched: 3, Trimmed: 2, Producers: 1, Covered: 0.25},
	}
	got, err := s.CoverageCells(t.Context(), q)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	src := aggregate.GroupID(10)
	q.Src = &src
	if got, err := s.CoverageCells(t.Context(), q); err != nil || len(got) != 1 {
		t.Errorf("one source: %+v, %v", got, err)
	}
}

// TestMissing merges overlapping gaps, cuts them at the range, and ignores gaps in records.
func TestMissing(t *testing.T) {
	sequential(t)
	s := covered(t)
	at := testStart.Add
	if err := s.WriteGaps(t.Context(), []Gap{{Source: aggregate.Source{Producer: 9}, From: at(5 * time.Second), To: at(6 * time.Second), Reason: GapRestart}}); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteGaps(t.Context(), []Gap{{Source: aggregate.Source{Producer: 9}, From: testStart, To: at(time.Minute), Reason: GapDrops, Observations: 5}}); err != nil {
		t.Fatal(err)
	}
	for length, from := range map[time.Duration]time.Duration{time.Second: time.Hour, time.Minute: 2 * time.Hour} {
		if err := s.WriteGaps(t.Context(), []Gap{{Source: aggregate.Source{Producer: 9}, From: at(from), To: at(from + time.Hour), Reason: gapTrimmed, Resolution: length, Rows: 5}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.WriteGaps(t.Context(), []Gap{{Source: aggregate.Source{Producer: 9}, From: at(5 * time.Hour), To: at(6 * time.Hour), Reason: string(lostRefused), Resolution: time.Minute, Rows: 5}}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		from, to, length time.Duration
		want             []Span
	}{
		{0, time.Minute, time.Second, []Span{{at(time.Second), at(3500 * time.Millisecond)}, {at(5 * time.Second), at(6 * time.Second)}}},
		{2 * time.Second, 3 * time.Second, time.Minute, []Span{{at(2 * time.Second), at(3 * time.Second)}}},
		{0, time.Second, time.Second, nil},
		{6 * time.Second, time.Minute, time.Second, nil},
		{time.Minute, 4 * time.Hour, time.Millisecond, []Span{{at(time.Hour), at(2 * time.Hour)}}},
		{time.Minute, 4 * time.Hour, time.Minute, []Span{{at(2 * time.Hour), at(3 * time.Hour)}}},
		{4 * time.Hour, 7 * time.Hour, time.Second, nil},
		{4 * time.Hour, 7 * time.Hour, time.Minute, []Span{{at(5 * time.Hour), at(6 * time.Hour)}}},
	} {
		got, err := s.Missing(t.Context(), at(tt.from), at(tt.to), tt.length)
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s to %s, windows of %s: %v (-want +got):\n%s", tt.from, tt.to, tt.length, err, diff)
		}
	}
	if _, err := s.Missing(t.Context(), testStart, testStart, time.Second); err == nil {
		t.Error("an empty range: no error")
	}
}
