package capture

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MirrorKind is a way to carry mirrored frames in IP.
type MirrorKind uint8

// The kinds.
const (
	MirrorERSPAN MirrorKind = iota // types I to III, in GRE
	MirrorGRETAP                   // Ethernet in GRE; its key is the session
	MirrorVXLAN                    // its network identifier is the session
	MirrorTZSP                     // TaZmen Sniffer Protocol, over UDP; without sessions
)

// String is "erspan", "gretap", "vxlan" or "tzsp".
func (k MirrorKind) String() string {
	switch k {
	case MirrorERSPAN:
		return "erspan"
	case MirrorGRETAP:
		return "gretap"
	case MirrorVXLAN:
		return "vxlan"
	case MirrorTZSP:
		return "tzsp"
	}
	return "unknown"
}

// UDP ports of mirror sessions.
const (
	DefaultVXLANPort = 4789
	DefaultTZSPPort  = 37008
)

// ParseMirrorKind reads what MirrorKind.String writes.
func ParseMirrorKind(text string) (MirrorKind, error) {
	for k := range MirrorTZSP + 1 {
		if k.String() == text {
			return k, nil
		}
	}
	return 0, fmt.Errorf("mirror kind %q: expected erspan, gretap, vxlan or tzsp", text)
}

// Mirrors says which mirror sessions a tap holds. The zero Mirrors is none. GRE-TAP and
// VXLAN are tunnels, too: they are mirror sessions only where a tap is said to hold them.
//
// In flags and as text it is a list of kinds such as "erspan,vxlan", in YAML one such as
// [erspan, vxlan]; both mean sessions over UDP on their default ports.
type Mirrors struct {
	ERSPAN bool
	GRETAP bool
	VXLAN  uint16 // UDP port; 0 is none
	TZSP   uint16 // UDP port; 0 is none
}

// parseMirrors reads the names of kinds.
func parseMirrors(kinds []string) (m Mirrors, err error) {
	for _, text := range kinds {
		kind, err := ParseMirrorKind(strings.TrimSpace(text))
		if err != nil {
			return Mirrors{}, err
		}
		switch kind {
		case MirrorERSPAN:
			m.ERSPAN = true
		case MirrorGRETAP:
			m.GRETAP = true
		case MirrorVXLAN:
			m.VXLAN = DefaultVXLANPort
		case MirrorTZSP:
			m.TZSP = DefaultTZSPPort
		}
	}
	return m, nil
}

// kinds are the names of the kinds.
func (m Mirrors) kinds() []string {
	list := []string{}
	for k, has := range [...]bool{MirrorERSPAN: m.ERSPAN, MirrorGRETAP: m.GRETAP, MirrorVXLAN: m.VXLAN != 0, MirrorTZSP: m.TZSP != 0} {
		if has {
			list = append(list, MirrorKind(k).String())
		}
	}
	return list
}

// String lists the kinds, such as "erspan,vxlan".
func (m Mirrors) String() string { return strings.Join(m.kinds(), ",") }

