package replay_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/emittertest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// tracedEnv requests all seeds and names a file for the results; make accuracy sets it.
const tracedEnv = "CSIGSCOPE_TEST_TRACED"

// clockCases lists the places of the two taps in a fabric of two racks: on links that the same
// packets pass, or at the receivers of both racks, which share no packets.
var clockCases = []struct {
	name string
	taps []scenario.Tap
}{
	{"packets at two taps", []scenario.Tap{{Name: "a", Before: []string{"leaf1"}}, {Name: "b", Before: []string{"leaf2"}}}},
	{"tags and their reflections", []scenario.Tap{{Name: "a", Before: []string{"host1-*"}}, {Name: "b", Before: []string{"host2-*"}}}},
}

// apart is the error of an estimate, and whether the truth is within its bound.
type apart struct {
	offset, drift, width float64 // ns, ppb, ns
	error                float64 // ppb, stated error of the drift
	packets              int     // packets that passed both taps
	queued               bool
	inside               bool
}

// twoRacks returns two racks of two hosts with traffic between all hosts, for a short time.
func twoRacks(t *testing.T) scenario.Scenario {
	t.Helper()
	s := emittertest.Named(t, "alltoall")
	s = s.WithSize(2, 2, 2)
	s.Duration, s.SnapLen = 400*time.Millisecond, 96
	return s
}

// clocksOf emits a fabric whose second tap has a different clock, and returns the trace's estimate.
// If the seed sends no packets between the racks, there is none.
func clocksOf(t *testing.T, s scenario.Scenario, taps []scenario.Tap, seed uint64) apart {
	t.Helper()
	const jitter = 5 * time.Microsecond
	rng := rand.New(rand.NewPCG(seed, 1))
	s.Seed, s.CaptureUntagged = seed, true
	s.Taps = slices.Clone(taps)
	for i := range s.Taps {
		s.Taps[i].Jitter = jitter
	}
	s.Taps[1].Offset = time.Duration(rng.Int64N(int64(10*time.Millisecond))) - 5*time.Millisecond
	s.Taps[1].Drift = rng.Int64N(100_000) - 50_000
	report := emittertest.Run(t, s, t.TempDir())
	_, domain := emittertest.Network(t, report.Fabric)
	traced, err := replay.Trace(t.Context(), replay.TraceConfig{Files: report.Captures, Decode: decode.Config{Domain: domain}, Error: jitter})
	if err != nil {
		t.Fatal(err)
	}
	if len(traced.Hops) == 0 {
		return apart{}
	}
	if len(traced.Hops) != 1 || traced.Hops[0].Clock == nil || traced.Hops[0].Clock.OneWay {
		t.Fatalf("seed %d: %+v", seed, traced.Hops)
	}
	c, b := traced.Hops[0].Clock, &s.Taps[1]
	start := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC).UnixNano()
	truth := func(a int64) float64 {
		return float64(b.Offset) + float64(a-start)*float64(b.Drift)/1e9
	}
	out := apart{offset: math.Abs(c.Offset - truth(c.At)), drift: math.Abs(c.Drift - float64(b.Drift)), inside: true}
	out.error, out.queued, out.packets = c.DriftError, c.Queued, traced.Hops[0].Common()
	for _, at := range []int64{start, c.At, start + int64(s.Duration)} {
		low, high := c.Bound(at)
		out.width = high - low
		out.inside = out.inside && low <= truth(at)+1 && truth(at)-1 <= high // the tap's clock shows whole ns
	}
	out.inside = out.inside && c.DriftLow <= float64(b.Drift)+1 && float64(b.Drift)-1 <= c.DriftHigh
	return out
}

// TestClockBounds checks that in at least 95 % of the seeds the true offset is within its bound at
// all times, and the true drift within its own, whether packets passed both taps or their tags came
// back as reflections.
func TestClockBounds(t *testing.T) {
	seeds, file := uint64(8), os.Getenv(tracedEnv)
	if file != "" {
		seeds = 200
	} else if testing.Short() {
		t.Skip("SKIPPED: -short; nothing of it is for the race detector")
	}
	var mu sync.Mutex
	var text strings.Builder
	t.Run("of", func(t *testing.T) {
		for _, test := range clockCases {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				var list []apart
				inside := 0
				for seed := range seeds {
					a := clocksOf(t, twoRacks(t), test.taps, seed+1)
					if list = append(list, a); a.inside {
						inside++
					}
				}
				median := func(of func(apart) float64) float64 {
					slices.SortFunc(list, func(a, b apart) int { return int(of(a) - of(b)) })
					return of(list[len(list)/2])
				}
				line := fmt.Sprintf("clocks by %s: the truth is within the bound in %d of %d seeds; off by %.0f ns and %.0f ppb, bound %.0f ns (medians)",
					test.name, inside, seeds, median(func(a apart) float64 { return a.offset }), median(func(a apart) float64 { return a.drift }),
					median(func(a apart) float64 { return a.width }))
				t.Log(line)
				mu.Lock()
				fmt.Fprintln(&text, line)
				mu.Unlock()
				if 100*inside < 95*int(seeds) {
					t.Error("the truth is too often beyond the bound")
				}
				if off := median(func(a apart) float64 { return a.offset }); off > 2000 {
					t.Errorf("off by %.0f ns", off)
				}
			})
		}
	})
	appendTo(t, file, text.String())
}

// TestClocksThroughTunnels checks that tags and their reflections relate clocks in every
// encapsulation that does not hide TCP.
func TestClocksThroughTunnels(t *testing.T) {
	t.Parallel()
	hidden := []string{"macsec-encrypted", "esp", "psp"}
	for i, encap := range scenario.Encapsulations() {
		if slices.Contains(hidden, encap) {
			continue
		}
		t.Run(encap, func(t *testing.T) {
			t.Parallel()
			s := twoRacks(t)
			s.Encap, s.Duration, s.SnapLen, s.IP = encap, 60*time.Millisecond, 256, 4+2*(i%2)
			a := clocksOf(t, s, clockCases[1].taps, uint64(i))
			if !a.inside || a.offset > 10_000 {
				t.Errorf("off by %.0f ns, within the bound: %t", a.offset, a.inside)
			}
		})
	}
}

// appendTo appends text to a file; an empty name is ignored.
func appendTo(t *testing.T, file, text string) {
	t.Helper()
	if file == "" {
		return
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := out.WriteString(text); err != nil {
		t.Fatal(err)
	}
}
