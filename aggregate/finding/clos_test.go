package finding

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// clos is a fabric of leaves and two spines, with host h of rack r at 10.0.r.h. Locator
// metadata is the number of a port.
type clos struct{}

func upID(leaf, spine int) uint16   { return uint16(100 + 10*leaf + spine) }
func downID(spine, leaf int) uint16 { return uint16(200 + 10*spine + leaf) }
func hostID(leaf, host int) uint16  { return uint16(300 + 10*leaf + host) }

const unknownID = 10_000

func (clos) routes(src, dst netip.Addr) (routes [][]uint16) {
	s, d := src.As16(), dst.As16()
	from, to := int(s[14]), int(d[14])
	last := hostID(to, int(d[15]))
	if from == to {
		return [][]uint16{{last}}
	}
	for spine := 1; spine <= 2; spine++ {
		routes = append(routes, []uint16{upID(from, spine), downID(spine, to), last})
	}
	return routes
}

func (c clos) Routes(src, dst netip.Addr, most int) (routes [][]aggregate.LocationID, ok bool) {
	for _, r := range c.routes(src, dst) {
		var ids []aggregate.LocationID
		for _, p := range r {
			ids = append(ids, aggregate.LocationID(p))
		}
		routes = append(routes, ids)
	}
	return routes, len(routes) <= most
}

func (clos) Edges(a netip.Addr) []string { return []string{fmt.Sprintf("leaf%d", a.As16()[14])} }

// Locate does not allocate, for benchmarks.
func (clos) Locate(_ csig.Layout, _ uint8, lm uint16, src, dst netip.Addr) (aggregate.LocationID, uint64) {
	s, d := src.As16(), dst.As16()
	from, to := int(s[14]), int(d[14])
	on := lm == hostID(to, int(d[15]))
	for spine := 1; spine <= 2 && from != to; spine++ {
		on = on || lm == upID(from, spine) || lm == downID(spine, to)
	}
	if on {
		return aggregate.LocationID(lm), 1_000_000
	}
	return unknownID + aggregate.LocationID(lm), 0
}

func (clos) Location(id aggregate.LocationID) (fabric.Location, bool) {
	l := fabric.Location{ID: id, Kind: fabric.KindPort, Set: id, DeviceLoc: id, StageLoc: id}
	n := int(id)
	a, b := n/10%10, n%10
	switch {
	case n >= unknownID:
		l.Kind, l.Name = fabric.KindUnknown, fmt.Sprintf("unknown lm %d", n-unknownID)
	case n >= 1000:
		l.Kind, l.Name, l.Device = fabric.KindSet, fmt.Sprintf("device %d", n), [...]string{"", "leaf", "spine", "leaf"}[n/1000]+fmt.Sprint(a)
		l.Name = l.Device
	case n >= 300:
		l.Name, l.Device, l.DeviceLoc = fmt.Sprintf("leaf%d:down%d", a, b), fmt.Sprintf("leaf%d", a), aggregate.LocationID(1000+10*a)
	case n >= 200:
		l.Name, l.Device, l.DeviceLoc = fmt.Sprintf("spine%d:down%d", a, b), fmt.Sprintf("spine%d", a), aggregate.LocationID(2000+10*a)
	case n >= 100:
		l.Name, l.Device, l.DeviceLoc = fmt.Sprintf("leaf%d:up%d", a, b), fmt.Sprintf("leaf%d", a), aggregate.LocationID(1000+10*a)
	}
	return l, true
}

// network gives a detector packets of flows through the fabric.
type network struct {
	*Detector
	t       testing.TB
	packets uint64
	// tag changes the tag of a packet on its way by a spine; nil: it arrives unchanged.
	tag func(n int, f closFlow, t *csig.Tag) (arrives bool)
	// mark changes other parts of a packet that receivers see.
	mark func(f closFlow, o *decode.Observation)
	// watch also gives the detector the packets at senders: no tags for flows that are barely sent,
	// forged values of a forger.
	watch, forger bool
	barely        func(closFlow) bool
	lm            func(closFlow) uint16
}

// closFlow is a flow from host to host by a spine.
type closFlow struct {
	src, dst [2]int // rack, host
	number   int
	spine    int
}

func newNetwork(t testing.TB) *network {
	t.Helper()
	d, err := New(configured(t, clos{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	return &network{Detector: d, t: t}
}

// mesh sends packets between all hosts of three racks of two, in two flows for each pair, one by
// each spine. Each flow's packets carry in turn the delays of its ports.
func (n *network) mesh(packets int) {
	flows := meshFlows()
	for i := range packets {
		for _, f := range flows {
			n.send(i, f)
		}
	}
}

func meshFlows() (flows []closFlow) {
	for a := range 6 {
		for b := range 6 {
			src, dst := [2]int{a/2 + 1, a%2 + 1}, [2]int{b/2 + 1, b%2 + 1}
			if a != b {
				flows = append(flows, closFlow{src, dst, 1, 1}, closFlow{src, dst, 2, 2})
			}
		}
	}
	return flows
}

// packet is the next packet of a flow, as it is sent.
func (n *network) packet(f closFlow) decode.Observation {
	n.packets++
	address := func(h [2]int) [16]byte { return netip.AddrFrom4([4]byte{10, 0, byte(h[0]), byte(h[1])}).As16() }
	return decode.Observation{
		TimeNS: int64(n.packets) * int64(50*time.Microsecond), Packet: n.packets, Kind: decode.Tag, Flags: decode.HasAddrs | decode.HasPorts, Proto: 6,
		Src: address(f.src), Dst: address(f.dst), SrcPort: uint16(f.number), DstPort: 80, Tag: csig.Tag{Layout: wide, T: 2},
	}
}

// send gives the detector the i-th packet of a flow.
func (n *network) send(i int, f closFlow) {
	o := n.packet(f)
	sender, receiver := &Tap{Name: "senders", File: "s.pcap", Place: Sender}, &Tap{Name: "receivers", File: "r.pcap"}
	switch {
	case !n.watch:
	case n.barely != nil && n.barely(f):
		n.ObserveUntagged(sender, &o, true)
	default:
		sent := o
		if n.forger && f.src == [2]int{1, 1} {
			sent.Tag.S, sent.Tag.LM = forgedDelay, 0
			if n.lm != nil {
				sent.Tag.LM = n.lm(f)
			}
		}
		n.Observe(sender, &sent)
	}
	on := []uint16{hostID(f.dst[0], f.dst[1])}
	if f.src[0] != f.dst[0] {
		on = append(on, upID(f.src[0], f.spine), downID(f.spine, f.dst[0]))
	}
	o.Tag.LM, o.Tag.S = on[i%len(on)], uint32(100+i%50)
	arrives := true
	if n.tag != nil && f.src[0] != f.dst[0] {
		arrives = n.tag(i, f, &o.Tag)
	}
	if n.mark != nil {
		n.mark(f, &o)
	}
	if !arrives {
		n.ObserveUntagged(receiver, &o, true)
		return
	}
	n.Observe(receiver, &o)
}

// found returns the kinds with devices, or candidates.
func (n *network) found() string {
	var out []string
	for _, f := range n.Findings() {
		place := cmp.Or(f.Port, f.Device, strings.Join(f.Candidates, "|"))
		out = append(out, strings.TrimSuffix(f.Kind.String()+" "+place, " "))
	}
	return strings.Join(out, ", ")
}
