package decode

import (
	"encoding/binary"

	"github.com/csigscope/csigscope/decode/csig"
)

const (
	etherTypeOffset = 12
	maxVLANs        = 4
	// maxTags leaves room for a reflection in a Result.
	maxTags = MaxObservations - 1
)

// class is the decoder's meaning of an EtherType. A value below 0x0600 is a length (IEEE 802.3):
// LLC follows, and no tag.
type class uint8

const (
	other class = iota // ends the walk
	vlanTag
	secTAG
	ipv4
	ipv6
	mpls
	firstTag // and csig.NumLayouts-1 more: a CSIG TPID of the layout with that index
)

var etherTypes = [...]struct {
	id    uint16
	class class
}{
	{0x8100, vlanTag},
	{0x88a8, vlanTag},
	{0x9100, vlanTag},
	{0x88e5, secTAG},
	{0x0800, ipv4},
	{0x86dd, ipv6},
	{0x8847, mpls},
	{0x8848, mpls},
}

func (d *Decoder) setEtherTypes() {
	for _, e := range etherTypes {
		d.classes[e.id] = e.class
	}
}

// ethernet parses a frame from its first EtherType, at offset 12 whatever the bytes before it mean.
func (d *Decoder) ethernet(frame []byte, r *Result) Reason {
	if len(frame) < etherTypeOffset+2 {
		return CutEthernet
	}
	return d.walk(be16(frame[etherTypeOffset:]), frame[etherTypeOffset+2:], r)
}

// walkL2 follows EtherTypes from the offset of one of them.
func (d *Decoder) walkL2(frame []byte, off int, r *Result) Reason {
	if len(frame) < off+2 {
		return CutEthernet
	}
	return d.walk(be16(frame[off:]), frame[off+2:], r)
}

// walk follows EtherTypes; b starts behind the given one.
func (d *Decoder) walk(etherType uint16, b []byte, r *Result) Reason {
	for {
		var n int
		var reason Reason
		c := d.classes[etherType]
		switch c {
		case other:
			return r.done()
		case ipv4, ipv6:
			return d.walkIP(c, b, r)
		case mpls:
			return d.walkMPLS(b, r)
		case vlanTag:
			n, reason = d.vlan(b, r)
		case secTAG:
			n, reason = d.secTAG(b, r)
			if n > 0 {
				b = userData(b, n)
			}
		default:
			n, reason = d.tag(b, csig.LayoutAt(int(c-firstTag)), r)
		}
		if n == 0 {
			return reason
		}
		if len(b) < n+2 {
			return CutEthernet
		}
		etherType, b = be16(b[n:]), b[n+2:]
	}
}

// walkStripped parses a frame as if the tag (tpid, tci) were before its first EtherType.
func (d *Decoder) walkStripped(frame []byte, tpid, tci uint16, r *Result) Reason {
	if len(frame) < etherTypeOffset {
		return CutEthernet
	}
	// A wide tag is twice as long as the stripped part: its rest is in the frame.
	var data [6]byte
	binary.BigEndian.PutUint16(data[:], tci)
	inFrame := copy(data[2:], frame[etherTypeOffset:])
	switch c := d.classes[tpid]; {
	case c == vlanTag:
		if n, reason := d.vlan(data[:], r); n == 0 {
			return reason
		}
		return d.walkL2(frame, etherTypeOffset, r)
	case c >= firstTag:
		n, reason := d.tag(data[:2+inFrame], csig.LayoutAt(int(c-firstTag)), r)
		if n == 0 {
			return reason
		}
		return d.walkL2(frame, etherTypeOffset+n-2, r)
	}
	return r.done()
}

// The headers of L2: each function reads the header after its EtherType and returns the header's
// length, or 0 and the reason to stop.

func (d *Decoder) vlan(b []byte, r *Result) (int, Reason) {
	d.orphanTags(r)
	d.nest.vlans++
	switch {
	case len(b) < 2:
		return 0, CutVLAN
	case !r.Encap.push(VLAN, uint32(be16(b)&0xfff)):
		return 0, TooDeep
	}
	return 2, OK
}

