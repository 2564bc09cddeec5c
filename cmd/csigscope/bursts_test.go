package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// using is a pattern of load on a link; bursts are shorter than a window.
type using struct {
	name   string
	rate   scenario.Rate
	period time.Duration // 0: always on
	bursty bool
}

var usings = []using{
	{"nine tenths of a link", 900 * scenario.Mbps, 0, false},
	{"more than a link", 1200 * scenario.Mbps, 0, false},
	{"bursts of 80 ms", 1000 * scenario.Mbps, 200 * time.Millisecond, true},
	{"bursts of 20 ms", 1200 * scenario.Mbps, 50 * time.Millisecond, true},
}

// used returns a scenario with a link to a host whose traffic few other packets measure.
func (u *using) used(t *testing.T, layout csig.Layout, seed uint64) scenario.Scenario {
	t.Helper()
	s, err := scenario.Named("incast")
	if err != nil {
		t.Fatal(err)
	}
	s = s.WithSize(2, 2, 2).WithLayout(layout)
	s.Seed, s.Duration, s.TagEvery, s.SnapLen, s.ABWInterval = seed, 3*time.Second, 1, 96, 2*time.Millisecond
	target := scenario.Host{Rack: 2, Host: 1}
	s.Workloads = []scenario.Workload{
		{Kind: scenario.Incast, Racks: []int{1}, Target: target, Rate: u.rate / 2, Connections: 4, Period: u.period, Burst: u.period * 2 / 5},
		{Kind: scenario.Flows, Flows: []scenario.Pair{{From: scenario.Host{Rack: 1, Host: 2}, To: target}}, Rate: 20 * scenario.Mbps, PacketBytes: 256},
	}
	return s
}

// TestBursts: bursts shorter than a window are distinguished from steady load, by each signal
// that shows congestion; a queue that fills throughout them is neither. make accuracy tests
// more cases, in both formats.
func TestBursts(t *testing.T) {
	t.Parallel()
	seeds, cases := uint64(1), usings[1:3]
	layouts := []csig.Layout{{Format: csig.Wide, Profile: csig.UEC050}, {Format: csig.Compact, Profile: csig.UEC050}}
	if os.Getenv(rhythmsEnv) != "" {
		seeds, cases = 6, usings
	} else {
		layouts = layouts[:1]
	}
	var text strings.Builder
	for _, u := range cases {
		for _, layout := range layouts {
			right, silent, wrong := 0, 0, 0
			for seed := range seeds {
				doc := reportOf(t, u.used(t, layout, seed+1))
				for i := range doc.Signals {
					for _, c := range doc.Signals[i].Worst {
						switch {
						case c.Load == nil || c.Load.Steady+c.Load.Bursty == 0:
							silent++
						case u.bursty && c.Load.Steady > 0, !u.bursty && c.Load.Bursty > 0:
							wrong++
							t.Errorf("%s, %s, seed %d: %s: %+v", u.name, layout, seed+1, doc.Signals[i].Name, *c.Load)
						default:
							right++
						}
					}
				}
			}
			fmt.Fprintf(&text, "loads, %s, %s: right in %d cells, silent in %d, wrong in %d, in %d seeds\n", u.name, layout, right, silent, wrong, seeds)
			if right < 2*int(seeds) {
				t.Errorf("%s, %s: told in %d cells of %d seeds", u.name, layout, right, seeds)
			}
		}
	}
	noteRhythms(t, text.String())
}
