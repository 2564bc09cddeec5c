package emitter

import "github.com/csigscope/csigscope/decode/csig"

// transit is the Signal Update Function (draft-tian-ccwg-ibcs-datapath-processing-00,
// section 5.3): what a switch does to a tag as the packet leaves through a port. If
// the port's value is, after quantization, strictly tighter than the tag's, it
// replaces value and locator metadata together, otherwise it leaves both alone
// (draft-ravi-ippm-csig-01, sections 4.1.3, 5.3.3 and 5.4.2). behind is the bytes
// that the packet left in the queue.
//
// The port was chosen before, by a hash that never sees the tag (IBCS, section 5.2).
func (s *sim) transit(number int32, p *port, k *packet, behind int64) {
	if s.watchful {
		s.watchfulTransit(number, p, k, behind)
		return
	}
	m := &k.tag
	sig := &s.signals[m.signal]
	code := s.local(p, sig, k, behind)
	if s.counters != nil {
		s.counters.note(s, number, p, k, code, behind)
	}
	if sig.direction.Tighter(code, m.code) {
		m.code, m.lm, m.writer = code, sig.metadata[number]|sig.ttl[k.hop], number
	}
}

// watchfulTransit does the same where some port may behave otherwise or tags may be
// frozen, and keeps beside the tag what a faithful fabric would have written.
func (s *sim) watchfulTransit(number int32, p *port, k *packet, behind int64) {
	m := &k.tag
	sig := &s.signals[m.signal]
	code := s.local(p, sig, k, behind)
	if p.policy != nil {
		if given, ok := p.policy.metrics.get(m.signal); ok {
			code = given
		}
	}
	if s.counters != nil {
		s.counters.note(s, number, p, k, p.policy.compared(m.signal, k.started, code), behind)
	}
	frozen := m.is(flagTrimmed)
	if !frozen && !m.is(flagInserted) && s.replaces(sig, code, m.faithCode(), m.faithWriter) {
		m.setFaith(code, number)
	}
	if p.policy != nil {
		s.behave(number, p.policy, k, code, frozen)
		m.add(p.policy.act, actReserved, flagReserved)
		m.add(p.policy.act, actDouble, flagDoubled)
	} else if !frozen && s.replaces(sig, code, m.code, m.writer) {
		m.code, m.lm, m.writer = code, sig.metadata[number]|sig.ttl[k.hop], number
	}
	// The hop that trims updates the tag and then freezes it (slides "CSIG Telemetry at
	// Layer 2", January 2026, "CSIG Entity Functions").
	if m.is(flagCut) {
		m.faith = m.faith&^flagCut | flagTrimmed
	}
}

// add sets a flag where a policy has the action.
func (m *mark) add(act, one action, flag uint32) {
	if act&one != 0 {
		m.faith |= flag
	}
}

// replaces is the decision of the Signal Update Function. Its rule 1 (IBCS, section
// 6.1) replaces uninitialized metrics even by an equal one; the rule is configured.
func (s *sim) replaces(sig *signal, code, present uint32, writer int32) bool {
	if s.scenario.ReplaceInitial && writer == none && present == sig.initial {
		return true
	}
	return sig.direction.Tighter(code, present)
}

// behave is the Signal Update Function of a port with a policy. code is its metric.
func (s *sim) behave(number int32, to *policy, k *packet, code uint32, frozen bool) {
	m := &k.tag
	sig := &s.signals[m.signal]
	if to.act&actReset != 0 {
		m.code, m.lm, m.writer = sig.initial, 0, none
		return
	}
	if to.ignore>>m.signal&1 != 0 || (frozen && to.act&actIgnoreTrim == 0) {
		return
	}
	code = to.compared(m.signal, k.started, code)
	if stuck, ok := to.stuck.get(m.signal); ok {
		code = stuck
	} else if to.missing>>m.signal&1 != 0 {
		return
	}
	if to.act&actMisbucketed != 0 {
		code = uint32(min(max(int64(code)+to.shift, 0), int64(sig.table.Codes())-1))
	}
	replace := s.replaces(sig, code, m.code, m.writer)
	if to.act&actOverwrite != 0 {
		replace = true
		if v, ok := to.written.get(m.signal); ok {
			code = v
		}
	}
	if to.act&actLMOnly != 0 {
		m.lm = s.metadata(number, to, sig) | sig.ttl[k.hop]
		return
	}
	if !replace {
		return
	}
	m.code, m.writer = code, number
	if to.act&actValueOnly == 0 {
		m.lm = s.metadata(number, to, sig) | sig.ttl[k.hop]
	}
}

// metadata is the LM that a port with a policy writes.
func (s *sim) metadata(number int32, to *policy, sig *signal) uint16 {
	lm := sig.metadata[number]
	if to.act&actWrongLM == 0 {
		return lm
	}
	if to.lm != nil {
		return *to.lm
	}
	return ^lm & (1<<s.scenario.Layout.LMBits() - 1)
}

// compared is what a port compares tags with, unless it is faulty: its metric, or what
// software has made of it.
func (p *policy) compared(signal uint8, now int64, code uint32) uint32 {
	if p == nil || p.act&actSoftware == 0 {
		return code
	}
	return p.renew(signal, now, code)
}

// renew is the value that software programmed for the period of a time.
func (p *policy) renew(signal uint8, now int64, code uint32) uint32 {
	l := &p.latched[signal]
	if now >= l.until {
		l.code, l.until = code, (now/p.every+1)*p.every
	}
	return l.code
}

// local is the code of the port's own value.
func (s *sim) local(p *port, sig *signal, k *packet, behind int64) uint32 {
	switch sig.kind {
	case csig.MinABW, csig.MinABWRatio:
		if !p.meter.coded {
			s.encodeABW(p)
		}
		return p.meter.codes[sig.kind]
	}
	return sig.table.Quantize(s.metric(p, sig, k, behind))
}

// metric is the port's own value in stored units.
func (s *sim) metric(p *port, sig *signal, k *packet, behind int64) uint64 {
	switch sig.kind {
	case csig.MinABW:
		abw, _ := p.meter.available(p.kbps)
		return abw
	case csig.MinABWRatio:
		_, ratio := p.meter.available(p.kbps)
		return ratio
	case csig.MaxDelay:
		return uint64(k.started-k.entered+s.pipeline) / 1000
	}
	// Trimmed packets may fill more than the buffer of others.
	return min(mulDiv(uint64(behind), 1e6, p.buffer), 1e6)
}

// encodeABW quantizes what the port offers once an interval instead of once a
// packet.
func (s *sim) encodeABW(p *port) {
	abw, ratio := p.meter.available(p.kbps)
	for i := range s.signals {
		switch sig := &s.signals[i]; sig.kind {
		case csig.MinABW:
			p.meter.codes[sig.kind] = sig.table.Quantize(abw)
		case csig.MinABWRatio:
			p.meter.codes[sig.kind] = sig.table.Quantize(ratio)
		}
	}
	p.meter.coded = true
}
