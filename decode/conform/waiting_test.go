package conform

import "testing"

// TestWaiting: packets are found by their whole identity while the index grows, even if slots and
// bits of several are the same, and nothing else is found.
func TestWaiting(t *testing.T) {
	t.Parallel()
	identities := []func(n uint64) uint64{
		func(n uint64) uint64 { return n * 0x9e3779b97f4a7c15 },
		func(n uint64) uint64 { return n << 20 }, // one slot for all
		func(n uint64) uint64 { return n<<33 | 7 },
		func(n uint64) uint64 { return n % 4 << 31 },
	}
	for i, identity := range identities {
		for _, expected := range []int{0, 3000} {
			var w waiting
			for range 2 { // entries from before the reset are gone
				w.reset(expected)
				if w.find(identity(1)) != none {
					t.Fatal("found in nothing")
				}
				first := map[uint64]int32{}
				for n := range int32(1500) {
					s := sighting{}
					s.whole = identity(uint64(n))
					w.add(&s)
					if _, ok := first[s.whole]; !ok {
						first[s.whole] = n
					}
				}
				for whole, at := range first {
					if got := w.find(whole); got != at {
						t.Fatalf("identities %d: %x is at %d, want %d", i, whole, got, at)
					}
				}
				if got := w.find(identity(1) ^ 1<<63 ^ 1); got != none {
					t.Errorf("identities %d: another is at %d", i, got)
				}
			}
		}
	}
}
