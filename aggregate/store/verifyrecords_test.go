package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
)

// recorded is a store without faults that also has records: taps whose counts match the stored
// rows and two gaps, flows of every window, and a finding.
func recorded(t *testing.T) *Store {
	t.Helper()
	s := verified(t, 2)
	for producer := range uint64(2) {
		source := aggregate.Source{Producer: producer + 1, Incarnation: 2, Epoch: 3}
		tap := aTap(source, 1, testStart)
		tap.Stored, tap.Tags, tap.Reflections = 0, 0, 0
		for kind, n := range []*uint64{&tap.Tags, &tap.Reflections} {
			text := readStrings(t, s, fmt.Sprintf("SELECT toString(sum(observations)) FROM csigscope.partials_1s FINAL WHERE producer = %d AND source_kind = %d", source.Producer, kind+1))
			if _, err := fmt.Sscan(text[0], n); err != nil {
				t.Fatal(err)
			}
		}
		tap.Stored = tap.Tags + tap.Reflections + 5 - tap.Overflow
		tap.Tags += 5 + tap.Late + tap.Rejected["orphan"] + tap.Rejected["place"]
		tap.Observations = tap.Tags + tap.Reflections
		if err := s.WriteTaps(t.Context(), []TapRow{tap}); err != nil {
			t.Fatal(err)
		}
		var lost []lossExtent
		for _, resolution := range []time.Duration{time.Second, time.Minute} {
			lost = append(lost, lossExtent{source.Producer, 2, 3, int64(resolution), testStart.UnixNano(), testStart.Add(time.Minute).UnixNano(), 1, 5})
		}
		if err := s.sendGaps(t.Context(), gapsOf(lost, "full", producer, notExpiredGap)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.WriteFindings(t.Context(), []FindingRow{aFinding(aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}, 1, testStart)}); err != nil {
		t.Fatal(err)
	}
	return s
}

// flowsOfPartials makes flows from the windows of a length: half of each is one flow, the rest
// all others.
func flowsOfPartials(t *testing.T, s *Store, table string, resolution time.Duration) {
	t.Helper()
	for i, half := range []string{"intDiv(%[1]s, 2)", "%[1]s - intDiv(%[1]s, 2)"} {
		address := fmt.Sprintf("toIPv6(concat('%s', if(%d = 0, toString(src_group * 10 + dst_group), '')))", []string{"10.0.0.", "::"}[i], i)
		statement := fmt.Sprintf(`INSERT INTO csigscope.flows (resolution_ns, window_start, signal, source_kind, src_group, dst_group, src, dst, config_epoch, producer, incarnation, seq,
observations, measured, sum, min, max, heavy, location, location_heavy)
SELECT %d, window_start, signal, source_kind, src_group, dst_group, %s, %s, config_epoch, producer, incarnation, 1, %s, %s, 10 * measured, 10, 10, %s AS named, if(named > 0, 5, 0), named
FROM (SELECT window_start, signal, source_kind, src_group, dst_group, config_epoch, producer, incarnation, sum(p.observations) AS n, sum(p.heavy) AS h FROM csigscope.%s AS p FINAL
GROUP BY window_start, signal, source_kind, src_group, dst_group, config_epoch, producer, incarnation)`, resolution.Nanoseconds(), address, address, fmt.Sprintf(half, "n")+" AS observations", "least(2, observations) AS measured", fmt.Sprintf(half, "h"), table)
		if err := s.migrator.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// checksOf are the names of the failing checks.
func checksOf(t *testing.T, s *Store) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(faults(t, s)))
}

// recordFaults are the numbers of failures of the checks of records.
func recordFaults(t *testing.T, s *Store) map[string]uint64 {
	t.Helper()
	found := map[string]uint64{}
	v := &verifier{Store: s, options: VerifyOptions{Now: time.Now()}, found: func(f Finding) error {
		found[f.Check] += f.Count
		return nil
	}}
	if err := errors.Join(v.prepare(t.Context()), v.records(t.Context()), v.holdings(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, g := range []int{secondTable, minuteTable} {
		days, err := v.slots(t.Context(), resolutionTableAt(g).table(), 24*time.Hour, "1")
		for _, day := range days {
			err = errors.Join(err, v.hold(t.Context(), g, day))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := v.conserved(); err != nil {
		t.Fatal(err)
	}
	return found
}

// TestVerifyRecords breaks each rule by hand.
func TestVerifyRecords(t *testing.T) {
	sequential(t)
	s := recorded(t)
	exec := func(statement string) {
		t.Helper()
		if err := s.migrator.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec("SYSTEM STOP MERGES")
	if diff := cmp.Diff([]string{missing}, checksOf(t, s)); diff != "" {
		t.Fatalf("a store without a fault (-want +got):\n%s", diff)
	}
	tables := []string{"taps", "findings", "gaps"}
	for _, table := range tables {
		exec("CREATE TABLE csigscope.kept_" + table + " AS csigscope." + table)
		exec("INSERT INTO csigscope.kept_" + table + " SELECT * FROM csigscope." + table)
	}
	const (
		accounts = "observations not accounted for"
		kinds    = "tags and reflections are not the observations"
		counted  = "taps counted more or fewer observations than are stored"
		two      = "two records of one identity"
		outside  = "rows outside of a run"
		unknown  = "unknown configuration"
		backward = "times in the wrong order"
	)
	for i, tt := range []struct {
		table  string
		change map[string]string
		want   []string
	}{
		{"taps", map[string]string{"observations": "observations + 1"}, []string{accounts, kinds, twice}},
		{"taps", map[string]string{"late": "late + 1"}, []string{accounts, twice}},
		{"taps", map[string]string{"rejected": "map('orphan', 1::UInt64)"}, []string{accounts, twice}},
		{"taps", map[string]string{"rejected": "mapUpdate(rejected, map('x', bitShiftLeft(1::UInt64, 63), 'y', bitShiftLeft(1::UInt64, 63)))"}, []string{accounts, twice}},
		{"taps", map[string]string{"reflections": "reflections + 1"}, []string{kinds, twice}},
		{"taps", map[string]string{"overflow": "overflow + 6", "observations": "observations + 6", "tags": "tags + 6"}, []string{counted, twice}},
		{"taps", map[string]string{"stored": "stored - 6", "late": "late + 6"}, []string{counted, twice}},
		{"taps", map[string]string{"trimmed": "stored + overflow"}, []string{"untouched and trimmed above the stored observations", twice}},
		{"taps", map[string]string{"packets": "packets + 1"}, []string{"packets by reason are not all packets", twice}},
		{"taps", map[string]string{"frames": "mapUpdate(frames, map('x', bitShiftLeft(1::UInt64, 63), 'y', bitShiftLeft(1::UInt64, 63)))"}, []string{"packets by reason are not all packets", twice}},
		{"taps", map[string]string{"time_to": "time_from - toIntervalNanosecond(1)"}, []string{backward, twice}},
		{"taps", map[string]string{"name": "'another'"}, []string{two, counted}},
		{"taps", map[string]string{"producer": "99::UInt64"}, []string{outside}},
		{"taps", map[string]string{"epoch": "99::UInt64"}, []string{outside, unknown}},
		{"findings", map[string]string{"count": "0::UInt64"}, []string{"finding of nothing", "more packets than findings", twice}},
		{"findings", map[string]string{"time_to": "time_from - toIntervalNanosecond(1)"}, []string{backward, twice}},
		{"findings", map[string]string{"location": "555::UInt64"}, []string{"location without a name", twice}},
		{"findings", map[string]string{"time_from": "time_from + toIntervalNanosecond(1)"}, []string{two}},
		{"findings", map[string]string{"incarnation": "99::UInt64"}, []string{outside}},
		{"gaps", map[string]string{"window_to": "window_from - toIntervalNanosecond(1)"}, []string{backward}},
		{"gaps", map[string]string{"rows": "0::UInt64"}, []string{"gap with observations and no rows", twice}},
		{"gaps", map[string]string{"producer": "99::UInt64"}, []string{outside}},
		{"gaps", map[string]string{"observations": "4::UInt64"}, []string{counted, twice}},
		{"gaps", map[string]string{"resolution_ns": "0::UInt64", "observations": "0::UInt64"}, nil},
	} {
		if onCluster(t) && i > 0 { // all checks have run by then
			break
		}
		t.Run(fmt.Sprint(i, tt.table, tt.want), func(t *testing.T) {
			plantBy(t, s, tt.table, "1", "producer", tt.change)
			// Rewritten gaps cause no info.
			want := slices.DeleteFunc(append([]string{missing}, tt.want...), func(c string) bool { return tt.table == "gaps" && c == twice })
			slices.Sort(want)
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(recordFaults(t, s)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			truncate(t, s, tt.table)
			exec("INSERT INTO csigscope." + tt.table + " SELECT * FROM csigscope.kept_" + tt.table)
		})
	}
	// Gaps of unknown runs may be of any run.
	for _, unknown := range []struct {
		class        int
		observations uint64
		want         bool
	}{{secondTable, 5, true}, {minuteTable, 4, true}, {minuteTable, 5, false}, {secondTable, 0, true}, {minuteTable, 0, false}, {flowsClass, 0, true}, {tapsClass, 0, false}} {
		truncate(t, s, "gaps")
		classes := []int{unknown.class}
		if unknown.class == minuteTable {
			classes = append(classes, secondTable)
		}
		for _, class := range classes {
			lost := lossExtent{From: testStart.UnixNano(), To: testStart.Add(time.Minute).UnixNano(), Rows: 1, Observations: unknown.observations}
			if err := s.sendGaps(t.Context(), inLog(gapsOf([]lossExtent{lost}, "full", uint64(class), notExpiredGap), className(class), 1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if found := recordFaults(t, s)[counted] > 0; found != unknown.want {
			t.Errorf("%+v: a fault: %t", unknown, found)
		}
	}
	truncate(t, s, "gaps")
	exec("INSERT INTO csigscope.gaps SELECT * FROM csigscope.kept_gaps")
	// After a restart a collector writes its own finding with another beginning.
	for _, from := range []string{"time_from", "time_from - toIntervalNanosecond(1)"} {
		plantBy(t, s, "findings", "1", "producer", map[string]string{"seq": "0::UInt64", "time_from": from})
	}
	if diff := cmp.Diff([]string{missing}, slices.Sorted(maps.Keys(recordFaults(t, s)))); diff != "" {
		t.Errorf("a finding that began twice (-want +got):\n%s", diff)
	}
	truncate(t, s, "findings")
	exec("INSERT INTO csigscope.findings SELECT * FROM csigscope.kept_findings")
	// Without the rows of a run in either table no further fault is found.
	exec("DROP TABLE csigscope.kept_taps, csigscope.kept_gaps, csigscope.kept_findings")
	for _, table := range []string{"partials_fine", "partials_1s", "partials_1m"} {
		truncate(t, s, table)
	}
	if diff := cmp.Diff([]string{missing, counted}, checksOf(t, s)); diff != "" {
		t.Errorf("without partials (-want +got):\n%s", diff)
	}
	// Live runs are compared once they have ended, also killed ones.
	live := func(state string) {
		t.Helper()
		exec("INSERT INTO csigscope.runs (producer, incarnation, epoch, mode, state, name) SELECT DISTINCT producer, incarnation, epoch, 'live', '" + state + "', name FROM csigscope.runs")
	}
	gap := func(reason, class string) {
		t.Helper()
		exec("INSERT INTO csigscope.gaps (producer, incarnation, epoch, resolution_ns, window_from, window_to, reason, at, log_class) SELECT DISTINCT producer, incarnation, epoch, 0, now64(9), now64(9), '" + reason + "', now64(3), '" + class + "' FROM csigscope.runs")
	}
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"goes on", func() { live("started") }, false},
		{"done", func() { live("done") }, true},
		{"was killed", func() { gap(GapRestart, "") }, true},
		{"flows lost", func() { gap(string(lostFull), className(flowsClass)) }, true},
		{"findings lost", func() { gap(string(lostRefused), className(findingsClass)) }, true},
		{"rows of taps lost", func() { gap(string(lostDisk), className(tapsClass)) }, false},
	} {
		step.do()
		if got := recordFaults(t, s)[counted] > 0; got != step.want {
			t.Errorf("%s: compared %t, want %t", step.name, got, step.want)
		}
	}
}

// TestVerifyFlows breaks each rule of flows by hand.
func TestVerifyFlows(t *testing.T) {
	sequential(t)
	s := verified(t, 2)
	flowsOfPartials(t, s, "partials_1s", time.Second)
	flowsOfPartials(t, s, "partials_1m", time.Minute)
	if err := s.migrator.Exec(t.Context(), "SYSTEM STOP MERGES"); err != nil {
		t.Fatal(err)
	}
	if found := checksOf(t, s); len(found) != 0 {
		t.Fatalf("a store without a fault: %v", found)
	}
	const window = "flows are not those of their window"
	before := map[string]uint64{}
	for i, tt := range []struct {
		change map[string]string
		want   []string
	}{
		{map[string]string{"min": "max + 1"}, []string{"min above max", "sum outside of min and max", twice}},
		{map[string]string{"heavy": "observations + 1"}, []string{"heavy above observations", window, twice}},
		{map[string]string{"measured": "observations + 1", "sum": "10 * (observations + 1)"}, []string{"measured above observations", twice}},
		{map[string]string{"location_heavy": "heavy + 1"}, []string{"location named more often than the flow was heavy", twice}},
		{map[string]string{"sampled": "heavy + 1"}, []string{"more samples than heavy observations", twice}},
		{map[string]string{"sum": "sum + 1"}, []string{"sum outside of min and max", twice}},
		{map[string]string{"observations": "observations + 1"}, []string{window, twice}},
		{map[string]string{"seq": "2::UInt64"}, []string{window}},
		{map[string]string{"window_start": "window_start + toIntervalNanosecond(1)"}, []string{"window is not a multiple of its length", window}},
		{map[string]string{"src_group": "555::UInt64"}, []string{"group without a name", two(), window}},
		{map[string]string{"location": "555::UInt64"}, []string{"location without a name", twice}},
		{map[string]string{"producer": "99::UInt64"}, []string{"rows outside of a run"}},
	} {
		if onCluster(t) && i > 0 { // all checks have run by then
			break
		}
		t.Run(tt.want[0], func(t *testing.T) {
			// Each fault is in separate windows.
			where := fmt.Sprintf("measured > 1 AND observations > 1 AND src != toIPv6('::') AND signal = %d AND resolution_ns = %d", allSignals[i%len(allSignals)], []int64{1e9, 6e10}[i/len(allSignals)%2])
			plantBy(t, s, "flows", where, "seq, window_start, src_group", tt.change)
			now := recordFaults(t, s)
			for check, count := range now {
				if more, wanted := count > before[check], slices.Contains(tt.want, check); more != wanted {
					t.Errorf("%s: %d times, %d before, want more: %t", check, count, before[check], wanted)
				}
			}
			for check := range before {
				if now[check] == 0 {
					t.Errorf("%s: not found any more", check)
				}
			}
			before = now
		})
	}
	unknown := lossExtent{From: testStart.UnixNano(), To: testStart.Add(time.Hour).UnixNano(), Rows: 1}
	if err := s.sendGaps(t.Context(), inLog(gapsOf([]lossExtent{unknown}, "full", 1, notExpiredGap), className(flowsClass), 1, 1)); err != nil {
		t.Fatal(err)
	}
	if found := recordFaults(t, s); found[window] != 0 {
		t.Errorf("with a gap of an unknown run: %v", found)
	}
}

func two() string { return "two records of one identity" }
