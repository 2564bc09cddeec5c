package decode

import "encoding/binary"

// transparentEthernet is the protocol type of Ethernet frames inside GRE and
// Geneve.
const transparentEthernet = 0x6558

// gre reads the header of GRE (RFC 2784, RFC 2890) with any of its checksum, key
// and sequence number. Source routes (RFC 1701), which no one uses and which have
// a length of their own, are refused. Other versions end the walk.
func (d *Decoder) gre(b []byte, left int, e endpoints, r *Result) Reason {
	const (
		checksum = 0x8000
		routing  = 0x4000
		key      = 0x2000
		sequence = 0x1000
		version  = 0x0007
	)
	if len(b) < 4 {
		return shortTunnel(4, left)
	}
	flags, proto := be16(b), be16(b[2:])
	if flags&routing != 0 {
		return BadTunnel
	}
	n, keyAt := 4, 4
	if flags&checksum != 0 {
		n, keyAt = n+4, keyAt+4
	}
	if flags&key != 0 {
		n += 4
	}
	if flags&sequence != 0 {
		n += 4
	}
	if len(b) < n {
		return shortTunnel(n, left)
	}
	kind, id := GRE, uint32(0)
	if flags&key != 0 {
		id = binary.BigEndian.Uint32(b[keyAt:])
	}
	if proto == transparentEthernet && flags&(checksum|key|sequence) == key {
		kind, id = NVGRE, id>>8 // the low byte tells flows apart (RFC 7637)
	}
	if !d.enter(kind, id, e, nil, r) {
		return TooDeep
	}
	switch {
	case flags&version != 0:
		return r.done()
	case proto == erspanII || proto == erspanIII:
		return d.erspan(proto, flags&sequence != 0, b[n:], left-n, r)
	}
	return d.etherPayload(proto, b[n:], r)
}

// etherPayload walks a payload that its tunnel names by an EtherType.
func (d *Decoder) etherPayload(proto uint16, b []byte, r *Result) Reason {
	if proto == transparentEthernet {
		return d.ethernet(b, r)
	}
	return d.walk(proto, b, r)
}

// shortTunnel is the reason of a tunnel header that is not there whole: its packet
// is too short for it, or the capture cut it.
func shortTunnel(headerLen, left int) Reason {
	if left < headerLen {
		return BadTunnel
	}
	return CutTunnel
}
