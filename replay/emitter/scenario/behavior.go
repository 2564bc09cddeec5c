package scenario

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/exact"
)

// Behavior makes ports differ from those of a device with complete native support. If several apply
// to a port at a time, a later one overrides earlier ones that exclude it.
type Behavior struct {
	// Match is a path.Match pattern of devices "spine*", ports "leaf3:up*" or, for the kind forge,
	// hosts.
	Match string `yaml:"match"`
	// Peer, if set, is a pattern of the devices or hosts that the ports must face.
	Peer string `yaml:"peer,omitempty"`
	Kind string `yaml:"kind"`
	// Signals lists the affected signals by name; empty: all. For limited, the supported ones.
	Signals []string `yaml:"signals,omitempty,flow"`

	// Start and End bound the time in which it holds; End 0: the end of the run. A change applies
	// to packets that reach the end of their link after it.
	Start time.Duration `yaml:"start,omitempty"`
	End   time.Duration `yaml:"end,omitempty"`

	// Values maps signals to quantities: {min_abw: 20Gbps, max_delay: 18us}.
	Values map[string]string `yaml:"values,omitempty,flow"`
	LM     *uint16           `yaml:"lm,omitempty"`    // wrong-lm and forge
	Every  time.Duration     `yaml:"every,omitempty"` // software: cadence, default 100 ms; abw-estimator: interval
	ABW    Estimator         `yaml:"abw,omitempty"`   // abw-estimator; default the scenario's
	OneIn  int               `yaml:"one_in,omitempty"`
	Shift  int               `yaml:"shift,omitempty"` // misbucketed: codes by which the table is off
}

// Kinds of device behavior: the support levels of section 6.2 and the roles of
// draft-tian-ccwg-ibcs-datapath-processing-00 (IBCS), section 4. DeviceKinds describes them.
const (
	Complete     = "complete"
	Software     = "software"
	PassThrough  = "pass-through"
	Limited      = "limited"
	Strip        = "strip"
	Discard      = "discard"
	IngressEdge  = "ingress-edge"
	EgressEdge   = "egress-edge"
	FixedMetric  = "fixed-metric"
	ABWEstimator = "abw-estimator"
)

// Kinds of faults. FaultKinds describes them.
const (
	MissingMetric = "missing-metric"
	Stuck         = "stuck"
	Overwrite     = "overwrite"
	WrongLM       = "wrong-lm"
	LMOnly        = "lm-only"
	ValueOnly     = "value-only"
	Insert        = "insert"
	Reset         = "reset"
	IgnoreTrim    = "ignore-trim"
	Misbucketed   = "misbucketed"
	TagHash       = "tag-hash"
	ReservedBits  = "reserved-bits"
	Retype        = "retype"
	SetTrim       = "set-trim"
	DoubleTag     = "double-tag"
	Forge         = "forge"
)

// Watchful reports whether tags may differ from those of a fabric of complete devices, or carry a D
// bit.
func (s *Scenario) Watchful() bool {
	return s.Freezes() || s.ReplaceInitial || len(s.Devices)+len(s.Faults) > 0
}

// Freezes reports whether trimmed packets have a D bit.
func (s *Scenario) Freezes() bool { return s.TrimBuffer > 0 && s.Layout.Profile == csig.UEC050 }

// Behaviors returns the behaviors of devices, then the faults.
func (s *Scenario) Behaviors() []Behavior { return slices.Concat(s.Devices, s.Faults) }

// HashesTags reports whether any device includes tags in its hash.
func (s *Scenario) HashesTags() bool {
	return slices.ContainsFunc(s.Faults, func(b Behavior) bool { return b.Kind == TagHash })
}

// SpoilHashes marks the devices whose hash includes tags.
func (t *Topology) SpoilHashes(s *Scenario) {
	for i := range s.Faults {
		if s.Faults[i].Kind != TagHash {
			continue
		}
		for _, p := range s.Faults[i].Matches(t) {
			t.devices[t.Ports[p].owner].hashesTag = true
		}
	}
}

// maxBehaviors bounds the lists of a scenario, since each entry is compared with every port.
const maxBehaviors = 1024

