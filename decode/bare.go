package decode

// Bare reads the ends of an Ethernet frame without a tag into o: addresses, protocol, and
// the ports of TCP and UDP, all from the outermost IP header. data tells whether it carries
// any, which acknowledgements of TCP do not. ok is false for a frame that is cut before
// these, that carries no IP, or a fragment without ports, and where the innermost header is
// to name the ends. o is then undefined. It counts nothing and does not allocate.
func (d *Decoder) Bare(frame []byte, o *Observation) (data, ok bool) {
	if d.inner {
		return false, false
	}
	etherType, b, ok := d.Network(frame)
	if !ok {
		return false, false
	}
	e, b, left, ok := bareIP(d.classes[etherType], b)
	if !ok {
		return false, false
	}
	*o = Observation{}
	o.setAddrs(e)
	switch e.proto {
	case protoUDP:
		if len(b) < udpLen {
			return false, false
		}
		o.setPorts(b)
	case protoTCP:
		if len(b) < tcpLen {
			return false, false
		}
		o.setPorts(b)
		return left > int(b[12]>>4)*4, true
	}
	return left > 0, true
}

// bareIP is an IP header without extensions, what follows it, and how long that is as the
// header has it.
func bareIP(c class, b []byte) (e endpoints, rest []byte, left int, ok bool) {
	const fragmentOffset = 0x1fff
	switch {
	case c == ipv4 && len(b) >= ipv4Len:
		n, total := int(b[0]&15)*4, int(be16(b[2:]))
		if b[0]>>4 != 4 || n < ipv4Len || total < n || len(b) < n || be16(b[6:])&fragmentOffset != 0 {
			return e, nil, 0, false
		}
		return endpoints{ip: b[:ipv4Len], proto: b[9]}, b[n:min(len(b), total)], total - n, true
	case c == ipv6 && len(b) >= ipv6Len && b[0]>>4 == 6:
		left = int(be16(b[4:]))
		return endpoints{ip: b[:ipv6Len], proto: b[6]}, b[ipv6Len:min(len(b), ipv6Len+left)], left, true
	}
	return e, nil, 0, false
}
