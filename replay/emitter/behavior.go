package emitter

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// Behavior makes ports differ from those of a device with complete native support.
// Where several apply to a port at a time, later ones take precedence over earlier
// ones that exclude them.
type Behavior struct {
	// Match is a pattern (path.Match) of devices "spine*", ports "leaf3:up*" or, for
	// the kind forge, hosts.
	Match string `yaml:"match"`
	// Peer, unless empty, is a pattern of the devices or hosts that ports must face.
	Peer string `yaml:"peer,omitempty"`
	Kind string `yaml:"kind"`
	// Signals it is about, by name; empty: all. Of limited, those that remain.
	Signals []string `yaml:"signals,omitempty,flow"`

	// Start and End of the time in which it holds; End 0: to the end of the run. A
	// change takes effect for what reaches the end of its link from then on.
	Start time.Duration `yaml:"start,omitempty"`
	End   time.Duration `yaml:"end,omitempty"`

	// Values are quantities by signal: {min_abw: 20Gbps, max_delay: 18us}.
	Values map[string]string `yaml:"values,omitempty,flow"`
	LM     *uint16           `yaml:"lm,omitempty"`    // of wrong-lm and forge
	Every  time.Duration     `yaml:"every,omitempty"` // of software: cadence, default 100 ms; of metering: interval
	ABW    Estimator         `yaml:"abw,omitempty"`   // of metering; default the scenario's
	OneIn  int               `yaml:"one_in,omitempty"`
	Shift  int               `yaml:"shift,omitempty"` // of misbucketed: codes by which the table is off
}

// Kinds of behaviour of devices: the levels of support of section 6.2 and the roles
// of draft-tian-ccwg-ibcs-datapath-processing-00, section 4.
const (
	// Complete takes back what behaviours before it said.
	Complete = "complete"
	// Software renews the values that it compares every so often: they are those of
	// the first packet of each period (section 6.4).
	Software = "software"
	// PassThrough forwards tags unchanged (section 6.2.2).
	PassThrough = "pass-through"
	// Limited supports the named signals and forwards the others unchanged (section
	// 6.2.3).
	Limited = "limited"
	// Strip removes tags before packets leave (section 6.1).
	Strip = "strip"
	// Discard drops tagged packets when they arrive (section 6.2.1).
	Discard = "discard"
	// IngressEdge resets tags that come from hosts to their initial value (IBCS,
	// section 4.1).
	IngressEdge = "ingress-edge"
	// EgressEdge removes tags on ports that face hosts or nothing (IBCS, section 4.3).
	EgressEdge = "egress-edge"
	// Metric gives ports metrics by configuration: they are true, but no traffic made
	// them.
	Metric = "metric"
	// Metering estimates available bandwidth in another way or over another interval
	// than the rest of the fabric, for all of the run: intervals need not be the same
	// (section 5.3.2). A faithful fabric would do the same.
	Metering = "metering"
)

// Kinds of faults.
const (
	// NoMetric lacks local metrics and fails open (IBCS, section 7.2).
	NoMetric = "no-metric"
	// Stuck compares with constant values instead of metrics.
	Stuck = "stuck"
	// Overwrite replaces value and LM of every tag, tighter or not, with its metric or
	// with a constant.
	Overwrite = "overwrite"
	// WrongLM writes another LM than configured, by default the complement.
	WrongLM = "wrong-lm"
	// LMOnly writes LM and leaves the value (against section 4.1.3).
	LMOnly = "lm-only"
	// ValueOnly writes the value and leaves LM (against section 4.1.3).
	ValueOnly = "value-only"
	// Insert adds tags to one in so many packets without (against section 4.4.2).
	Insert = "insert"
	// Reset sets tags back to their initial value (against IBCS, section 4.2).
	Reset = "reset"
	// IgnoreTrim updates tags whose D bit forbids it.
	IgnoreTrim = "ignore-trim"
	// Misbucketed quantizes by a table whose codes are off (against section 5.3.3).
	Misbucketed = "misbucketed"
	// TagHash takes the signal type into the hash that chooses among equal paths (against
	// IBCS, section 5.2), for all of the run: data of one flow goes several ways.
	TagHash = "tag-hash"
	// ReservedBits sets a reserved bit in every tag (against section 4.1).
	ReservedBits = "reserved-bits"
	// DoubleTag puts another tag before the one that a packet has: in front of it, a tag is
	// not the last one of L2 (against section 4.1). On links it takes no time.
	DoubleTag = "double-tag"
	// Forge makes hosts write values and LM into the tags that they send (section 9).
	Forge = "forge"
)

