package table

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
)

// TestRows compares rows with a map, with cells of few and of very many locations, and with
// modified clones.
func TestRows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	table, want := newRows[aggregate.LocationID, aggregate.Sums](), map[tableKey]uint64{}
	table.reserve(10, 10)
	add := func(table *tableRows, want map[tableKey]uint64) {
		k := tableKey{aggregate.CellKey{Signal: 1, Kind: decode.Tag, Src: aggregate.GroupID(random.IntN(40)), Dst: aggregate.GroupID(random.IntN(3))}, aggregate.LocationID(random.IntN(4))}
		if random.IntN(3) == 0 {
			k.cell.Src, k.key = 7, aggregate.LocationID(random.IntN(500)) // a cell with many locations
		}
		want[k]++
		if r := table.find(k); r != nil {
			r.Observations++
			return
		}
		table.insert(k, &aggregate.Sums{Observations: 1})
	}
	check := func(table *tableRows, want map[tableKey]uint64) {
		t.Helper()
		n := 0
		for k, r := range table.all {
			n++
			if r.Observations != want[k] || table.find(k) != r {
				t.Fatalf("%+v has %d, want %d", k, r.Observations, want[k])
			}
		}
		if n != len(want) || n != len(table.list) {
			t.Fatalf("%d rows of %d, want %d", n, len(table.list), len(want))
		}
	}
	for range 5000 {
		add(table, want)
	}
	check(table, want)
	before, other := maps.Clone(want), table.clone()
	for range 5000 {
		add(table, want)
	}
	check(table, want)
	check(other, before)
	if table.find(tableKey{aggregate.CellKey{Signal: 2, Kind: decode.Tag, Src: 7, Dst: 0}, 1}) != nil || table.find(tableKey{aggregate.CellKey{Signal: 1, Kind: decode.Tag, Src: 7, Dst: 0}, 501}) != nil {
		t.Error("found what was not added")
	}
}
