package table

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
)

// TestSummaryTable holds the table against a map, with cells of few and of very many locations,
// and clones that go their own way.
func TestSummaryTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	table, want := newSummaryTable(), map[summaryKey]uint64{}
	table.reserve(10, 10)
	add := func(table *summaryTable, want map[summaryKey]uint64) {
		k := summaryKey{aggregate.CellKey{Signal: 1, Kind: decode.Tag, Src: aggregate.GroupID(random.IntN(40)), Dst: aggregate.GroupID(random.IntN(3))}, aggregate.LocationID(random.IntN(4))}
		if random.IntN(3) == 0 {
			k.cell.Src, k.loc = 7, aggregate.LocationID(random.IntN(500)) // a cell of many
		}
		want[k]++
		if r := table.find(k); r != nil {
			r.Observations++
			return
		}
		table.insert(k, &aggregate.Sums{Observations: 1})
	}
	check := func(table *summaryTable, want map[summaryKey]uint64) {
		t.Helper()
		n := 0
		for k, r := range table.all {
			n++
			if r.Observations != want[k] || table.find(k) != r {
				t.Fatalf("%+v has %d, want %d", k, r.Observations, want[k])
			}
		}
		if n != len(want) || n != len(table.rows) {
			t.Fatalf("%d rows of %d, want %d", n, len(table.rows), len(want))
		}
	}
	for range 5000 {
		add(&table, want)
	}
	check(&table, want)
	before, other := maps.Clone(want), table.clone()
	for range 5000 {
		add(&table, want)
	}
	check(&table, want)
	check(&other, before)
	if table.find(summaryKey{aggregate.CellKey{Signal: 2, Kind: decode.Tag, Src: 7, Dst: 0}, 1}) != nil || table.find(summaryKey{aggregate.CellKey{Signal: 1, Kind: decode.Tag, Src: 7, Dst: 0}, 501}) != nil {
		t.Error("found what was not added")
	}
}
