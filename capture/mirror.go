package capture

import (
	"encoding/binary"
	"net/netip"
)

// Mirror says what [Unwrap] made of a frame.
type Mirror uint8

// Results of Unwrap.
const (
	MirrorNone        Mirror = iota // no mirror session: the frame is what was captured
	MirrorOK                        // the inner frame is whole, or cut only in its own bytes
	MirrorCut                       // the captured bytes end before the inner frame starts
	MirrorFragment                  // the outer IP packet is fragmented, the inner frame is not whole
	MirrorMalformed                 // GRE with routing, or lengths that contradict each other
	MirrorVersion                   // a header of unknown version, or another than its GRE protocol says
	MirrorNotEthernet               // a session that carries something else than an Ethernet frame

	// NumMirrorResults bounds Mirror.
	NumMirrorResults = iota
)

// String returns a reason code for counters and messages.
func (m Mirror) String() string {
	switch m {
	case MirrorNone:
		return "no_mirror"
	case MirrorOK:
		return "mirror"
	case MirrorCut:
		return "mirror_cut"
	case MirrorFragment:
		return "mirror_fragment"
	case MirrorMalformed:
		return "mirror_malformed"
	case MirrorVersion:
		return "mirror_version"
	case MirrorNotEthernet:
		return "mirror_not_ethernet"
	}
	return "mirror_unknown"
}

// Numbers of the headers on the way to a mirrored frame.
const (
	etherIPv4    = 0x0800
	etherIPv6    = 0x86dd
	etherVLAN    = 0x8100
	etherService = 0x88a8
	etherOldQinQ = 0x9100
	etherERSPAN2 = 0x88be // in GRE; types I and II
	etherERSPAN3 = 0x22eb // in GRE

	etherFrame = 0x6558 // in GRE

	protocolHopByHop    = 0
	protocolUDP         = 17
	protocolRouting     = 43
	protocolFragment    = 44
	protocolGRE         = 47
	protocolDestination = 60

	greChecksum = 0x8000
	greRouting  = 0x4000
	greKey      = 0x2000
	greSequence = 0x1000
	greVersion  = 0x0007

	// maxOuterTags and maxOuterExtensions bound the walk to the GRE header.
	maxOuterTags       = 4
	maxOuterExtensions = 4
)

// Unwrap takes a mirrored frame out of the packet that a switch sent it in, for
// sessions of the kinds in m alone: anybody can send such a packet. It comes in IPv4
// or IPv6, behind up to four VLAN tags. ERSPAN is of type I, II or III
// (draft-foschiano-erspan-03):
//
//	type I    Ethernet | IP | GRE 88be, no sequence | frame
//	type II   Ethernet | IP | GRE 88be, sequence    | 8 bytes  | frame
//	type III  Ethernet | IP | GRE 22eb, sequence    | 12 bytes | subheader of 8 if O | frame
//
// f is a frame of a LinkEthernet interface. With MirrorOK, inner is the frame as
// the switch saw it, without FCS: its Data lies in f.Data and lives as long; its
// WireLen is what the outer packet holds of it, which is the original length
// unless Session.Truncated; everything else is that of f. Its TimeNS stays the
// time of the capture, because the switch's own clock need not have the same
// epoch and mostly wraps: Session.SwitchNS has it. With any other result inner
// and s are zero, and f is to be treated as an ordinary frame (MirrorNone) or to
// be counted.
//
// One session is taken off: a mirror of a mirror is unwrapped by calling again
// with inner. Unwrap allocates nothing, and its work is bounded by the headers.
func (m Mirrors) Unwrap(f *Frame) (inner Frame, s Session, result Mirror) {
	c, ok := carrierOf(f)
	if !ok {
		return Frame{}, Session{}, MirrorNone
	}
	if result = m.unwrap(&c, &s); result != MirrorOK {
		return Frame{}, Session{}, result
	}
	s.Source = c.source
	inner = *f
	inner.Data, inner.WireLen = c.data, max(uint32(c.wire), uint32(s.Length))
	inner.TPID, inner.TCI = 0, 0 // they were of the outer packet
	return inner, s, MirrorOK
}

