package exact

import "testing"

func TestRandomBelow(t *testing.T) {
	r := Derive(1, 2, 3)
	var seen [10]int
	for range 10_000 {
		seen[r.Below(10)]++
	}
	for v, n := range seen {
		if n < 800 || n > 1200 {
			t.Errorf("%d came %d times of 10000", v, n)
		}
	}
	if a, b := Derive(1, 2), Derive(1, 3); a.Next() == b.Next() {
		t.Error("streams of different numbers agree")
	}
}
