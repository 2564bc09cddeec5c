package decode

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/csigscope/csigscope/decode/csig"
)

// MaxObservations bounds what one frame yields, with the packet that it was mirrored in: up
// to three tags and the reflections that fit beside them.
const MaxObservations = 4

// Endpoints say which IP header of a frame with tunnels names its endpoints.
type Endpoints uint8

// The addresses, the protocol and the ports of an observation always come from one
// and the same header, for tags and reflections alike.
const (
	// Outer is the outermost IP header: the ends of the tunnel.
	Outer Endpoints = iota
	// Inner is the innermost IP header that the frame shows in clear. Where the
	// capture ends before it may have come, endpoints are left out.
	Inner
)

// ParseEndpoints reads "outer" or "inner".
func ParseEndpoints(s string) (Endpoints, error) {
	switch s {
	case "", "outer":
		return Outer, nil
	case "inner":
		return Inner, nil
	}
	return 0, fmt.Errorf("parse endpoints %q: expected outer or inner", s)
}

// Config is what a Decoder needs to know. All but Domain has a use as it is.
type Config struct {
	Domain *csig.Domain // what TPIDs, TCP options and UDP ports mean; required
	// Endpoints is Outer unless configured.
	Endpoints Endpoints
	// InnerTags says that tags inside tunnels are expected, where the network
	// carries the Ethernet frames of hosts that speak CSIG. Then the first tag that
	// is the last one of its L2 counts, from the outside in; otherwise, a tag inside
	// a tunnel is an orphan. Inside a mirror session it always is.
	InnerTags bool
	// UDPTunnels are the tunnels over UDP by destination port: VXLAN, VXLANGPE,
	// Geneve, GTPU and PSP. Nil stands for DefaultUDPTunnels. New copies it.
	UDPTunnels map[uint16]Encap
	// Segments keeps each frame's innermost TCP header for Segment.
	Segments bool
}

// Result is what one frame says. The caller owns it and hands the same one to
// Decode again and again; only Obs[:N] is valid.
//
// Obs may point into memory of the caller, so that observations need not be copied:
// Decode writes to its first MaxObservations elements and to no others. A Result
// with fewer gets memory of its own.
type Result struct {
	Obs    []Observation
	N      int
	Reason Reason
	Encap  Stack
	// Of a frame that came in a mirror session which the tap holds, Carrier is how many of
	// Obs, the first ones, are tags of the packet that carried it, and CarrierEncap is the
	// encapsulation of these. All else is of the mirrored frame.
	Carrier      int
	CarrierEncap Stack
}

// own returns the observations of the frame at hand so far, without the carrier's.
func (r *Result) own() []Observation { return r.Obs[r.Carrier:r.N] }

// EncapOf returns the encapsulation of Obs[i].
func (r *Result) EncapOf(i int) *Stack {
	if i < r.Carrier {
		return &r.CarrierEncap
	}
	return &r.Encap
}

// Decoder decodes frames. It is not safe for concurrent use: each core has one.
type Decoder struct {
	classes        [1 << 16]class    // by EtherType
	udpPorts       [1 << 16]udpClass // by destination port
	kinds          [256]bool         // TCP options that may be a reflection
	reflections    []csig.Reflection
	udpReflections []csig.UDPReflection
	inner          bool // the innermost IP header names the endpoints
	innerTags      bool
	counters       Counters

	unwraps  bool     // of an Unwrapper: mirrored frames are not walked
	mirrors  Mirrors  // that the tap of the frame at hand holds, with nest.holds
	missing  int      // bytes that this frame had on the wire and that were not captured
	mirrored mirrored // the frame inside of it, where nest.mirrored is MirrorOK

	nest    nesting     // of the frame at hand
	ends    Observation // its endpoints, once the walk is inside a tunnel
	keeps   bool        // its segment
	segment TCPSegment  // its innermost one, if any
}

