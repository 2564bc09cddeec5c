package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// step is a row of group_steps.
type step struct {
	After  time.Duration
	Idle   float64
	Period *float64
}

func steps(t *testing.T, s *Store, q *Question, group string) (list []step) {
	t.Helper()
	rows, err := s.reader.Query(t.Context(), "SELECT start, idle, period FROM "+
		q.call(s.database, "group_steps", q.signalArgs(), q.spanArgs(), q.stepArgs(), fmt.Sprintf("group = '%s'", group))+" ORDER BY start")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var at time.Time
		var one step
		if err := rows.Scan(&at, &one.Idle, &one.Period); err != nil {
			t.Fatal(err)
		}
		one.After = at.Sub(testStart)
		list = append(list, one)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// worked is a store with a job (group 10) that sends to group 11. Each letter of pattern is a
// second: # busy, - a little, a space nothing. It also has traffic of an unknown group, and reflections
// of the job's.
func worked(t *testing.T, pattern string) *Store {
	t.Helper()
	s := openStore(t)
	if err := s.WriteGroups(t.Context(), []fabric.Group{{ID: 10, Name: "job's", Level: "rack", Order: 1}, {ID: 11, Name: "rack2", Level: "rack", Order: 2}}); err != nil {
		t.Fatal(err)
	}
	for i, c := range pattern {
		r := row{
			resolution: int64(time.Second), window: testStart.Add(time.Duration(i) * time.Second).UnixNano(), source: aggregate.Source{Producer: 1},
			signal: uint8(csig.MaxDelay), kind: 1, src: 10, dst: 11, location: 5, observations: 10, heavy: 4,
		}
		other := r
		other.src, other.dst, other.bytes = uint64(aggregate.UnknownGroup), 13, 1e9
		reflected := r
		reflected.kind, reflected.bytes = 2, 1e9
		rows := []row{other}
		switch c {
		case '#':
			r.bytes = 1e6
			rows = append(rows, r, reflected)
		case '-':
			r.bytes = 1e3
			rows = append(rows, r)
		}
		for _, one := range rows {
			write(t, s, blocks([]row{one}))
		}
	}
	return s
}

func TestGroupSteps(t *testing.T) {
	sequential(t)
	const pattern = "  ##-  ###   ##--  ##"
	s := worked(t, pattern)
	q := Question{Signal: csig.MaxDelay, From: testStart, To: testStart.Add(time.Duration(len(pattern)) * time.Second), Resolution: time.Second, Step: time.Second}
	of := func(v float64) *float64 { return &v }
	// The traffic before the first step is unknown.
	want := []step{{7 * time.Second, 3, nil}, {13 * time.Second, 3, of(6)}, {19 * time.Second, 4, of(6)}}
	if got := steps(t, s, &q, "job''s"); !cmp.Equal(got, want) {
		t.Errorf("steps (-want +got)\n%s", cmp.Diff(want, got))
	}
	if got := steps(t, s, &q, "nobody"); len(got) != 0 {
		t.Errorf("steps of nobody: %v", got)
	}
	var count uint64
	var period, idle *float64
	var quiet float64
	row := s.reader.QueryRow(t.Context(), "SELECT steps, period, idle, quiet FROM "+
		q.call(s.database, "group_rhythm", q.signalArgs(), q.spanArgs(), q.stepArgs(), "group = 'job''s'"))
	if err := row.Scan(&count, &period, &idle, &quiet); err != nil {
		t.Fatal(err)
	}
	if count != 3 || period == nil || *period != 6 || idle == nil || *idle != 3 || quiet != 10 {
		t.Errorf("%d steps, period %v, idle %v, quiet %v", count, period, idle, quiet)
	}
}

// TestGroupWindows counts the group's own traffic once, and no other. A name of no group is not the unknown group.
func TestGroupWindows(t *testing.T) {
	sequential(t)
	s := worked(t, "# -")
	q := Question{Signal: csig.MaxDelay, From: testStart, To: testStart.Add(3 * time.Second), Resolution: time.Second, Step: time.Second}
	for group, want := range map[string][]string{"job''s": {"(0,1000000,10,4,8000000,0.4)", "(2,1000,10,4,8000,0.4)"}, "nobody": nil} {
		got := readStrings(t, s, "SELECT toString(tuple(toUnixTimestamp(window_start) - "+fmt.Sprint(testStart.Unix())+", bytes, observations, heavy, rate, heavy_share)) FROM "+
			q.call(s.database, "group_windows", q.signalArgs(), q.spanArgs(), q.stepArgs(), fmt.Sprintf("group = '%s'", group)))
		if !cmp.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", group, got, want)
		}
	}
}
