package answers

import (
	"math"
	"testing"
)

func TestCountsText(t *testing.T) {
	if got := countsText(map[string]uint64{"b": 2, "a": 2, "c": 1 << 63}); got != "c=9223372036854775808 a=2 b=2" {
		t.Error(got)
	}
}

// TestNumber: numbers that JSON cannot represent are missing values.
func TestNumber(t *testing.T) {
	for v, want := range map[float64]any{1.5: 1.5, 0: 0.0, math.Inf(1): nil, math.Inf(-1): nil} {
		if got := number(v); got != want {
			t.Errorf("%v: %v, want %v", v, got, want)
		}
	}
	if got := number(math.NaN()); got != nil {
		t.Errorf("NaN: %v", got)
	}
}
