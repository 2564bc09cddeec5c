package aggregate

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/csigscope/csigscope/decode"
)

// TestSummaryTable holds the table against a map, with cells of few and of very many locations,
// and clones that go their own way.
func TestSummaryTable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	table, want := newSummaryTable(), map[summaryKey]uint64{}
	table.reserve(10, 10)
	add := func(table *summaryTable, want map[summaryKey]uint64) {
		k := summaryKey{cellKey{1, decode.Tag, GroupID(random.IntN(40)), GroupID(random.IntN(3))}, LocationID(random.IntN(4))}
		if random.IntN(3) == 0 {
			k.cell.src, k.loc = 7, LocationID(random.IntN(500)) // a cell of many
		}
		want[k]++
		if r := table.find(k); r != nil {
			r.observations++
			return
		}
		table.insert(k, &summaryRow{observations: 1})
	}
	check := func(table *summaryTable, want map[summaryKey]uint64) {
		t.Helper()
		n := 0
		for k, r := range table.all {
			n++
			if r.observations != want[k] || table.find(k) != r {
				t.Fatalf("%+v has %d, want %d", k, r.observations, want[k])
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
	if table.find(summaryKey{cellKey{2, decode.Tag, 7, 0}, 1}) != nil || table.find(summaryKey{cellKey{1, decode.Tag, 7, 0}, 501}) != nil {
		t.Error("found what was not added")
	}
}
