package emitter

import (
	"errors"
	"fmt"
	"slices"

	"github.com/csigscope/csigscope/decode/csig"
)

// locatorSpecs are the layouts of locator metadata: one for all signals, or those of
// the fabric file, which may have one for each signal (section 5.5.1).
func locatorSpecs(s *Scenario, t *topology) ([]csig.LocatorSpec, error) {
	if s.Locator != "file" {
		one, err := locatorSpec(s, t)
		return []csig.LocatorSpec{one}, err
	}
	if t.file == nil {
		return nil, errors.New("locator file: needs a fabric_file")
	}
	var list []csig.LocatorSpec
	for _, l := range t.file.CSIG.Locators {
		if l.Format == s.Layout.Format.String() && (l.Profile == "" || l.Profile == s.Layout.Profile.String()) {
			list = append(list, l)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("locator file: the fabric file has no locator of %s", s.Layout)
	}
	return list, nil
}

// locatorSpec is the layout of locator metadata (section 5.5.2): the port's number,
// its class (stage, orientation and capacity), or what the scenario defines.
func locatorSpec(s *Scenario, t *topology) (csig.LocatorSpec, error) {
	out := csig.LocatorSpec{Format: s.Layout.Format.String(), Profile: s.Layout.Profile.String()}
	switch s.Locator {
	case "port":
		bits := s.Layout.LMBits()
		if largest := t.largestID(); largest >= 1<<bits {
			return out, fmt.Errorf("locator port: %d ports do not fit the %d bits of %s: use locator class",
				len(t.ports), bits, s.Layout)
		}
		out.Fields = []csig.FieldSpec{{Field: "port_id", Bits: uint8(bits)}}
	case "class":
		return out, classFields(&out, s, t)
	case "custom":
		if len(s.Fields) == 0 {
			return out, fmt.Errorf("locator custom: no locator_fields")
		}
		out.Fields = s.Fields
	default:
		return out, fmt.Errorf("locator %q: expected port, class, custom or file", s.Locator)
	}
	return out, nil
}

// classFields takes stage and orientation in two bits each and capacity in three,
// or two where the layout has only six. No value is 0, since LM 0 is what hosts
// write.
func classFields(out *csig.LocatorSpec, s *Scenario, t *topology) error {
	bits := min(3, s.Layout.LMBits()-4)
	var speeds []Rate
	for i := range t.ports {
		if !slices.Contains(speeds, t.ports[i].speed) {
			speeds = append(speeds, t.ports[i].speed)
		}
	}
	slices.Sort(speeds)
	if len(speeds) >= 1<<bits {
		return fmt.Errorf("locator class: %d link speeds do not fit %d bits", len(speeds), bits)
	}
	capacity := make(map[uint16]string, len(speeds))
	for i, speed := range speeds {
		capacity[uint16(i+1)] = speed.String()
	}
	stages := map[uint16]string{}
	for i, stage := range t.stages() {
		stages[uint16(i+1)] = stage
	}
	if len(stages) > 3 {
		return fmt.Errorf("locator class: %d stages do not fit 2 bits", len(stages))
	}
	orientations := map[uint16]string{1: "up", 2: "down"}
	if slices.ContainsFunc(t.ports, func(p portInfo) bool { return p.orientation == "side" }) {
		orientations[3] = "side"
	}
	out.Fields = []csig.FieldSpec{
		{Field: "stage", Bits: 2, Values: stages},
		{Field: "orientation", Bits: 2, Values: orientations},
		{Field: "capacity", Bits: uint8(bits), Values: capacity},
	}
	return nil
}

// portMetadata is what each port is configured to write (section 5.5.1), by signal
// of the scenario and port.
func portMetadata(s *Scenario, t *topology, d *csig.Domain) ([][]uint16, error) {
	out := make([][]uint16, len(s.Signals))
	for i, signal := range s.Signals {
		locator := d.Locator(s.Layout, signal.Type())
		if locator == nil {
			return nil, fmt.Errorf("signal %s: has no locator", signal)
		}
		out[i] = make([]uint16, len(t.ports))
		for p := range t.ports {
			info := &t.ports[p]
			lm, err := locator.Encode(info.attributes())
			if err != nil {
				return nil, fmt.Errorf("port %s: %w", info.name(), err)
			}
			out[i][p] = lm
		}
	}
	for i := range s.LocatorValues {
		if err := s.LocatorValues[i].set(s, t, out); err != nil {
			return nil, fmt.Errorf("locator_values[%d]: %w", i, err)
		}
	}
	return out, nil
}

// LocatorValue configures the locator metadata of ports, for all signals or for some
// (section 5.5.1), in place of what the locator gives. The fabric file cannot say so:
// its readers take the number for what the locator means by it.
type LocatorValue struct {
	Match   string   `yaml:"match"` // as Behavior.Match
	Signals []string `yaml:"signals,omitempty,flow"`
	LM      uint16   `yaml:"lm"`
}

// set enters the value into the metadata of signals and ports.
func (v *LocatorValue) set(s *Scenario, t *topology, metadata [][]uint16) error {
	b := Behavior{Match: v.Match, Signals: v.Signals}
	if int(v.LM) >= 1<<s.Layout.LMBits() {
		return fmt.Errorf("lm %d: expected at most %d bits", v.LM, s.Layout.LMBits())
	}
	mask, err := b.mask(s)
	if err != nil {
		return err
	}
	ports := b.matches(t)
	if len(ports) == 0 {
		return fmt.Errorf("%q: matches no port", v.Match)
	}
	for i := range metadata {
		if mask>>i&1 == 0 {
			continue
		}
		for _, p := range ports {
			metadata[i][p] = v.LM
		}
	}
	return nil
}

// ttlBits is what the time to live adds to the locator metadata of a port, by the
// number of the switch on the path, if the locator has room for it (section 5.5.2): the
// packet's, as it leaves the switch.
func ttlBits(l *csig.Locator, of *portInfo) (bits [maxPath]uint16, err error) {
	a := of.attributes()
	zero, err := l.Encode(a)
	if err != nil {
		return bits, err
	}
	for hop := range bits {
		a.TTL = uint8(firstTTL - hop)
		lm, err := l.Encode(a)
		if err != nil {
			return bits, fmt.Errorf("ttl %d: %w", a.TTL, err)
		}
		bits[hop] = lm ^ zero
	}
	return bits, nil
}

// attributes are what locator metadata can say of a port.
func (p *portInfo) attributes() csig.Attributes {
	return csig.Attributes{
		Stage: p.stage, Orientation: p.orientation, Capacity: uint64(p.speed), Port: p.id, Device: p.deviceID,
	}
}

// hasField tells whether the scenario's own locator has a field.
func (s *Scenario) hasField(name string) bool {
	return s.Locator == "custom" && slices.ContainsFunc(s.Fields, func(f csig.FieldSpec) bool { return f.Field == name })
}
