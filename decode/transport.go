package decode

import (
	"encoding/binary"
)

// Lengths of transport headers, all of which begin with the ports.
const (
	udpLen     = 8
	udpLiteLen = 8 // RFC 3828
	dccpLen    = 12
	sctpLen    = 12
	tcpLen     = 20 // without options
)

// walkTransport reads the header after the IP header. left is the rest of the packet according to
// the IP header, at least len(b): more if the capture is truncated.
func (d *Decoder) walkTransport(b []byte, left int, e endpoints, r *Result) Reason {
	if e.proto == protoTCP {
		if r.N == 0 && len(d.reflections) == 0 {
			if d.keeps {
				d.tcp(b, left, e, r)
			}
			return NoCSIG
		}
		return d.tcp(b, left, e, r)
	}
	switch e.proto {
	case protoUDP:
		return d.udp(b, left, e, r)
	case protoGRE:
		return d.gre(b, left, e, r)
	case protoIPv4, protoIPv6, protoEthernet:
		return d.ipPayload(b, e, r)
	case protoESP:
		return d.esp(b, left, r)
	case protoSCTP, protoDCCP, protoUDPLite:
		if n := portsLen(e.proto); len(b) < n {
			return short(n, left)
		}
		d.setPorts(b, r)
	}
	return r.done()
}

// portsLen returns the least length of the protocol's transport header, which begins with the
// ports; 0 for protocols without ports.
func portsLen(proto uint8) int {
	switch proto {
	case protoTCP:
		return tcpLen
	case protoUDP:
		return udpLen
	case protoUDPLite:
		return udpLiteLen
	case protoSCTP:
		return sctpLen
	case protoDCCP:
		return dccpLen
	}
	return 0
}

// setPorts sets a header's ports in the observations so far, unless an outer header names their
// endpoints.
func (d *Decoder) setPorts(header []byte, r *Result) {
	if d.endpointsKnown() {
		return
	}
	for i := r.Carrier; i < r.N; i++ {
		r.Obs[i].setPorts(header)
	}
}

func (d *Decoder) udp(b []byte, left int, e endpoints, r *Result) Reason {
	if len(b) < udpLen {
		return short(udpLen, left)
	}
	d.setPorts(b, r)
	if d.keeps {
		d.keep(b, left, e)
	}
	if d.nest.holds {
		if reason, ok := d.udpSession(b, left, e, r); ok {
			return reason
		}
	}
	c := d.udpPorts[be16(b[2:])]
	if c == 0 {
		return r.done()
	}
	// The length is 0 in a jumbogram (RFC 2675) and before segmentation offload.
	if n := int(be16(b[4:])); n != 0 {
		if n < udpLen {
			return BadTransport
		}
		left, b = min(left, n), b[:min(len(b), n)]
	}
	if c == udpReflects {
		return d.udpPayload(b[udpLen:], left-udpLen, e, b[:udpLen], r)
	}
	return d.udpTunnel(Encap(c), b[udpLen:], left-udpLen, e, b[:udpLen], r)
}

func (d *Decoder) tcp(b []byte, left int, e endpoints, r *Result) Reason {
	if len(b) < tcpLen {
		return short(tcpLen, left)
	}
	header := b[:tcpLen]
	if !d.endpointsKnown() {
		for i := r.Carrier; i < r.N; i++ {
			r.Obs[i].setTCP(header)
		}
	}
	headerLen := int(header[12]>>4) * 4
	if headerLen < tcpLen || headerLen > left {
		return BadTransport
	}
	if d.keeps {
		d.keep(b, left, e)
	}
	switch {
	case headerLen == tcpLen || len(d.reflections) == 0:
		return r.done()
	case headerLen <= len(b):
		if !d.tcpOptions(b[tcpLen:headerLen], header, e, r) {
			return BadOptions
		}
		return r.done()
	}
	d.tcpOptions(b[tcpLen:], header, e, r)
	return CutTransport
}

// short returns the reason of an incomplete header: its packet is too short, or the capture
// truncated it.
func short(headerLen, left int) Reason {
	if left < headerLen {
		return BadTransport
	}
	return CutTransport
}

func (o *Observation) setPorts(header []byte) {
	o.SrcPort, o.DstPort = be16(header), be16(header[2:])
	o.Flags |= HasPorts
}

func (o *Observation) setTCP(header []byte) {
	o.setPorts(header)
	o.setAck(header)
}

func (o *Observation) setAck(header []byte) {
	const ack = 0x10
	if header[13]&ack != 0 {
		o.Ack = binary.BigEndian.Uint32(header[8:])
		o.Flags |= HasAck
	}
}

// Transport is a TCP or UDP header with its IP header, as parts of a frame.
type Transport struct {
	IP     []byte // 20 bytes of IPv4 or 40 of IPv6, without options and extensions
	Header []byte // from the header on, as far as it was captured: 20 bytes of TCP at least, or 8 of UDP
	Left   int    // length of header and payload in bytes, according to IP
	Proto  uint8  // 6 or 17
}

// Transport returns the innermost TCP or UDP header of the last decoded frame, as Segment does. UDP that
// carries a tunnel counts if the decoder finds no TCP or UDP header inside.
func (d *Decoder) Transport() (t Transport, ok bool) {
	return d.innermost, d.innermost.Header != nil
}

// TCPSegment is a TCP header with its IP header, as parts of a frame.
type TCPSegment struct {
	IP   []byte // 20 bytes of IPv4 or 40 of IPv6, without options and extensions
	TCP  []byte // from the header on, as far as it was captured: 20 bytes at least
	Left int    // length of header and payload in bytes, according to IP
}

// Segment returns the innermost TCP segment of the last decoded frame, inside any tunnels, if
// Config.Segments is set. ok is false if there is none, or it is mirrored, a fragment, encrypted,
// truncated, or of no stated length. The segment is a part of that frame.
func (d *Decoder) Segment() (s TCPSegment, ok bool) {
	t := &d.innermost
	if t.Header == nil || t.Proto != protoTCP {
		return s, false
	}
	return TCPSegment{IP: t.IP, TCP: t.Header, Left: t.Left}, true
}

// keep stores the current header.
func (d *Decoder) keep(b []byte, left int, e endpoints) {
	if d.nest.mirror || e.fragmented() || left > largestPacket {
		return
	}
	d.innermost = Transport{IP: e.ip, Header: b, Left: left, Proto: e.proto}
}
