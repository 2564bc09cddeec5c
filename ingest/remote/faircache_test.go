package remote

import (
	"fmt"
	"slices"
	"testing"
)

// TestFairCache: each owner keeps its most recently used entries, and the largest owner loses
// entries.
func TestFairCache(t *testing.T) {
	c := newFairCache[int, string](4, 8)
	keys := func(owner string) (list []int) {
		for k, v := range c.of(owner) {
			if *v != fmt.Sprint(owner, k) {
				t.Errorf("%d of %s is %q", k, owner, *v)
			}
			list = append(list, k)
		}
		return list
	}
	put := func(owner string, list ...int) {
		for _, k := range list {
			c.put(owner, k, fmt.Sprint(owner, k))
		}
	}
	check := func(step string, want map[string][]int, evicted uint64) {
		t.Helper()
		n := 0
		for owner, list := range want {
			if got := keys(owner); !slices.Equal(got, list) {
				t.Errorf("%s: %s keeps %v, want %v", step, owner, got, list)
			}
			n += len(list)
		}
		if len(c.entries) != n || c.evicted != evicted {
			t.Errorf("%s: %d entries, want %d; %d evicted, want %d", step, len(c.entries), n, c.evicted, evicted)
		}
	}
	put("a", 1, 2, 3, 4)
	c.get(1)
	put("a", 5)
	check("beyond its share", map[string][]int{"a": {5, 1, 4, 3}}, 1)
	put("b", 11, 12)
	put("c", 21)
	put("b", 3) // belongs to a: marked as used, and the value set
	c.put("a", 3, "a3")
	put("d", 31, 32)
	check("beyond the total", map[string][]int{"a": {3, 5, 1}, "b": {12, 11}, "c": {21}, "d": {32, 31}}, 2)
	c.remove(21)
	c.remove(21)
	put("c", 22)
	check("removed", map[string][]int{"a": {3, 5, 1}, "b": {12, 11}, "c": {22}, "d": {32, 31}}, 2)
	if c.get(21) != nil || len(keys("nobody")) != 0 {
		t.Error("an entry that was removed, or one of an unknown owner")
	}
	c.remove(22)
	if len(c.owners) != 3 {
		t.Errorf("%d owners, want those with entries", len(c.owners))
	}
}