// secTAG reads the SecTAG of IEEE 802.1AE, 6 bytes or 14 with a channel identifier. Changed or
// encrypted user data cannot be read.
func (d *Decoder) secTAG(b []byte, r *Result) (int, Reason) {
	const (
		version  = 0x80
		hasSCI   = 0x20
		modified = 0x0c // encrypted, changed text
	)
	d.orphanTags(r)
	if len(b) == 0 {
		return 0, CutMACsec
	}
	if b[0]&version != 0 {
		return 0, BadMACsec
	}
	n := 6
	if b[0]&hasSCI != 0 {
		n = 14
	}
	switch {
	case len(b) < n:
		return 0, CutMACsec
	case shortLength(b) >= minLongUserData:
		return 0, BadMACsec
	case !r.Encap.push(MACsec, 0):
		return 0, TooDeep
	case b[0]&modified != 0:
		return 0, Hidden
	}
	return n, OK
}

// minLongUserData is the user data length, in bytes, from which on a SecTAG does not state it: its
// short length is 0.
const minLongUserData = 48

func shortLength(secTAG []byte) int { return int(secTAG[1] & 0x3f) }

// userData returns b up to the end of the user data that a SecTAG of n bytes protects; the
// integrity check value (ICV) follows. If the SecTAG does not state that end, the lengths in the
// higher headers do.
func userData(b []byte, n int) []byte {
	if short := shortLength(b); short > 0 && n+short < len(b) {
		return b[:n+short]
	}
	return b
}

func (d *Decoder) tag(b []byte, l csig.Layout, r *Result) (int, Reason) {
	d.orphanTags(r)
	n := l.Format.DataLen()
	switch {
	case r.N >= maxTags:
		return 0, TooDeep
	case len(b) < n:
		return 0, CutTag
	}
	o := r.add(Tag)
	o.Tag.Parse(l, b)
	d.counters.Tags++
	if d.nest.tunnels > 0 {
		d.innerTag(o, r)
	}
	if d.nest.vlans > maxVLANs {
		d.orphan(o)
	}
	return n, OK
}

// orphanTags marks the tags so far of this L2 as orphans, because another of its tags follows.
func (d *Decoder) orphanTags(r *Result) {
	for i := int(d.nest.first); i < r.N; i++ {
		d.orphan(&r.Obs[i])
	}
}

func (d *Decoder) orphan(o *Observation) {
	if o.Flags&Orphan == 0 {
		o.Flags |= Orphan
		d.counters.Orphans++
	}
}

// Link is the link type of a capture: how its frames start. The numbers are those of pcap files.
type Link uint16

// The link types that decoders know. Linux taps on the "any" interface write cooked captures, with
// a header in place of the MAC addresses. Its last or first field is the first EtherType.
const (
	Ethernet Link = 1
	LinuxSLL Link = 113
	// LinuxSLL2 is its second version, with the number of the interface.
	LinuxSLL2 Link = 276
)

// Known reports whether decoders read the link type.
func (l Link) Known() bool { return l == Ethernet || l == LinuxSLL || l == LinuxSLL2 }

// Framing says how to read the frames of a tap or a file.
type Framing struct {
	Link Link
	// Mirrors are the sessions whose mirrored frames are decapsulated.
	Mirrors Mirrors
}

// Frame is one captured frame.
type Frame struct {
	Data    []byte
	WireLen uint32 // original length on the wire, bytes, with a stripped tag
	// TPID and TCI are the outermost tag that the network card or the kernel removed from Data;
	// TPID 0 is none.
	TPID, TCI uint16
}

// first returns the first EtherType of a frame, and the bytes behind the header that holds it. ok is
// false if the frame is cut before, and for a link that is not Known.
func (l Link) first(frame []byte) (etherType uint16, b []byte, ok bool) {
	off, data := etherTypeOffset, etherTypeOffset+2
	switch l {
	case LinuxSLL:
		off, data = 14, 16
	case LinuxSLL2:
		off, data = 0, 20
	}
	if !l.Known() || len(frame) < data {
		return 0, nil, false
	}
	return be16(frame[off:]), frame[data:], true
}

// walkLink parses a frame of the link type.
func (d *Decoder) walkLink(link Link, frame []byte, r *Result) Reason {
	etherType, b, ok := link.first(frame)
	switch {
	case ok:
		return d.walk(etherType, b, r)
	case link.Known():
		return CutEthernet
	}
	return UnknownLink
}
