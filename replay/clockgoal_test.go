package replay_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/emittertest"
)

// clockGoals lists scenarios in which at least 10,000 packets pass both of two taps, with the
// promised accuracy: the offset within 2 us, the drift within 1 ppm. The offset is promised if some
// packets of each direction meet no queue: otherwise queues and clocks cannot be told apart, and
// the bound shows that. The drift is not promised if queues fill up soon after the start and stay
// full.
var clockGoals = []struct {
	name                 string
	duration             time.Duration
	offset, drift, quick bool
}{
	{name: "alltoall", duration: time.Second, offset: true, drift: true},
	{name: "pipeline", duration: 2 * time.Second, offset: true, drift: true},
	{name: "storage", duration: 2 * time.Second, offset: true, drift: true},
	{name: "tree", duration: 2 * time.Second, offset: true, drift: true},
	{name: "quickstart", duration: 2 * time.Second, offset: true, drift: true},
	{name: "vlans", duration: 2 * time.Second, offset: true, drift: true},
	{name: "pony", duration: time.Second, drift: true},
	{name: "ring", duration: 2 * time.Second, drift: true, quick: true},
	{name: "straggler", duration: 2 * time.Second},
	{name: "permutation", duration: time.Second},
}

// TestClockGoals checks that traces give the clocks' drift within 1 ppm under load, even if queues
// never empty, and that the truth is always within the bound.
func TestClockGoals(t *testing.T) {
	t.Parallel()
	seeds, file := uint64(1), os.Getenv(tracedEnv)
	if file != "" {
		seeds = 10
	} else if testing.Short() {
		t.Skip("SKIPPED: -short; nothing of it is for the race detector")
	}
	var text strings.Builder
	for _, goal := range clockGoals {
		if file == "" && !goal.quick {
			continue // covered by TestTraceClocks
		}
		s := emittertest.Named(t, goal.name)
		s.Duration, s.SnapLen = goal.duration, 128
		var list []apart
		inside, sure, queued, packets := 0, 0, 0, 1<<30
		for seed := range seeds {
			a := clocksOf(t, s, clockCases[0].taps, seed+1)
			if a.packets < 10_000 {
				continue // senders and receivers depend on the seed
			}
			list, packets = append(list, a), min(packets, a.packets)
			inside += count(a.inside)
			sure += count(a.drift <= 3*a.error)
			queued += count(a.queued)
		}
		if len(list) == 0 {
			t.Errorf("%s: no seed has 10,000 packets in common", goal.name)
			continue
		}
		offset, worstOffset := middleAndMost(list, func(a apart) float64 { return a.offset })
		drift, worstDrift := middleAndMost(list, func(a apart) float64 { return a.drift })
		line := fmt.Sprintf("clocks, %s in %s, %d packets or more: offset off by %.0f ns, at worst %.0f; drift by %.0f ppb, at worst %.0f, within three standard errors in %d of %d; told by queues in %d; truth within the bound in %d",
			goal.name, goal.duration, packets, offset, worstOffset, drift, worstDrift, sure, len(list), queued, inside)
		t.Log(line)
		fmt.Fprintln(&text, line)
		if inside < len(list) || goal.drift && worstDrift > 1000 || goal.offset && worstOffset > 2000 {
			t.Error(line)
		}
	}
	appendTo(t, file, text.String())
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// middleAndMost returns the median and the maximum.
func middleAndMost(list []apart, of func(apart) float64) (middle, most float64) {
	var values []float64
	for _, a := range list {
		values = append(values, of(a))
	}
	slices.Sort(values)
	return values[len(values)/2], values[len(values)-1]
}
