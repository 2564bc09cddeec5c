package decode

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Session is the mirror session of a frame. Of GRE-TAP and VXLAN only Kind, ID, Source and the
// Sequence fields are set, of TZSP also the timestamp and Length. The rest comes from the ERSPAN
// header (draft-foschiano-erspan-03). Type I has no header: only Type, Source and the Sequence
// fields are set.
//
//	type II, version 1
//	|Ver:4|    VLAN:12    |COS:3|En:2|T:1| Session ID:10 |
//	|      reserved:12    |          Index:20            |
//
//	type III, version 2
//	|Ver:4|    VLAN:12    |COS:3|BSO:2|T:1| Session ID:10 |
//	|                    Timestamp:32                     |
//	|       SGT:16        |P:1|FT:5|Hw ID:6|D:1|Gra:2|O:1 |
//	|Platform ID:6|    platform-specific:58, with O       |
type Session struct {
	Kind      MirrorKind
	Type      uint8      // of ERSPAN: 1, 2 or 3
	ID        uint64     // session of ERSPAN, 0 to 1023; key of GRE-TAP; network of VXLAN; sensor of TZSP as a number, 0 without
	Source    netip.Addr // the switch, the source of the outer packet
	VLAN      uint16     // of the mirrored frame, 0 to 4095; 0 is none or unknown
	CoS       uint8      // priority of the mirrored frame, 0 to 7
	Encap     uint8      // type II: En, 0 no VLAN tag, 1 ISL, 2 802.1Q and stripped, 3 tag kept in the frame
	Integrity uint8      // type III: BSO, 0 good or unknown, 1 short, 2 oversized, 3 bad CRC or alignment
	Truncated bool       // the switch sent only the first bytes of the frame
	Egress    bool       // type III: mirrored on the way out of the switch
	Hardware  uint8      // type III: mirroring engine of the switch, 0 to 63
	Index     uint32     // type II: port index, 20 bits, as the platform defines it
	Sequenced bool       // Sequence is set
	Sequence  uint32     // counts the session's packets: gaps are losses on the way
	Length    uint16     // of TZSP: bytes of the frame before it was truncated; 0 is unknown

	// SwitchClock is the clock of SwitchNS.
	SwitchClock SwitchClock
	// SwitchNS is the time when the switch saw the frame, by its own clock. With ClockCustom it is
	// the plain count of ticks.
	SwitchNS int64
	// SwitchBits is the width of the counter behind SwitchNS: 32, which wraps after 2^32 ticks (5
	// days, 7 minutes or 4.3 s by resolution), or 64.
	SwitchBits uint8
}

// SwitchClock is a clock of the timestamps in session headers.
type SwitchClock uint8

// Clocks of a Session. Only ClockPTP can be compared with other clocks.
const (
	ClockNone   SwitchClock = iota // no timestamp, as in types I and II
	Clock100us                     // ns in steps of 100 us since an epoch that the header does not name
	Clock100ns                     // ns in steps of 100 ns since such an epoch
	ClockNanos                     // the nanoseconds of an IEEE 1588 time without its seconds
	ClockPTP                       // ns since the IEEE 1588 epoch, 1970 (TAI or UTC, depending on the switch)
	ClockCustom                    // ticks that only the switch's configuration explains
)

const (
	erspanII  = 0x88be // EtherType in GRE; also of type I, which has no header and no sequence number
	erspanIII = 0x22eb

	headerII  = 8
	headerIII = 12
	subheader = 8

	// Platform subheaders of type III whose second word extends the timestamp.
	platformUpper3   = 3
	platformSecs5    = 5
	platformSecs6    = 6
	platformUpper7   = 7
	frameTypeEther   = 0
	nanosPerSecond   = 1_000_000_000
	granularity100us = 0
	granularity100ns = 1
	granularity1588  = 2
)

