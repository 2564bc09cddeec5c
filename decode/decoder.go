package decode

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/csigscope/csigscope/decode/csig"
)

// MaxObservations bounds the observations of one frame, including those of the packet that carried
// it in a mirror session: up to three tags, and the reflections that fit beside them.
const MaxObservations = 4

// Endpoints selects the IP header that names the endpoints of a frame with tunnels.
type Endpoints uint8

// The addresses, the protocol and the ports of an observation always come from the same header, for
// tags and reflections alike.
const (
	// Outer is the outermost IP header: the ends of the tunnel.
	Outer Endpoints = iota
	// Inner is the innermost IP header in clear. Where the capture ends before a possible inner
	// header, endpoints are left out.
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

// Config is the configuration of a Decoder. Only Domain has no useful default.
type Config struct {
	Domain *csig.Domain // meaning of TPIDs, TCP options and UDP ports; required
	// Endpoints is Outer by default.
	Endpoints Endpoints
	// InnerTags says that tags inside tunnels are expected, because the network carries the
	// Ethernet frames of hosts that speak CSIG. Then, from the outside in, the first tag that is
	// the last one of its L2 counts. Otherwise, a tag inside a tunnel is an orphan; inside a mirror
	// session it always is.
	InnerTags bool
	// UDPTunnels are the tunnels over UDP by destination port: VXLAN, VXLANGPE, Geneve, GTPU and
	// PSP. Nil means DefaultUDPTunnels. New copies it.
	UDPTunnels map[uint16]Encap
	// Segments keeps each frame's innermost TCP or UDP header for Segment and Transport.
	Segments bool
}

// Result is the outcome of decoding one frame. The caller owns it and reuses it for every call of
// Decode; only Obs[:N] is valid.
//
// Obs may point into memory of the caller, so that observations need not be copied: Decode writes
// to its first MaxObservations elements and to no others. It allocates a new Obs if that has fewer.
type Result struct {
	Obs    []Observation
	N      int
	Reason Reason
	Encap  Stack
	// For a frame from a mirror session that the tap holds, the first Carrier elements of Obs are
	// tags of the carrying packet, and CarrierEncap is their encapsulation. Everything else belongs
	// to the mirrored frame.
	Carrier      int
	CarrierEncap Stack
}

// own returns the observations of the current frame, without the carrier's.
func (r *Result) own() []Observation { return r.Obs[r.Carrier:r.N] }

// EncapOf returns the encapsulation of Obs[i].
func (r *Result) EncapOf(i int) *Stack {
	if i < r.Carrier {
		return &r.CarrierEncap
	}
	return &r.Encap
}

// Decoder decodes frames. It is not safe for concurrent use: each core has its own.
type Decoder struct {
	classes        [1 << 16]class    // by EtherType
	udpPorts       [1 << 16]udpClass // by destination port
	kinds          [256]bool         // TCP options that may be a reflection
	reflections    []csig.Reflection
	udpReflections []csig.UDPReflection
	inner          bool // the innermost IP header names the endpoints
	innerTags      bool
	counters       Counters // without those in tagged and untagged
	tagged         uint64   // frames with a tag and nothing else to count
	untagged       uint64   // frames of DecodePlain with nothing to count

	unwraps  bool     // of an Unwrapper: it does not parse mirrored frames
	mirrors  Mirrors  // held by the tap of the current frame, with nest.holds
	missing  int      // bytes of this frame on the wire that were not captured
	mirrored mirrored // the inner frame, if nest.mirrored is MirrorOK

	nest      nesting     // of the current frame
	ends      Observation // its endpoints, once the walk is inside a tunnel; scratch before
	result    Result      // of DecodePlain with TCP options
	keeps     bool        // store the frame's innermost header
	innermost Transport   // TCP or UDP, if any
}

// New makes a Decoder. It fails without a domain, and when UDP ports contradict each other.
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
	for _, id := range cfg.Domain.TPIDs() { // after the VLAN TPIDs, which a domain may use for CSIG
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

// Counters returns a copy of the counts since New. Like Decode, it belongs to the decoder's
// goroutine.
func (d *Decoder) Counters() Counters {
	c := d.counters
	c.Frames += d.tagged + d.untagged
	c.Reasons[OK] += d.tagged
	c.Reasons[NoCSIG] += d.untagged
	c.Tags += d.tagged
	return c
}

// SetCounters continues the counts from c: frames since Counters returned it do not count.
func (d *Decoder) SetCounters(c Counters) { d.counters, d.tagged, d.untagged = c, 0, 0 }

// Decode is DecodeFrame for an Ethernet frame of a tap that holds no mirror sessions. It leaves the
// Bytes of observations undefined.
func (d *Decoder) Decode(frame []byte, r *Result) {
	d.start(r)
	r.Reason = d.ethernet(frame, r)
	d.finish(r)
}

// DecodeFrame reads one frame, which may be truncated at any byte, and fills r: everything of each
// observation but TimeNS and Packet. It keeps no reference to f, and none to its Data except for
// Segment, Transport and Mirrored. It allocates nothing but a missing r.Obs. For a link that is not Known the
// reason is UnknownLink.
//
// Tags come before reflections. A CSIG tag is valid only as the last tag of L2 (section 4.1): if
// another CSIG tag, a VLAN tag or a SecTAG follows, it is an orphan, so of several tags in a row
// the last one counts. A tag whose successor is cut off counts as the last one. Fields of a header
// are read if its fixed part is complete: a TCP header truncated inside its options has ports.
//
// A stripped tag is read as if it were in the frame.
func (d *Decoder) DecodeFrame(how Framing, f *Frame, r *Result) {
	d.start(r)
	holds := how.Mirrors != (Mirrors{})
	if how.Link == Ethernet && !holds && f.TPID == 0 {
		var is Plainness
		if r.N, r.Reason, is = d.DecodePlain(f.Data, f.WireLen, (*[MaxObservations]Observation)(r.Obs)); is != NotPlain {
			return
		}
	}
	if holds {
		d.hold(how.Mirrors, f)
	}
	if f.TPID != 0 { // of Ethernet alone: cooked captures have the tag in the frame
		r.Reason = d.walkStripped(f.Data, f.TPID, f.TCI, r)
	} else {
		r.Reason = d.walkLink(how.Link, f.Data, r)
	}
	d.finish(r)
	r.setBytes(f.WireLen)
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
		d.innermost.Header = nil
	}
}

func (d *Decoder) finish(r *Result) {
	if d.inner && !d.nest.mirror {
		r.forgetCut()
	}
	if r.Reason.Cut() {
		for i := range r.Obs[:r.N] {
			if o := &r.Obs[i]; o.Flags&HasAddrs == 0 {
				o.Flags |= Cut
			}
		}
	}
	d.counters.Frames++
	d.counters.Reasons[r.Reason]++
}

func (r *Result) setBytes(n uint32) {
	for i := range r.Obs[:r.N] {
		r.Obs[i].Bytes = n
	}
}

// done returns the reason of a completely parsed frame.
func (r *Result) done() Reason {
	if r.N > 0 {
		return OK
	}
	return NoCSIG
}

// add appends an observation without tag and addresses. It returns nil when r is full.
func (r *Result) add(kind Kind) *Observation {
	if uint(r.N) >= MaxObservations {
		return nil
	}
	o := &r.Obs[r.N]
	r.N++
	o.Src, o.Dst = [16]byte{}, [16]byte{}
	o.SrcPort, o.DstPort, o.Proto, o.Ack, o.Flow = 0, 0, 0, 0, 0
	o.Kind, o.Flags = kind, 0
	return o
}

func be16(b []byte) uint16 { return binary.BigEndian.Uint16(b) }

// DecodeUntagged reads the endpoints of an untagged frame into o: addresses, protocol, and ports, all
// from the outermost IP header. data is false for TCP segments without payload, and otherwise true if
// anything follows the IP header. ok is false, and o undefined, for a link that is not Known, if the
// innermost header has to name the endpoints, and for a frame that is truncated before the ports, is
// not IP, has extension headers, or is a fragment without ports. DecodeUntagged counts nothing and does
// not allocate.
func (d *Decoder) DecodeUntagged(link Link, frame []byte, o *Observation) (data, ok bool) {
	if d.inner {
		return false, false
	}
	etherType, b, ok := d.Network(link, frame)
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

// bareIP returns an IP header without extension headers, the bytes behind it, and their length
// according to the header.
func bareIP(c class, b []byte) (e endpoints, rest []byte, left int, ok bool) {
	const fragmentOffset = 0x1fff
	switch {
	case c == ipv4 && len(b) >= ipv4Len:
		n, total := int(b[0]&15)*4, int(be16(b[2:]))
		if total == 0 {
			total = noLength
		}
		if b[0]>>4 != 4 || n < ipv4Len || total < n || len(b) < n || be16(b[6:])&fragmentOffset != 0 {
			return e, nil, 0, false
		}
		e, rest, left = endpoints{ip: b[:ipv4Len], proto: b[9]}, b[n:min(len(b), total)], total-n
	case c == ipv6 && len(b) >= ipv6Len && b[0]>>4 == 6:
		if left = int(be16(b[4:])); left == 0 && b[6] != protoNone {
			left = noLength
		}
		e, rest = endpoints{ip: b[:ipv6Len], proto: b[6]}, b[ipv6Len:min(len(b), ipv6Len+left)]
	default:
		return e, nil, 0, false
	}
	return e, rest, left, !e.extension(e.proto)
}

// mplsLabel is the length of a label stack entry.
const mplsLabel = 4

// Network returns the packet behind all L2 headers of a frame: VLAN tags, SecTAGs in clear, CSIG
// tags and MPLS labels, all of which devices change on the way. The EtherType is the packet's;
// behind MPLS labels it is the one of IP if the packet's first four bits say so, or else of MPLS.
// ok is false if the frame is truncated before the packet, or hides it, and for a link that is not
// Known. The packet is a part of the frame.
//
// It neither counts nor changes anything, so it may be called beside Decode.
func (d *Decoder) Network(link Link, frame []byte) (etherType uint16, packet []byte, ok bool) {
	for etherType, packet, ok = link.first(frame); ok; {
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
	return 0, nil, false
}

// clearSecTAG returns the length of a SecTAG with readable user data, or 0.
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