// action is a bit of what a port does.
type action uint32

const (
	actSoftware action = 1 << iota
	actStrip
	actDiscard
	actScrub
	actOverwrite
	actWrongLM
	actLMOnly
	actValueOnly
	actInsert
	actReset
	actIgnoreTrim
	actMisbucketed
	actReserved
	actDouble
	actForge
)

// deviceKinds and faultKinds are what the two lists of a scenario may hold, with the
// action where that is all they need.
var (
	deviceKinds = map[string]action{
		Complete: 0, Software: actSoftware, PassThrough: 0, Limited: 0, Strip: actStrip, Discard: actDiscard,
		IngressEdge: actScrub, EgressEdge: actStrip, Metric: 0, Metering: 0,
	}
	faultKinds = map[string]action{
		NoMetric: 0, Stuck: 0, Overwrite: actOverwrite, WrongLM: actWrongLM, LMOnly: actLMOnly, ValueOnly: actValueOnly,
		TagHash: 0, Insert: actInsert, Reset: actReset, IgnoreTrim: actIgnoreTrim, Misbucketed: actMisbucketed,
		ReservedBits: actReserved, DoubleTag: actDouble, Forge: actForge,
	}
)

// DeviceKinds lists the kinds of Scenario.Devices in alphabetical order.
func DeviceKinds() []string { return slices.Sorted(maps.Keys(deviceKinds)) }

// FaultKinds lists the kinds of Scenario.Faults in alphabetical order.
func FaultKinds() []string { return slices.Sorted(maps.Keys(faultKinds)) }

// watchful tells whether tags may say what those of a fabric of complete devices would
// not, or carry a D bit.
func (s *Scenario) watchful() bool {
	return s.freezes() || s.ReplaceInitial || len(s.Devices)+len(s.Faults) > 0
}

// freezes tells whether trimmed packets have a D bit.
func (s *Scenario) freezes() bool { return s.TrimBuffer > 0 && s.Layout.Profile == csig.UEC050 }

// behaviors are those of devices, then faults.
func (s *Scenario) behaviors() []Behavior { return slices.Concat(s.Devices, s.Faults) }

// hashesTags tells whether some device's hash sees tags.
func (s *Scenario) hashesTags() bool {
	return slices.ContainsFunc(s.Faults, func(b Behavior) bool { return b.Kind == TagHash })
}

// spoilHashes tells devices whose hash sees tags.
func (t *topology) spoilHashes(s *Scenario) {
	for i := range s.Faults {
		if s.Faults[i].Kind != TagHash {
			continue
		}
		for _, p := range s.Faults[i].matches(t) {
			t.devices[t.ports[p].owner].hashesTag = true
		}
	}
}

// maxBehaviors bounds the lists of a scenario, each entry of which is held against
// every port.
const maxBehaviors = 1024

