package finding

import (
	"bytes"
	"cmp"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
)

// flowPackets is the number of a flow's untagged packets that are remembered.
const flowPackets = 4

// flowKey is a five-tuple.
type flowKey struct {
	src, dst [16]byte
	ports    uint32
	proto    uint8
}

func flowOf(o *decode.Observation) flowKey {
	return flowKey{o.Src, o.Dst, uint32(o.SrcPort)<<16 | uint32(o.DstPort), o.Proto}
}

// addrs returns the flow's endpoints.
func (k *flowKey) addrs() (src, dst netip.Addr) {
	return netip.AddrFrom16(k.src).Unmap(), netip.AddrFrom16(k.dst).Unmap()
}

// source returns the flow's source.
func (k *flowKey) source() netip.Addr {
	src, _ := k.addrs()
	return src
}

// compare orders flows.
func (k *flowKey) compare(o *flowKey) int {
	return cmp.Or(bytes.Compare(k.src[:], o.src[:]), bytes.Compare(k.dst[:], o.dst[:]), cmp.Compare(k.ports, o.ports), cmp.Compare(k.proto, o.proto))
}

// flow is the traffic of a flow at the ends of its path.
type flow struct {
	path
	key                           flowKey
	sent, got                     traffic // at taps of senders, of receivers
	reserved, orphans, unknownLMs uint64  // tags with reserved bits, or out of place; values with locators that no port writes
	touched                       uint64
	sentTypes, gotTypes           types
	span                                  // of tags at receivers
	class                         Class   // of the last packet at a receiver
	wholes                        *wholes // nil without D
	run, best                     gap
	least                         leastOf
	taps                          []tagsAt // at most maxFlowTaps
}

// traffic counts the packets of a flow at one end.
type traffic struct {
	tagged, untagged uint64
	data             uint64 // untagged ones with data
}

func (t *traffic) all() uint64 { return t.tagged + t.untagged }

// gap is a run of untagged packets with data at receivers.
type gap struct {
	n uint64
	span
	packets [flowPackets]Packet
}

const (
	// maxFlowTaps bounds the taps of a flow whose tags are compared.
	maxFlowTaps = 4
	// senderTTL stands for the place of a sender, in front of all packets on the way.
	senderTTL = 256
)

// tagsAt are a flow's tags of one layout at one tap. Reflections, which show the end of the path,
// count as those of a tap without a name.
type tagsAt struct {
	tap           string
	layout        uint8
	ttl, wrongTTL uint16 // the least of all tags, the greatest of wrong ones
	n, wrong      uint32
	when          slots // of all tags
	wrongWhen     slots
}

// tagsAt counts a tag or a reflection of the flow, and returns the counts of its tap; nil beyond
// the bound.
func (f *flow) tagsAt(s *seen, clock *slotClock) *tagsAt {
	name, layout := s.tap.Name, uint8(s.o.Tag.Layout.Index())
	if s.o.Kind != decode.Tag {
		name = ""
	}
	i := slices.IndexFunc(f.taps, func(t tagsAt) bool { return t.tap == name && t.layout == layout })
	if i < 0 {
		if len(f.taps) == maxFlowTaps {
			return nil
		}
		i, f.taps = len(f.taps), append(f.taps, tagsAt{tap: name, layout: layout, ttl: s.ttl})
	}
	t := &f.taps[i]
	t.n++
	t.ttl = min(t.ttl, s.ttl)
	t.when.set(clock, s.o.TimeNS)
	return t
}

// clears reports whether values that are wrong at one tap were not yet so at t. Its tags must be in
// front of all wrong ones, at the same time, and so many that they include most of the wrong ones.
// A tap behind proves nothing: an edge may have reset the values in between.
func (t *tagsAt) clears(behind *tagsAt, clock *slotClock) bool {
	return t.wrong == 0 && t.layout == behind.layout && t.ttl > behind.wrongTTL &&
		2*uint64(behind.n) <= 2*uint64(t.n)+uint64(behind.wrong) && overlap(behind.wrongWhen.now(clock), t.when.now(clock)) >= 0.5
}

// flows are the tracked ones.
type flows struct {
	clock  slotClock // of tagsAt
	of     map[flowKey]*flow
	most   int
	beyond uint64
}

func newFlows(most int) flows {
	return flows{of: make(map[flowKey]*flow), most: most}
}

func (f *flows) get(o *decode.Observation) *flow {
	if f.most < 0 {
		return nil
	}
	key := flowOf(o)
	one := f.of[key]
	if one == nil {
		if len(f.of) >= f.most {
			f.beyond++
			return nil
		}
		one = &flow{key: key}
		f.of[key] = one
	}
	return one
}