// New makes a Decoder. It fails without a domain, and when UDP ports contradict
// each other.
func New(cfg Config) (*Decoder, error) {
	if cfg.Domain == nil {
		return nil, errors.New("make decoder: no domain is configured")
	}
	d := &Decoder{
		reflections: cfg.Domain.Reflections(),
		inner:       cfg.Endpoints == Inner,
		innerTags:   cfg.InnerTags,
		keeps:       cfg.Segments,
	}
	d.setEtherTypes()
	for _, id := range cfg.Domain.TPIDs() { // after those of VLANs, which they may take
		if l, ok := cfg.Domain.LayoutOf(id); ok {
			d.classes[id] = firstTag + class(l.Index())
		}
	}
	for _, r := range d.reflections {
		d.kinds[r.Kind] = true
	}
	if err := d.setUDPTunnels(cfg.UDPTunnels); err != nil {
		return nil, fmt.Errorf("make decoder: %w", err)
	}
	if err := d.setUDPReflections(cfg.Domain.UDPReflections()); err != nil {
		return nil, fmt.Errorf("make decoder: %w", err)
	}
	if d.udpPorts[TZSPPort] == 0 {
		d.udpPorts[TZSPPort] = udpClass(TZSP)
	}
	return d, nil
}

// Counters returns a copy of what the decoder has counted since New. Like Decode, it
// belongs to the decoder's goroutine.
func (d *Decoder) Counters() Counters { return d.counters }

// Decode is DecodeFrame for an Ethernet frame of a tap that holds no mirrors.
func (d *Decoder) Decode(frame []byte, r *Result) {
	d.start(r)
	r.Reason = d.ethernet(frame, r)
	d.finish(r)
}

// DecodeFrame reads one frame, which may be cut at any byte, and fills r: of each
// observation everything but TimeNS and Packet. It keeps no reference to f, and of its Data none but for Segment and
// Mirrored. It does not allocate, but for r.Obs. The reason is UnknownLink for a link that
// is not Known, so callers refuse such a capture first.
//
// Tags come before reflections. A CSIG tag is valid only as the last tag
// of L2 (section 4.1): one that another CSIG tag, a VLAN tag or a SecTAG follows is
// an orphan, so that of several tags in a row the last one counts. A tag whose
// successor is cut off is taken as the last one. Fields of a header are taken
// when its fixed part came whole: a TCP header cut inside its options has ports.
//
// A tag that was stripped is read as if it were in the frame.
func (d *Decoder) DecodeFrame(how Framing, f *Frame, r *Result) {
	if f.TPID == 0 && how == (Framing{Link: Ethernet}) && d.tagged(f, r) {
		return
	}
	d.start(r)
	if how.Mirrors != (Mirrors{}) {
		d.hold(how.Mirrors, f)
	}
	if f.TPID != 0 { // of Ethernet alone: cooked captures have the tag in the frame
		r.Reason = d.walkStripped(f.Data, f.TPID, f.TCI, r)
	} else {
		r.Reason = d.walkLink(how.Link, f.Data, r)
	}
	d.finish(r)
	for i := range r.Obs[:r.N] {
		r.Obs[i].Bytes = f.WireLen
	}
	if d.nest.mirrored == MirrorOK {
		for i := range r.own() {
			r.own()[i].Bytes = d.mirrored.frame.WireLen
		}
	}
}

func (d *Decoder) start(r *Result) {
	if len(r.Obs) < MaxObservations {
		r.Obs = make([]Observation, MaxObservations)
	}
	r.N, r.Encap.n, r.Carrier = 0, 0, 0
	d.nest = nesting{}
	if d.keeps {
		d.segment.TCP = nil
	}
}

func (d *Decoder) finish(r *Result) {
	if d.inner && !d.nest.mirror {
		r.forgetCut()
	}
	d.counters.Frames++
	d.counters.Reasons[r.Reason]++
}

// done returns the reason of a frame that was walked to its end.
func (r *Result) done() Reason {
	if r.N > 0 {
		return OK
	}
	return NoCSIG
}

// add appends an observation with neither a tag nor addresses. It returns nil when
// r is full.
func (r *Result) add(kind Kind) *Observation {
	if uint(r.N) >= MaxObservations {
		return nil
	}
	o := &r.Obs[r.N]
	r.N++
	o.Src, o.Dst = [16]byte{}, [16]byte{}
	o.SrcPort, o.DstPort, o.Proto, o.Ack = 0, 0, 0, 0
	o.Kind, o.Flags = kind, 0
	return o
}

func be16(b []byte) uint16 { return binary.BigEndian.Uint16(b) }