// readERSPAN removes the ERSPAN header from c, if its type has one.
func (s *Session) readERSPAN(c *content, h *greHeader) Mirror {
	s.Sequenced, s.Sequence = h.flags&greSequence != 0, h.sequence
	version, size := uint8(1), headerII
	switch {
	case h.proto == erspanIII:
		version, size = 2, headerIII
	case !s.Sequenced:
		s.Type = 1
		return MirrorOK
	}
	p := c.data
	if len(p) > 0 && p[0]>>4 != version {
		return MirrorVersion
	}
	if m := c.skip(size); m != MirrorOK {
		return m
	}
	s.Type = version + 1
	s.VLAN = be16(p) & 0x0fff
	s.CoS = p[2] >> 5
	s.Truncated = p[2]&0x04 != 0
	s.ID = uint64(be16(p[2:]) & 0x03ff)
	if version == 1 {
		s.Encap = p[2] >> 3 & 3
		s.Index = binary.BigEndian.Uint32(p[4:]) & 0xfffff
		return MirrorOK
	}
	s.Integrity = p[2] >> 3 & 3
	return s.readIII(c, p)
}

// readIII reads the fields that only type III has; p starts with its header.
func (s *Session) readIII(c *content, p []byte) Mirror {
	ticks, last := uint64(binary.BigEndian.Uint32(p[4:])), be16(p[10:])
	s.Hardware = uint8(last >> 4 & 0x3f)
	s.Egress = last&0x08 != 0
	s.SwitchBits = 32
	platform, word := uint8(0), uint64(0)
	if last&1 != 0 {
		sub := c.data
		if m := c.skip(subheader); m != MirrorOK {
			return m
		}
		platform, word = sub[0]>>2, uint64(binary.BigEndian.Uint32(sub[4:]))
	}
	if last>>10&0x1f != frameTypeEther {
		return MirrorNotEthernet
	}
	s.readClock(ticks, uint8(last>>1&3), platform, word)
	return MirrorOK
}

// readClock interprets the timestamp with the platform's word that extends it.
func (s *Session) readClock(ticks uint64, granularity, platform uint8, word uint64) {
	if platform == platformUpper3 || platform == platformUpper7 {
		ticks |= word << 32
		s.SwitchBits = 64
	}
	perTick := uint64(1)
	switch granularity {
	case granularity100us:
		s.SwitchClock, perTick = Clock100us, 100_000
	case granularity100ns:
		s.SwitchClock, perTick = Clock100ns, 100
	case granularity1588:
		s.SwitchClock = ClockNanos
		if (platform == platformSecs5 || platform == platformSecs6) && ticks < nanosPerSecond {
			ticks += word * nanosPerSecond
			s.SwitchClock, s.SwitchBits = ClockPTP, 64
		}
	default:
		s.SwitchClock = ClockCustom
	}
	hi, lo := bits.Mul64(ticks, perTick)
	if hi != 0 || lo > math.MaxInt64 {
		lo = math.MaxInt64
	}
	s.SwitchNS = int64(lo)
}

// readVXLAN reads RFC 7348. A header without an identifier is not VXLAN.
func (s *Session) readVXLAN(c *content) Mirror {
	const size, hasID = 8, 0x08
	p := c.data
	if len(p) > 0 && p[0]&hasID == 0 {
		return MirrorMalformed
	}
	if result := c.skip(size); result != MirrorOK {
		return result
	}
	s.Kind, s.ID = MirrorVXLAN, uint64(networkID(p))
	return MirrorOK
}

// TZSP has no standard: it is a header of four bytes, then fields up to an end field. All fields
// but padding and the end have a length.
//
//	|version:8|type:8|protocol:16| tag:8 | length:8 | value | ... | 1:8 | frame
const (
	// TZSPPort is its UDP port, unless Config.UDPTunnels or a reflection uses that port.
	TZSPPort = 37008

	tzspLen              = 4 // without fields
	tzspVersion          = 1
	tzspReceivedEthernet = tzspVersion<<24 | 1

	tzspPadding     = 0
	tzspEnd         = 1
	tzspTimestamp   = 13
	tzspPacketID    = 40
	tzspFrameLength = 41
	tzspSensor      = 60 // the MAC address that received the frame
	maxTZSPFields   = 64
)

func (s *Session) readTZSP(c *content) Mirror {
	p := c.data
	if result := c.skip(tzspLen); result != MirrorOK {
		return result
	}
	switch {
	case p[0] != tzspVersion:
		return MirrorVersion
	case binary.BigEndian.Uint32(p) != tzspReceivedEthernet:
		return MirrorNotEthernet // keepalives and the like, or other link layers
	}
	s.Kind = MirrorTZSP
	for range maxTZSPFields {
		if len(c.data) == 0 {
			return c.skip(1)
		}
		tag := c.data[0]
		if tag == tzspEnd || tag == tzspPadding {
			if result := c.skip(1); result != MirrorOK || tag == tzspEnd {
				return result
			}
			continue
		}
		if len(c.data) < 2 {
			return c.skip(2)
		}
		value := c.data[2:]
		n := int(c.data[1])
		if result := c.skip(2 + n); result != MirrorOK {
			return result
		}
		s.readField(tag, value[:n])
	}
	return MirrorMalformed
}

