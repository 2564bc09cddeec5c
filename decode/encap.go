package decode

import "strconv"

// maxLayers bounds the headers of a frame that a Stack names.
const maxLayers = 16

// Encap is a kind of encapsulation.
type Encap uint8

// The encapsulations that the decoder parses. VLAN covers both C-tags and S-tags of IEEE 802.1Q.
const (
	VLAN       Encap = 1 + iota
	MACsec           // IEEE 802.1AE SecTAG
	MPLS             // one label stack entry
	Pseudowire       // control word of an Ethernet pseudowire
	GRE
	NVGRE // GRE with a key and an Ethernet frame (RFC 7637)
	VXLAN
	VXLANGPE
	Geneve
	GTPU
	IPIP // IPv4 or IPv6 directly in IPv4 or IPv6
	SRv6 // segment routing header (RFC 8754)
	ESP
	PSP
	ERSPAN // mirror session in GRE
	TZSP   // mirror session over UDP

	numEncaps = iota + 1
)

var encapNames = [numEncaps]string{
	"", "vlan", "macsec", "mpls", "pw", "gre", "nvgre", "vxlan", "vxlan-gpe", "geneve", "gtpu", "ipip", "srv6", "esp", "psp", "erspan", "tzsp",
}

// String returns the encapsulation's name in output, such as "vlan" or "vxlan-gpe".
func (e Encap) String() string {
	if e > 0 && e < numEncaps {
		return encapNames[e]
	}
	return "encap_" + strconv.Itoa(int(e))
}

// Layer is one header of a frame's encapsulation. ID identifies the network: the VLAN identifier
// (12 bits), the MPLS label (20), the virtual network identifier of NVGRE, VXLAN, VXLAN-GPE and
// Geneve (24), the GRE key, the GTP-U tunnel endpoint identifier, the security parameters index of
// ESP and PSP (32) and the session of ERSPAN (10). It is 0 for the others, for GRE without a key,
// and where the capture ends before it.
type Layer struct {
	Encap Encap
	ID    uint32
}

// Append appends the layer's printed form: its name, and for VLANs also the identifier, such as
// vlan:100 or vxlan.
func (l Layer) Append(b []byte) []byte {
	switch {
	case l.Encap == VLAN:
		return strconv.AppendUint(append(b, "vlan:"...), uint64(l.ID), 10)
	case l.Encap > 0 && l.Encap < numEncaps:
		return append(b, encapNames[l.Encap]...)
	}
	return strconv.AppendUint(append(b, "encap_"...), uint64(l.Encap), 10)
}

// Stack is the encapsulation of one frame, in wire order. The zero Stack is empty.
type Stack struct {
	layers [maxLayers]Layer
	n      uint8
}

// Layers returns the complete headers. The slice is valid until the next frame is decoded into the
// Stack.
func (s *Stack) Layers() []Layer { return s.layers[:s.n] }

// push returns false when the stack is full.
func (s *Stack) push(e Encap, id uint32) bool {
	if s.n >= maxLayers {
		return false
	}
	s.layers[s.n] = Layer{e, id}
	s.n++
	return true
}
