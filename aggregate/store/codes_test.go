package store

import (
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// TestCodes: codes add up to the number of measurements, from tags only where a cell has any, and
// by window and cell.
func TestCodes(t *testing.T) {
	sequential(t)
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
	q := Question{Signal: csig.MaxDelay, From: testStart, To: testStart.Add(4 * time.Second), Resolution: time.Second, Step: 2 * time.Second}
	first, third := testStart, testStart.Add(2*time.Second)
	one, other := Cell{10, 11}, Cell{12, 11}
	for name, test := range map[string]struct {
		among []Cell
		want  []CodeRow // of windows
		all   []CodeRow
	}{
		"all": {
			nil,
			[]CodeRow{{first, one, 0, 3, 4}, {first, one, 0, 31, 2}, {first, other, 0, 3, 4}, {first, other, 0, 31, 2}, {third, one, 0, 3, 6}},
			[]CodeRow{{Code: 3, Observations: 14}, {Code: 31, Observations: 4}},
		},
		"one": {
			[]Cell{one},
			[]CodeRow{{first, one, 0, 3, 4}, {first, one, 0, 31, 2}, {third, one, 0, 3, 6}},
			[]CodeRow{{Code: 3, Observations: 10}, {Code: 31, Observations: 2}},
		},
		"others": {
			[]Cell{{1, 2}, other},
			[]CodeRow{{first, other, 0, 3, 4}, {first, other, 0, 31, 2}},
			[]CodeRow{{Code: 3, Observations: 4}, {Code: 31, Observations: 2}},
		},
	} {
		q.Among = test.among
		windows, err := s.CodeWindows(t.Context(), q)
		if err != nil || !slices.Equal(windows, test.want) {
			t.Errorf("%s: windows %v, %v, want %v", name, windows, err, test.want)
		}
		all, err := s.Codes(t.Context(), q)
		if err != nil || !slices.Equal(all, test.all) {
			t.Errorf("%s: %v, %v, want %v", name, all, err, test.all)
		}
	}
	q.Among = []Cell{one}
	if cells, err := s.Cells(t.Context(), q); err != nil || len(cells) != 1 {
		t.Errorf("%d cells of the one chosen, %v", len(cells), err)
	}
	q.Step = time.Millisecond
	if _, err := s.CodeWindows(t.Context(), q); err == nil {
		t.Error("windows shorter than the resolution are answered")
	}
}
