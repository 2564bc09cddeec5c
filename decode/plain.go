package decode

import (
	"encoding/binary"

	"github.com/csigscope/csigscope/decode/csig"
)

// walkIP reads an IP packet from its header on; c is its version.
func (d *Decoder) walkIP(c class, b []byte, r *Result) Reason {
	if reason, ok := d.plain(c, b, r); ok {
		return reason
	}
	if c == ipv4 {
		return d.walkIPv4(b, r)
	}
	return d.walkIPv6(b, r)
}

// plain reads a common packet, as defined by transportOf. It changes nothing for any other packet.
func (d *Decoder) plain(c class, b []byte, r *Result) (reason Reason, ok bool) {
	if d.keeps || d.nest.holds || d.nest.tunnels > 0 {
		return OK, false
	}
	var p plainPacket
	if !d.transportOf(&p, c, b) {
		return OK, false
	}
	for i := r.Carrier; i < r.N; i++ {
		p.ends(&r.Obs[i])
	}
	if p.hasOptions() {
		return d.plainOptions(b, &p, r), true
	}
	return r.done(), true
}

// tagged reads the Ethernet frames that are most common at a receiver: a tag, and a packet that
// plain reads. It changes nothing for any other frame.
func (d *Decoder) tagged(f *Frame, r *Result) bool {
	const data = etherTypeOffset + 2
	frame := f.Data
	if len(frame) < data || len(r.Obs) < MaxObservations || d.keeps {
		return false
	}
	c := d.classes[be16(frame[etherTypeOffset:])]
	if c < firstTag {
		return false
	}
	l := csig.LayoutAt(int(c - firstTag))
	n := data + l.Format.DataLen()
	if len(frame) < n+2 {
		return false
	}
	next, b := d.classes[be16(frame[n:])], frame[n+2:]
	if next-ipv4 > ipv6-ipv4 { // one comparison, because the processor cannot predict which of the two it is
		return false
	}
	var p plainPacket
	if !d.transportOf(&p, next, b) {
		return false
	}
	o := &r.Obs[0]
	o.Kind, o.Flags, o.Bytes = Tag, 0, f.WireLen
	o.Tag.Parse(l, frame[data:n])
	p.ends(o)
	r.N, r.Reason, r.Encap.n, r.Carrier = 1, OK, 0, 0
	d.nest = nesting{}
	d.counters.Tags++
	if p.hasOptions() {
		r.Reason = d.plainOptions(b, &p, r)
		for i := range r.Obs[:r.N] {
			r.Obs[i].Bytes = f.WireLen
		}
	}
	d.counters.Frames++
	d.counters.Reasons[r.Reason]++
	return true
}

// plainPacket is a packet that plain reads. v6 is 1 for IPv6, and tcp for TCP, else 0: numbers for
// arithmetic. It points into the packet, and for a short one past its end, to bytes that are masked
// out.
type plainPacket struct {
	ip      *[ipv6Len]byte
	t       *[plainTransport]byte
	v6, tcp uint64
	left    int // bytes of the packet from the transport header on, according to the IP header
}

// plainTransport is the number of bytes of a transport header that have to be there: those read of
// TCP's.
const plainTransport = 14

// transportOf finds the transport header of a common packet: TCP or UDP, without tunnels, behind
// IPv4 without options or IPv6 without extension headers. It returns false for any other packet, and
// for a short one at the end of its memory.
//
// It gives the same results as walkIPv4 and walkIPv6, but does not branch on the version and the
// transport. Processors cannot predict those where packets of many flows alternate, and a wrong
// guess costs as much as the rest of the header.
func (d *Decoder) transportOf(p *plainPacket, c class, b []byte) bool {
	const fragments, version4, version6 = 0x3fff, 0x45, 0x60
	if len(b) < ipv4Len+udpLen || cap(b) < ipv6Len+plainTransport {
		return false
	}
	all, v6 := b[:ipv6Len+plainTransport], uint64(c-ipv4)&1
	headerLen := ipv4Len + (ipv6Len-ipv4Len)*int(v6)
	ip, t := (*[ipv6Len]byte)(all), (*[plainTransport]byte)(all[headerLen:])
	proto, tcp, udp := ip[9-3*v6], 0, 0
	if proto == protoTCP {
		tcp = 1
	}
	if proto == protoUDP {
		udp = 1
	}
	odd := uint64(ip[0]^byte(version4+(version6-version4)*v6)) &^ (0xf * v6)
	odd |= uint64(be16(ip[6:])) & (fragments * (1 - v6))
	left := int(be16(ip[2+2*v6:])) - ipv4Len*int(1-v6)
	n := udpLen + (tcpLen-udpLen)*tcp
	if odd != 0 || tcp|udp == 0 || left < n || len(b)-headerLen < n || d.udpPorts[be16(t[2:])&-uint16(udp)] != 0 {
		return false
	}
	*p = plainPacket{ip, t, v6, uint64(tcp), left}
	return true
}

// hasOptions reports whether there are TCP options.
func (p *plainPacket) hasOptions() bool { return (uint64(p.t[12])>>4^tcpLen/4)&-p.tcp != 0 }

// plainOptions reads the options of a packet b.
func (d *Decoder) plainOptions(b []byte, p *plainPacket, r *Result) Reason {
	headerLen := ipv4Len + (ipv6Len-ipv4Len)*int(p.v6)
	t := b[headerLen:]
	return d.tcp(t[:min(len(t), p.left)], p.left, endpoints{ip: b[:headerLen], proto: protoTCP}, r)
}

// ends sets the endpoints and the acknowledgement number of an observation.
func (p *plainPacket) ends(o *Observation) {
	const (
		mapped = 0xffff0000 // of an IPv4 address, in front of its 32 bits
		ackBit = 4          // of the flags
	)
	ip, t, six := p.ip, p.t, -p.v6
	word := func(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
	four := word(ip[12:])
	binary.LittleEndian.PutUint64(o.Src[:], word(ip[8:])&six)
	binary.LittleEndian.PutUint64(o.Src[8:], word(ip[16:])&six|(mapped|four<<32)&^six)
	binary.LittleEndian.PutUint64(o.Dst[:], word(ip[24:])&six)
	binary.LittleEndian.PutUint64(o.Dst[8:], word(ip[32:])&six|(mapped|four>>32<<32)&^six)
	acks := uint64(t[13]) >> ackBit & p.tcp
	o.SrcPort, o.DstPort = be16(t[:]), be16(t[2:])
	o.Proto, o.Ack = protoUDP-(protoUDP-protoTCP)*uint8(p.tcp), binary.BigEndian.Uint32(t[8:])*uint32(acks)
	o.Flags |= HasAddrs | HasPorts | HasProto | IPv6*Flags(p.v6) | HasAck*Flags(acks)
}
