package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
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

// watched is a connection that calls after once a statement has succeeded.
type watched struct {
	driver.Conn
	after func(statement string)
}

func (w *watched) Exec(ctx context.Context, statement string, args ...any) error {
	err := w.Conn.Exec(ctx, statement, args...)
	if err == nil {
		w.after(statement)
	}
	return err
}

// writeSecond writes one row, in a part of its own.
func writeSecond(t *testing.T, s *Store, seq uint64) {
	t.Helper()
	write(t, s, blocks([]row{{
		resolution: int64(time.Second), window: testStart.Add(time.Duration(seq) * time.Second).UnixNano(),
		source: aggregate.Source{Producer: 1}, seq: seq, kind: 1, observations: 1,
	}}))
}

// trimmedSeconds returns the numbers of rows of 1 s in the table and in gaps.
func trimmedSeconds(t *testing.T, s *Store) (there, gaps int) {
	t.Helper()
	got := readStrings(t, s, "SELECT concat(toString((SELECT count() FROM csigscope.partials_1s FINAL)), ' ', toString((SELECT sum(rows) FROM csigscope.gaps FINAL)))")
	if _, err := fmt.Sscan(got[0], &there, &gaps); err != nil {
		t.Fatal(err)
	}
	return there, gaps
}

// TestTrimMeanwhile: rows that arrive while their partition is deleted stay, or are in a gap, and
// so are those of parts that the server merges.
func TestTrimMeanwhile(t *testing.T) {
	sequential(t)
	const record, drop = "INSERT INTO csigscope.gaps", "ALTER TABLE"
	for name, tt := range map[string]struct {
		after              string // a statement
		arrive, merge      bool
		there, gaps, later int // rows after the pass and, in gaps, after the next
	}{
		"arrive":               {after: record, arrive: true, there: 1, gaps: 3, later: 4},
		"merged once recorded": {after: record, merge: true, gaps: 3, later: 3},
		"merged while deleted": {after: drop, merge: true, gaps: 3, later: 3},
		"merged with new ones": {after: record, arrive: true, merge: true, gaps: 7, later: 7},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			alive := s.migrator
			exec := func(statement string) {
				t.Helper()
				if err := alive.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			exec("SYSTEM STOP MERGES csigscope.partials_1s")
			for seq := range uint64(3) {
				writeSecond(t, s, seq)
			}
			once := sync.OnceFunc(func() {
				if tt.arrive {
					writeSecond(t, s, 3)
				}
				if tt.merge {
					exec("SYSTEM START MERGES csigscope.partials_1s")
					exec("OPTIMIZE TABLE csigscope.partials_1s FINAL")
				}
			})
			s.migrator = &watched{alive, func(statement string) {
				if strings.HasPrefix(statement, tt.after) {
					once()
				}
			}}
			for pass, want := range [][2]int{{tt.there, tt.gaps}, {0, tt.later}} {
				if _, err := s.Trim(t.Context(), 1); !errors.Is(err, ErrDisk) {
					t.Errorf("pass %d: %v, want ErrDisk", pass, err)
				}
				if there, gaps := trimmedSeconds(t, s); there != want[0] || gaps != want[1] {
					t.Errorf("pass %d: %d rows in the table and %d in gaps, want %d", pass, there, gaps, want)
				}
			}
		})
	}
}

// TestTrimTogether: another process deletes the oldest partition while a pass looks at the store. The pass
// deletes nothing more, whichever of its questions this comes before.
func TestTrimTogether(t *testing.T) {
	sequential(t)
	s, rng := openStore(t), rand.New(rand.NewPCG(5, 6))
	alive := s.migrator
	for n, came := 0, true; came; n++ {
		truncate(t, s, "partials_fine")
		var rows []row
		for hour := range 2 {
			for i := range 2000 {
				at := testStart.Add(time.Duration(hour)*time.Hour + time.Duration(i)*10*time.Millisecond)
				rows = append(rows, delayRow(aggregate.Source{Producer: 1}, uint64(len(rows)), at, 10*time.Millisecond, rng.Uint64N(1<<32)))
			}
		}
		write(t, s, blocks(rows))
		c, err := s.Contents(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var fine uint64
		if err := alive.QueryRow(t.Context(), "SELECT sum(bytes_on_disk) FROM system.parts WHERE database = 'csigscope' AND table = 'partials_fine' AND active").Scan(&fine); err != nil {
			t.Fatal(err)
		}
		budget, questions := c.Bytes-fine/4, 0 // without half of the first partition
		came = false
		s.migrator = &asked{alive, "", func() {
			if questions++; questions == n+1 {
				came, s.migrator = true, alive
				if _, err := s.Trim(t.Context(), budget); err != nil {
					t.Error(err)
				}
			}
		}}
		_, err = s.Trim(t.Context(), budget)
		s.migrator = alive
		if left := readStrings(t, s, "SELECT toString(min(window_start)) FROM csigscope.partials_fine GROUP BY toStartOfHour(window_start)"); err != nil || len(left) != 1 {
			t.Errorf("before question %d of the pass: partitions from %q are left, want the second one: %v", n+1, left, err)
		}
	}
}

// TestTrimKilled: a pass that is killed between two statements leaves no row that is neither in
// the table nor in a gap.
func TestTrimKilled(t *testing.T) {
	sequential(t)
	s := openStore(t)
	alive := s.migrator
	for left, written := 0, 0; ; left++ {
		for range 3 {
			writeSecond(t, s, uint64(written))
			written++
		}
		s.migrator = &mortal{alive, left}
		_, err := s.Trim(t.Context(), 1)
		s.migrator = alive
		if there, gaps := trimmedSeconds(t, s); there+gaps < written {
			t.Errorf("after %d statements: %d rows in the table and %d in gaps of %d", left, there, gaps, written)
		}
		if errors.Is(err, ErrDisk) {
			break
		}
		if !errors.Is(err, errKilled) {
			t.Fatalf("after %d statements: %v, want errKilled", left, err)
		}
		if _, err := s.Trim(t.Context(), 1); !errors.Is(err, ErrDisk) {
			t.Errorf("the next pass: %v, want ErrDisk", err)
		}
		if there, gaps := trimmedSeconds(t, s); there != 0 || gaps < written {
			t.Errorf("after the next pass: %d rows in the table and %d in gaps of %d", there, gaps, written)
		}
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
