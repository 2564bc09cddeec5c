package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// folded returns the coarser rows that rows add up to.
func folded(rows []row, resolution time.Duration) []row {
	type key struct {
		window                 int64
		source                 aggregate.Source
		signal, kind, encoding uint8
		src, dst, location     uint64
	}
	sums := map[key]*row{}
	var list []*row
	for _, r := range rows {
		window := r.window - r.window%int64(resolution)
		k := key{window, r.source, r.signal, r.kind, r.encoding, r.src, r.dst, r.location}
		to := sums[k]
		if to == nil {
			sum := r
			sum.window, sum.resolution, sum.seq = window, int64(resolution), uint64(window)
			sum.distCode, sum.distCount = slices.Clone(r.distCode), slices.Clone(r.distCount)
			sums[k] = &sum
			list = append(list, &sum)
			continue
		}
		if r.max > 0 { // measured
			if to.max == 0 || r.min < to.min {
				to.min = r.min
			}
			to.max = max(to.max, r.max)
		}
		to.samples = to.seen() + r.seen()
		to.observations += r.observations
		to.bytes += r.bytes
		to.sum += r.sum
		to.untouched += r.untouched
		to.trimmed += r.trimmed
		to.heavy += r.heavy
		to.heavySum += r.heavySum
		to.unjudged += r.unjudged
		to.evidence |= r.evidence
		to.distCode, to.distCount = append(to.distCode, r.distCode...), append(to.distCount, r.distCount...)
	}
	slices.SortStableFunc(list, func(a, b *row) int { return int(a.window - b.window) })
	out := make([]row, len(list))
	for i, r := range list {
		out[i] = *r
	}
	return out
}

