package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
)

// TestTrimRecords: flows are deleted with the windows of their day, and longer-lived records
// after them, month by month. The remaining rows add up, and gaps record the others.
func TestTrimRecords(t *testing.T) {
	sequential(t)
	s := recorded(t)
	source := aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}
	for g, length := range map[int]time.Duration{secondTable: time.Second, minuteTable: time.Minute} {
		flowsOfPartials(t, s, resolutionTableAt(g).table(), length)
	}
	later := aFinding(source, 2, testStart.AddDate(0, 2, 0))
	if err := s.WriteFindings(t.Context(), []FindingRow{later}); err != nil {
		t.Fatal(err)
	}
	held := map[string]string{}
	for _, table := range recordTables() {
		held["trimmed_"+table] = readStrings(t, s, fmt.Sprintf("SELECT toString(count()) FROM csigscope.%s FINAL", table))[0]
	}
	for _, step := range []struct {
		budget  func(used uint64) uint64
		dropped []string
		end     error
		checks  []string // of a verification, if one runs
	}{
		{func(used uint64) uint64 { return used }, nil, nil, nil},
		{func(used uint64) uint64 { return used - 1 }, []string{"partials_fine 2024-02-29 23:00:00"}, nil, nil},
		{func(used uint64) uint64 { return used - 1 }, []string{"flows (1000000000,20240229)", "partials_1s 20240229"}, nil, []string{gone, missing}},
		{func(used uint64) uint64 { return used - 1 }, []string{"flows (60000000000,202402)", "findings 202402", "taps 202402"}, nil, nil},
		{func(uint64) uint64 { return 0 }, []string{"findings 202404"}, ErrDisk, []string{gone, missing}},
	} {
		c, err := s.Contents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		list, err := s.Trim(t.Context(), step.budget(c.Bytes))
		var dropped []string
		for _, d := range list {
			dropped = append(dropped, d.Table+" "+d.Partition)
		}
		if diff := cmp.Diff(step.dropped, dropped); diff != "" || !errors.Is(err, step.end) {
			t.Fatalf("%v, want %v (-want +got):\n%s", err, step.end, diff)
		}
		if step.checks != nil {
			if diff := cmp.Diff(step.checks, checksOf(t, s)); diff != "" {
				t.Errorf("without %q (-want +got):\n%s", dropped, diff)
			}
		}
	}
	for reason, want := range held {
		got := readStrings(t, s, fmt.Sprintf("SELECT toString((sum(rows), sum(resolution_ns), sum(observations))) FROM csigscope.gaps FINAL WHERE reason = '%s'", reason))
		if got[0] != "("+want+",0,0)" {
			t.Errorf("gaps %s of %s, want %s rows, no windows and no observations", reason, got[0], want)
		}
	}
	coverage := readStrings(t, s, "SELECT toString(sum(gap_ns)) FROM csigscope.coverage_windows_1m(from = '2024-04-01 00:00:00', to = '2024-06-01 00:00:00', step_ns = 60000000000)")
	if coverage[0] != "0" {
		t.Errorf("findings that went are windows that are missing, of %s ns", coverage[0])
	}
}

// TestTrimmedRunsAreCompared: a run whose flows and findings were deleted is still compared with
// its taps' counts.
func TestTrimmedRunsAreCompared(t *testing.T) {
	sequential(t)
	const broken = "taps counted more or fewer observations than are stored"
	s := recorded(t)
	source := aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}
	more := aTap(source, 2, testStart)
	if err := s.WriteTaps(t.Context(), []TapRow{more}); err != nil {
		t.Fatal(err)
	}
	for reason, want := range map[string]bool{gapTrimmedFlows: true, gapTrimmedFindings: true, gapTrimmedTaps: false} {
		lost := recordPart(source, testStart.UnixNano(), testStart.UnixNano()+1)
		lost.Rows = 1
		if err := s.sendGaps(t.Context(), gapsOf([]lossExtent{lost}, reason, 9, notExpiredGap)); err != nil {
			t.Fatal(err)
		}
		if got := recordFaults(t, s)[broken] > 0; got != want {
			t.Errorf("with a gap %s: found %t, want %t", reason, got, want)
		}
		if err := s.migrator.Exec(t.Context(), fmt.Sprintf("ALTER TABLE csigscope.gaps DELETE WHERE reason = '%s' SETTINGS mutations_sync = 2", reason)); err != nil {
			t.Fatal(err)
		}
	}
}
