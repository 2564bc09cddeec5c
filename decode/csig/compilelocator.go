package csig

import (
	"errors"
	"fmt"
	"maps"
	"strings"
)

func (d *Domain) addLocator(s *LocatorSpec) error {
	ls, err := layouts(s.Format, s.Profile)
	if err != nil {
		return err
	}
	var signal Signal
	if s.Signal != "" {
		if signal, err = ParseSignal(s.Signal); err != nil {
			return err
		}
	}
	added := false
	for _, l := range ls {
		loc, err := newLocator(l, s)
		if err != nil {
			return err
		}
		for t := range l.Types() {
			if s.Signal == "" || SignalOf(l.Profile, uint8(t)) == signal {
				d.locators[l.Index()][t] = loc
				added = true
			}
		}
	}
	if !added {
		return fmt.Errorf("signal %s: not a signal type of the profile", signal)
	}
	return nil
}

func newLocator(l Layout, s *LocatorSpec) (*Locator, error) {
	loc := &Locator{layout: l, zero: s.ZeroIsLocation}
	total := 0
	for _, f := range s.Fields {
		total += int(f.Bits)
	}
	if total == 0 || total > l.LMBits() {
		return nil, fmt.Errorf("fields take %d bits: expected 1 to %d in %s", total, l.LMBits(), l)
	}
	loc.bits = uint8(total)
	seen := [numFields]bool{}
	for i, f := range s.Fields {
		total -= int(f.Bits)
		lf, err := newLocatorField(f, uint8(total))
		if err != nil {
			return nil, fmt.Errorf("fields[%d] (%s): %w", i, f.Field, err)
		}
		if seen[lf.field] {
			return nil, fmt.Errorf("fields[%d] (%s): given twice", i, f.Field)
		}
		seen[lf.field] = true
		loc.fields = append(loc.fields, lf)
	}
	return loc, nil
}

func newLocatorField(s FieldSpec, shift uint8) (locatorField, error) {
	f := locatorField{field: numFields, shift: shift, mask: uint16(uint32(1)<<s.Bits - 1)}
	for i, name := range fieldNames {
		if name == s.Field {
			f.field = Field(i)
		}
	}
	if f.field == numFields {
		return f, fmt.Errorf("unknown field: expected one of %s", strings.Join(fieldNames[:], ", "))
	}
	if s.Bits == 0 {
		return f, errors.New("bits: expected at least 1")
	}
	if f.field == FieldTTL && s.Bits > 8 {
		return f, fmt.Errorf("bits: %d, a TTL has at most 8", s.Bits)
	}
	tabled := f.field == FieldStage || f.field == FieldOrientation || f.field == FieldCapacity
	if tabled != (len(s.Values) > 0) {
		return f, errors.New("values: stage, orientation and capacity need a value table, other fields have none")
	}
	return f, f.setValues(s.Values)
}

func (f *locatorField) setValues(values map[uint16]string) error {
	names := make(map[string]bool, len(values))
	for k, text := range values {
		if k&^f.mask != 0 {
			return fmt.Errorf("values: %d does not fit the field's bits", k)
		}
		if names[text] {
			return fmt.Errorf("values: %q is given twice", text)
		}
		names[text] = true
	}
	if f.field != FieldCapacity {
		f.names = maps.Clone(values) // the caller's map may change, a Domain may not
		return nil
	}
	f.values = make(map[uint16]uint64, len(values))
	for k, text := range values {
		v, err := ParseQuantity(BitPerSecond, text)
		if err != nil {
			return fmt.Errorf("values: %w", err)
		}
		// Encode needs one number for a capacity, however it is spelled.
		if _, taken := keyOf(f.values, v); taken {
			return fmt.Errorf("values: the capacity %q is given twice", text)
		}
		f.values[k] = v
	}
	return nil
}
