package decode

import (
	"fmt"
	"slices"

	"github.com/csigscope/csigscope/decode/csig"
)

func (d *Decoder) setUDPReflections(list []csig.UDPReflection) error {
	d.udpReflections = list
	for i := range list {
		for _, port := range list[i].Ports {
			if c := d.udpPorts[port]; c != 0 && c != udpReflects {
				return fmt.Errorf("udp port %d: is configured for %s and for reflections", port, Encap(c))
			}
			d.udpPorts[port] = udpReflects
		}
	}
	return nil
}

// verdict is what a datagram says about one place of reflections.
type verdict uint8

const (
	present verdict = iota
	absent          // another kind of packet
	empty           // without the Valid bit
	invalid         // too short for its fields
	cut             // the capture ends before that is known
)

// udpPayload reads the reflections (section 4.2.2) in the payload of a datagram.
// left is the payload's length as the headers say, at least len(b).
func (d *Decoder) udpPayload(b []byte, left int, e endpoints, udp []byte, r *Result) Reason {
	port := be16(udp[2:])
	for i := range d.udpReflections {
		f := &d.udpReflections[i]
		if !slices.Contains(f.Ports, port) {
			continue
		}
		switch judge(f, b, left) {
		case present:
			if o := d.addReflection(f.Layout, b[f.Offset:], e, r); o != nil && !d.settled() {
				o.setPorts(udp)
			}
		case empty:
			d.incapable(&d.counters.EmptyReflections)
		case invalid:
			d.incapable(&d.counters.InvalidReflections)
		case cut:
			return CutTransport
		case absent:
		}
	}
	return r.done()
}

func judge(f *csig.UDPReflection, b []byte, left int) verdict {
	if f.MatchMask != 0 {
		at := int(f.MatchOffset)
		switch {
		case at >= left:
			return absent
		case at >= len(b):
			return cut
		case b[at]&f.MatchMask != f.MatchValue:
			return absent
		}
	}
	if f.ValidMask != 0 {
		at := int(f.ValidOffset)
		switch {
		case at >= left:
			return invalid
		case at >= len(b):
			return cut
		case b[at]&f.ValidMask == 0:
			return empty
		}
	}
	end := int(f.Offset) + f.Layout.Format.DataLen()
	switch {
	case end > left:
		return invalid
	case end > len(b):
		return cut
	}
	return present
}
