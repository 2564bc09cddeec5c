package store

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// TestCodeWindows: codes add up to what was measured, tags alone where a cell has any,
// and windows are told apart.
func TestCodeWindows(t *testing.T) {
	s := openStore(t)
	r := row{
		resolution: int64(time.Second), window: testStart.UnixNano(), signal: uint8(csig.MaxDelay), kind: 1, src: 10, dst: 11, location: 5,
		observations: 6, distCode: []uint16{3, 31}, distCount: []uint64{4, 2},
	}
	r.source.Producer = 1
	reflected, elsewhere, later := r, r, r
	reflected.kind = 2 // of the same cell: not counted twice
	elsewhere.kind, elsewhere.src = 2, 12
	later.window += 3 * int64(time.Second)
	later.location, later.distCode, later.distCount = 6, []uint16{3}, []uint64{6}
	for _, one := range []row{r, reflected, elsewhere, later} {
		write(t, s, blocks([]row{one}))
	}
	q := Query{Signal: csig.MaxDelay, From: testStart, To: testStart.Add(4 * time.Second), Resolution: time.Second, Step: 2 * time.Second}
	rows, err := s.reader.Query(t.Context(), "SELECT window_start, src_group, code, observations FROM "+
		q.call(s.database, "code_windows", q.signalArgs(), q.spanArgs(), q.stepArgs())+" ORDER BY window_start, src_group, code")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	type counted struct {
		after  time.Duration
		src    uint64
		code   uint16
		number uint64
	}
	want := []counted{{0, 10, 3, 4}, {0, 10, 31, 2}, {0, 12, 3, 4}, {0, 12, 31, 2}, {2 * time.Second, 10, 3, 6}}
	var got []counted
	for rows.Next() {
		var at time.Time
		var c counted
		if err := rows.Scan(&at, &c.src, &c.code, &c.number); err != nil {
			t.Fatal(err)
		}
		c.after = at.Sub(testStart)
		got = append(got, c)
	}
	if err := rows.Err(); err != nil || len(got) != len(want) {
		t.Fatalf("got %v, %v, want %v", got, err, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("row %d: got %v, want %v", i, got[i], want[i])
		}
	}
}
