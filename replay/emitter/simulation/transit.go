package simulation

import (
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// transit is the Signal Update Function (draft-tian-ccwg-ibcs-datapath-processing-00, section 5.3)
// that a switch applies to the tag of a packet leaving through a port. If the port's value after
// quantization is strictly tighter than the tag's, it replaces value and locator metadata together;
// otherwise it leaves both alone (draft-ravi-ippm-csig-01, sections 4.1.3, 5.3.3 and 5.4.2). behind
// is the number of bytes that the packet left in the queue.
//
// The port was chosen before, by a hash that never sees the tag (IBCS, section 5.2).
func (s *sim) transit(number int32, p *port, k *packet, behind int64) {
	if s.watchful {
		s.watchfulTransit(number, p, k, behind)
		return
	}
	m := &k.tag
	sig := &s.signals[m.Signal]
	code := s.local(p, sig, k, behind)
	if s.counters != nil {
		s.counters.note(s, number, p, k, code, behind)
	}
	if sig.Direction.Tighter(code, m.Code) {
		m.Code, m.LM, m.Writer = code, sig.Metadata[number]|sig.TTL[k.hop], number
	}
}

// watchfulTransit does the same if some port may be unfaithful or tags may be frozen. It also
// maintains the tag of a faithful fabric.
func (s *sim) watchfulTransit(number int32, p *port, k *packet, behind int64) {
	m := &k.tag
	sig := &s.signals[m.Signal]
	code := s.local(p, sig, k, behind)
	if p.policy != nil {
		if given, ok := p.policy.metrics.get(m.Signal); ok {
			code = given
		}
	}
	if s.counters != nil {
		s.counters.note(s, number, p, k, p.policy.compared(m.Signal, k.started, code), behind)
	}
	frozen := m.Is(truth.FlagTrimmed)
	if !frozen && !m.Is(truth.FlagInserted) && s.replaces(sig, code, m.FaithCode(), m.FaithWriter) {
		m.SetFaith(code, number)
	}
	if p.policy != nil {
		s.behave(number, p.policy, k, code, frozen)
		addFlag(m, p.policy.act, actReserved, truth.FlagReserved)
		addFlag(m, p.policy.act, actDouble, truth.FlagDoubled)
		addFlag(m, p.policy.act, actSetTrim, truth.FlagTrimmed)
		if p.policy.retypes>>m.Signal&1 != 0 {
			s.retype(number, m)
		}
	} else if !frozen && s.replaces(sig, code, m.Code, m.Writer) {
		m.Code, m.LM, m.Writer = code, sig.Metadata[number]|sig.TTL[k.hop], number
	}
	// The hop that trims updates the tag and then freezes it (slides "CSIG Telemetry at Layer 2",
	// January 2026, "CSIG Entity Functions").
	if m.Is(truth.FlagCut) {
		m.Faith = m.Faith&^truth.FlagCut | truth.FlagTrimmed
	}
}

// retype changes a tag's signal to the scenario's next one and keeps its bits.
func (s *sim) retype(number int32, m *truth.Tag) {
	bits := wireTag(&s.signals[m.Signal], s.scenario.Layout, m).S
	m.Signal = (m.Signal + 1) % uint8(len(s.signals))
	table := s.signals[m.Signal].Table
	m.Code, m.Writer = table.Code(bits), number
	if table.Untouched(bits) {
		m.Writer = scenario.None
	}
}

// addFlag sets flag if act has the action.
func addFlag(m *truth.Tag, act, one action, flag uint32) {
	if act&one != 0 {
		m.Faith |= flag
	}
}

// replaces decides whether a hop replaces the tag. Rule 1 of IBCS, section 6.1, replaces
// uninitialized metrics even by an equal one; Scenario.ReplaceInitial enables it.
func (s *sim) replaces(sig *scenario.Signal, code, present uint32, writer int32) bool {
	if s.scenario.ReplaceInitial && writer == scenario.None && present == sig.Initial {
		return true
	}
	return sig.Direction.Tighter(code, present)
}

// behave is the Signal Update Function of a port with a policy. code is its metric.
func (s *sim) behave(number int32, to *policy, k *packet, code uint32, frozen bool) {
	m := &k.tag
	sig := &s.signals[m.Signal]
	if to.act&actReset != 0 {
		m.Code, m.LM, m.Writer = sig.Initial, 0, scenario.None
		return
	}
	if to.ignore>>m.Signal&1 != 0 || (frozen && to.act&actIgnoreTrim == 0) {
		return
	}
	code = to.compared(m.Signal, k.started, code)
	if stuck, ok := to.stuck.get(m.Signal); ok {
		code = stuck
	} else if to.missing>>m.Signal&1 != 0 {
		return
	}
	if to.act&actMisbucketed != 0 {
		code = uint32(min(max(int64(code)+to.shift, 0), int64(sig.Table.Codes())-1))
	}
	replace := s.replaces(sig, code, m.Code, m.Writer)
	if to.act&actOverwrite != 0 {
		replace = true
		if v, ok := to.written.get(m.Signal); ok {
			code = v
		}
	}
	if to.act&actLMOnly != 0 {
		m.LM = s.metadata(number, to, sig) | sig.TTL[k.hop]
		return
	}
	if !replace {
		return
	}
	m.Code, m.Writer = code, number
	if to.act&actValueOnly == 0 {
		m.LM = s.metadata(number, to, sig) | sig.TTL[k.hop]
	}
}

// metadata returns the LM that a port with a policy writes.
func (s *sim) metadata(number int32, to *policy, sig *scenario.Signal) uint16 {
	lm := sig.Metadata[number]
	if to.act&actWrongLM == 0 {
		return lm
	}
	if to.lm != nil {
		return *to.lm
	}
	return ^lm & (1<<s.scenario.Layout.LMBits() - 1)
}

// compared returns the code that a correct port compares with tags: its present metric, or the last
// one programmed by its software.
func (p *policy) compared(signal uint8, now int64, code uint32) uint32 {
	if p == nil || p.act&actSoftware == 0 {
		return code
	}
	return p.renew(signal, now, code)
}

// renew returns the code programmed by software for the period of now.
func (p *policy) renew(signal uint8, now int64, code uint32) uint32 {
	l := &p.latched[signal]
	if now >= l.until {
		l.code, l.until = code, (now/p.every+1)*p.every
	}
	return l.code
}

// local returns the code of the port's own value.
func (s *sim) local(p *port, sig *scenario.Signal, k *packet, behind int64) uint32 {
	switch sig.Kind {
	case csig.MinABW, csig.MinABWRatio:
		if !p.meter.coded {
			s.encodeABW(p)
		}
		return p.meter.codes[sig.Kind]
	}
	return sig.Table.Quantize(s.metric(p, sig, k, behind))
}

// metric returns the port's own value in stored units.
func (s *sim) metric(p *port, sig *scenario.Signal, k *packet, behind int64) uint64 {
	switch sig.Kind {
	case csig.MinABW:
		abw, _ := p.meter.available(p.kbps)
		return abw
	case csig.MinABWRatio:
		_, ratio := p.meter.available(p.kbps)
		return ratio
	case csig.MaxDelay:
		return uint64(k.started-k.entered+s.pipeline) / 1000
	}
	// Trimmed packets do not use the buffer, so the sum may exceed it.
	return min(exact.MulDiv(uint64(behind), 1e6, p.buffer), 1e6)
}

// encodeABW quantizes the available bandwidth once per interval instead of once per packet.
func (s *sim) encodeABW(p *port) {
	abw, ratio := p.meter.available(p.kbps)
	for i := range s.signals {
		switch sig := &s.signals[i]; sig.Kind {
		case csig.MinABW:
			p.meter.codes[sig.Kind] = sig.Table.Quantize(abw)
		case csig.MinABWRatio:
			p.meter.codes[sig.Kind] = sig.Table.Quantize(ratio)
		}
	}
	p.meter.coded = true
}

// startTag returns the tag that a sender writes.
func startTag(s *scenario.Signal, index uint8) truth.Tag {
	return truth.Tag{
		Code: s.Initial, Writer: scenario.None, Faith: s.Initial, FaithWriter: scenario.None, Signal: index, Set: true,
	}
}

// wireTag returns the data fields of a tag as they are on the wire.
func wireTag(s *scenario.Signal, l csig.Layout, m *truth.Tag) csig.Tag {
	raw := s.Table.Initial()
	if m.Writer != scenario.None {
		raw = s.Table.Raw(m.Code)
	}
	tag := csig.Tag{Layout: l, T: s.Kind.Type(), S: raw, LM: m.LM, D: m.Is(truth.FlagTrimmed)}
	if m.Is(truth.FlagReserved) {
		tag.R = 1
	}
	return tag
}

// enter puts a packet into a queue.
func (s *sim) enter(number int32, now int64, k *packet) {
	p, side := &s.ports[number], s.truth.Side(now)
	stats := &p.stats[side]
	if f := &s.flows[k.flow]; k.ack {
		f.enteredBack[side] = f.enteredBack[side] || p.transit
	} else {
		f.entered[side] = f.entered[side] || p.transit
	}
	if p.policy != nil && !s.admit(p, k, stats) {
		s.drop(k)
		return
	}
	first := p.empty()
	if !p.enqueue(now, k, stats) && !s.trim(p, now, k, stats) {
		stats.Drops++
		s.drop(k)
		return
	}
	if first {
		s.arriving.set(number, p.nextArrival())
	}
}

func (s *sim) drop(k *packet) {
	s.flows[k.flow].dropped++
	s.dropped++
}

// admit applies a port's policy to a packet before it is queued, since the frame's length must be
// final by then. It returns false if the device discards the packet.
func (s *sim) admit(p *port, k *packet, stats *truth.PortStats) bool {
	to := p.policy
	if k.tag.Set {
		sig := &s.signals[k.tag.Signal]
		switch {
		case to.act&actDiscard != 0:
			stats.Discards++
			return false
		case to.act&actForge != 0:
			if v, ok := to.written.get(k.tag.Signal); ok {
				k.tag.Code, k.tag.LM, k.tag.Writer = v, 0, truth.Forged
				if to.lm != nil {
					k.tag.LM = *to.lm
				}
			}
		case to.act&actScrub != 0 && k.hop == 1:
			k.tag.Code, k.tag.LM, k.tag.Writer = sig.Initial, 0, scenario.None
		}
	} else if to.act&actInsert != 0 {
		s.insert(to, k, stats)
	}
	if to.act&actStrip != 0 && k.tag.Set {
		stats.Stripped++
		k.tag.Set = false
		k.length -= uint16(s.framer.TagLen())
	}
	return true
}

// insert adds a tag to one of policy.oneIn packets.
func (s *sim) insert(to *policy, k *packet, stats *truth.PortStats) {
	if to.untilInsert > 0 {
		to.untilInsert--
		return
	}
	to.untilInsert = to.oneIn - 1
	index := signalAt(to.inserted, uint32(len(s.signals)))
	to.inserted++
	stats.Inserted++
	k.tag = startTag(&s.signals[index], index)
	k.tag.Faith |= truth.FlagInserted
	k.length += uint16(s.framer.TagLen())
}

// trim trims a data packet to its headers when the buffer is full. From this port on it precedes
// whole packets and uses a reserve that whole packets cannot use, as in Ultra Ethernet. Its tag is
// frozen after this hop (D bit); if the layout has no D bit, later hops still update the tag. It
// returns false if trimming is off or the reserve is full, too.
func (s *sim) trim(p *port, now int64, k *packet, stats *truth.PortStats) bool {
	if p.reserve == 0 || k.ack || k.trimmed {
		return false
	}
	f := &s.flows[k.flow]
	bare := int(k.length - s.encapOverhead(f, k.hop, f.forward.N))
	payload := s.framer.Payload(f.style, bare, k.tag.Set, k.reflects.Set)
	if payload <= 0 {
		return false
	}
	cut := *k
	cut.length -= uint16(payload)
	cut.trimmed = true
	if s.freezes {
		cut.tag.Faith |= truth.FlagCut
	}
	if !p.enqueue(now, &cut, stats) {
		return false
	}
	stats.Trimmed++
	f.trimmed++
	return true
}

// encapOverhead returns the bytes that a flow's encapsulation adds to its frames on the hop'th link
// of a route of n links.
func (s *sim) encapOverhead(f *flow, hop, n int8) uint16 {
	if f.overhead == 0 || !s.framer.StyleOf(f.style).Wraps(hop, n) {
		return 0
	}
	return f.overhead
}

// tapped writes a packet as the taps on the link behind a port see it at the link's end. finished
// is when its last bit left the port.
func (s *sim) tapped(at []int32, number int32, f *flow, r *scenario.Route, k *packet, finished int64) error {
	if !k.tag.Set && !k.reflects.Set && !s.scenario.CaptureUntagged {
		return nil
	}
	g, st := &s.segment, s.framer.StyleOf(f.style)
	g.Tuple, g.Sequence, g.Ack = f.tuple, k.number, f.ackSource
	if k.ack {
		g.Tuple, g.Sequence, g.Ack = f.back, f.ackSource, k.number
	}
	g.MACs, g.Style, g.Wrapped = s.points[number].MACs, f.style, st.Wraps(k.hop, r.N)
	g.Hops, g.OuterHops = st.Hops(k.hop, r.N)
	g.ID, g.Stamp, g.Echo, g.Length = k.id, k.stamp, k.echo, int(k.length)
	g.ECN, g.Congested = k.ecn, false
	if k.ack {
		g.ECN, g.Congested = 0, k.ecn == ecnExperienced
	}
	g.Tagged, g.Reflects = k.tag.Set, k.reflects.Set
	if g.Tagged {
		g.Tag = wireTag(&s.signals[k.tag.Signal], s.scenario.Layout, &k.tag)
	}
	if g.Doubled = g.Tagged && k.tag.Is(truth.FlagDoubled); g.Doubled {
		g.Length += s.framer.TagLen()
	}
	if g.Reflects {
		g.Reflection = wireTag(&s.signals[k.reflects.Signal], s.scenario.Layout, &k.reflects)
	}
	return s.capture(at, s.startNS+(finished+s.propagation)/1000)
}

// capture passes the segment to taps at a time in Unix ns.
func (s *sim) capture(at []int32, ns int64) error {
	g := &s.segment
	for _, number := range at {
		n, err := s.taps.Packet(number, &s.framer, g, ns)
		s.captured += uint64(n)
		s.capturedBytes += uint64(n * min(g.Length, s.taps.List[number].CaptureLen))
		if err != nil {
			return err
		}
	}
	return nil
}
