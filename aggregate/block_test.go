package aggregate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// TestFineResolution: live views keep the longest windows below 1 s, unless they are too short.
func TestFineResolution(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		resolutions []time.Duration
		want        time.Duration
	}{
		{nil, 0},
		{[]time.Duration{time.Second, time.Minute}, 0},
		{[]time.Duration{10 * ms, time.Second}, 10 * ms},
		{[]time.Duration{5 * ms, time.Second}, 0},
		{[]time.Duration{ms, 100 * ms, 500 * ms, time.Second}, 500 * ms},
	} {
		t.Run(fmt.Sprint(c.resolutions), func(t *testing.T) {
			if got := aggregate.FineResolution(c.resolutions); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
