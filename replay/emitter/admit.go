package emitter

// enter puts a packet into a queue.
func (s *sim) enter(number int32, now int64, k *packet) {
	p := &s.ports[number]
	stats := &p.stats[s.truth.side(now)]
	if p.policy != nil && !s.admit(p, k, stats) {
		s.drop(k)
		return
	}
	first := p.empty()
	if !p.enqueue(now, k, p.buffer, stats) && !s.trim(p, now, k, stats) {
		stats.drops++
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

// admit is what a port with a policy does to a packet before its queue: lengths must
// be known there. It returns false for a packet that its device discards.
func (s *sim) admit(p *port, k *packet, stats *portStats) bool {
	to := p.policy
	if k.tag.set {
		sig := &s.signals[k.tag.signal]
		switch {
		case to.act&actDiscard != 0:
			stats.discards++
			return false
		case to.act&actForge != 0:
			if v, ok := to.written.get(k.tag.signal); ok {
				k.tag.code, k.tag.lm, k.tag.writer = v, 0, forged
				if to.lm != nil {
					k.tag.lm = *to.lm
				}
			}
		case to.act&actScrub != 0 && k.hop == 1:
			k.tag.code, k.tag.lm, k.tag.writer = sig.initial, 0, none
		}
	} else if to.act&actInsert != 0 {
		s.insert(to, k, stats)
	}
	if to.act&actStrip != 0 && k.tag.set {
		stats.stripped++
		k.tag.set = false
		k.length -= uint16(s.framer.tagLen())
	}
	return true
}

// insert adds a tag to one in so many packets.
func (s *sim) insert(to *policy, k *packet, stats *portStats) {
	if to.untilInsert > 0 {
		to.untilInsert--
		return
	}
	to.untilInsert = to.oneIn - 1
	index := signalAt(to.inserted, uint32(len(s.signals)))
	to.inserted++
	stats.inserted++
	k.tag = s.signals[index].start(index)
	k.tag.faith |= flagInserted
	k.length += uint16(s.framer.tagLen())
}

// trim cuts a packet of data that finds the buffer full to its headers. It takes its
// place at the end of the same queue, in a reserve of the buffer that only such
// packets use, and its tag is frozen after this hop (D bit; Ultra Ethernet trims in
// this way). Without the D bit in the layout the tag goes on as any other. It returns
// false if trimming is off or the reserve is full, too.
func (s *sim) trim(p *port, now int64, k *packet, stats *portStats) bool {
	if s.scenario.TrimBuffer == 0 || !p.transit || k.ack {
		return false
	}
	f := &s.flows[k.flow]
	bare := int(k.length - s.around(f, k.hop, f.forward.n))
	payload := s.framer.payload(f.style, bare, k.tag.set, k.reflects.set)
	if payload <= 0 {
		return false
	}
	cut := *k
	cut.length -= uint16(payload)
	if s.freezes {
		cut.tag.faith |= flagCut
	}
	if !p.enqueue(now, &cut, p.buffer+s.scenario.TrimBuffer, stats) {
		return false
	}
	stats.trimmed++
	f.trimmed++
	return true
}
