package simulation

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// BenchmarkEmit measures the packets written per second of one core's CPU time, plain and in
// tunnels: the median of runs of half a million packets. CPU time excludes other load on the
// machine.
func BenchmarkEmit(b *testing.B) {
	mirror := []scenario.Tap{{Name: "all", Before: []string{"host*"}, ERSPAN: 3}}
	for _, c := range []struct {
		name   string
		change func(s *scenario.Scenario)
	}{
		{"plain", func(*scenario.Scenario) {}},
		{"ipv6", func(s *scenario.Scenario) { s.IP = 6 }},
		{"macsec", func(s *scenario.Scenario) { s.Encap = "macsec" }},
		{"vxlan", func(s *scenario.Scenario) { s.Encap = "vxlan" }},
		{"vxlan-between-leaves", func(s *scenario.Scenario) { s.Encap, s.EncapAt = "vxlan", "leaves" }},
		{"geneve-in-ipv6", func(s *scenario.Scenario) { s.Encap, s.Underlay = "geneve", 6 }},
		{"gre-flags", func(s *scenario.Scenario) { s.Encap = "gre-flags" }},
		{"esp", func(s *scenario.Scenario) { s.Encap = "esp" }},
		{"erspan", func(s *scenario.Scenario) { s.Taps = mirror }},
		{"noisy", func(s *scenario.Scenario) {
			s.Taps = []scenario.Tap{{Racks: true, Drift: 100, Jitter: time.Microsecond, Loss: 1000, Duplicate: 1000, Reorder: 1000}}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			s := named(b, "fabric-like")
			c.change(&s)
			s.Packets = 500_000
			var rates []float64
			for b.Loop() {
				before := cpuTime(b)
				r, err := Run(context.Background(), s, b.TempDir(), nil)
				if err != nil {
					b.Fatal(err)
				}
				rates = append(rates, float64(r.Captured)/(cpuTime(b)-before).Seconds())
			}
			slices.Sort(rates)
			b.ReportMetric(rates[len(rates)/2], "packets/cpu-s")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
