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

// TestSubtract: without values a rest has no bounds of them.
func TestSubtract(t *testing.T) {
	rest := aggregate.FlowRow{Observations: 5, Measured: 3, Sum: 9, Min: 2, Max: 4}
	rest.Subtract(&aggregate.FlowRow{Observations: 2, Measured: 1, Sum: 4, Min: 4, Max: 4})
	if want := (aggregate.FlowRow{Observations: 3, Measured: 2, Sum: 5, Min: 2, Max: 4}); rest != want {
		t.Errorf("with values: %+v, want %+v", rest, want)
	}
	rest.Subtract(&aggregate.FlowRow{Observations: 2, Measured: 2, Sum: 5, Min: 2, Max: 3})
	if want := (aggregate.FlowRow{Observations: 1}); rest != want {
		t.Errorf("without values: %+v, want %+v", rest, want)
	}
}
