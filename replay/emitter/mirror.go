package emitter

import (
	"encoding/binary"
)

// mirror is a session that a switch mirrors frames in: ERSPAN of type II or III in
// GRE in IPv4 (draft-foschiano-erspan-03). It counts every frame, those that are
// lost on the way too, so that gaps in its sequence are losses.
type mirror struct {
	header   []byte // Ethernet, IPv4, GRE, ERSPAN
	kind     int    // 2 or 3
	sequence uint32
}

const (
	greLen       = 8 // with sequence number
	erspan2Len   = 8
	erspan3Len   = 12 + 8 // with the platform's subheader
	mirrorPrefix = ethernetLen + ipv4Len + greLen
)

// newMirror makes the session of the tap of a number: from a switch of that number
// to the collector, both in 198.18.0.0/15.
func newMirror(kind int, session uint16, number int) *mirror {
	const gre, hasSequence, dontFragment = 47, 0x10, 0x40
	from, to := 198<<24|18<<16|uint32(number+1), uint32(198<<24|19<<16|1)
	be := binary.BigEndian
	h := make([]byte, mirrorPrefix, mirrorPrefix+erspan3Len)
	putMAC(h, hostMAC, to)
	putMAC(h[6:], switchMAC, uint32(number+1))
	be.PutUint16(h[12:], 0x0800)
	ip := h[ethernetLen:]
	ip[0], ip[6], ip[8], ip[9] = 0x45, dontFragment, 64, gre
	be.PutUint32(ip[12:], from)
	be.PutUint32(ip[16:], to)
	g := ip[ipv4Len:]
	g[0] = hasSequence
	if kind == 2 {
		be.PutUint16(g[2:], 0x88be)
		h = be.AppendUint16(h, 1<<12)
		h = be.AppendUint16(h, session)
		h = be.AppendUint32(h, uint32(number+1)) // index
		return &mirror{header: h, kind: kind}
	}
	const egress, ieee1588, hasSubheader, seconds = 1 << 3, 2 << 1, 1, 5 << 2
	be.PutUint16(g[2:], 0x22eb)
	h = be.AppendUint16(h, 2<<12)
	h = be.AppendUint16(h, session)
	h = be.AppendUint32(h, 0) // nanoseconds
	h = be.AppendUint16(h, 0)
	h = be.AppendUint16(h, egress|ieee1588|hasSubheader)
	h = append(h, seconds, 0, 0, 0)
	h = be.AppendUint32(h, 0) // seconds
	return &mirror{header: h, kind: kind}
}

// append appends the headers before a mirrored frame. ns is the switch's clock, Unix
// time.
func (m *mirror) append(b []byte, s *segment, ns int64) []byte {
	be := binary.BigEndian
	begin := len(b)
	b = append(b, m.header...)
	h := b[begin:]
	ip := h[ethernetLen:]
	be.PutUint16(ip[2:], uint16(min(len(h)-ethernetLen+s.length, 0xffff)))
	be.PutUint16(ip[4:], uint16(m.sequence))
	be.PutUint16(ip[10:], ^fold(sum(ip[:ipv4Len], 0)))
	be.PutUint32(ip[ipv4Len+4:], m.sequence)
	m.sequence++
	if m.kind == 3 {
		p := h[mirrorPrefix:]
		be.PutUint32(p[4:], uint32(ns%1e9))
		be.PutUint32(p[16:], uint32(ns/1e9))
	}
	return b
}
