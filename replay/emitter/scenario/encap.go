package scenario

import (
	"fmt"
	"slices"
	"strings"
)

// Encapsulation surrounds the packets of a flow: L2 tags beside the CSIG tag (section 4.1), or a
// tunnel with the CSIG tag on its outermost L2.
type Encapsulation uint8

// Encapsulations in the order of Encapsulations.
const (
	EncapNone Encapsulation = iota
	EncapVLAN
	EncapQinQ
	EncapVLANTunnel
	EncapMACsec
	EncapMACsecNoSCI
	EncapMACsecNoICV
	EncapMACsecVLAN
	EncapMACsecEncrypted
	EncapMPLS
	EncapPseudowire
	EncapIPIP
	EncapGRE
	EncapGREFlags
	EncapNVGRE
	EncapVXLAN
	EncapVXLANGPE
	EncapGeneve
	EncapGTPU
	EncapSRv6
	EncapESP
	EncapPSP

	numEncapsulations = iota
)

var encapNames = [numEncapsulations]string{
	"none", "vlan", "qinq", "vlan-tunnel", "macsec", "macsec-no-sci", "macsec-no-icv", "macsec-vlan", "macsec-encrypted",
	"mpls", "pw", "ipip", "gre", "gre-flags", "nvgre", "vxlan", "vxlan-gpe", "geneve", "gtpu", "srv6", "esp", "psp",
}

// Encapsulations returns the values of Scenario.Encap, ordered by layer:
//
//	none              nothing
//	vlan              one 802.1Q tag
//	qinq              an 802.1ad and an 802.1Q tag
//	vlan-tunnel       three 802.1ad and an 802.1Q tag
//	macsec            a SecTAG with channel identifier, integrity only, and an ICV
//	macsec-no-sci     the same without channel identifier
//	macsec-no-icv     the same without ICV
//	macsec-vlan       the same as macsec with an 802.1Q tag after the SecTAG
//	macsec-encrypted  everything after the SecTAG is encrypted: the tag is hidden
//	mpls              three labels
//	pw                an Ethernet pseudowire with control word, below two labels
//	ipip              IP in IP, of either version in either
//	gre, gre-flags    GRE bare, and with checksum, key and sequence number
//	nvgre, vxlan, vxlan-gpe, geneve (with options), gtpu (with an extension header)
//	srv6              a segment routing header; the underlay is IPv6
//	esp, psp          the transport header and all after it are encrypted
func Encapsulations() []string { return slices.Clone(encapNames[:]) }

func parseEncapsulation(name string) (Encapsulation, error) {
	if i := slices.Index(encapNames[:], name); i >= 0 {
		return Encapsulation(i), nil
	}
	return 0, fmt.Errorf("encap %q: expected one of %s", name, strings.Join(encapNames[:], ", "))
}

// OuterIP reports whether the encapsulation adds an IP header.
func (e Encapsulation) OuterIP() bool { return e >= EncapIPIP && e <= EncapSRv6 }

// hides reports whether the payload is encrypted.
func (e Encapsulation) hides() bool {
	return e == EncapESP || e == EncapPSP || e == EncapMACsecEncrypted
}

// Places where encapsulations begin and end.
const (
	atHosts  = "hosts"
	atLeaves = "leaves"
)

// Style is the frame format of a flow, apart from tag and reflection.
type Style struct {
	Encap    Encapsulation
	Leaves   bool  // the encapsulation spans the first to the last switch, not host to host
	IP       uint8 // version of the hosts' packets
	Underlay uint8 // version of the encapsulation's IP header
	Pony     bool  // the hosts use the transport over UDP
}

// Tenants reports whether the tunnel uses the hosts' own addresses, so that the inner packets need
// addresses of their own.
func (s Style) Tenants() bool { return s.Encap.OuterIP() && !s.Leaves }

