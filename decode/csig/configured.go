package csig

import (
	"fmt"
	"strings"
)

// Configured signals are numbered behind the types without a table, by aggregation,
// unit and type: 32 + 64*aggregation + 16*unit + T. The units are in the order of
// their numbers modulo 4: count, bit/s, ratio, ns. A count has no other unit than
// count, so that the last number is that of type 15 of those.
const (
	configuredBase = 32
	configuredUnit = 16
	configuredAgg  = 4 * configuredUnit
)

// ConfiguredSignal is the signal of type t under a table that gives it a unit and an
// aggregation. Its number holds all three: values of one type under two meanings, of
// two layouts or before and after a change of the configuration, are two signals and
// never add up. u is not UnitNone, t is below 16, and AggregateCount goes with Count.
func ConfiguredSignal(t uint8, u Unit, a Aggregation) Signal {
	return configuredBase + Signal(a)*configuredAgg + Signal(u&3)*configuredUnit + Signal(t&15)
}

// Configured tells whether the signal is a type that the profile does not define and
// a table does.
func (s Signal) Configured() bool { return s >= configuredBase && s < NumSignals }

// HasValue tells whether observations of the signal can have a value: whether it is
// defined by the profile or by a table.
func (s Signal) HasValue() bool { return s.Known() || s.Configured() }

func (s Signal) configuredUnit() Unit {
	if u := Unit((s - configuredBase) / configuredUnit & 3); u != UnitNone {
		return u
	}
	return Count
}

// FullName is the name that no other signal has: that of String, and for types that
// the profile does not define also what is known of them, "type_5:max:ns" with a
// table and "type_5:unknown" without one.
func (s Signal) FullName() string {
	switch {
	case s.Known():
		return s.String()
	case s.Configured():
		return s.String() + ":" + s.Aggregation().String() + ":" + s.Unit().String()
	}
	return s.String() + ":unknown"
}

// SignalNames are names by which FindSignal finds each of the signals among all of
// them: short ones, but for a type_N with several meanings.
func SignalNames(signals []Signal) []string {
	shared := make(map[string]int, len(signals))
	for _, s := range signals {
		shared[s.String()]++
	}
	names := make([]string, len(signals))
	for i, s := range signals {
		names[i] = s.String()
		if shared[names[i]] > 1 {
			names[i] = s.FullName()
		}
	}
	return names
}

// parseMeaning reads what follows a type_N in its FullName.
func parseMeaning(t uint8, meaning string) (Signal, error) {
	if meaning == "unknown" {
		return unknownBase + Signal(t), nil
	}
	aggName, unitName, _ := strings.Cut(meaning, ":")
	agg, err := ParseAggregation(aggName)
	if err != nil {
		return 0, err
	}
	unit, err := ParseUnit(unitName)
	if err != nil {
		return 0, err
	}
	return ConfiguredSignal(t, unit, agg), checkMeaning(unit, agg)
}

func checkMeaning(u Unit, a Aggregation) error {
	if a == AggregateCount && u != Count {
		return fmt.Errorf("aggregation count: counts hops, its unit is count and not %s", u)
	}
	return nil
}

// FindSignal is the signal among those given, such as all that are stored, that a
// user means by a name. A type_N without more is the one signal of type N that has a
// table there; if several have, it is an error that names them. Where there is none,
// the name alone decides, as in ParseSignal.
func FindSignal(name string, among []Signal) (Signal, error) {
	parsed, err := ParseSignal(name)
	if err != nil || parsed.HasValue() || strings.Contains(name, ":") {
		return parsed, err
	}
	var found []Signal
	var names []string
	for _, s := range among {
		if s.Configured() && s.Type() == parsed.Type() {
			found, names = append(found, s), append(names, s.FullName())
		}
	}
	switch len(found) {
	case 0:
		return parsed, nil
	case 1:
		return found[0], nil
	}
	return 0, fmt.Errorf("find signal %q: has several meanings: name one of %s", name, strings.Join(names, ", "))
}
