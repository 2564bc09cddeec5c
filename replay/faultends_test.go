package replay_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// fiveTuple identifies a flow.
type fiveTuple struct {
	src, dst     [16]byte
	sport, dport uint16
	proto        uint8
}

// tags counts the tags of flows in captures.
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

// edgesExplain reports whether the flows with missing tags all go to hosts that get no tags at all.
// An egress edge may strip tags for such hosts, which looks the same as a fault on the path.
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

// located passes the tags at receivers that some hop replaced to show, with the port that wrote
// them.
func (f *faulty) located(t *testing.T, show func(o *decode.Observation, src netip.Addr, s csig.Signal, at fabric.Location)) {
	t.Helper()
	f.eachTag(t, f.racks, func(o *decode.Observation) {
		table := f.Decode.Domain.Table(o.Tag.Layout, o.Tag.T)
		if o.Flags&decode.Orphan != 0 || table == nil || table.Untouched(o.Tag.S) {
			return
		}
		src, dst := netip.AddrFrom16(o.Src).Unmap(), netip.AddrFrom16(o.Dst).Unmap()
		id, _ := f.fabric.Locate(o.Tag.Layout, o.Tag.T, o.Tag.LM, src, dst)
		at, _ := f.fabric.Location(id)
		show(o, src, table.Signal(), at)
	})
}

// portsExplain reports whether all values have the locator of a port on their path, so that those
// ports may have written the forged values as well.
func (f *faulty) portsExplain(t *testing.T) string {
	t.Helper()
	strays := 0
	f.located(t, func(_ *decode.Observation, _ netip.Addr, _ csig.Signal, at fabric.Location) {
		if at.Kind == fabric.KindUnknown {
			strays++
		}
	})
	if strays > 0 {
		return ""
	}
	return fmt.Sprintf("each of the %d values of it has the locator of a port before it, which may have written it", f.differ)
}

// nobodyElse reports whether a host's forgeries with a port's locator are nearly all tags of that
// port, or too few to stand out.
func (f *faulty) nobodyElse(t *testing.T) string {
	t.Helper()
	forged, others := 0, 0
	f.located(t, func(_ *decode.Observation, src netip.Addr, s csig.Signal, at fabric.Location) {
		switch {
		case s != csig.MaxDelay || at.Name != "leaf1:up1":
		case src == netip.MustParseAddr("10.0.1.1"):
			forged++
		default:
			others++
		}
	})
	if min(forged, others) >= 20 {
		return ""
	}
	return fmt.Sprintf("%d delays of it name the port, and %d of others, which may be so", forged, others)
}

// onePortEach reports whether hardly any flow of rack 2 names a port beyond its rack: then the
// locators of its uplinks contradict nothing.
func (f *faulty) onePortEach(t *testing.T) string {
	t.Helper()
	named := map[fiveTuple]map[string]bool{}
	f.eachTag(t, f.racks, func(o *decode.Observation) {
		table := f.Decode.Domain.Table(o.Tag.Layout, o.Tag.T)
		src, dst := netip.AddrFrom16(o.Src).Unmap(), netip.AddrFrom16(o.Dst).Unmap()
		id, _ := f.fabric.Locate(o.Tag.Layout, o.Tag.T, o.Tag.LM, src, dst)
		at, _ := f.fabric.Location(id)
		if table == nil || table.Untouched(o.Tag.S) || o.Tag.D || at.Kind != fabric.KindPort || at.Orientation == "up" && at.Device != "leaf2" {
			return
		}
		flow := fiveTuple{o.Src, o.Dst, o.SrcPort, o.DstPort, o.Proto}
		if named[flow] == nil {
			named[flow] = map[string]bool{}
		}
		named[flow][at.Device] = true
	})
	n := 0
	for _, devices := range named {
		if devices["leaf2"] && (devices["spine1"] || devices["spine2"]) {
			n++
		}
	}
	if n >= 3 {
		return ""
	}
	return fmt.Sprintf("%d flows of its rack name a port of a spine as well", n)
}