// checkBehaviors makes the checks that need no topology.
func (s *Scenario) checkBehaviors() error {
	if n := len(s.Devices) + len(s.Faults); n > maxBehaviors {
		return fmt.Errorf("devices and faults: %d entries: expected at most %d", n, maxBehaviors)
	}
	if n := len(s.LocatorValues); n > maxBehaviors {
		return fmt.Errorf("locator_values: %d entries: expected at most %d", n, maxBehaviors)
	}
	for _, list := range []struct {
		key   string
		items []Behavior
	}{{"devices", s.Devices}, {"faults", s.Faults}} {
		for i := range list.items {
			b := &list.items[i]
			if kinds := fileNames(list.key); !slices.Contains(kinds, b.Kind) {
				return fmt.Errorf("%s[%d]: kind %q: expected one of %s", list.key, i, b.Kind, strings.Join(kinds, ", "))
			}
			if err := b.check(s); err != nil {
				return fmt.Errorf("%s[%d] (%s): %w", list.key, i, b.Kind, err)
			}
			if (b.Kind == Strip || b.Kind == EgressEdge || b.Kind == Insert) && s.HashesTags() {
				return fmt.Errorf("%s[%d] (%s): it adds or removes tags, by which %s chooses paths: take out one of them", list.key, i, b.Kind, TagHash)
			}
		}
	}
	return nil
}

// checkMatches refuses behaviors, locator values and counters that match no port.
func (s *Scenario) checkMatches(t *Topology) error {
	for _, list := range []struct {
		key   string
		items []Behavior
	}{{"devices", s.Devices}, {"faults", s.Faults}} {
		for i := range list.items {
			if b := &list.items[i]; len(b.Matches(t)) == 0 {
				return fmt.Errorf("%s[%d] (%s): %q matches no port", list.key, i, b.Kind, b.Match)
			}
		}
	}
	for i := range s.LocatorValues {
		if v := (Behavior{Match: s.LocatorValues[i].Match}); len(v.Matches(t)) == 0 {
			return fmt.Errorf("locator_values[%d]: %q matches no port", i, v.Match)
		}
	}
	counted := func(p Port) bool { return s.Counted(&p) }
	if len(s.Counters) > 0 && !slices.ContainsFunc(t.Ports, counted) {
		return fmt.Errorf("counters %q: match no port", s.Counters)
	}
	return nil
}

// Counted reports whether the metrics of a port go to CountersFile.
func (s *Scenario) Counted(p *Port) bool {
	return Matches(s.Counters, p.Device) || Matches(s.Counters, p.Name())
}

func (b *Behavior) check(s *Scenario) error {
	for _, pattern := range []string{b.Match, b.Peer} {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	switch {
	case b.Match == "":
		return fmt.Errorf("match: is missing: name devices or ports, such as spine* or leaf3:up1")
	case b.Start < 0 || b.Start > maxRun || b.End < 0 || b.End > maxRun || (b.End > 0 && b.End <= b.Start):
		return fmt.Errorf("start %s, end %s: expected an end after the start, both of at most %s", b.Start, b.End, maxRun)
	case b.Every < 0 || b.Every > time.Hour || (b.Every > 0 && b.Kind != Software && b.Kind != ABWEstimator):
		return fmt.Errorf("every %s: expected up to 1h, in software and abw-estimator", b.Every)
	case (b.Kind == ABWEstimator || b.Kind == TagHash) && (b.Start != 0 || b.End != 0):
		return fmt.Errorf("start %s, end %s: meters and hashes are the same for all of a run", b.Start, b.End)
	case b.Kind == ABWEstimator && b.Every != 0 && (b.Every < time.Microsecond || b.Every > time.Second):
		return fmt.Errorf("every %s: expected intervals of 1us to 1s", b.Every)
	case (b.ABW != "") && (b.Kind != ABWEstimator || b.ABW.check() != nil):
		return fmt.Errorf("abw %q: expected raw, ewma or dre, in abw-estimator", b.ABW)
	case b.OneIn < 0 || (b.OneIn > 0 && b.Kind != Insert):
		return fmt.Errorf("one_in %d: expected 1 or more, in insert", b.OneIn)
	case (b.Shift != 0) != (b.Kind == Misbucketed) || b.Shift < -1<<20 || b.Shift > 1<<20:
		return fmt.Errorf("shift %d: expected a number of codes other than 0, in misbucketed only", b.Shift)
	case b.LM != nil && (b.Kind != WrongLM && b.Kind != Forge || int(*b.LM) >= 1<<s.Layout.LMBits()):
		return fmt.Errorf("lm %d: expected at most %d bits, in wrong-lm and forge", *b.LM, s.Layout.LMBits())
	case b.Kind == SetTrim && s.Layout.Profile != csig.UEC050:
		return fmt.Errorf("tags of %s have no D bit: expected the profile uec050", s.Layout)
	case b.Kind == Limited && len(b.Signals) == 0:
		return fmt.Errorf("signals: is missing: name the signals that limited supports")
	}
	if _, err := b.Mask(s); err != nil {
		return err
	}
	return b.checkValues(s)
}

func (b *Behavior) checkValues(s *Scenario) error {
	needs := b.Kind == FixedMetric || b.Kind == Stuck || b.Kind == Forge
	switch {
	case needs && len(b.Values) == 0:
		return fmt.Errorf("values: expected quantities by signal, such as {min_abw: 20Gbps}")
	case !needs && b.Kind != Overwrite && len(b.Values) > 0:
		return fmt.Errorf("values: have no effect here")
	}
	for name, text := range b.Values {
		if _, _, err := b.Value(s, name, text); err != nil {
			return fmt.Errorf("values: %w", err)
		}
	}
	return nil
}

// Value parses one of the values and returns its signal's index in Scenario.Signals and the value
// in the stored unit.
func (b *Behavior) Value(s *Scenario, name, text string) (index int, v uint64, err error) {
	signal, err := csig.ParseSignal(name)
	if err != nil {
		return 0, 0, err
	}
	if index = slices.Index(s.Signals, signal); index < 0 {
		return 0, 0, fmt.Errorf("%s: is none of the scenario's signals", name)
	}
	v, err = csig.ParseQuantity(signal.Unit(), text)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", name, err)
	}
	return index, v, nil
}