// tagged counts a tagged packet, and returns its flow if the tap is at an end.
func (f *flows) tagged(at Place, o *decode.Observation) *flow {
	if at != Receiver && at != Sender {
		return nil
	}
	one := f.get(o)
	switch {
	case one == nil:
	case at == Sender:
		one.sent.tagged++
		one.sentTypes.add(o)
	default:
		one.got.tagged++
		one.gotTypes.add(o)
		one.cover(o.TimeNS, o.TimeNS)
		one.end()
	}
	return one
}

// ObserveUntagged takes an untagged packet: its time, number, addresses, protocol and ports. data
// says whether it carries data: a pure acknowledgement does not. It keeps no reference to it.
func (d *Detector) ObserveUntagged(tap *Tap, o *decode.Observation, data bool) {
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
	if at.untagged++; !data {
		return
	}
	if at.data++; tap.Place == Receiver {
		f.class = d.class
		f.run.add(tap, o)
	}
}

func (g *gap) add(tap *Tap, o *decode.Observation) {
	if g.n++; g.n == 1 {
		g.span = span{}
	}
	g.cover(o.TimeNS, o.TimeNS)
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

// longest returns the longest gap so far.
func (f *flow) longest() *gap {
	if f.run.n > f.best.n {
		return &f.run
	}
	return &f.best
}

// maxNamed is the number of remembered ports that a flow's tags name.
const maxNamed = 4

// path is the known ports of a flow.
type path struct {
	named [maxNamed]aggregate.LocationID // by its tags and reflections
}

// passed remembers a port that a value of the flow names.
func (p *path) passed(at aggregate.LocationID) {
	for i, one := range p.named {
		switch one {
		case at:
			return
		case 0:
			p.named[i] = at
			return
		}
	}
}

// reflected returns the flow that a reflection measured, nil if it is not tracked.
func (f *flows) reflected(o *decode.Observation) *flow {
	return f.of[flowKey{o.Dst, o.Src, uint32(o.DstPort)<<16 | uint32(o.SrcPort), o.Proto}]
}

// slots are the times of events, a bit for each of 64 equal parts of the time so far.
type slots struct {
	bits  uint64
	first int64 // slot of the lowest bit
	step  uint8 // of the clock, when bits were set
}

// slotClock is the length of a slot: about 1 ms, doubled until 64 of them cover the time from the
// earliest observation to the latest. A slot begins at a multiple of its length, so that the order
// of observations does not matter: a capture may begin before the one that was read first.
type slotClock struct {
	from, to int64 // slots of about 1 ms of the earliest and of the latest observation
	step     uint8
	started  bool
}

// slotShift makes slots of 2^slotShift ns.
const slotShift = 20

// at returns the slot of a time.
func (c *slotClock) at(ns int64) int64 {
	n := ns >> slotShift
	if !c.started {
		c.from, c.to, c.started = n, n, true
	}
	c.from, c.to = min(c.from, n), max(c.to, n)
	for c.to>>c.step-c.first() >= 64 {
		c.step++
	}
	return n >> c.step
}

// first returns the first slot.
func (c *slotClock) first() int64 { return c.from >> c.step }

// set marks a time. A packet without one is in no slot.
func (s *slots) set(c *slotClock, ns int64) {
	if ns == 0 {
		return
	}
	at := c.at(ns)
	s.bits = s.now(c) | 1<<(at-c.first())
	s.first, s.step = c.first(), c.step
}

// now returns the bits by the clock's current slots.
func (s *slots) now(c *slotClock) uint64 {
	first, longer := c.first(), c.step-s.step
	if s.first == first && longer == 0 {
		return s.bits
	}
	var now uint64
	for b := s.bits; b != 0; b &= b - 1 {
		now |= 1 << ((s.first+int64(bits.TrailingZeros64(b)))>>longer - first)
	}
	return now
}

// overlap returns the share of one's slots that other has, too.
func overlap(one, other uint64) float64 {
	if one == 0 {
		return 0
	}
	return float64(bits.OnesCount64(one&other)) / float64(bits.OnesCount64(one))
}

// within returns the slots without the first and the last one, which also cover times before and
// after the event. If a wrong time has made slots long, one may hold a whole capture.
func within(slots uint64) uint64 {
	slots &= slots - 1
	return slots &^ (1 << (bits.Len64(slots|1) - 1))
}
