package csig

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"strings"
)

func (d *Domain) addTable(s *TableSpec) error {
	ls, err := layouts(s.Format, s.Profile)
	if err != nil {
		return err
	}
	signal, err := ParseSignal(s.Signal)
	if err != nil {
		return err
	}
	added := false
	for _, l := range ls {
		// A table without a profile reaches the profiles that define its signal.
		if SignalOf(l.Profile, signal.Type()) != signal || int(signal.Type()) >= l.Types() {
			continue
		}
		t, err := newTable(l, signal, s)
		if err != nil {
			return err
		}
		d.tables[l.Index()][signal.Type()] = t
		added = true
	}
	if !added {
		return fmt.Errorf("signal %s: not defined by the profile", signal)
	}
	return nil
}

func newTable(l Layout, signal Signal, s *TableSpec) (*Table, error) {
	u, agg, err := meaning(signal, s)
	if err != nil {
		return nil, err
	}
	if !signal.Known() {
		signal = ConfiguredSignal(signal.Type(), u, agg)
	}
	t := &Table{layout: l, signal: signal, mask: l.MaxS(), shift: s.Shift, fixed: s.Fixed, most: u.Max()}
	if s.Mask != nil {
		t.mask = *s.Mask
	}
	if err := t.checkMask(); err != nil {
		return nil, err
	}
	if err := t.setScale(s, u); err != nil {
		return nil, err
	}
	if agg == AggregateMin {
		t.initial = l.MaxS()
	}
	if s.Initial != nil {
		t.initial = *s.Initial
	}
	if t.initial > l.MaxS() {
		return nil, fmt.Errorf("initial %d: does not fit the signal field (at most %d)", t.initial, l.MaxS())
	}
	if err := t.setHeavy(s.Heavy, u); err != nil {
		return nil, err
	}
	if s.Interval != "" {
		v, err := ParseQuantity(Nanosecond, s.Interval)
		if err != nil {
			return nil, fmt.Errorf("interval: %w", err)
		}
		t.interval = v
	}
	return t, nil
}

// meaning returns the unit and the aggregation of a signal. The sources fix them for the types that
// they define.
func meaning(signal Signal, s *TableSpec) (u Unit, agg Aggregation, err error) {
	if signal.Known() {
		if s.Unit != "" || s.Aggregation != "" {
			return 0, 0, fmt.Errorf("unit and aggregation: those of %s are defined, only a type_N has its own", signal)
		}
		return signal.Unit(), signal.Aggregation(), nil
	}
	if s.Unit == "" || s.Aggregation == "" {
		return 0, 0, fmt.Errorf("signal %s: an unknown signal type has no unit of its own: its table needs unit and aggregation", signal)
	}
	if u, err = ParseUnit(s.Unit); err != nil {
		return 0, 0, err
	}
	if agg, err = ParseAggregation(s.Aggregation); err != nil {
		return 0, 0, err
	}
	return u, agg, checkMeaning(u, agg)
}

func (t *Table) checkMask() error {
	field := t.mask >> t.shift
	switch {
	case t.mask == 0 || t.mask > t.layout.MaxS():
		return fmt.Errorf("mask 0x%x: expected bits of the signal field (0x%x)", t.mask, t.layout.MaxS())
	case field<<t.shift != t.mask || bits.OnesCount32(field) != bits.Len32(field):
		return fmt.Errorf("mask 0x%x, shift %d: expected a run of bits that starts at the shift", t.mask, t.shift)
	case t.fixed&t.mask != 0 || t.fixed > t.layout.MaxS():
		return fmt.Errorf("fixed 0x%x: expected bits of the signal field outside the mask 0x%x", t.fixed, t.mask)
	}
	return nil
}

func (t *Table) setScale(s *TableSpec, u Unit) error {
	given := 0
	for _, set := range []bool{s.Buckets != nil, s.Quantum != "", s.StepBits != nil} {
		if set {
			given++
		}
	}
	if given != 1 {
		return errors.New("expected exactly one of buckets, quantum and step_bits")
	}
	if s.Buckets != nil {
		return t.setBuckets(s, u)
	}
	if s.Upper != "" {
		return errors.New("upper: only a table of buckets has one")
	}
	return t.setLinear(s, u)
}

