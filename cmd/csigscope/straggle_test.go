package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/replay/emitter"
)

// straggling is a job of four racks, and how one of these is slower than the others.
type straggling struct {
	name string
	late time.Duration // 0: nobody is
	slow func(s *emitter.Scenario, rack int)
}

var stragglings = []straggling{
	{"nobody", 0, func(s *emitter.Scenario, _ int) { even(s) }},
	{"a rack", 15 * time.Millisecond, func(s *emitter.Scenario, rack int) {
		even(s)
		w := &s.Workloads[0]
		w.Late, w.StraggleEvery = 15*time.Millisecond, 1
		for host := 1; host <= 4; host++ {
			w.Stragglers = append(w.Stragglers, emitter.Host{Rack: rack, Host: host})
		}
	}},
	{"one host", 15 * time.Millisecond, func(s *emitter.Scenario, rack int) {
		s.UplinkSpeed, s.RackUplinkSpeed = 4*emitter.Gbps, nil
		w := &s.Workloads[0]
		w.Rate, w.Late, w.StraggleEvery = 880*emitter.Mbps, 15*time.Millisecond, 1
		w.Stragglers = []emitter.Host{{Rack: rack, Host: int(s.Seed)%4 + 1}}
	}},
	// A rack's slow links are on the way to it, too.
	{"links", 0, func(s *emitter.Scenario, rack int) {
		even(s)
		s.BufferBytes = 4 << 20
		s.RackUplinkSpeed[rack] = 800 * emitter.Mbps
	}},
}

// even makes the uplinks of all racks the same, and busy in each step.
func even(s *emitter.Scenario) {
	s.RackUplinkSpeed = map[int]emitter.Rate{1: emitter.Gbps, 2: emitter.Gbps, 3: emitter.Gbps, 4: emitter.Gbps}
}

// tally counts what signals say of who straggles.
type tally struct{ right, wrong, silent int }

func (n *tally) add(s *report.Signal, rack string, late time.Duration) (says string) {
	named := false
	for _, r := range s.Rhythms {
		if !r.Straggles {
			continue
		}
		named = true
		by := time.Duration(r.LateNS)
		if r.Src != rack && (late > 0 || r.Dst != rack) || late > 0 && (by-late).Abs() > 4*time.Millisecond {
			n.wrong++
			return fmt.Sprintf("%s: %s to %s straggles by %s", s.Name, r.Src, r.Dst, by)
		}
	}
	if named {
		n.right++
	} else {
		n.silent++
	}
	return ""
}

// TestStragglers: where nobody is late, nobody is named; and make accuracy asks whether who is
// named is late, for each way to be so.
func TestStragglers(t *testing.T) {
	t.Parallel()
	seeds, cases := uint64(1), stragglings[:1]
	if os.Getenv(rhythmsEnv) != "" {
		seeds, cases = 6, stragglings
	}
	var text strings.Builder
	for _, c := range cases {
		var n tally
		for seed := range seeds {
			s := job(100*time.Millisecond, seed+1)
			s.Duration = 2 * time.Second
			rack := int(seed)%4 + 1
			c.slow(&s, rack)
			want := fmt.Sprintf("rack%d", rack)
			if c.name == "nobody" {
				want = ""
			}
			doc := reportOf(t, s)
			for i := range doc.Signals {
				if says := n.add(&doc.Signals[i], want, c.late); says != "" {
					t.Errorf("%s, seed %d: %s", c.name, seed+1, says)
				}
			}
		}
		if want := int(seeds); c.name != "nobody" && n.right < want {
			t.Errorf("%s: named by %d signals in %d seeds", c.name, n.right, seeds)
		}
		fmt.Fprintf(&text, "stragglers, %s: named by %d signals, not named by %d, wrongly by %d, in %d seeds\n", c.name, n.right, n.silent, n.wrong, seeds)
	}
	noteRhythms(t, text.String())
}
