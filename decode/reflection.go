package decode

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/csigscope/csigscope/decode/csig"
)

// tcpOptions parses a list of TCP options and adds the reflections among them. It returns false
// when an option has an impossible length or runs past the end, because it then cannot find the
// next one. header and e identify a reflection's packet.
func (d *Decoder) tcpOptions(b, header []byte, e endpoints, r *Result) bool {
	const (
		endOfList   = 0
		noOperation = 1
	)
	if len(b) >= stampedLen-tcpLen && binary.LittleEndian.Uint32(b) == stamped {
		b = b[stampedLen-tcpLen:]
	}
	for len(b) > 0 {
		kind := b[0]
		if kind == noOperation {
			b = b[1:]
			continue
		}
		if kind == endOfList {
			return true
		}
		if len(b) < 2 {
			return false
		}
		n := int(b[1])
		if d.kinds[kind] {
			if m := d.reflection(b, header, e, r); m > 0 {
				n = m
			}
		}
		if n < 2 || n > len(b) {
			return false
		}
		b = b[n:]
	}
	return true
}

// reflection reads the option at the start of b, of at least two bytes, by the first configured
// encoding (section 4.2.1) that it fits, and returns its length as that encoding counts it. It
// returns 0 for an option that fits none or is invalid: then its length octet counts as in RFC
// 9293.
func (d *Decoder) reflection(b, header []byte, e endpoints, r *Result) int {
	empty, invalid := 0, false
	for i := range d.reflections {
		f := &d.reflections[i]
		head := 2 + int(f.ExIDLen)
		if f.Kind != b[0] || len(b) < head || experiment(b[2:head]) != f.ExID {
			continue
		}
		n := int(b[1]) // bytes of data fields
		if !f.Payload {
			n -= head
		}
		if l, ok := f.Layout(n); ok {
			if head+n <= len(b) {
				d.addTCPReflection(l, b[head:head+n], header, e, r)
			}
			return head + n
		}
		if n == 0 && empty == 0 {
			empty = head
		}
		invalid = true
	}
	switch {
	case empty > 0:
		d.incapable(&d.counters.EmptyReflections)
	case invalid:
		d.incapable(&d.counters.InvalidReflections)
	}
	return empty
}

// incapable counts a reflection which says that the path is not CSIG-capable. A mirrored one says
// nothing about the mirror session's path.
func (d *Decoder) incapable(counter *uint64) {
	if !d.nest.mirror {
		*counter++
	}
}

// experiment returns the experiment identifier of RFC 6994, 2 or 4 bytes; 0 without one.
func experiment(b []byte) uint32 {
	switch len(b) {
	case 2:
		return uint32(be16(b))
	case 4:
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (d *Decoder) addTCPReflection(l csig.Layout, data, header []byte, e endpoints, r *Result) {
	if o := d.addReflection(l, data, header, e, r); o != nil {
		o.setAck(header)
	}
}

// addReflection adds the data fields at the start of data with the frame's endpoints: those in e and in
// the transport header, or those of a tunnel around it. It returns nil when the Result is full.
func (d *Decoder) addReflection(l csig.Layout, data, header []byte, e endpoints, r *Result) *Observation {
	o := r.add(Reflection)
	if o == nil {
		d.counters.ExcessReflections++
		return nil
	}
	o.Tag.Parse(l, data)
	if d.endpointsKnown() {
		o.setEnds(&d.ends)
		o.Flow = e.flow(header)
	} else {
		e.setEnds(o)
		o.setPorts(header)
	}
	d.counters.Reflections++
	if d.nest.mirror {
		d.orphan(o)
	}
	return o
}

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

// verdict is the result of looking for one reflection in a datagram.
type verdict uint8

const (
	present verdict = iota
	absent          // another kind of packet
	empty           // without the Valid bit
	invalid         // too short for its fields
	cut             // the capture ends before that is decided
)

// udpPayload reads the reflections (section 4.2.2) in the payload of a datagram. left is the
// payload's length according to the headers, at least len(b).
func (d *Decoder) udpPayload(b []byte, left int, e endpoints, udp []byte, r *Result) Reason {
	port, truncated := be16(udp[2:]), false
	for i := range d.udpReflections {
		f := &d.udpReflections[i]
		if !slices.Contains(f.Ports, port) {
			continue
		}
		switch judge(f, b, left) {
		case present:
			d.addReflection(f.Layout, b[f.Offset:], udp, e, r)
		case empty:
			d.incapable(&d.counters.EmptyReflections)
		case invalid:
			d.incapable(&d.counters.InvalidReflections)
		case cut:
			truncated = true // a later extractor may read earlier bytes
		case absent:
		}
	}
	if truncated {
		return CutTransport
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
