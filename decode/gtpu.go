package decode

import "encoding/binary"

// gtpu reads GTP-U (3GPP TS 29.281) and the packet of the user in it. Messages
// that carry no packet end the walk.
func (d *Decoder) gtpu(b []byte, left int, e endpoints, udp []byte, r *Result) Reason {
	const (
		versionAndProtocol = 0xf0
		version1           = 0x30 // and not GTP'
		userPacket         = 255  // message type G-PDU
	)
	if b[0]&versionAndProtocol != version1 {
		return BadTunnel
	}
	n, reason := gtpuLen(b, left)
	if n == 0 {
		return reason
	}
	if !d.enter(GTPU, binary.BigEndian.Uint32(b[4:]), e, udp, r) {
		return TooDeep
	}
	kind := b[1]
	b = b[n:]
	if kind != userPacket {
		return r.done()
	}
	if len(b) == 0 {
		return shortTunnel(n+1, left)
	}
	switch b[0] >> 4 {
	case 4:
		return d.walkIPv4(b, r)
	case 6:
		return d.walkIPv6(b, r)
	}
	return r.done()
}

// gtpuLen is the length of a GTP-U header with its chain of extension headers, or
// 0 and the reason to stop.
func gtpuLen(b []byte, left int) (int, Reason) {
	const (
		optional     = 0x07 // a sequence number, N-PDU number or extension follows
		hasExtension = 0x04
		fixed        = 8
		withOptional = 12
	)
	if b[0]&optional == 0 {
		return fixed, OK
	}
	n := withOptional
	if len(b) < n {
		return 0, shortTunnel(n, left)
	}
	if b[0]&hasExtension == 0 {
		return n, OK
	}
	for range maxExtensions {
		if b[n-1] == 0 { // type of the next extension header
			return n, OK
		}
		if len(b) <= n {
			return 0, shortTunnel(n+1, left)
		}
		words := int(b[n])
		if words == 0 {
			return 0, BadTunnel
		}
		n += words * 4
		if len(b) < n {
			return 0, shortTunnel(n, left)
		}
	}
	return 0, TooDeep
}