func (s *Session) readField(tag uint8, value []byte) {
	switch {
	case tag == tzspTimestamp && len(value) == 4:
		s.SwitchClock, s.SwitchBits = ClockCustom, 32
		s.SwitchNS = int64(binary.BigEndian.Uint32(value))
	case tag == tzspPacketID && len(value) == 4:
		s.Sequenced, s.Sequence = true, binary.BigEndian.Uint32(value)
	case tag == tzspFrameLength && len(value) == 2:
		s.Length = be16(value)
	case tag == tzspSensor && len(value) == 6:
		s.ID = uint64(be16(value))<<32 | uint64(binary.BigEndian.Uint32(value[2:]))
	}
}

// readGRE removes the GRE header h from c, and the session header in it.
func (s *Session) readGRE(c *content, h *greHeader) Mirror {
	if h.flags&greRouting != 0 {
		return MirrorMalformed // deprecated by RFC 2784, with a length of its own
	}
	if result := c.skip(h.len); result != MirrorOK {
		return result
	}
	if h.proto != transparentEthernet {
		return s.readERSPAN(c, h)
	}
	s.Kind, s.ID = MirrorGRETAP, uint64(h.key)
	s.Sequenced, s.Sequence = h.flags&greSequence != 0, h.sequence
	return MirrorOK
}

// SessionKey identifies a mirror session. Each session is a tap of its own, at the place where its
// switch mirrors.
type SessionKey struct {
	Kind   MirrorKind
	Source netip.Addr // the switch
	ID     uint64     // see Session
}

// Key returns the session's key.
func (s *Session) Key() SessionKey { return SessionKey{s.Kind, s.Source, s.ID} }

// String returns the key as kind/address/session, such as erspan/192.0.2.1/77. The session of TZSP
// is the sensor, such as 02:00:00:00:00:01.
func (k SessionKey) String() string {
	return fmt.Sprintf("%s/%s/%s", k.Kind, k.Source, SessionIDText(k.Kind, k.ID))
}

// SessionIDText returns the text form of a session's id.
func SessionIDText(kind MirrorKind, id uint64) string {
	if kind != MirrorTZSP || id == 0 {
		return strconv.FormatUint(id, 10)
	}
	b := binary.BigEndian.AppendUint64(nil, id)
	return net.HardwareAddr(b[2:]).String()
}

// ParseSessionID reads the text form of a session's id.
func ParseSessionID(kind MirrorKind, text string) (uint64, error) {
	most, what := uint64(1<<32-1), "a number of at most 4294967295"
	switch kind {
	case MirrorERSPAN:
		most, what = 1<<10-1, "a session of 0 to 1023"
	case MirrorVXLAN:
		most, what = 1<<24-1, "a network of 0 to 16777215"
	case MirrorTZSP:
		most, what = 0, "a sensor such as 02:00:00:00:00:01, or 0 for none"
		if mac, err := net.ParseMAC(text); err == nil && len(mac) == 6 {
			return binary.BigEndian.Uint64(append([]byte{0, 0}, mac...)), nil
		}
	}
	if id, err := strconv.ParseUint(text, 10, 64); err == nil && id <= most {
		return id, nil
	}
	return 0, fmt.Errorf("session %q of %s: expected %s", text, kind, what)
}

// ParseSessionKey reads a result of SessionKey.String.
func ParseSessionKey(text string) (k SessionKey, err error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return k, fmt.Errorf("session %q: expected KIND/ADDRESS/SESSION", text)
	}
	if k.Kind, err = ParseMirrorKind(parts[0]); err != nil {
		return k, err
	}
	if k.Source, err = netip.ParseAddr(parts[1]); err != nil {
		return k, fmt.Errorf("session %q: %w", text, err)
	}
	k.ID, err = ParseSessionID(k.Kind, parts[2])
	return k, err
}
