package decode

// maxTunnels bounds the tunnels inside each other, and so the depth of the walk.
const maxTunnels = 4

// nesting is where in a frame the walk is. The zero nesting is the outermost L2.
type nesting struct {
	tunnels uint8 // entered so far
	vlans   uint8 // VLAN tags of this L2
	first   uint8 // index of the first observation that belongs to this L2
	mirror  bool  // inside a mirror session that the tap does not hold: what is found there is an orphan
	// holds tells that the frame may be a mirror session which the tap holds, and
	// mirrored what became of that.
	holds    bool
	mirrored Mirror
	// named tells that an IP header stands before the tunnel: ends holds what
	// observations inside are known by.
	named bool
}

// enter steps into the payload of a tunnel, whose header is kind. e and udp are
// the headers before it, udp nil without one, and e.ip nil for a tunnel that is
// not in IP. It is false when the frame nests too deep.
func (d *Decoder) enter(kind Encap, id uint32, e endpoints, udp []byte, r *Result) bool {
	return r.Encap.push(kind, id) && d.descend(e, udp, r)
}

// enterIP is enter for a packet directly in IP.
func (d *Decoder) enterIP(e endpoints, r *Result) bool {
	if e.segments {
		return d.descend(e, nil, r)
	}
	return d.enter(IPIP, 0, e, nil, r)
}

func (d *Decoder) descend(e endpoints, udp []byte, r *Result) bool {
	if d.nest.tunnels >= maxTunnels {
		return false
	}
	d.nest.tunnels++
	d.nest.holds = false
	d.nest.first, d.nest.vlans = uint8(r.N), 0
	if e.ip == nil || d.settled() {
		return true
	}
	d.nest.named = true
	d.ends = Observation{}
	d.ends.setAddrs(e)
	if udp != nil {
		d.ends.setPorts(udp)
	}
	return true
}

// settled tells that the endpoints of the frame's observations come from a header
// outside of the tunnel that the walk is in. No header of a mirrored frame names them.
func (d *Decoder) settled() bool { return d.nest.named && (!d.inner || d.nest.mirror) }

// innerTag makes a tag that was found inside a tunnel an orphan, unless the
// configuration expects it there and no tag before it counts.
func (d *Decoder) innerTag(o *Observation, r *Result) {
	if d.nest.named {
		o.setEnds(&d.ends)
	}
	if !d.innerTags || d.nest.mirror {
		d.orphan(o)
		return
	}
	for i := range r.Obs[:d.nest.first] {
		if r.Obs[i].Flags&Orphan == 0 {
			d.orphan(o)
			return
		}
	}
}

// rename tells whether an IP header inside a tunnel names the frame's endpoints,
// and makes room for them.
func (d *Decoder) rename(r *Result) bool {
	if d.settled() {
		return false
	}
	r.clearEnds()
	return true
}

// forgetCut takes the endpoints from the observations of a frame whose capture
// ends where there may have been a tunnel: they are not known to be the innermost
// ones. Nothing is inside TCP, nor inside a transport whose ports are known and
// which the walk did not leave for a tunnel.
func (r *Result) forgetCut() {
	if r.N == 0 || r.Obs[0].Proto == protoTCP {
		return
	}
	switch r.Reason {
	case CutTransport:
		if r.Obs[0].Flags&HasPorts == 0 {
			r.clearEnds()
		}
	case CutEthernet, CutVLAN, CutMACsec, CutTag, CutMPLS, CutIP, CutTunnel:
		r.clearEnds()
	}
}

func (r *Result) clearEnds() {
	for i := range r.Obs[:r.N] {
		r.Obs[i].setEnds(&Observation{})
	}
}

// setEnds gives o the endpoints that from has, if any.
func (o *Observation) setEnds(from *Observation) {
	const ends = HasAddrs | HasPorts
	o.Src, o.Dst = from.Src, from.Dst
	o.SrcPort, o.DstPort, o.Proto = from.SrcPort, from.DstPort, from.Proto
	o.Ack = 0
	o.Flags = o.Flags&^(ends|HasAck) | from.Flags&ends
}
