package flow

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

func numbered(n uint32) Flow {
	f := Flow{SrcPort: uint16(n), DstPort: 4791, Proto: 17}
	binary.BigEndian.PutUint32(f.Src[12:], n)
	binary.BigEndian.PutUint32(f.Dst[12:], n*7)
	return f
}

// count counts a heavy observation of a flow as shards do: under a key, which here is its own
// reference, and at a location that depends on the value.
func count(t *Table, seeds *Seeds, f Flow, key uint32, value uint64) {
	list := [1]Heavy{{Hash: seeds.of(&f, key), Location: value % 4, Value: value, Bytes: 100}}
	t.Find(list[:])
	if t.CountKnown(list[:]) == 1 {
		return
	}
	t.Insert(&list[0], key, &f)
}

func entriesOf(t *Table) (list []Entry) {
	for i := range t.Len() {
		list = append(list, t.Entry(i))
	}
	return list
}

func locationsOf(t *Table, entry int) (list []LocationCount) {
	t.Locations(entry, func(p LocationCount) { list = append(list, p) })
	return list
}

func checkPlaces(t *testing.T, table *Table) {
	t.Helper()
	for i := range table.Len() {
		total := uint64(0)
		for _, p := range locationsOf(table, i) {
			total += p.Heavy
		}
		if total != table.Heavy(i) {
			t.Fatalf("%+v is at %+v", table.Entry(i), locationsOf(table, i))
		}
	}
}

// skewed returns flows; lower numbers are more frequent.
func skewed(rng *rand.Rand, n int) []uint32 {
	list := make([]uint32, n)
	for i := range list {
		list[i] = uint32(5000 * math.Pow(rng.Float64(), 6))
	}
	return list
}

type keyed struct {
	Flow
	key uint32
}

func exact(list []uint32) map[keyed]uint64 {
	totals := map[keyed]uint64{}
	for _, n := range list {
		totals[keyed{numbered(n), n % 3}]++
	}
	return totals
}

// plain returns the content of a table, without differences between seeds.
func plain(t *Table) (entries []Entry, locations [][]LocationCount) {
	entries = entriesOf(t)
	for i := range entries {
		locations = append(locations, locationsOf(t, i))
	}
	return entries, locations
}

// Within the budget all flows are there with complete counts.
func TestTableExact(t *testing.T) {
	list := skewed(rand.New(rand.NewPCG(1, 1)), 50_000)
	table, seeds := Table{Budget: 5000}, NewSeeds()
	for i, n := range list {
		count(&table, seeds, numbered(n), n%3, uint64(i))
	}
	want := exact(list)
	for _, e := range entriesOf(&table) {
		if n := want[keyed{e.Flow, e.Ref}]; n != e.Heavy || e.Bytes != 100*n || e.Min > e.Max || e.Sum < e.Min*n || e.Sum > e.Max*n {
			t.Fatalf("%+v, expected %d", e, n)
		}
	}
	if table.Len() != len(want) || table.Undercount != 0 {
		t.Errorf("%d entries that may lack %d, expected %d", table.Len(), table.Undercount, len(want))
	}
}

// Past the budget the most frequent flows are there, with at most their counts and little less.
func TestTableBound(t *testing.T) {
	for _, budget := range []int{2, 3, 100, 1000} {
		list := skewed(rand.New(rand.NewPCG(2, uint64(budget))), 50_000)
		table, seeds := Table{Budget: budget}, NewSeeds()
		for _, n := range list {
			count(&table, seeds, numbered(n), n%3, 1)
			if table.Len() > budget {
				t.Fatalf("%d entries of %d", table.Len(), budget)
			}
		}
		if bound := uint64(2 * len(list) / budget); table.Undercount == 0 || table.Undercount > bound {
			t.Errorf("budget %d: entries may lack %d, expected at most %d", budget, table.Undercount, bound)
		}
		checkPast(t, &table, exact(list))
	}
}

// checkPast checks a table that has forgotten flows.
func checkPast(t *testing.T, table *Table, want map[keyed]uint64) {
	t.Helper()
	const sure = 8 // times the table's stated lack of entries
	for _, e := range entriesOf(table) {
		k := keyed{e.Flow, e.Ref}
		if n := want[k]; e.Heavy > n || e.Heavy+sure*table.Undercount < n {
			t.Fatalf("budget %d: %d, expected %d, where some lack %d", table.Budget, e.Heavy, n, table.Undercount)
		}
		delete(want, k)
	}
	for k, n := range want {
		if n > sure*table.Undercount {
			t.Fatalf("budget %d: %+v was counted %d times and is not there, where some lack %d", table.Budget, k, n, table.Undercount)
		}
	}
}

