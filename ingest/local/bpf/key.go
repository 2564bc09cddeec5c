package bpf

// mapKey is struct key of kernel/csig.c, byte for byte. An entry whose key lacks the flag used is
// empty.
type mapKey struct {
	Src, Dst  uint64
	Window, S uint32 // see struct key
	LM, CPU   uint16
	Kind      uint8 // decode.Kind less decode.Tag
	Type      uint8 // layout index << 4 | T
	Class     uint8
	Flags     uint8
}

// Classes of observations in a key, in the order of kernel/csig.c.
const (
	classValue = iota
	classUntouched
	classTrimmed
	classRepeated
	classRefused
)

// Flags of a key.
const (
	hasAddrs = 1 << iota
	isV6
	overflowed
	used
)

// wide reports whether the key counts wide tags: bit 1 of the layout index.
func (k *mapKey) wide() bool { return k.Type&0x20 != 0 }
