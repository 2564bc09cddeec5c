package decode

import "encoding/binary"

// EtherTypes of ERSPAN in GRE (draft-foschiano-erspan-03).
const (
	erspanII  = 0x88be // and type I, which has no header and no sequence number
	erspanIII = 0x22eb
)

// TZSPPort is the UDP port of TZSP, unless Config.UDPTunnels or a reflection has it.
const TZSPPort = 37008

// erspan walks the frame in a session of ERSPAN, of which the GRE header was entered.
//
//	type II   version:4=1 ... session:10 | index:32
//	type III  version:4=2 ... session:10 | ... | frame type:5 ... O:1 | subheader (8) with O
func (d *Decoder) erspan(proto uint16, sequenced bool, b []byte, left int, r *Result) Reason {
	const (
		sizeII       = 8
		sizeIII      = 12
		subheader    = 8
		session      = 0x03ff
		frameType    = 0x7c00
		hasSubheader = 0x0001
	)
	d.nest.mirror = true
	version, n := byte(1), sizeII
	switch {
	case proto == erspanIII:
		version, n = 2, sizeIII
	case !sequenced:
		version, n = 0, 0
	}
	if len(b) < n {
		return shortTunnel(n, left)
	}
	id, last := uint32(0), uint16(0)
	if version > 0 {
		if b[0]>>4 != version {
			return BadTunnel
		}
		id = uint32(be16(b[2:]) & session)
	}
	if proto == erspanIII {
		if last = be16(b[10:]); last&hasSubheader != 0 {
			n += subheader
		}
	}
	switch {
	case len(b) < n:
		return shortTunnel(n, left)
	case !r.Encap.push(ERSPAN, id):
		return TooDeep
	case last&frameType != 0:
		return r.done() // no Ethernet frame
	}
	return d.ethernet(b[n:], r)
}

// tzsp walks the frame in a datagram of the TaZmen Sniffer Protocol: a header of four
// bytes, and fields until one that ends them. All but padding and the end have a length.
// What has another header is another user of the port, or carries no frame.
//
//	version:8=1 type:8=0 protocol:16=1 | tag:8 length:8 value | ... | 1:8 | frame
func (d *Decoder) tzsp(b []byte, left int, e endpoints, udp []byte, r *Result) Reason {
	const (
		head      = 4
		received  = 0x01000001 // an Ethernet frame
		padding   = 0
		end       = 1
		maxFields = 64
	)
	switch {
	case left < head:
		return r.done()
	case len(b) < head:
		return CutTunnel
	case binary.BigEndian.Uint32(b) != received:
		return r.done()
	case !d.descend(e, udp, r):
		return TooDeep
	}
	d.nest.mirror = true
	b, left = b[head:], left-head
	for range maxFields {
		n := 1
		switch {
		case len(b) == 0:
			return shortTunnel(n, left)
		case b[0] == end:
			if !r.Encap.push(TZSP, 0) {
				return TooDeep
			}
			return d.ethernet(b[n:], r)
		case b[0] == padding:
		case len(b) < 2:
			return shortTunnel(2, left)
		default:
			n = 2 + int(b[1])
		}
		if len(b) < n {
			return shortTunnel(n, left)
		}
		b, left = b[n:], left-n
	}
	return BadTunnel
}