// Bare reads the ends of an Ethernet frame without a tag into o: addresses, protocol, and
// ports, all from the outermost IP header. data reports whether it carries any, which
// acknowledgements of TCP do not. ok is false for a frame that is cut before these, that
// carries no IP, or extension headers, or a fragment without ports, and where the innermost
// header is to name the ends. o is then undefined. It counts nothing and does not allocate.
func (d *Decoder) Bare(frame []byte, o *Observation) (data, ok bool) {
	if d.inner {
		return false, false
	}
	etherType, b, ok := d.Network(frame)
	if !ok {
		return false, false
	}
	e, b, left, ok := bareIP(d.classes[etherType], b)
	if !ok {
		return false, false
	}
	*o = Observation{}
	e.setEnds(o)
	n := portsLen(e.proto)
	if len(b) < n {
		return false, false
	}
	if n > 0 {
		o.setPorts(b)
	}
	if e.proto == protoTCP {
		return left > int(b[12]>>4)*4, true
	}
	return left > 0, true
}

// bareIP returns an IP header without extension headers, what follows it, and how long that is as
// the header has it.
func bareIP(c class, b []byte) (e endpoints, rest []byte, left int, ok bool) {
	const fragmentOffset = 0x1fff
	switch {
	case c == ipv4 && len(b) >= ipv4Len:
		n, total := int(b[0]&15)*4, int(be16(b[2:]))
		if b[0]>>4 != 4 || n < ipv4Len || total < n || len(b) < n || be16(b[6:])&fragmentOffset != 0 {
			return e, nil, 0, false
		}
		e, rest, left = endpoints{ip: b[:ipv4Len], proto: b[9]}, b[n:min(len(b), total)], total-n
	case c == ipv6 && len(b) >= ipv6Len && b[0]>>4 == 6:
		left = int(be16(b[4:]))
		e, rest = endpoints{ip: b[:ipv6Len], proto: b[6]}, b[ipv6Len:min(len(b), ipv6Len+left)]
	default:
		return e, nil, 0, false
	}
	return e, rest, left, !e.extension(e.proto)
}

// mplsLabel is the length of a label stack entry.
const mplsLabel = 4

// Network is what a frame carries behind all headers of its L2: VLAN tags, SecTAGs in
// clear, CSIG tags and MPLS labels, all of which devices change on the way. The EtherType
// tells what the packet is; behind MPLS labels it is that of IP, as the packet's first
// four bits have it, or else that of MPLS. ok is false when the frame is cut before the
// packet, or hides it. The packet is a part of the frame.
//
// It neither counts nor changes anything, so that it may be called beside Decode.
func (d *Decoder) Network(frame []byte) (etherType uint16, packet []byte, ok bool) {
	if len(frame) < etherTypeOffset+2 {
		return 0, nil, false
	}
	etherType, packet = be16(frame[etherTypeOffset:]), frame[etherTypeOffset+2:]
	for {
		var n int
		switch c := d.classes[etherType]; {
		case c == vlanTag:
			n = 2
		case c == secTAG:
			if n = clearSecTAG(packet); n == 0 {
				return etherType, nil, false
			}
			packet = userData(packet, n)
		case c == mpls:
			return belowLabels(etherType, packet)
		case c >= firstTag:
			n = csig.LayoutAt(int(c - firstTag)).Format.DataLen()
		default:
			return etherType, packet, true
		}
		if len(packet) < n+2 {
			return etherType, nil, false
		}
		etherType, packet = be16(packet[n:]), packet[n+2:]
	}
}

// clearSecTAG returns the length of a SecTAG whose user data can be read, else 0.
func clearSecTAG(b []byte) int {
	const hasSCI, unreadable = 0x20, 0x8c // version, encrypted, changed text
	switch {
	case len(b) < 2 || b[0]&unreadable != 0:
		return 0
	case b[0]&hasSCI != 0:
		return 14
	}
	return 6
}

// belowLabels returns the packet below the last label.
func belowLabels(etherType uint16, b []byte) (uint16, []byte, bool) {
	const bottom = 1
	for len(b) > mplsLabel {
		last := b[2]&bottom != 0
		if b = b[mplsLabel:]; !last {
			continue
		}
		switch b[0] >> 4 {
		case 4:
			return 0x0800, b, true
		case 6:
			return 0x86dd, b, true
		}
		return etherType, b, true
	}
	return etherType, nil, false
}
