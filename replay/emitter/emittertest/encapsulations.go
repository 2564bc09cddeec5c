package emittertest

import (
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// EveryEncapsulation returns whole frames of every encapsulation of the emitter, between hosts and
// between leaves, with both IP versions inside and outside: some with tags, some with reflections,
// some with neither. The tags have the emitter's default layout.
func EveryEncapsulation(t testing.TB) [][]byte {
	t.Helper()
	s := scenario.Scenario{
		Name: "encapsulations", Seed: 7, Duration: 100 * time.Millisecond,
		Leaves: 2, Spines: 1, HostsPerLeaf: 2, HostSpeed: 100 * scenario.Mbps, UplinkSpeed: 100 * scenario.Mbps,
		TagEvery: 2, AckEvery: 2, SnapLen: 9000, SingleFile: true, CaptureUntagged: true,
		Taps: []scenario.Tap{{Racks: true}, {Name: "to-spine", Before: []string{"spine*"}}},
	}
	for i, encap := range scenario.Encapsulations() {
		for j, at := range []string{"hosts", "leaves"} {
			if at == "leaves" && slices.Contains([]string{"none", "esp", "psp"}, encap) {
				continue
			}
			for _, underlay := range []int{4, 6} {
				s.Workloads = append(s.Workloads, scenario.Workload{
					Kind: scenario.Background, Pairs: 1, Rate: scenario.Mbps / 2,
					Encap: encap, EncapAt: at, IP: 4 + 2*((i+j)%2), Underlay: underlay,
				})
			}
		}
	}
	r := Run(t, s, t.TempDir())
	var frames [][]byte
	for _, path := range r.Captures {
		frames = append(frames, livetest.Read(t, path)...)
	}
	return frames
}
