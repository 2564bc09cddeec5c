package csig

import (
	"errors"
	"fmt"
	"slices"
)

const (
	// uetPort is the UDP port of Ultra Ethernet Transport.
	uetPort = 4793
	// uetTypeShift is the shift of the packet type in the first byte of UET's packet delivery
	// header: it takes the upper five bits.
	uetTypeShift = 3

	maxUDPReflections = 16
	maxUDPPorts       = 16
	// maxUDPOffset is beyond any transport header; the rest is payload.
	maxUDPOffset = 1024
)

// UDPReflectionSpec says where a transport over UDP puts reflected CSIG data fields (section
// 4.2.2). Offsets count bytes from the start of the UDP payload:
//
//	            match_offset  valid_offset   offset
//	                 |             |            |
//	+-----------+----v-------------v------------v----------------------+
//	| UDP (8)   |  byte & match_mask   byte & valid_mask   2 or 6 bytes |
//	+-----------+------------------------------------------------------+
//
// A datagram to one of the ports matches by its byte at MatchOffset. It carries data fields if a
// bit of ValidMask is set in its byte at ValidOffset. Otherwise its reflection is empty: the path
// is not CSIG-capable (section 6.3.3).
//
// Ultra Ethernet Transport (UDP port 4793) has no field for CSIG in version 1.0. For a deployment
// that adds one, PDSType selects packets by the type in the upper five bits of the payload's first
// byte. It is short for the port and a match of that byte under the mask 0xf8.
type UDPReflectionSpec struct {
	Ports  []uint16 `yaml:"ports,omitempty,flow"` // destination ports
	Offset uint16   `yaml:"offset"`               // of the data fields, at most 1024
	// Format is the format of the data fields: compact (2 bytes) or wide (6).
	Format  string `yaml:"format"`
	Profile string `yaml:"profile"`

	ValidOffset uint16 `yaml:"valid_offset,omitempty"`
	ValidMask   uint8  `yaml:"valid_mask,omitempty"` // 0: data fields are always valid

	MatchOffset uint16 `yaml:"match_offset,omitempty"`
	MatchMask   uint8  `yaml:"match_mask,omitempty"` // 0: every datagram matches
	MatchValue  uint8  `yaml:"match_value,omitempty"`
	PDSType     *uint8 `yaml:"pds_type,omitempty"` // 0 to 31
}

// UDPReflection is one compiled UDPReflectionSpec; the members have the same meaning.
type UDPReflection struct {
	Ports       []uint16
	Layout      Layout
	Offset      uint16
	ValidOffset uint16
	MatchOffset uint16
	ValidMask   uint8
	MatchMask   uint8
	MatchValue  uint8
}

// UDPReflections returns the reflections over UDP. The slice is read-only.
func (d *Domain) UDPReflections() []UDPReflection { return d.udpReflections }

func (d *Domain) addUDPReflection(s *UDPReflectionSpec) error {
	ls, err := layouts(s.Format, s.Profile)
	if err != nil {
		return err
	}
	if len(ls) != 1 {
		return errors.New("no profile: expected ietf01 or uec050")
	}
	if len(d.udpReflections) == maxUDPReflections {
		return fmt.Errorf("more than %d reflections over UDP", maxUDPReflections)
	}
	r := UDPReflection{
		Ports: slices.Clone(s.Ports), Layout: ls[0], Offset: s.Offset,
		ValidOffset: s.ValidOffset, ValidMask: s.ValidMask,
		MatchOffset: s.MatchOffset, MatchMask: s.MatchMask, MatchValue: s.MatchValue,
	}
	if s.PDSType != nil {
		if err := r.matchUET(*s.PDSType); err != nil {
			return err
		}
	}
	if err := r.check(); err != nil {
		return err
	}
	for i := range d.udpReflections {
		if port, ok := r.overlaps(&d.udpReflections[i]); ok {
			return fmt.Errorf("port %d: the data fields at offset %d are those of udp_reflections[%d]", port, r.Offset, i)
		}
	}
	d.udpReflections = append(d.udpReflections, r)
	return nil
}

func (r *UDPReflection) matchUET(pdsType uint8) error {
	if r.MatchMask != 0 || r.MatchOffset != 0 || r.MatchValue != 0 {
		return errors.New("pds_type: is a match of its own, leave match_offset, match_mask and match_value out")
	}
	if pdsType > 0xff>>uetTypeShift {
		return fmt.Errorf("pds_type %d: expected 0 to %d", pdsType, 0xff>>uetTypeShift)
	}
	r.MatchMask, r.MatchValue = 0xff<<uetTypeShift&0xff, pdsType<<uetTypeShift
	if len(r.Ports) == 0 {
		r.Ports = []uint16{uetPort}
	}
	return nil
}

func (r *UDPReflection) check() error {
	if len(r.Ports) == 0 || len(r.Ports) > maxUDPPorts {
		return fmt.Errorf("%d ports: expected 1 to %d", len(r.Ports), maxUDPPorts)
	}
	for i, p := range r.Ports {
		if p == 0 || slices.Contains(r.Ports[:i], p) {
			return fmt.Errorf("ports: %d is no port or is given twice", p)
		}
	}
	if max(r.Offset, r.ValidOffset, r.MatchOffset) > maxUDPOffset {
		return fmt.Errorf("offset %d, valid_offset %d, match_offset %d: expected at most %d",
			r.Offset, r.ValidOffset, r.MatchOffset, maxUDPOffset)
	}
	end := r.Offset + uint16(r.Layout.Format.DataLen())
	switch {
	case r.ValidMask == 0 && r.ValidOffset != 0:
		return errors.New("valid_offset: has no effect without valid_mask")
	case r.ValidMask != 0 && r.ValidOffset >= r.Offset && r.ValidOffset < end:
		return fmt.Errorf("valid_offset %d: lies in the data fields", r.ValidOffset)
	case r.MatchMask == 0 && (r.MatchOffset != 0 || r.MatchValue != 0):
		return errors.New("match_offset and match_value: have no effect without match_mask")
	case r.MatchValue&^r.MatchMask != 0:
		return fmt.Errorf("match_value 0x%x: has bits outside match_mask 0x%x, so that nothing matches", r.MatchValue, r.MatchMask)
	case r.MatchMask != 0 && r.MatchOffset >= r.Offset && r.MatchOffset < end:
		return fmt.Errorf("match_offset %d: lies in the data fields", r.MatchOffset)
	}
	return nil
}

// overlaps reports whether both could read the same bytes of one datagram, which would be measured
// twice.
func (r *UDPReflection) overlaps(o *UDPReflection) (port uint16, ok bool) {
	if int(r.Offset)+r.Layout.Format.DataLen() <= int(o.Offset) || int(o.Offset)+o.Layout.Format.DataLen() <= int(r.Offset) {
		return 0, false
	}
	if common := r.MatchMask & o.MatchMask; r.MatchOffset == o.MatchOffset && r.MatchValue&common != o.MatchValue&common {
		return 0, false
	}
	for _, p := range r.Ports {
		if slices.Contains(o.Ports, p) {
			return p, true
		}
	}
	return 0, false
}
