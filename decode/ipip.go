package decode

import "encoding/binary"

// ipPayload walks an IP packet (RFC 2003, RFC 2473, RFC 4213) or, as SRv6 has it,
// an Ethernet frame that an IP header carries without a header in between. Below
// a segment routing header that is the tunnel, which has its name already.
func (d *Decoder) ipPayload(b []byte, e endpoints, r *Result) Reason {
	if !d.enterIP(e, r) {
		return TooDeep
	}
	switch e.proto {
	case protoIPv4:
		return d.walkIPv4(b, r)
	case protoIPv6:
		return d.walkIPv6(b, r)
	}
	return d.ethernet(b, r)
}

// esp names a packet of ESP (RFC 4303) and ends the walk: what is inside is
// encrypted.
func (d *Decoder) esp(b []byte, left int, r *Result) Reason {
	const fixed = 8 // security parameters index and sequence number
	if len(b) < fixed {
		return shortTunnel(fixed, left)
	}
	return d.encrypted(ESP, binary.BigEndian.Uint32(b), r)
}