// carrier is the rest of an IP packet: from the GRE or UDP header on.
type carrier struct {
	data       []byte
	wire       int // bytes that the packet has from there on, at least len(data)
	source     netip.Addr
	protocol   uint8
	fragmented bool
}

// skip takes n bytes off, and reports what is wrong where there are fewer.
func (c *carrier) skip(n int) Mirror {
	if c.wire < n {
		return MirrorMalformed
	}
	if len(c.data) < n {
		return MirrorCut
	}
	c.data, c.wire = c.data[n:], c.wire-n
	return MirrorOK
}

// limit sets how many bytes the packet has on the wire: what follows is padding.
func (c *carrier) limit(wire int) {
	c.wire = wire
	c.data = c.data[:min(len(c.data), wire)]
}

// carrierOf walks to the GRE or UDP header of a packet. Everything that cannot be
// recognised as that, for whatever reason, is not one.
func carrierOf(f *Frame) (carrier, bool) {
	wire := int(f.WireLen)
	switch f.TPID {
	case 0:
	case etherVLAN, etherService, etherOldQinQ:
		wire -= strippedLen
	default:
		return carrier{}, false // as a tag in the frame that is not of a VLAN
	}
	wire = max(wire, len(f.Data)) // hostile files say less than they hold
	at := 12
	for range maxOuterTags + 1 {
		if len(f.Data) < at+2 {
			break
		}
		c := carrier{data: f.Data[at+2:], wire: wire - at - 2}
		switch binary.BigEndian.Uint16(f.Data[at:]) {
		case etherVLAN, etherService, etherOldQinQ:
			at += 4
			continue
		case etherIPv4:
			return c, c.ipv4()
		case etherIPv6:
			return c, c.ipv6()
		}
		break
	}
	return carrier{}, false
}

// carries tells whether a mirror session may come in the protocol.
func carries(protocol uint8) bool { return protocol == protocolGRE || protocol == protocolUDP }

// ipv4 takes an IPv4 header off and reports whether GRE or UDP follows.
func (c *carrier) ipv4() bool {
	p := c.data
	if len(p) < 20 || p[0]>>4 != 4 || !carries(p[9]) {
		return false
	}
	head, total := int(p[0]&0x0f)*4, int(binary.BigEndian.Uint16(p[2:]))
	fragment := binary.BigEndian.Uint16(p[6:])
	if head < 20 || fragment&0x1fff != 0 {
		return false // of a later fragment nobody can tell what it carries
	}
	if total != 0 { // segmentation offload leaves 0
		c.limit(total)
	}
	c.fragmented = fragment&0x2000 != 0
	c.source, c.protocol = netip.AddrFrom4([4]byte(p[12:16])), p[9]
	return c.skip(head) == MirrorOK
}

// ipv6 takes an IPv6 header and its extension headers off and reports whether
// GRE or UDP follows.
func (c *carrier) ipv6() bool {
	p := c.data
	if len(p) < 40 || p[0]>>4 != 6 {
		return false
	}
	if payload := int(binary.BigEndian.Uint16(p[4:])); payload != 0 { // a jumbo payload leaves 0
		c.limit(40 + payload)
	}
	c.source = netip.AddrFrom16([16]byte(p[8:24]))
	next := p[6]
	ok := c.skip(40) == MirrorOK
	for range maxOuterExtensions {
		if !ok || carries(next) || len(c.data) < 8 {
			break
		}
		size := 8
		switch next {
		case protocolHopByHop, protocolRouting, protocolDestination:
			size += int(c.data[1]) * 8
		case protocolFragment:
			flags := binary.BigEndian.Uint16(c.data[2:])
			if flags>>3 != 0 {
				return false
			}
			c.fragmented = c.fragmented || flags&1 != 0
		default:
			return false
		}
		next = c.data[0]
		ok = c.skip(size) == MirrorOK
	}
	c.protocol = next
	return ok && carries(next)
}
