package decode

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Mirror is the result of looking for a mirror session in a packet.
type Mirror uint8

// The results.
const (
	MirrorNone        Mirror = iota // no mirror session: the frame itself was captured
	MirrorOK                        // the inner frame is whole, or truncated: by the capture, or by the end of the outer packet's first fragment
	MirrorCut                       // the captured bytes end before the inner frame starts
	MirrorMalformed                 // GRE with routing, or lengths that contradict each other
	MirrorVersion                   // a header of unknown version, or of another version than its GRE protocol says
	MirrorNotEthernet               // the session carries something other than an Ethernet frame

	// NumMirrorResults bounds Mirror.
	NumMirrorResults = iota
)

var mirrorNames = [NumMirrorResults]string{
	"no_mirror", "mirror", "mirror_cut", "mirror_malformed", "mirror_version", "mirror_not_ethernet",
}

// String returns a reason code for counters and messages.
func (m Mirror) String() string {
	if m < NumMirrorResults {
		return mirrorNames[m]
	}
	return "mirror_unknown"
}

// reason returns the reason of a packet whose session cannot be read.
func (m Mirror) reason() Reason {
	if m == MirrorCut {
		return CutTunnel
	}
	return BadTunnel
}

// mirrored is a frame from a session.
type mirrored struct {
	frame   Frame
	session Session
}

// hold makes the walk of f decapsulate a session of one of the kinds.
func (d *Decoder) hold(m Mirrors, f *Frame) {
	const strippedLen = 4
	d.nest.holds, d.mirrors = true, m
	d.missing = int(f.WireLen) - len(f.Data)
	if f.TPID != 0 {
		d.missing -= strippedLen
	}
}

// Mirrored returns the inner frame of the mirror session in the last frame of DecodeFrame, and the
// session; ok is false if there was none. inner is a part of that frame, without FCS, and is the
// frame that was decoded. Both are valid until the next frame is decoded.
func (d *Decoder) Mirrored() (inner *Frame, s *Session, ok bool) {
	return &d.mirrored.frame, &d.mirrored.session, d.nest.mirrored == MirrorOK
}

// An Unwrapper extracts the frames of mirror sessions, as a Decoder does at taps that hold them,
// and decodes nothing. It is not safe for concurrent use.
type Unwrapper struct {
	mirrors Mirrors
	decoder Decoder // knows neither CSIG nor tunnels
	result  Result
}

// NewUnwrapper makes an Unwrapper of sessions of the kinds in m alone: anybody can send such a
// packet.
func NewUnwrapper(m Mirrors) *Unwrapper {
	u := &Unwrapper{mirrors: m}
	u.decoder.unwraps = true
	u.decoder.setEtherTypes()
	return u
}

// Unwrap extracts a mirrored frame from the packet in which a switch sent it. f is a frame of an
// Ethernet link. With MirrorOK, inner is the frame as the switch saw it, without FCS: its Data lies
// in f.Data and lives as long. Its WireLen is the number of its bytes in the outer packet, which is
// the original length unless Session.Truncated, or a first fragment of GRE holds less. With any
// other result inner and s are zero, and f is an ordinary frame (MirrorNone) or a fault to count.
//
// Unwrap removes one session: to unwrap a mirror of a mirror, call it again with inner. It
// allocates nothing, and its work is bounded by the headers.
func (u *Unwrapper) Unwrap(f *Frame) (inner Frame, s Session, result Mirror) {
	d := &u.decoder
	d.start(&u.result)
	d.hold(u.mirrors, f)
	if f.TPID != 0 {
		d.walkStripped(f.Data, f.TPID, f.TCI, &u.result)
	} else {
		d.ethernet(f.Data, &u.result)
	}
	if d.nest.mirrored != MirrorOK {
		return Frame{}, Session{}, d.nest.mirrored
	}
	return d.mirrored.frame, d.mirrored.session, MirrorOK
}

// outermost reports whether at most four VLAN tags and tags of the mirror's own path, and nothing
// else, come before the IP header that the walk has just left.
func (d *Decoder) outermost(r *Result) bool {
	return d.nest.vlans <= maxVLANs && r.Encap.n == d.nest.vlans
}

// greSession parses the frame in a session over GRE that the tap holds. ok is false if there is
// none or it cannot be read: then the packet is an ordinary one.
func (d *Decoder) greSession(h *greHeader, b []byte, left int, e endpoints, r *Result) (reason Reason, ok bool) {
	erspan := h.proto == erspanII || h.proto == erspanIII
	held := erspan && d.mirrors.ERSPAN || h.proto == transparentEthernet && d.mirrors.GRETAP
	if !held || h.flags&greVersion != 0 || !d.outermost(r) {
		return 0, false
	}
	var s Session
	c := d.content(b, left)
	result := s.readGRE(&c, h)
	return d.unwrap(result, &c, &s, e, r)
}

// udpSession is greSession for a session over UDP; b starts with the UDP header.
func (d *Decoder) udpSession(b []byte, left int, e endpoints, r *Result) (reason Reason, ok bool) {
	port := be16(b[2:])
	if port == 0 || port != d.mirrors.VXLAN && port != d.mirrors.TZSP || !d.outermost(r) {
		return 0, false
	}
	var s Session
	c := d.content(b, left)
	result := c.udp(e.fragmented())
	switch {
	case result != MirrorOK:
	case port == d.mirrors.VXLAN:
		result = s.readVXLAN(&c)
	default:
		result = s.readTZSP(&c)
	}
	return d.unwrap(result, &c, &s, e, r)
}

