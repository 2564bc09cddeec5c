package decode

import "encoding/binary"

// walkMPLS reads a stack of MPLS labels (RFC 3032), then tells what is below by
// its first four bits, as routers do (RFC 4928): IPv4, IPv6, or the control word
// of a pseudowire.
func (d *Decoder) walkMPLS(b []byte, r *Result) Reason {
	const (
		entryLen      = 4
		bottomOfStack = 0x100
		labelShift    = 12
	)
	for bottom := false; !bottom; b = b[entryLen:] {
		if len(b) < entryLen {
			return CutMPLS
		}
		entry := binary.BigEndian.Uint32(b)
		if !r.Encap.push(MPLS, entry>>labelShift) {
			return TooDeep
		}
		bottom = entry&bottomOfStack != 0
	}
	if len(b) == 0 {
		return CutMPLS
	}
	switch b[0] >> 4 {
	case 4:
		return d.walkIPv4(b, r)
	case 6:
		return d.walkIPv6(b, r)
	case 0:
		return d.pseudowire(b, r)
	}
	return r.done()
}

// pseudowire reads the control word of an Ethernet pseudowire (RFC 4448, section
// 4.6) and the frame behind it. A pseudowire without control word can not be told
// from anything else: it ends the walk.
func (d *Decoder) pseudowire(b []byte, r *Result) Reason {
	const (
		controlWordLen = 4
		laterFragment  = 0x80 // of the two fragmentation bits (RFC 4623)
	)
	if len(b) < controlWordLen {
		return CutMPLS
	}
	if b[1]&laterFragment != 0 {
		return r.done()
	}
	if !d.enter(Pseudowire, 0, endpoints{}, nil, r) {
		return TooDeep
	}
	return d.ethernet(b[controlWordLen:], r)
}