// Mask returns one bit for each of the scenario's signals that the behavior affects.
func (b *Behavior) Mask(s *Scenario) (mask uint16, err error) {
	if len(b.Signals) == 0 {
		return 1<<len(s.Signals) - 1, nil
	}
	for _, name := range b.Signals {
		signal, err := csig.ParseSignal(name)
		if err != nil {
			return 0, fmt.Errorf("signals: %w", err)
		}
		i := slices.Index(s.Signals, signal)
		if i < 0 {
			return 0, fmt.Errorf("signals: %s is none of the scenario's", name)
		}
		mask |= 1 << i
	}
	return mask, nil
}

// Matches lists the selected ports: of switches or, for forge, the interfaces of hosts.
func (b *Behavior) Matches(t *Topology) []int32 {
	fits := func(pattern, name string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	}
	var list []int32
	if b.Kind == Forge {
		for i, facing := range t.NICs {
			if fits(b.Match, t.Ports[facing].Peer) {
				list = append(list, int32(len(t.Ports)+i))
			}
		}
		return list
	}
	for i := range t.Ports {
		p := &t.Ports[i]
		switch {
		case !fits(b.Match, p.Device) && !fits(b.Match, p.Name()):
		case b.Peer != "" && !fits(b.Peer, p.Peer):
		case b.Kind == EgressEdge && p.PeerNode != None:
		default:
			list = append(list, int32(i))
		}
	}
	return list
}

// Holds reports whether the behavior is in effect at a time.
func (b *Behavior) Holds(now int64) bool {
	return now >= exact.Picoseconds(b.Start) && (b.End == 0 || now < exact.Picoseconds(b.End))
}

// LocatorValue overrides the locator metadata of ports, for all signals or some (section 5.5.1).
// The fabric file cannot express it: its readers interpret the number by the locator.
type LocatorValue struct {
	Match   string   `yaml:"match"` // like Behavior.Match
	Signals []string `yaml:"signals,omitempty,flow"`
	LM      uint16   `yaml:"lm"`
}

// set writes the value into the metadata of its signals and ports.
func (v *LocatorValue) set(s *Scenario, t *Topology, metadata [][]uint16) error {
	b := Behavior{Match: v.Match, Signals: v.Signals}
	if int(v.LM) >= 1<<s.Layout.LMBits() {
		return fmt.Errorf("lm %d: expected at most %d bits", v.LM, s.Layout.LMBits())
	}
	mask, err := b.Mask(s)
	if err != nil {
		return err
	}
	ports := b.Matches(t)
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
