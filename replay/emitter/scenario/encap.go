package scenario

import (
	"fmt"
	"slices"
	"strings"
)

// Encapsulation is what stands around the packets of a flow: L2 tags beside the CSIG
// tag (section 4.1), or a tunnel, of which the tag rides on the outermost L2.
type Encapsulation uint8

// The encapsulations, in the order of Encapsulations.
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

// Encapsulations are the values of Scenario.Encap, in the order of the layers that
// they stand in:
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

// OuterIP tells whether the encapsulation has an IP header of its own.
func (e Encapsulation) OuterIP() bool { return e >= EncapIPIP && e <= EncapSRv6 }

// hides tells whether what is inside can not be read on the way.
func (e Encapsulation) hides() bool {
	return e == EncapESP || e == EncapPSP || e == EncapMACsecEncrypted
}

// Where encapsulations begin and end.
const (
	atHosts  = "hosts"
	atLeaves = "leaves"
)

// Style is how the frames of a flow look beside their tag and their reflection.
type Style struct {
	Encap    Encapsulation
	Leaves   bool  // it stands between the first and the last switch, not between hosts
	IP       uint8 // version of the hosts' packets
	Underlay uint8 // version of the header that the encapsulation adds
	Pony     bool  // the hosts' transport is that over UDP
}

// Tenants tells whether the hosts' own addresses are those of the tunnel, and what
// is inside has addresses apart.
func (s Style) Tenants() bool { return s.Encap.OuterIP() && !s.Leaves }

// style is that of a workload, which overrides the scenario's.
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
		out.Underlay = out.IP // one spelling of what makes no difference
	}
	return out, nil
}

// Styles are those of all workloads, each once, and which of them each workload has.
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

// maxStyles keeps the number of a style in a byte.
const maxStyles = 255

// Wraps tells whether frames have their encapsulation on the hop'th link of a route
// of n links.
//
// Between leaves, the first switch encapsulates and the last one decapsulates, and
// the tag moves with the frame's L2 header: it is updated and copied to that of the
// tunnel and deleted from the payload, and back at the end (slides "CSIG at IEEE 802
// Nendica", November 2023, "CSIG Propagation in Tunneled Domain"). A route that turns
// around in its first switch meets one update and no tunnel (the same slide, "Tunnel
// Turnaround"). What switches write is therefore the same with and without tunnels;
// frames are longer between them.
func (s Style) Wraps(hop, n int8) bool {
	if s.Encap == EncapNone {
		return false
	}
	return !s.Leaves || (hop > 0 && hop < n-1)
}

// Hops are the switches that have counted down the hosts' time to live and that of
// the tunnel on the hop'th link of a route of n links. A tunnel is one hop to what is
// inside (RFC 3443, the pipe model).
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

// Opposite is the 5-tuple of the packets that answer those of a flow: the transport
// over UDP keeps its ports, so that one of them names it in both directions.
func (s Style) Opposite(f FiveTuple) FiveTuple {
	back := f.reversed()
	if s.Pony {
		back.SrcPort, back.DstPort = f.SrcPort, f.DstPort
	}
	return back
}
