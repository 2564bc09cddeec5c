package scenario

import (
	"errors"
	"fmt"
	"slices"

	"github.com/csigscope/csigscope/decode/csig"
)

// locatorSpecs returns the layouts of locator metadata: one for all signals, or those of the fabric
// file, which may have one per signal (section 5.5.1).
func locatorSpecs(s *Scenario, t *Topology) ([]csig.LocatorSpec, error) {
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

// locatorSpec returns the layout of locator metadata (section 5.5.2): the port's number, its class
// (stage, orientation and capacity), or the scenario's own fields.
func locatorSpec(s *Scenario, t *Topology) (csig.LocatorSpec, error) {
	out := csig.LocatorSpec{Format: s.Layout.Format.String(), Profile: s.Layout.Profile.String()}
	switch s.Locator {
	case "port":
		bits := s.Layout.LMBits()
		if largest := t.largestID(); largest >= 1<<bits {
			return out, fmt.Errorf("locator port: %d ports do not fit the %d bits of %s: use locator class",
				len(t.Ports), bits, s.Layout)
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

// classFields encodes stage and orientation in two bits each and capacity in three, or in two if
// the layout has only six. No value is 0, since hosts write LM 0.
func classFields(out *csig.LocatorSpec, s *Scenario, t *Topology) error {
	bits := min(3, s.Layout.LMBits()-4)
	var speeds []Rate
	for i := range t.Ports {
		if !slices.Contains(speeds, t.Ports[i].Speed) {
			speeds = append(speeds, t.Ports[i].Speed)
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
	if slices.ContainsFunc(t.Ports, func(p Port) bool { return p.orientation == "side" }) {
		orientations[3] = "side"
	}
	out.Fields = []csig.FieldSpec{
		{Field: "stage", Bits: 2, Values: stages},
		{Field: "orientation", Bits: 2, Values: orientations},
		{Field: "capacity", Bits: uint8(bits), Values: capacity},
	}
	return nil
}

// portMetadata returns each port's configured locator metadata (section 5.5.1), by signal of the
// scenario and port.
func portMetadata(s *Scenario, t *Topology, d *csig.Domain) ([][]uint16, error) {
	out := make([][]uint16, len(s.Signals))
	for i, signal := range s.Signals {
		locator := d.Locator(s.Layout, signal.Type())
		if locator == nil {
			return nil, fmt.Errorf("signal %s: has no locator", signal)
		}
		out[i] = make([]uint16, len(t.Ports))
		for p := range t.Ports {
			info := &t.Ports[p]
			lm, err := locator.Encode(info.attributes())
			if err != nil {
				return nil, fmt.Errorf("port %s: %w", info.Name(), err)
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

// ttlBits returns the bits that the packet's time to live adds to a port's locator metadata, by the
// switch's number on the path, if the locator has a ttl field (section 5.5.2). It is the TTL of the
// packet as it leaves the switch.
func ttlBits(l *csig.Locator, of *Port) (bits [maxPath]uint16, err error) {
	a := of.attributes()
	zero, err := l.Encode(a)
	if err != nil {
		return bits, err
	}
	for hop := range bits {
		a.TTL = uint8(FirstTTL - hop)
		lm, err := l.Encode(a)
		if err != nil {
			return bits, fmt.Errorf("ttl %d: %w", a.TTL, err)
		}
		bits[hop] = lm ^ zero
	}
	return bits, nil
}

// attributes returns the port's properties that locator metadata can encode.
func (p *Port) attributes() csig.Attributes {
	return csig.Attributes{
		Stage: p.Stage, Orientation: p.orientation, Capacity: uint64(p.Speed), Port: p.ID, Device: p.DeviceID,
	}
}

// hasField reports whether the scenario's own locator has a field.
func (s *Scenario) hasField(name string) bool {
	return s.Locator == "custom" && slices.ContainsFunc(s.Fields, func(f csig.FieldSpec) bool { return f.Field == name })
}

// FirstTTL is the time to live of packets that leave their host.
const FirstTTL = 64

// Signal is the configuration of senders and switches for one signal.
type Signal struct {
	Kind      csig.Signal
	Table     *csig.Table
	Direction csig.Direction
	Initial   uint32             // code of the table's initial value
	Metadata  []uint16           // by port
	TTL       [maxPath]uint16    // bits to add, by the number of the switch on the path
	LmMask    uint16             // bits of locator metadata without those of TTL
	Heavy     []CodeRange        // by port
	byLM      map[uint16]lmPorts // watchful runs only
	anywhere  CodeRange          // heavy codes at a location of unknown capacity
}

// SeveralPorts is the port of an LM with which no port, or several, are configured.
const SeveralPorts = -1

// lmPorts describes the ports that are configured with an LM.
type lmPorts struct {
	port  int32 // or SeveralPorts
	heavy CodeRange
}

// index maps each LM to its ports. If these have different heavy codes, it takes those of an unknown
// capacity.
func (s *Signal) index() {
	low, high, ok := s.Table.HeavyCodes(0)
	s.anywhere = CodeRange{low, high, ok}
	s.byLM = make(map[uint16]lmPorts, len(s.Metadata))
	for p, lm := range s.Metadata {
		lm &= s.LmMask
		n := lmPorts{int32(p), s.Heavy[p]}
		if other, taken := s.byLM[lm]; taken {
			n.port = SeveralPorts
			if n.heavy != other.heavy {
				n.heavy = s.anywhere
			}
		}
		s.byLM[lm] = n
	}
}

// Named returns the port that an LM names, or SeveralPorts, and the heavy codes there.
func (s *Signal) Named(lm uint16) (port int32, heavy CodeRange) {
	if n, ok := s.byLM[lm&s.LmMask]; ok {
		return n.port, n.heavy
	}
	return SeveralPorts, s.anywhere
}

// CodeRange is an inclusive range of codes, empty unless some is set.
type CodeRange struct {
	low, high uint32
	some      bool
}

// Has reports whether the code is in the range.
func (c CodeRange) Has(code uint32) bool { return c.some && code >= c.low && code <= c.high }

// NewSignals configures the scenario's signals. d must be the scenario's domain.
func NewSignals(s *Scenario, t *Topology, d *csig.Domain) ([]Signal, error) {
	metadata, err := portMetadata(s, t, d)
	if err != nil {
		return nil, err
	}
	out := make([]Signal, len(s.Signals))
	for i, kind := range s.Signals {
		table := d.Table(s.Layout, kind.Type())
		if table == nil {
			return nil, fmt.Errorf("signal %s: has no table in %s", kind, s.Layout)
		}
		out[i] = Signal{
			Kind: kind, Table: table, Direction: kind.Direction(),
			Initial: table.Code(table.Initial()), Metadata: metadata[i], Heavy: make([]CodeRange, len(t.Ports)),
		}
		if out[i].TTL, err = ttlBits(d.Locator(s.Layout, kind.Type()), &t.Ports[0]); err != nil {
			return nil, fmt.Errorf("signal %s: locator: %w", kind, err)
		}
		out[i].LmMask = ^uint16(0)
		for _, bits := range out[i].TTL {
			out[i].LmMask &^= bits
		}
		for p := range t.Ports {
			low, high, ok := table.HeavyCodes(uint64(t.Ports[p].Speed))
			out[i].Heavy[p] = CodeRange{low, high, ok}
		}
		if s.Watchful() {
			out[i].index()
		}
	}
	return out, nil
}