func (t *Table) setBuckets(s *TableSpec, u Unit) error {
	if s.Base != "" || s.StepUnit != "" {
		return errors.New("base and step_unit: only a table with step_bits has them")
	}
	if n := int(t.mask>>t.shift) + 1; len(s.Buckets) == 0 || len(s.Buckets) > n {
		return fmt.Errorf("%d buckets: expected 1 to %d", len(s.Buckets), n)
	}
	for i, text := range s.Buckets {
		if err := t.addBucket(text, u); err != nil {
			return fmt.Errorf("bucket %d: %w", i, err)
		}
	}
	if s.Upper == "" {
		return nil
	}
	v, err := ParseQuantity(u, s.Upper)
	if err != nil {
		return fmt.Errorf("upper: %w", err)
	}
	last := len(t.bounds) - 1
	if t.upper != 0 && t.upper != v {
		return fmt.Errorf("bucket %d: ends elsewhere than at upper, %s", last, s.Upper)
	}
	if v <= t.bounds[last] {
		return fmt.Errorf("bucket %d: ends at upper, %s, not above its start", last, s.Upper)
	}
	t.upper = v
	return nil
}

// addBucket appends the bucket "LOW" or "LOW-HIGH". t.upper is the end of the previous bucket, 0 if
// its text gives none.
func (t *Table) addBucket(text string, u Unit) error {
	lowText, highText, isRange := cutRange(text)
	low, err := ParseQuantity(u, lowText)
	if err != nil {
		return err
	}
	i := len(t.bounds)
	switch {
	case i == 0 && low != 0:
		return fmt.Errorf("starts at %s and leaves a gap from 0", lowText)
	case i > 0 && low <= t.bounds[i-1]:
		return fmt.Errorf("starts at %s, not above the start of bucket %d (in kbit/s, ppm or ns)", lowText, i-1)
	case t.upper != 0 && low > t.upper:
		return fmt.Errorf("starts at %s and leaves a gap from the end of bucket %d", lowText, i-1)
	case t.upper != 0 && low < t.upper:
		return fmt.Errorf("starts at %s and overlaps bucket %d", lowText, i-1)
	}
	t.bounds, t.upper = append(t.bounds, low), 0
	if !isRange {
		return nil
	}
	high, err := ParseQuantity(u, highText)
	if err != nil {
		return err
	}
	if high <= low {
		return fmt.Errorf("ends at %s, not above its start", highText)
	}
	t.upper = high
	return nil
}

// cutRange splits "LOW-HIGH". The sign of an exponent, "1e-3s", does not split it.
func cutRange(text string) (low, high string, isRange bool) {
	for i := 1; i < len(text); i++ {
		if text[i] == '-' && text[i-1] != 'e' && text[i-1] != 'E' {
			return text[:i], text[i+1:], true
		}
	}
	return text, "", false
}

// setLinear reads a uniform quantum (section 4.1.3), or the base and power-of-two step B = (O - bV)
// >> b of the IETF 124 slides. It follows the formula: the slides' example tables contain slips.
func (t *Table) setLinear(s *TableSpec, u Unit) error {
	if s.Quantum != "" {
		if s.Base != "" || s.StepUnit != "" {
			return errors.New("base and step_unit: only a table with step_bits has them")
		}
		v, err := ParseQuantity(u, s.Quantum)
		if err != nil {
			return fmt.Errorf("quantum: %w", err)
		}
		t.step = v
		return t.checkSpan()
	}
	unit := uint64(1)
	if s.StepUnit != "" {
		v, err := ParseQuantity(u, s.StepUnit)
		if err != nil {
			return fmt.Errorf("step_unit: %w", err)
		}
		unit = v
	}
	if *s.StepBits > 30 {
		return fmt.Errorf("step_bits %d: expected at most 30", *s.StepBits)
	}
	if unit > maxQuantity>>*s.StepBits {
		return fmt.Errorf("step_unit %s, step_bits %d: the step is out of range", s.StepUnit, *s.StepBits)
	}
	t.step = unit << *s.StepBits
	if s.Base != "" {
		v, err := ParseQuantity(u, s.Base)
		if err != nil {
			return fmt.Errorf("base: %w", err)
		}
		t.base = v
	}
	return t.checkSpan()
}

func (t *Table) checkSpan() error {
	if t.step == 0 {
		return errors.New("step: is 0 after rounding to kbit/s, ppm or ns")
	}
	if last := uint64(t.mask >> t.shift); t.step > maxQuantity/(last+1) {
		return fmt.Errorf("step: bucket %d is out of range", last)
	}
	return nil
}

func (t *Table) setHeavy(text string, u Unit) error {
	if text == "" {
		return nil
	}
	relative := t.signal == MinABW && strings.HasSuffix(strings.TrimSpace(text), "%")
	if relative {
		u = Ratio
	}
	v, err := ParseQuantity(u, text)
	if err != nil {
		return fmt.Errorf("heavy: %w", err)
	}
	if u == Ratio && v > 1e6 {
		return fmt.Errorf("heavy: %s is more than 100%%", text)
	}
	if relative {
		t.heavyRatio = v
		return nil
	}
	t.heavy = v
	return nil
}

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
