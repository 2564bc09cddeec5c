package emitter

import (
	"errors"
	"fmt"
	"slices"

	"github.com/csigscope/csigscope/decode/csig"
)

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
	case "file":
		if t.file == nil {
			return out, errors.New("locator file: needs a fabric_file")
		}
		for _, l := range t.file.CSIG.Locators {
			if l.Format == out.Format && (l.Profile == "" || l.Profile == out.Profile) {
				return l, nil
			}
		}
		return out, fmt.Errorf("locator file: the fabric file has no locator of %s", s.Layout)
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
		out[i] = make([]uint16, len(t.ports))
		for p := range t.ports {
			info := &t.ports[p]
			lm, err := locator.Encode(csig.Attributes{
				Stage: info.stage, Orientation: info.orientation, Capacity: uint64(info.speed),
				Port: info.id, Device: info.deviceID,
			})
			if err != nil {
				return nil, fmt.Errorf("port %s: %w", info.name(), err)
			}
			out[i][p] = lm
		}
	}
	return out, nil
}
