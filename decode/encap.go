package decode

import "strconv"

// maxLayers bounds the headers of a frame that a Stack names.
const maxLayers = 16

// Encap is a kind of encapsulation.
type Encap uint8

// The encapsulations that the decoder walks. VLAN covers the C-tags and S-tags of
// IEEE 802.1Q alike.
const (
	VLAN   Encap = 1
	MACsec Encap = 2
)

// Layer is one header of a frame's encapsulation. ID is the 12-bit VLAN
// identifier and 0 for the others.
type Layer struct {
	Encap Encap
	ID    uint32
}

// Append appends the layer as it is printed, such as vlan:100 or macsec.
func (l Layer) Append(b []byte) []byte {
	switch l.Encap {
	case VLAN:
		return strconv.AppendUint(append(b, "vlan:"...), uint64(l.ID), 10)
	case MACsec:
		return append(b, "macsec"...)
	}
	return strconv.AppendUint(append(b, "encap_"...), uint64(l.Encap), 10)
}

// Stack is the encapsulation of one frame, in wire order. The zero Stack is empty.
type Stack struct {
	layers [maxLayers]Layer
	n      uint8
}

// Layers are the headers that came whole. The slice is valid until the Stack is
// decoded into again.
func (s *Stack) Layers() []Layer { return s.layers[:s.n] }

// push is false when the stack is full.
func (s *Stack) push(e Encap, id uint32) bool {
	if s.n >= maxLayers {
		return false
	}
	s.layers[s.n] = Layer{e, id}
	s.n++
	return true
}
