package finding

import (
	"bytes"
	"cmp"
	"net/netip"

	"github.com/csigscope/csigscope/decode"
)

// flowPackets is how many of a flow's packets without a tag are remembered.
const flowPackets = 4

// flowKey is a five-tuple.
type flowKey struct {
	src, dst [16]byte
	ports    uint32
	proto    uint8
}

func keyOf(o *decode.Observation) flowKey {
	return flowKey{o.Src, o.Dst, uint32(o.SrcPort)<<16 | uint32(o.DstPort), o.Proto}
}

// addrs are the flow's ends.
func (k *flowKey) addrs() (src, dst netip.Addr) {
	return netip.AddrFrom16(k.src).Unmap(), netip.AddrFrom16(k.dst).Unmap()
}

// compare orders flows.
func (k *flowKey) compare(o *flowKey) int {
	return cmp.Or(bytes.Compare(k.src[:], o.src[:]), bytes.Compare(k.dst[:], o.dst[:]), cmp.Compare(k.ports, o.ports), cmp.Compare(k.proto, o.proto))
}

// flow is what is seen of a flow at the ends of its path.
type flow struct {
	path
	key                       flowKey
	sent, got                 traffic // at taps of senders, of receivers
	reserved, orphans, strays uint64  // tags with reserved bits, or out of place; values with locators that nobody writes
	touched                   uint64
	run, best                 gap
	least                     leastOf
}

// traffic is packets of a flow at one end.
type traffic struct {
	tagged, bare uint64
	data         uint64 // bare ones with data
}

func (t *traffic) all() uint64 { return t.tagged + t.bare }

// gap is packets with data and no tag at receivers, one after the other.
type gap struct {
	n        uint64
	from, to int64
	packets  [flowPackets]Packet
}

// flows are those that are told apart.
type flows struct {
	of     map[flowKey]*flow
	most   int
	beyond uint64
	alone  paths // of other flows
}

func newFlows(most int) flows {
	return flows{of: make(map[flowKey]*flow), most: most, alone: paths{of: make(map[flowKey]*path), most: most}}
}

func (f *flows) get(o *decode.Observation) *flow {
	if f.most < 0 {
		return nil
	}
	key := keyOf(o)
	one := f.of[key]
	if one == nil {
		if len(f.of) >= f.most {
			f.beyond++
			return nil
		}
		one = &flow{key: key, path: f.alone.take(&key)}
		f.of[key] = one
	}
	return one
}

// tagged counts a packet with a tag, and gives its flow where the tap stands at an end.
func (f *flows) tagged(at Place, o *decode.Observation) *flow {
	if at != Receiver && at != Sender {
		return nil
	}
	one := f.get(o)
	switch {
	case one == nil:
	case at == Sender:
		one.sent.tagged++
	default:
		one.got.tagged++
		one.end()
	}
	return one
}

// Bare takes a packet without a tag: its time, number, addresses, protocol and ports. data
// tells whether it carries any, which acknowledgements do not. It keeps no reference to it.
func (d *Detector) Bare(tap *Tap, o *decode.Observation, data bool) {
	if tap.Place != Receiver && tap.Place != Sender {
		return
	}
	f := d.flows.get(o)
	if f == nil {
		return
	}
	at := &f.got
	if tap.Place == Sender {
		at = &f.sent
	}
	if at.bare++; !data {
		return
	}
	if at.data++; tap.Place == Receiver {
		f.run.add(tap, o)
	}
}

func (g *gap) add(tap *Tap, o *decode.Observation) {
	if g.n++; g.n == 1 {
		g.from, g.to = o.TimeNS, o.TimeNS
	}
	g.from, g.to = min(g.from, o.TimeNS), max(g.to, o.TimeNS)
	if g.n <= flowPackets {
		g.packets[g.n-1] = Packet{tap.File, o.Packet}
	}
}

// end ends a gap, and keeps the longest one.
func (f *flow) end() {
	if f.run.n > f.best.n {
		f.best = f.run
	}
	f.run.n = 0
}

// longest is the longest gap so far.
func (f *flow) longest() *gap {
	if f.run.n > f.best.n {
		return &f.run
	}
	return &f.best
}
