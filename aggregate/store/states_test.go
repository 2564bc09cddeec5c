package store

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestStatesFromZero: a cell is congested since 1970, which some simulators begin in, as since any
// other time.
func TestStatesFromZero(t *testing.T) {
	sequential(t)
	s := openStore(t)
	writeAncestry(t, s)
	var list []*aggregate.Block
	for w := range int64(3) {
		list = append(list, blockOf([]row{{
			resolution: int64(time.Second), window: w * int64(time.Second), seq: uint64(w), source: aggregate.Source{Producer: 1},
			signal: uint8(csig.MinABW), kind: 1, src: 10, dst: 3, location: 5, observations: 100, heavy: 50, heavySum: 500, sum: 1000, min: 10, max: 10,
			distCode: []uint16{3}, distCount: []uint64{100},
		}}))
	}
	write(t, s, list)
	q := Question{Signal: csig.MinABW, From: time.Unix(0, 0), To: time.Unix(3, 0), Resolution: time.Second}
	got, err := s.Cells(t.Context(), q)
	if err != nil || len(got) != 1 {
		t.Fatalf("%d cells: %v", len(got), err)
	}
	if c := got[0]; c.State != aggregate.Congested || !c.Sustained || c.Since != 0 || c.Lasted != int64(3*time.Second) || c.CongestedWindows != 3 {
		t.Errorf("%s since %d for %d ns, congested in %d windows", c.State, c.Since, c.Lasted, c.CongestedWindows)
	}
	checkView(t, s, &q, got)
}

// TestStatesInMemory: the states and trends of the last windows in memory, which outlast the
// windows kept there, equal those of the views over the rows. Some cells are congested and some
// are not, some windows have few samples or no threshold, and there are more than
// aggregate.Horizon windows.
func TestStatesInMemory(t *testing.T) {
	sequential(t)
	s := openStore(t)
	writeAncestry(t, s)
	const windows = aggregate.Horizon + 60
	rng := rand.New(rand.NewPCG(11, 5))
	memory := table.NewMemory(table.MemoryOptions{Ahead: -1, Windows: 20})
	var list []*aggregate.Block
	for w := range windows {
		var rows []row
		for cell := range uint64(24) {
			// Cells fall silent for a while, or for good: their last onset is forgotten.
			if (w/40+int(cell))%7 == 0 || cell%6 == 5 && w > 40 && w != windows-1 {
				continue
			}
			r := row{
				resolution: int64(time.Second), window: testStart.UnixNano() + int64(w)*int64(time.Second), seq: uint64(w),
				source: aggregate.Source{Producer: 1}, signal: uint8(csig.MinABW), kind: 1, src: 10 + cell, dst: 3, location: 5,
			}
			n := []uint64{4, 50, 100, 200}[rng.IntN(4)]
			r.observations, r.sum, r.min, r.max = n, (100+rng.Uint64N(900))*n, 100, 1000
			switch rng.IntN(8) {
			case 0:
				r.heavy = 1 + n/25
			case 1:
				r.heavy = n / 3
			case 2:
				r.heavy = 1
			case 3:
				r.unjudged = n / 2
			}
			if cell%8 == 7 {
				r.heavy, r.unjudged = 0, n
			}
			r.heavySum = r.heavy * 100
			r.distCode, r.distCount = []uint16{3}, []uint64{n}
			rows = append(rows, r)
		}
		list = append(list, blockOf(rows))
		if err := memory.WriteBlock(t.Context(), list[w]); err != nil {
			t.Fatal(err)
		}
		memory.Publish()
	}
	write(t, s, list)
	found := map[aggregate.State]bool{}
	rising, falling := false, false
	for _, n := range []int{1, 5, 20} {
		kept := memory.State().Last(n)
		q := Question{Signal: csig.MinABW, From: kept[0].Start, To: kept[n-1].End, Resolution: time.Second}
		want := table.Merge(kept).WithTrend(kept, aggregate.LaterHalf(q.From.UnixNano(), q.To.UnixNano())).Cells(csig.MinABW, nil)
		got, err := s.Cells(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("last %d windows (-memory +stored):\n%s", n, diff)
		}
		for i := range got {
			found[got[i].State] = true
			if trend := got[i].TrendValue(); !math.IsNaN(trend) {
				rising, falling = rising || trend > 0, falling || trend < 0
			}
		}
		checkView(t, s, &q, got)
	}
	for _, state := range []aggregate.State{aggregate.Clear, aggregate.Congested, aggregate.Brief, aggregate.NotJudged} {
		if !found[state] {
			t.Errorf("no cell is %s", state)
		}
	}
	if !rising || !falling {
		t.Errorf("trends rise: %t, fall: %t", rising, falling)
	}
}