// verified is a store without faults: one replayed and one live run, both ended, over windows
// 50 s apart, of which the fourth is past midnight, at three resolutions.
func verified(t *testing.T, windows int) *Store {
	t.Helper()
	s, rng := openStore(t), rand.New(rand.NewPCG(3, 4))
	var names []fabric.Group
	for id := range aggregate.GroupID(4) {
		names = append(names, fabric.Group{ID: 10 + id, Name: fmt.Sprint("rack", id)})
	}
	if err := s.WriteGroups(t.Context(), names); err != nil {
		t.Fatal(err)
	}
	writeAncestry(t, s)
	for i, mode := range []RunMode{RunReplay, RunLive} {
		run := Run{Source: aggregate.Source{Producer: uint64(i + 1), Incarnation: 2, Epoch: 3}, Mode: mode, Name: "run"}
		if err := s.WriteEpoch(t.Context(), 3, "text"); err != nil {
			t.Fatal(err)
		}
		if err := s.BeginRun(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		g := traffic{resolution: 50 * time.Second, windows: windows, groups: 4, locations: 9, signals: allSignals}
		fine := g.rows(rng, run.Source)
		for i := range fine {
			fine[i].resolution = int64(10 * time.Millisecond)
		}
		seconds := folded(fine, time.Second)
		for _, rows := range [][]row{fine[:len(fine)/2], seconds, folded(seconds, time.Minute)} {
			write(t, s, blocks(rows))
		}
		if err := s.EndRun(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// faults are the numbers of failures of each check.
func faults(t *testing.T, s *Store) map[string]uint64 {
	t.Helper()
	found := map[string]uint64{}
	err := s.Verify(t.Context(), VerifyOptions{Now: time.Now()}, func(f Finding) error {
		if f.Count == 0 || f.Example == "" || f.Table == "" {
			t.Errorf("finding %+v", f)
		}
		if info := f.Check == twice || f.Check == gone || f.Check == missing; f.Info != info {
			t.Errorf("%s: worth knowing only: %t, want %t", f.Check, f.Info, info)
		}
		found[f.Check] += f.Count
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

const (
	fold  = "seconds do not fold into minutes"
	twice = "rows written more than once"
	gone  = "finer windows of the whole day are gone"

	missing = "rows that were taken are not stored"
)

// plant writes one row of a table again with changes: under its identity, so it replaces the row.
func plant(t *testing.T, s *Store, table, where string, change map[string]string) {
	t.Helper()
	plantBy(t, s, table, where, fmt.Sprintf("cityHash64(seq, src_group, dst_group, location, '%s')", fmt.Sprint(change)), change)
}

// plantBy chooses the first row in an order.
func plantBy(t *testing.T, s *Store, table, where, order string, change map[string]string) {
	t.Helper()
	columns := storedColumns(t, s, table)
	values := slices.Clone(columns)
	for i, c := range columns {
		if v, ok := change[c]; ok {
			values[i] = v + " AS new_" + c
		}
	}
	statement := fmt.Sprintf("INSERT INTO csigscope.%s (%s) SELECT %s FROM csigscope.%[1]s FINAL WHERE %[4]s ORDER BY %[5]s LIMIT 1",
		table, strings.Join(columns, ", "), strings.Join(values, ", "), where, order)
	if err := s.migrator.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func TestVerify(t *testing.T) {
	sequential(t)
	s := verified(t, 2)
	if found := faults(t, s); len(found) != 0 {
		t.Fatalf("faults in a clean store: %v", found)
	}
	write(t, s, blocks([]row{{
		resolution: int64(time.Second), window: testStart.UnixNano(), source: aggregate.Source{Producer: 9, Incarnation: 9, Epoch: 99},
		signal: 1, kind: 1, src: 10, dst: 11, location: 3, observations: 2, trimmed: 2,
	}}))
	want := map[string]uint64{"rows outside of a run": 1, "unknown configuration": 1}
	if diff := cmp.Diff(want, faults(t, s)); diff != "" {
		t.Fatalf("rows of nobody (-want +got):\n%s", diff)
	}
	const measured = "measured > 3 AND max > 0 AND heavy > 0"
	before := want
	if err := s.migrator.Exec(t.Context(), "SYSTEM STOP MERGES"); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		table, where string
		change       map[string]string
		want         []string
	}{
		{"partials_1s", measured, map[string]string{"min": "max + 1"}, []string{"min above max", "sum outside of min and max", fold, twice}},
		{"partials_1m", measured, map[string]string{"heavy": "observations + 1"}, []string{"heavy above observations", "heavy and unjudged above measured", fold, twice}},
		{"partials_1m", measured, map[string]string{"untouched": "observations + 1"}, []string{"untouched and trimmed above observations", fold, twice}},
		{"partials_1m", measured, map[string]string{"measured": "observations + 1", "dist": "map(1::UInt16, observations + 1)", "sum": "min * (observations + 1)"}, []string{"measured and trimmed above observations", fold, twice}},
		{"partials_1s", measured, map[string]string{"dist": "map(1::UInt16, measured + 1)"}, []string{"distribution does not match the measured observations", twice}},
		{"partials_1s", measured, map[string]string{"sum": "max * measured + 1"}, []string{"sum outside of min and max", fold, twice}},
		{"partials_1m", measured, map[string]string{"bytes": "bytes + 1"}, []string{fold, twice}},
		{"partials_1m", measured, map[string]string{"max": "max + 1"}, []string{fold, twice}},
		{"partials_1s", measured, map[string]string{"seq": "77777"}, []string{fold}},
		{"partials_1m", measured, map[string]string{"dst_group": "src_group", "signal": "9"}, []string{fold}},
		{"partials_fine", "observations > 0", map[string]string{"bytes": "bytes + 1000000000"}, []string{"fine windows exceed their second", twice}},
		{"partials_1s", measured, map[string]string{"window_start": "window_start + toIntervalNanosecond(1)"}, []string{"window is not a multiple of its length", fold}},
		{"partials_1m", "measured = 0", map[string]string{"sum": "5::UInt64"}, []string{"values where nothing was measured", fold, twice}},
		{"partials_1m", measured, map[string]string{"src_group": "555", "signal": "9"}, []string{"group without a name", fold}},
		{"partials_1s", measured, map[string]string{"location": "555"}, []string{"location without a name", fold}},
		{"partials_1m", measured, map[string]string{"dist": "mapUpdate(dist, map(998::UInt16, bitShiftLeft(1::UInt64, 63), 999::UInt16, bitShiftLeft(1::UInt64, 63)))"}, []string{"distribution does not match the measured observations", twice}},
		{"partials_1m", measured, map[string]string{"samples": "observations - trimmed + 1"}, []string{"samples and trimmed above observations", fold, twice}},
		{"partials_1m", measured, map[string]string{"evidence": "8::UInt8"}, []string{"evidence that does not exist"}},
	} {
		t.Run(tt.want[0], func(t *testing.T) {
			// Each fault is in separate cells.
			cells := fmt.Sprintf("%s AND producer = 1 AND signal = %d AND src_group = %d", tt.where, allSignals[i%len(allSignals)], 10+i/len(allSignals))
			plant(t, s, tt.table, cells, tt.change)
			now := faults(t, s)
			for check, count := range now {
				more, wanted := count > before[check], slices.Contains(tt.want, check)
				if more != wanted {
					t.Errorf("%s: %d times, %d before, want more: %t", check, count, before[check], wanted)
				}
				delete(before, check)
			}
			for check := range before {
				t.Errorf("%s: not found any more", check)
			}
			before = now
		})
	}
}

// TestVerifyFoldedGaps: windows that lack rows which a gap records, even one of an unknown run, are no fault, unless
// the gap is of packets that were never taken.
func TestVerifyFoldedGaps(t *testing.T) {
	sequential(t)
	s := verified(t, 1)
	from := testStart.Truncate(time.Second).UnixNano()
	second := lossExtent{Producer: 1, Incarnation: 2, Epoch: 3, Resolution: int64(time.Second), From: from, To: from + int64(time.Second), Rows: 1}
	if err := s.migrator.Exec(t.Context(), "ALTER TABLE csigscope.partials_1s DELETE WHERE producer = 1 SETTINGS mutations_sync = 2"); err != nil {
		t.Fatal(err)
	}
	unknown := second
	unknown.Producer, unknown.Incarnation, unknown.Epoch, unknown.Resolution = 0, 0, 0, 0
	later := unknown
	later.From, later.To = from+int64(time.Hour), from+int64(2*time.Hour)
	for _, test := range []struct {
		reason string
		lost   lossExtent
		broken bool
	}{{GapDrops, second, true}, {string(lostFull), second, false}, {string(lostFull), unknown, false}, {string(lostFull), later, true}} {
		truncate(t, s, "gaps")
		if err := s.sendGaps(t.Context(), gapsOf([]lossExtent{test.lost}, test.reason, 9, time.Now())); err != nil {
			t.Fatal(err)
		}
		found := faults(t, s)
		if (found[fold] > 0) != test.broken || (found["fine windows exceed their second"] > 0) != test.broken {
			t.Errorf("with a gap %q, %+v: %v, want faults: %t", test.reason, test.lost, found, test.broken)
		}
	}
}

// TestVerifyBehindGap has a minute at noon that is not the sum of its seconds: it is a fault unless a gap
// has rows of that very minute.
func TestVerifyBehindGap(t *testing.T) {
	s := openStore(t)
	run := Run{Source: aggregate.Source{Producer: 7, Incarnation: 8, Epoch: 9}, Mode: RunLive, Name: "eth0"}
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1)
	noon := day.Add(12 * time.Hour)
	if err := s.BeginRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	write(t, s, blocks([]row{delayRow(run.Source, 1, noon, time.Second, 1), delayRow(run.Source, 2, noon, time.Minute, 2)}))
	if err := s.EndRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		from, to time.Duration // of the gap, from noon
		broken   bool
	}{
		{-time.Minute, 0, true},
		{-time.Minute, time.Nanosecond, false},
		{0, 0, false},
		{59 * time.Second, time.Minute, false},
		{time.Minute, time.Minute, true},
		{time.Minute, 2 * time.Minute, true},
	} {
		truncate(t, s, "gaps")
		lost := lossExtent{7, 8, 9, int64(time.Second), noon.Add(test.from).UnixNano(), noon.Add(test.to).UnixNano(), 1, 1}
		if err := s.sendGaps(t.Context(), gapsOf([]lossExtent{lost}, string(lostFull), 9, time.Now())); err != nil {
			t.Fatal(err)
		}
		broken := false
		v := &verifier{Store: s, options: VerifyOptions{Now: time.Now()}, found: func(Finding) error {
			broken = true
			return nil
		}}
		if err := errors.Join(v.prepare(t.Context()), v.folds(t.Context(), secondTable, day)); err != nil {
			t.Fatal(err)
		}
		if broken != test.broken {
			t.Errorf("gap from %s to %s: a fault: %t, want %t", test.from, test.to, broken, test.broken)
		}
	}
}

func TestVerifyRuns(t *testing.T) {
	sequential(t)
	s := openStore(t)
	now := time.Now()
	run := func(producer, incarnation uint64, mode RunMode, done bool) {
		t.Helper()
		r := Run{Source: aggregate.Source{Producer: producer, Incarnation: incarnation, Epoch: 3}, Mode: mode, Name: "run"}
		if err := s.BeginRun(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if !done {
			return
		}
		if err := s.EndRun(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, later time.Duration, want map[string]uint64) {
		t.Helper()
		got := map[string]uint64{}
		err := s.Verify(t.Context(), VerifyOptions{Now: now.Add(later)}, func(f Finding) error {
			got[f.Check] += f.Count
			return nil
		})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", when, err, diff)
		}
	}
	run(1, 1, RunReplay, true)
	check("no configuration", 0, map[string]uint64{"run under an unknown configuration": 1})
	if err := s.WriteEpoch(t.Context(), 3, "text"); err != nil {
		t.Fatal(err)
	}
	run(2, 1, RunReplay, false)
	run(3, 1, RunLive, false)
	const partial = "run under way or interrupted"
	check("under way", 0, map[string]uint64{partial: 1})
	check("for long", 2*time.Hour, map[string]uint64{"run never ended": 1})
	run(3, 2, RunLive, false)
	check("a tap's next life", 2*time.Hour, map[string]uint64{"run never ended": 2})
	run(1, 2, RunReplay, true)
	check("a second pass", 0, map[string]uint64{"run superseded by a later one": 1, partial: 1})
	if err := s.endNow(t.Context(), &ending{Done: []Run{{Source: aggregate.Source{Producer: 8, Epoch: 3}, Mode: RunReplay, Name: "run"}}}); err != nil {
		t.Fatal(err)
	}
	check("an end without a beginning", 0, map[string]uint64{"run superseded by a later one": 1, "run ended that never began": 1, partial: 1})
	run(1, 3, RunReplay, false)
	check("given up beside a complete pass", 2*time.Hour, map[string]uint64{"run superseded by a later one": 2, "run ended that never began": 1, "run never ended": 2})
}

// TestVerifyExpired has seconds that expired before their minutes.
func TestVerifyExpired(t *testing.T) {
	sequential(t)
	s := verified(t, 4)
	truncate(t, s, "partials_1s")
	if found := faults(t, s); found[fold] != 0 || found[gone] == 0 || found["fine windows exceed their second"] == 0 {
		t.Errorf("lost seconds: %v", found)
	}
	err := s.Verify(t.Context(), VerifyOptions{Now: time.Now().Add(14 * 24 * time.Hour)}, func(f Finding) error {
		t.Errorf("expired seconds: %+v", f)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestVerifyOldSchema(t *testing.T) {
	sequential(t)
	s := openStore(t)
	if err := s.apply(t.Context(), s.migrator, migration{Version: 1, Name: "tables", Statements: []string{"SELECT 1"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context(), VerifyOptions{Now: time.Now()}, nil); !errors.Is(err, ErrOldSchema) {
		t.Errorf("%v, want ErrOldSchema", err)
	}
}