// unwrap continues with the frame that is left in c; result is the outcome of reading the session's
// headers.
func (d *Decoder) unwrap(result Mirror, c *content, s *Session, e endpoints, r *Result) (reason Reason, ok bool) {
	switch {
	case result != MirrorOK:
	case c.wire <= 0:
		result = MirrorMalformed
	case len(c.data) == 0:
		result = MirrorCut
	}
	d.nest.mirrored = result
	if result != MirrorOK {
		return 0, false
	}
	s.Source = e.source()
	d.mirrored = mirrored{Frame{Data: c.data, WireLen: max(uint32(c.wire), uint32(s.Length))}, *s}
	d.nest = nesting{mirrored: MirrorOK, first: uint8(r.N)}
	if r.N > 0 {
		r.Carrier, r.CarrierEncap = r.N, r.Encap
	}
	r.Encap.n = 0
	if d.unwraps {
		return NoCSIG, true
	}
	return d.ethernet(c.data, r), true
}

// content is the rest of a packet, from a header of a mirror session on.
type content struct {
	data []byte
	wire int // bytes of the packet from there on, at least len(data)
}

// content returns the rest of an IP packet. If IP does not state the length, the packet ends with
// the frame.
func (d *Decoder) content(b []byte, left int) content {
	if left > largestPacket {
		left = len(b) + max(d.missing, 0)
	}
	return content{b, left}
}

// skip removes n bytes, or returns the fault if there are fewer.
func (c *content) skip(n int) Mirror {
	if c.wire < n {
		return MirrorMalformed
	}
	if len(c.data) < n {
		return MirrorCut
	}
	c.data, c.wire = c.data[n:], c.wire-n
	return MirrorOK
}

// udp removes a UDP header, and the padding behind its datagram. A fragment holds only a part of
// the datagram.
func (c *content) udp(fragment bool) Mirror {
	// The length is 0 in a jumbogram and before segmentation offload.
	if n := int(be16(c.data[4:])); n != 0 {
		if n < udpLen || n > c.wire && !fragment {
			return MirrorMalformed
		}
		c.wire, c.data = n, c.data[:min(len(c.data), n)]
	}
	return c.skip(udpLen)
}

// erspan parses the frame in a session that the tap does not hold; its GRE header was entered.
func (d *Decoder) erspan(h *greHeader, b []byte, left int, r *Result) Reason {
	d.nest.mirror = true
	var s Session
	c := content{b, left}
	result := s.readERSPAN(&c, h)
	switch {
	case result != MirrorOK && result != MirrorNotEthernet:
		return result.reason()
	case !r.Encap.push(ERSPAN, uint32(s.ID)):
		return TooDeep
	case result != MirrorOK:
		return r.done()
	}
	return d.ethernet(c.data, r)
}

// tzsp parses the frame in a datagram that the tap does not hold. A datagram with another header is
// not TZSP, or carries no frame.
func (d *Decoder) tzsp(b []byte, left int, e endpoints, udp []byte, r *Result) Reason {
	switch {
	case left < tzspLen:
		return r.done()
	case len(b) < tzspLen:
		return CutTunnel
	case binary.BigEndian.Uint32(b) != tzspReceivedEthernet:
		return r.done()
	case !d.descend(e, udp, r):
		return TooDeep
	}
	d.nest.mirror = true
	var s Session
	c := content{b, left}
	if result := s.readTZSP(&c); result != MirrorOK {
		return result.reason()
	}
	if !r.Encap.push(TZSP, 0) {
		return TooDeep
	}
	return d.ethernet(c.data, r)
}

// MirrorKind is a way to carry mirrored frames in IP.
type MirrorKind uint8

// The kinds.
const (
	MirrorERSPAN MirrorKind = iota // types I to III, in GRE
	MirrorGRETAP                   // Ethernet in GRE; its key is the session
	MirrorVXLAN                    // its network identifier is the session
	MirrorTZSP                     // TaZmen Sniffer Protocol, over UDP; its sensor is the session
)

// String returns "erspan", "gretap", "vxlan" or "tzsp".
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

// DefaultVXLANPort is the UDP port of VXLAN.
const DefaultVXLANPort = 4789

// ParseMirrorKind reads a result of MirrorKind.String.
func ParseMirrorKind(text string) (MirrorKind, error) {
	for k := range MirrorTZSP + 1 {
		if k.String() == text {
			return k, nil
		}
	}
	return 0, fmt.Errorf("mirror kind %q: expected erspan, gretap, vxlan or tzsp", text)
}

// Mirrors selects the mirror sessions that a tap holds. The zero Mirrors is none. GRE-TAP and VXLAN
// are also tunnels: they are mirror sessions only where the configuration says that the tap holds
// them.
//
// In flags and as text it is a list of kinds such as "erspan,vxlan", in YAML one such as [erspan,
// vxlan]; both use the default ports for sessions over UDP.
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
			m.TZSP = TZSPPort
		}
	}
	return m, nil
}

// kinds returns the names of the kinds.
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
