package replay_test

import (
	"fmt"
	"testing"

	"github.com/csigscope/csigscope/decode"
)

// fiveTuple is a flow.
type fiveTuple struct {
	src, dst     [16]byte
	sport, dport uint16
	proto        uint8
}

// tags are those of flows, as captures have them.
func (f *faulty) tags(t *testing.T, files []string) map[fiveTuple]int {
	t.Helper()
	n := map[fiveTuple]int{}
	f.eachTag(t, files, func(o *decode.Observation) {
		if o.Flags&decode.Orphan == 0 {
			n[fiveTuple{o.Src, o.Dst, o.SrcPort, o.DstPort, o.Proto}]++
		}
	})
	return n
}

// edgesExplain tells whether tags are missing of flows to hosts alone that get none at all:
// what strips them for those hosts, as it may, cannot be told from what does so on the way.
func (f *faulty) edgesExplain(t *testing.T) string {
	t.Helper()
	sent, got := f.tags(t, []string{f.senders}), f.tags(t, f.racks)
	gets, stripped := map[[16]byte]bool{}, map[[16]byte]int{}
	for flow := range sent {
		if got[flow] > 0 {
			gets[flow.dst] = true
		}
	}
	for flow := range sent {
		if got[flow] > 0 {
			continue
		}
		if gets[flow.dst] {
			return ""
		}
		stripped[flow.dst]++
	}
	return fmt.Sprintf("all flows to %d hosts lose their tags, and none to %d others: their edges may strip", len(stripped), len(gets))
}