// The same counts leave the same entries whatever the seeds.
func TestTableRepeats(t *testing.T) {
	list := skewed(rand.New(rand.NewPCG(3, 3)), 30_000)
	for _, budget := range []int{150, 5000} {
		var first []Entry
		var firstLocations [][]LocationCount
		for range 3 {
			table, seeds := Table{Budget: budget}, NewSeeds()
			for i, n := range list {
				count(&table, seeds, numbered(n), n%3, uint64(i))
			}
			got, locations := plain(&table)
			if first == nil {
				first, firstLocations = got, locations
			}
			if !reflect.DeepEqual(got, first) || !reflect.DeepEqual(locations, firstLocations) {
				t.Fatalf("budget %d: other entries", budget)
			}
			checkPlaces(t, &table)
		}
	}
}

// The counts of merged parts are within their stated error.
func TestTableMerge(t *testing.T) {
	list := skewed(rand.New(rand.NewPCG(4, 4)), 30_000)
	for _, budget := range []int{200, 5000} {
		seeds, whole := NewSeeds(), Table{Budget: budget}
		part := Table{Budget: budget}
		for i, n := range list {
			count(&part, seeds, numbered(n), n%3, 1)
			if i%1000 == 999 {
				whole.Merge(&part)
				part.Reset()
			}
		}
		checkPlaces(t, &whole)
		want := exact(list)
		if budget == 5000 && (whole.Undercount != 0 || whole.Len() != len(want)) {
			t.Errorf("merged within the budget: %d entries that lack %d", whole.Len(), whole.Undercount)
		}
		checkPast(t, &whole, want)
	}
}

// Renumbered parts are found by their new numbers.
func TestTableRenumber(t *testing.T) {
	table, seeds := Table{Budget: 1000}, NewSeeds()
	for n := range uint32(600) {
		count(&table, seeds, numbered(n), n%3, 5)
	}
	table.Renumber(seeds, []uint32{7, 9, 8}, func(ref uint32) uint32 { return ref })
	for n := range uint32(600) {
		count(&table, seeds, numbered(n), []uint32{7, 9, 8}[n%3], 6)
	}
	for _, e := range entriesOf(&table) {
		if e.Heavy != 2 || e.Sum != 11 || e.Ref < 7 {
			t.Fatalf("%+v", e)
		}
	}
	if table.Len() != 600 {
		t.Errorf("%d entries, expected 600", table.Len())
	}
}

// Counting in steady state allocates nothing.
func TestTableAllocations(t *testing.T) {
	list := skewed(rand.New(rand.NewPCG(5, 5)), 10_000)
	seeds := NewSeeds()
	for _, budget := range []int{100, 5000} {
		table := Table{Budget: budget}
		n := testing.AllocsPerRun(5, func() {
			for _, n := range list {
				count(&table, seeds, numbered(n), n%3, 1)
			}
			table.Reset()
		})
		if n != 0 {
			t.Errorf("budget %d: %v allocations", budget, n)
		}
	}
}

// TestCountMany: an observation with a weight counts as that many without one, and marks its flow.
func TestCountMany(t *testing.T) {
	many, ones, seeds := Table{Budget: 1000}, Table{Budget: 1000}, NewSeeds()
	for i, n := range skewed(rand.New(rand.NewPCG(3, 3)), 300) {
		f, stands := numbered(n%50), uint64(1+i%7)
		h := Heavy{Hash: seeds.of(&f, n%3), Location: uint64(i % 3), Value: uint64(i), Bytes: 100}
		many.CountMany(&h, stands, n%3, &f)
		for range stands {
			list := []Heavy{h}
			if ones.Find(list); ones.CountKnown(list) == 0 {
				ones.Insert(&list[0], n%3, &f)
			}
		}
	}
	checkPlaces(t, &many)
	want, got := entriesOf(&ones), entriesOf(&many)
	samples := 0
	for i := range got {
		samples += int(got[i].Samples)
		got[i].Samples = 0
	}
	if !reflect.DeepEqual(got, want) || samples != 300 {
		t.Errorf("%d entries of %d samples differ from %d", len(got), samples, len(want))
	}
	merged := Table{Budget: 1000}
	merged.Merge(&many)
	merged.Merge(&many)
	for i, e := range entriesOf(&merged) {
		if twice := many.Entry(i); e.Samples != 2*twice.Samples || e.Heavy != 2*twice.Heavy {
			t.Errorf("%+v merged with itself is %+v", twice, e)
		}
	}
}

// TestCountManyBound: past the budget, flows of many observations are kept.
func TestCountManyBound(t *testing.T) {
	table, seeds := Table{Budget: 10}, NewSeeds()
	for i := range uint32(10_000) {
		f, n := numbered(i), uint64(1)
		if i%100 == 0 {
			f, n = numbered(0), 1000
		}
		table.CountMany(&Heavy{Hash: seeds.of(&f, 0), Value: 1, Bytes: 1}, n, 0, &f)
		if table.Len() > 10 {
			t.Fatalf("%d entries of 10", table.Len())
		}
	}
	for _, e := range entriesOf(&table) {
		if e.Flow == numbered(0) {
			return
		}
	}
	t.Error("the flow with most observations was forgotten")
}