// MarshalText implements encoding.TextMarshaler.
func (m Mirrors) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; an empty text is none.
func (m *Mirrors) UnmarshalText(text []byte) (err error) {
	*m, err = parseMirrors(slices.DeleteFunc(strings.Split(string(text), ","), func(kind string) bool { return kind == "" }))
	return err
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (m *Mirrors) UnmarshalYAML(n *yaml.Node) error {
	var kinds []string
	err := n.Decode(&kinds)
	if err != nil {
		return fmt.Errorf("line %d: expected a list of mirror kinds such as [erspan, vxlan]", n.Line)
	}
	if *m, err = parseMirrors(kinds); err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	return nil
}

// MarshalYAML implements yaml.Marshaler.
func (m Mirrors) MarshalYAML() (any, error) { return m.kinds(), nil }

const udpHeader = 8

// unwrap takes the headers off that stand between IP and the frame.
func (m Mirrors) unwrap(c *carrier, s *Session) Mirror {
	var result Mirror
	if c.protocol == protocolUDP {
		result = m.unwrapUDP(c, s)
	} else {
		result = m.unwrapGRE(c, s)
	}
	switch {
	case result != MirrorOK:
		return result
	case c.fragmented:
		return MirrorFragment
	case c.wire <= 0:
		return MirrorMalformed
	case len(c.data) == 0:
		return MirrorCut
	}
	return MirrorOK
}

func (m Mirrors) unwrapUDP(c *carrier, s *Session) Mirror {
	if len(c.data) < udpHeader {
		return MirrorNone
	}
	port := binary.BigEndian.Uint16(c.data[2:])
	if port == 0 || port != m.VXLAN && port != m.TZSP {
		return MirrorNone
	}
	// The length is 0 in a jumbogram and before segmentation offload.
	if n := int(binary.BigEndian.Uint16(c.data[4:])); n != 0 {
		if n < udpHeader || n > c.wire {
			return MirrorMalformed
		}
		c.limit(n)
	}
	if result := c.skip(udpHeader); result != MirrorOK {
		return result
	}
	if port == m.VXLAN {
		return s.readVXLAN(c)
	}
	return s.readTZSP(c)
}

// readVXLAN reads RFC 7348. A header without an identifier is not of VXLAN.
func (s *Session) readVXLAN(c *carrier) Mirror {
	const size, hasID = 8, 0x08
	p := c.data
	if len(p) > 0 && p[0]&hasID == 0 {
		return MirrorMalformed
	}
	if result := c.skip(size); result != MirrorOK {
		return result
	}
	s.Kind, s.ID = MirrorVXLAN, uint64(binary.BigEndian.Uint32(p[4:])>>8)
	return MirrorOK
}

// TZSP, of which there is no standard: a header of four bytes, and fields until one
// that ends them. All but padding and the end have a length.
//
//	|version:8|type:8|protocol:16| tag:8 | length:8 | value | ... | 1:8 | frame
const (
	tzspVersion  = 1
	tzspReceived = 0
	tzspEthernet = 1

	tzspPadding     = 0
	tzspEnd         = 1
	tzspTimestamp   = 13
	tzspPacketID    = 40
	tzspFrameLength = 41
	tzspSensor      = 60 // the MAC address that received the frame
	maxTZSPFields   = 64
)

func (s *Session) readTZSP(c *carrier) Mirror {
	const size = 4
	p := c.data
	if result := c.skip(size); result != MirrorOK {
		return result
	}
	switch {
	case p[0] != tzspVersion:
		return MirrorVersion
	case p[1] != tzspReceived, binary.BigEndian.Uint16(p[2:]) != tzspEthernet:
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
		s.Length = binary.BigEndian.Uint16(value)
	case tag == tzspSensor && len(value) == 6:
		s.ID = uint64(binary.BigEndian.Uint16(value))<<32 | uint64(binary.BigEndian.Uint32(value[2:]))
	}
}

// unwrapGRE takes the header of GRE off, and the one in it.
func (m Mirrors) unwrapGRE(c *carrier, s *Session) Mirror {
	if len(c.data) < 4 || c.data[1]&greVersion != 0 {
		return MirrorNone
	}
	flags, protocol := binary.BigEndian.Uint16(c.data), binary.BigEndian.Uint16(c.data[2:])
	erspan := protocol == etherERSPAN2 || protocol == etherERSPAN3
	expected := erspan && m.ERSPAN || protocol == etherFrame && m.GRETAP
	if !expected {
		return MirrorNone
	}
	if flags&greRouting != 0 {
		return MirrorMalformed // deprecated by RFC 2784, of a length of its own
	}
	size := 4
	if flags&greChecksum != 0 {
		size += 4
	}
	key, keyed := uint32(0), flags&greKey != 0
	if keyed {
		if len(c.data) >= size+4 {
			key = binary.BigEndian.Uint32(c.data[size:])
		}
		size += 4
	}
	if result := c.skip(size); result != MirrorOK {
		return result
	}
	if s.Sequenced = flags&greSequence != 0; s.Sequenced {
		if len(c.data) >= 4 {
			s.Sequence = binary.BigEndian.Uint32(c.data)
		}
		if result := c.skip(4); result != MirrorOK {
			return result
		}
	}
	if erspan {
		return s.read(c, protocol)
	}
	s.Kind, s.ID = MirrorGRETAP, uint64(key)
	return MirrorOK
}