// checkBehaviors checks what needs no topology.
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
		kinds map[string]action
	}{{"devices", s.Devices, deviceKinds}, {"faults", s.Faults, faultKinds}} {
		for i := range list.items {
			b := &list.items[i]
			if _, ok := list.kinds[b.Kind]; !ok {
				kinds := slices.Sorted(maps.Keys(list.kinds))
				return fmt.Errorf("%s[%d]: kind %q: expected one of %s", list.key, i, b.Kind, strings.Join(kinds, ", "))
			}
			if err := b.check(s); err != nil {
				return fmt.Errorf("%s[%d] (%s): %w", list.key, i, b.Kind, err)
			}
			if (b.Kind == Strip || b.Kind == EgressEdge || b.Kind == Insert) && s.hashesTags() {
				return fmt.Errorf("%s[%d] (%s): a packet whose tag comes or goes would change its way with it: take out the fault %s", list.key, i, b.Kind, TagHash)
			}
		}
	}
	return nil
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
	case b.Start < 0 || b.End < 0 || (b.End > 0 && b.End <= b.Start):
		return fmt.Errorf("start %s, end %s: expected an end after the start", b.Start, b.End)
	case b.Every < 0 || b.Every > time.Hour || (b.Every > 0 && b.Kind != Software && b.Kind != Metering):
		return fmt.Errorf("every %s: expected up to 1h, in software and metering", b.Every)
	case (b.Kind == Metering || b.Kind == TagHash) && (b.Start != 0 || b.End != 0):
		return fmt.Errorf("start %s, end %s: meters and hashes are the same for all of a run", b.Start, b.End)
	case b.Kind == Metering && b.Every != 0 && (b.Every < time.Microsecond || b.Every > time.Second):
		return fmt.Errorf("every %s: expected intervals of 1us to 1s", b.Every)
	case (b.ABW != "") && (b.Kind != Metering || b.ABW.check() != nil):
		return fmt.Errorf("abw %q: expected raw, ewma or dre, in metering", b.ABW)
	case b.OneIn < 0 || (b.OneIn > 0 && b.Kind != Insert):
		return fmt.Errorf("one_in %d: expected 1 or more, in insert", b.OneIn)
	case (b.Shift != 0) != (b.Kind == Misbucketed) || b.Shift < -1<<20 || b.Shift > 1<<20:
		return fmt.Errorf("shift %d: expected a number of codes other than 0, in misbucketed only", b.Shift)
	case b.LM != nil && (b.Kind != WrongLM && b.Kind != Forge || int(*b.LM) >= 1<<s.Layout.LMBits()):
		return fmt.Errorf("lm %d: expected at most %d bits, in wrong-lm and forge", *b.LM, s.Layout.LMBits())
	case b.Kind == Limited && len(b.Signals) == 0:
		return fmt.Errorf("signals: limited to which?")
	}
	if _, err := b.mask(s); err != nil {
		return err
	}
	return b.checkValues(s)
}

func (b *Behavior) checkValues(s *Scenario) error {
	needs := b.Kind == Metric || b.Kind == Stuck || b.Kind == Forge
	switch {
	case needs && len(b.Values) == 0:
		return fmt.Errorf("values: expected quantities by signal, such as {min_abw: 20Gbps}")
	case !needs && b.Kind != Overwrite && len(b.Values) > 0:
		return fmt.Errorf("values: have no effect here")
	}
	for name, text := range b.Values {
		if _, _, err := b.value(s, name, text); err != nil {
			return fmt.Errorf("values: %w", err)
		}
	}
	return nil
}

// value reads one of the values: index in Scenario.Signals and stored unit.
func (b *Behavior) value(s *Scenario, name, text string) (index int, v uint64, err error) {
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

// mask has a bit for each of the scenario's signals that the behaviour is about.
func (b *Behavior) mask(s *Scenario) (mask uint16, err error) {
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

// matches lists the ports that the behaviour selects, of switches or, for forge, the
// interfaces of hosts.
func (b *Behavior) matches(t *topology) []int32 {
	fits := func(pattern, name string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	}
	var list []int32
	if b.Kind == Forge {
		for i, facing := range t.nics {
			if fits(b.Match, t.ports[facing].peer) {
				list = append(list, int32(len(t.ports)+i))
			}
		}
		return list
	}
	for i := range t.ports {
		p := &t.ports[i]
		switch {
		case !fits(b.Match, p.device) && !fits(b.Match, p.name()):
		case b.Peer != "" && !fits(b.Peer, p.peer):
		case b.Kind == EgressEdge && p.peerNode != none:
		default:
			list = append(list, int32(i))
		}
	}
	return list
}
