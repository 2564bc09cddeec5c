package emitter

// around is what a flow's encapsulation adds to its frames on the hop'th link of a
// route of n links.
func (s *sim) around(f *flow, hop, n int8) uint16 {
	if f.overhead == 0 || !s.framer.styles[f.style].wraps(hop, n) {
		return 0
	}
	return f.overhead
}

// wraps tells whether frames have their encapsulation on the hop'th link of a route
// of n links.
//
// Between leaves, the first switch encapsulates and the last one decapsulates, and
// the tag moves with the frame's L2 header: it is updated and copied to that of the
// tunnel and deleted from the payload, and back at the end (slides "CSIG at IEEE 802
// Nendica", November 2023, "CSIG Propagation in Tunneled Domain"). A route that turns
// around in its first switch meets one update and no tunnel (the same slide, "Tunnel
// Turnaround"). What switches write is therefore the same with and without tunnels;
// frames are longer between them.
func (s style) wraps(hop, n int8) bool {
	if s.encap == encapNone {
		return false
	}
	return !s.leaves || (hop > 0 && hop < n-1)
}

// hops are the switches that have counted down the hosts' time to live and that of
// the tunnel on the hop'th link of a route of n links. A tunnel is one hop to what is
// inside (RFC 3443, the pipe model).
func (s style) hops(hop, n int8) (inside, outside uint8) {
	tunnel := s.encap >= encapMPLS && s.encap <= encapSRv6
	switch {
	case !tunnel || (s.leaves && n <= 2):
		return uint8(hop), 0
	case !s.leaves:
		return 0, uint8(hop)
	case hop == 0:
		return 0, 0
	case hop < n-1:
		return 1, uint8(hop - 1)
	}
	return 2, 0
}

// tapped writes a packet as the taps behind a port see it at the end of the link.
// finished is when its last bit left the port.
func (s *sim) tapped(at []int32, number int32, f *flow, r *route, k *packet, finished int64) error {
	if !k.tag.set && !k.reflects.set && !s.scenario.CaptureUntagged {
		return nil
	}
	g, st := &s.segment, s.framer.styles[f.style].style
	g.tuple, g.sequence, g.ack = f.tuple, k.number, f.ackSource
	if k.ack {
		g.tuple, g.sequence, g.ack = f.back, f.ackSource, k.number
	}
	g.link, g.style, g.wrapped = s.points[number].macs, f.style, st.wraps(k.hop, r.n)
	g.hops, g.outerHops = st.hops(k.hop, r.n)
	g.id, g.stamp, g.echo, g.length = k.id, k.stamp, k.echo, int(k.length)
	g.ecn, g.congested = k.ecn, false
	if k.ack {
		g.ecn, g.congested = 0, k.ecn == ecnExperienced
	}
	g.tagged, g.reflects = k.tag.set, k.reflects.set
	if g.tagged {
		g.tag = s.signals[k.tag.signal].tag(s.scenario.Layout, &k.tag)
	}
	if g.doubled = g.tagged && k.tag.is(flagDoubled); g.doubled {
		g.length += s.framer.tagLen()
	}
	if g.reflects {
		g.reflection = s.signals[k.reflects.signal].tag(s.scenario.Layout, &k.reflects)
	}
	return s.capture(at, s.startNS+(finished+s.propagation)/1000)
}

// capture hands the segment to taps at a time in Unix ns.
func (s *sim) capture(at []int32, ns int64) error {
	g := &s.segment
	for _, number := range at {
		n, err := s.taps.packet(number, &s.framer, g, ns)
		s.captured += uint64(n)
		s.capturedBytes += uint64(n * min(g.length, s.taps.list[number].snapLen))
		if err != nil {
			return err
		}
	}
	return nil
}