// style returns the style of a workload, which overrides the scenario's.
func (s *Scenario) style(w *Workload) (Style, error) {
	encap, at, ip, underlay := s.Encap, s.EncapAt, s.IP, s.Underlay
	for _, o := range []struct{ from, to *string }{{&w.Encap, &encap}, {&w.EncapAt, &at}} {
		if *o.from != "" {
			*o.to = *o.from
		}
	}
	for _, o := range []struct{ from, to *int }{{&w.IP, &ip}, {&w.Underlay, &underlay}} {
		if *o.from != 0 {
			*o.to = *o.from
		}
	}
	e, err := parseEncapsulation(encap)
	switch {
	case err != nil:
		return Style{}, err
	case at != atHosts && at != atLeaves:
		return Style{}, fmt.Errorf("encap_at %q: expected %s or %s", at, atHosts, atLeaves)
	case ip != 4 && ip != 6:
		return Style{}, fmt.Errorf("ip %d: expected 4 or 6", ip)
	case underlay != 4 && underlay != 6:
		return Style{}, fmt.Errorf("underlay %d: expected 4 or 6", underlay)
	case e.hides() && e != EncapMACsecEncrypted && at == atLeaves:
		return Style{}, fmt.Errorf("encap %s: is between hosts, expected encap_at: %s", encap, atHosts)
	}
	out := Style{Encap: e, Leaves: at == atLeaves, IP: uint8(ip), Underlay: uint8(underlay), Pony: w.Transport == Pony}
	if e == EncapNone {
		out.Leaves = false
	}
	if e == EncapSRv6 {
		out.Underlay = 6
	}
	if !e.OuterIP() {
		out.Underlay = out.IP // unused, so equal styles compare equal
	}
	return out, nil
}

// Styles returns the distinct styles of all workloads, and the index of each workload's style.
func (s *Scenario) Styles() (list []Style, of []uint8, err error) {
	add := func(w *Workload) error {
		st, err := s.style(w)
		if err != nil {
			return err
		}
		i := slices.Index(list, st)
		if i < 0 {
			i, list = len(list), append(list, st)
		}
		of = append(of, uint8(i))
		return nil
	}
	for i := range s.Workloads {
		if err := add(&s.Workloads[i]); err != nil {
			return nil, nil, fmt.Errorf("workloads[%d] (%s): %w", i, s.Workloads[i].Kind, err)
		}
	}
	if len(s.Workloads) == 0 {
		if err := add(&Workload{}); err != nil {
			return nil, nil, err
		}
	}
	if len(list) > maxStyles {
		return nil, nil, fmt.Errorf("%d different encapsulations and IP versions: expected at most %d", len(list), maxStyles)
	}
	return list, of, nil
}

// maxStyles lets a style's number fit a byte.
const maxStyles = 255

// Wraps reports whether frames are encapsulated on the hop'th link of a route of n links.
//
// Between leaves, the first switch encapsulates and the last one decapsulates. The tag moves with
// the L2 header: the first switch updates it, copies it to the tunnel's L2 header and deletes it
// from the payload; the last one moves it back (slides "CSIG at IEEE 802 Nendica", November 2023,
// "CSIG Propagation in Tunneled Domain"). A route that turns around in its first switch has one
// update and no tunnel (the same slide, "Tunnel Turnaround"). Switches therefore write the same
// values with and without tunnels; only the frames between them are longer.
func (s Style) Wraps(hop, n int8) bool {
	if s.Encap == EncapNone {
		return false
	}
	return !s.Leaves || (hop > 0 && hop < n-1)
}

// Hops returns how many switches have decremented the TTL of the hosts' packet and of the tunnel on
// the hop'th link of a route of n links. A tunnel is one hop for its payload (RFC 3443, the pipe
// model).
func (s Style) Hops(hop, n int8) (inside, outside uint8) {
	tunnel := s.Encap >= EncapMPLS && s.Encap <= EncapSRv6
	switch {
	case !tunnel || (s.Leaves && n <= 2):
		return uint8(hop), 0
	case !s.Leaves:
		return 0, uint8(hop)
	case hop == 0:
		return 0, 0
	case hop < n-1:
		return 1, uint8(hop - 1)
	}
	return 2, 0
}

// Opposite returns the 5-tuple of the packets in the opposite direction. The transport over UDP
// keeps the port order, so that the same destination port identifies it in both directions.
func (s Style) Opposite(f FiveTuple) FiveTuple {
	back := FiveTuple{Src: f.Dst, Dst: f.Src, SrcPort: f.DstPort, DstPort: f.SrcPort}
	if s.Pony {
		back.SrcPort, back.DstPort = f.SrcPort, f.DstPort
	}
	return back
}
