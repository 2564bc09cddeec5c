package emitter

import (
	"fmt"
	"slices"
	"strings"
)

// encapsulation is what stands around the packets of a flow: L2 tags beside the CSIG
// tag (section 4.1), or a tunnel, of which the tag rides on the outermost L2.
type encapsulation uint8

const (
	encapNone encapsulation = iota
	encapVLAN
	encapQinQ
	encapVLANTunnel
	encapMACsec
	encapMACsecNoSCI
	encapMACsecNoICV
	encapMACsecVLAN
	encapMACsecEncrypted
	encapMPLS
	encapPseudowire
	encapIPIP
	encapGRE
	encapGREFlags
	encapNVGRE
	encapVXLAN
	encapVXLANGPE
	encapGeneve
	encapGTPU
	encapSRv6
	encapESP
	encapPSP

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

func parseEncapsulation(name string) (encapsulation, error) {
	if i := slices.Index(encapNames[:], name); i >= 0 {
		return encapsulation(i), nil
	}
	return 0, fmt.Errorf("encap %q: expected one of %s", name, strings.Join(encapNames[:], ", "))
}

// outerIP tells whether the encapsulation has an IP header of its own.
func (e encapsulation) outerIP() bool { return e >= encapIPIP && e <= encapSRv6 }

// hides tells whether what is inside can not be read on the way.
func (e encapsulation) hides() bool {
	return e == encapESP || e == encapPSP || e == encapMACsecEncrypted
}

// Where encapsulations begin and end.
const (
	atHosts  = "hosts"
	atLeaves = "leaves"
)

// style is how the frames of a flow look beside their tag and their reflection.
type style struct {
	encap    encapsulation
	leaves   bool  // it stands between the first and the last switch, not between hosts
	ip       uint8 // version of the hosts' packets
	underlay uint8 // version of the header that the encapsulation adds
	pony     bool  // the hosts' transport is that over UDP
}

// tenants tells whether the hosts' own addresses are those of the tunnel, and what
// is inside has addresses apart.
func (s style) tenants() bool { return s.encap.outerIP() && !s.leaves }

// style is that of a workload, which overrides the scenario's.
func (s *Scenario) style(w *Workload) (style, error) {
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
		return style{}, err
	case at != atHosts && at != atLeaves:
		return style{}, fmt.Errorf("encap_at %q: expected %s or %s", at, atHosts, atLeaves)
	case ip != 4 && ip != 6:
		return style{}, fmt.Errorf("ip %d: expected 4 or 6", ip)
	case underlay != 4 && underlay != 6:
		return style{}, fmt.Errorf("underlay %d: expected 4 or 6", underlay)
	case e.hides() && e != encapMACsecEncrypted && at == atLeaves:
		return style{}, fmt.Errorf("encap %s: is between hosts, expected encap_at: %s", encap, atHosts)
	}
	out := style{encap: e, leaves: at == atLeaves, ip: uint8(ip), underlay: uint8(underlay), pony: w.Transport == Pony}
	if e == encapNone {
		out.leaves = false
	}
	if e == encapSRv6 {
		out.underlay = 6
	}
	if !e.outerIP() {
		out.underlay = out.ip // one spelling of what makes no difference
	}
	return out, nil
}

// styles are those of all workloads, each once, and which of them each workload has.
func (s *Scenario) styles() (list []style, of []uint8, err error) {
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
