package csig

import "fmt"

// Field is an attribute that locator metadata can carry (section 5.5.2).
type Field uint8

// The attributes: stage, orientation and capacity are the draft's compact ones,
// port, device and TTL its expanded ones. Opaque bits are kept and not read.
const (
	FieldStage Field = iota
	FieldOrientation
	FieldCapacity
	FieldPort
	FieldDevice
	FieldTTL
	FieldOpaque
	numFields
)

var fieldNames = [numFields]string{"stage", "orientation", "capacity", "port_id", "device_id", "ttl", "opaque"}

// String returns the name used in configuration: stage, orientation, capacity, port_id, device_id,
// ttl or opaque.
func (f Field) String() string {
	if f < numFields {
		return fieldNames[f]
	}
	return fmt.Sprintf("field_%d", uint8(f))
}

// Attributes is the meaning of a locator metadata value. Has reports which of the other members are
// set.
type Attributes struct {
	has         uint8
	Stage       string // value of the name table, such as leaf
	Orientation string // likewise, such as up
	Capacity    uint64 // kbit/s
	Port        uint32 // at most 16 bits, like Device and Opaque
	Device      uint32
	TTL         uint8 // of the packet as it left the bottleneck
	Opaque      uint32

	ttlMask uint8
}

// Has reports whether the attribute is set.
func (a *Attributes) Has(f Field) bool { return a.has>>f&1 != 0 }

// Set marks the attribute as set.
func (a *Attributes) Set(f Field) { a.has |= 1 << f }

// Hop returns the number of the hop on the path, 1 for the first device, derived from the TTL
// (section 5.5.2); 0 without a TTL. It takes the lowest of 64, 128 and 255 that is not below the
// field as the TTL of the sender, and assumes that devices write the TTL that they have decremented.
// A field of fewer than 8 bits holds the low bits: it distinguishes hops below 1<<bits.
func (a *Attributes) Hop() uint8 {
	if !a.Has(FieldTTL) {
		return 0
	}
	for _, sent := range [...]uint8{64, 128, 255} {
		if a.TTL <= sent {
			return (sent - a.TTL) & a.ttlMask
		}
	}
	return 0
}

type locatorField struct {
	field  Field
	shift  uint8
	mask   uint16
	names  map[uint16]string // stage, orientation
	values map[uint16]uint64 // capacity in kbit/s
}

// Locator is the layout of locator metadata for one signal in one tag layout. The draft leaves the
// layout to the deployment, which must use it consistently (section 5.5.1). A Locator is immutable
// and safe for concurrent use.
type Locator struct {
	layout Layout
	fields []locatorField
	bits   uint8
	zero   bool
}

// Decode reads a locator metadata value. ok is false when the value names nothing: it is 0 and the
// layout does not say that 0 is a location, it has bits outside the layout, or a field holds a
// number that is not in its value table.
func (l *Locator) Decode(lm uint16) (a Attributes, ok bool) {
	if (lm == 0 && !l.zero) || lm>>l.bits != 0 {
		return a, false
	}
	for i := range l.fields {
		f := &l.fields[i]
		if !f.decode(lm>>f.shift&f.mask, &a) {
			return Attributes{}, false
		}
	}
	return a, true
}

func (f *locatorField) decode(v uint16, a *Attributes) (ok bool) {
	ok = true
	switch f.field {
	case FieldStage:
		a.Stage, ok = f.names[v]
	case FieldOrientation:
		a.Orientation, ok = f.names[v]
	case FieldCapacity:
		a.Capacity, ok = f.values[v]
	case FieldPort:
		a.Port = uint32(v)
	case FieldDevice:
		a.Device = uint32(v)
	case FieldTTL:
		a.TTL, a.ttlMask = uint8(v), uint8(f.mask)
	case FieldOpaque:
		a.Opaque = uint32(v)
	}
	a.Set(f.field)
	return ok
}

// Encode returns the locator metadata that a port with the attributes a writes. It fails when a
// value does not fit its field or is not in the field's value table. The result may be 0, which a
// layout without zero_is_location does not decode: port 0 looks like an unnumbered port.
func (l *Locator) Encode(a Attributes) (uint16, error) {
	var lm uint16
	for i := range l.fields {
		f := &l.fields[i]
		v, ok := f.encode(a)
		if !ok || v&^f.mask != 0 {
			return 0, fmt.Errorf("encode locator metadata: %s is not representable in the layout", f.field)
		}
		lm |= v << f.shift
	}
	return lm, nil
}

func (f *locatorField) encode(a Attributes) (uint16, bool) {
	switch f.field {
	case FieldStage:
		return keyOf(f.names, a.Stage)
	case FieldOrientation:
		return keyOf(f.names, a.Orientation)
	case FieldCapacity:
		return keyOf(f.values, a.Capacity)
	case FieldPort:
		return uint16(a.Port), a.Port <= 0xffff
	case FieldDevice:
		return uint16(a.Device), a.Device <= 0xffff
	case FieldTTL:
		return uint16(a.TTL), true
	case FieldOpaque:
		return uint16(a.Opaque), a.Opaque <= 0xffff
	default:
		return 0, false
	}
}

func keyOf[V comparable](table map[uint16]V, want V) (uint16, bool) {
	for k, v := range table {
		if v == want {
			return k, true
		}
	}
	return 0, false
}
