package csig

import (
	"fmt"
	"strconv"
	"strings"
)

// Signal is what a tag measures, independent of profile and format. It is of one of
// three kinds, each in a range of numbers of its own, which are stored:
//
//	0 to 3      defined by the profile, the number is the type
//	16 + T      type T, neither defined by the profile nor by a table: it has no value
//	32 to 239   type T as a table defines it, see ConfiguredSignal
type Signal uint8

// The defined signals. Their numbers are those of the T field.
const (
	MinABW      Signal = 0 // minimum available bandwidth, bit/s (section 5.1)
	MinABWRatio Signal = 1 // minimum ABW divided by capacity, 0 to 1 (section 5.2)
	MaxDelay    Signal = 2 // maximum per-hop delay, ns (section 5.4)
	MaxNQD      Signal = 3 // maximum normalized queue depth, 0 to 1 (uec050 only)

	// NumKnown is the number of defined signals.
	NumKnown = 4
	// NumSignals bounds every Signal.
	NumSignals = 240

	unknownBase = 16
)

// SignalOf maps the T field of a tag to a Signal. ietf01 defines types 0 to 2,
// uec050 also 3; every other type is kept as an unknown one: what a table makes of
// it is Table.Signal.
func SignalOf(p Profile, t uint8) Signal {
	if t <= 2 || (t == 3 && p == UEC050) {
		return Signal(t)
	}
	return Signal(unknownBase + t&15)
}

// Type is the T field that carries the signal, 0 to 15.
func (s Signal) Type() uint8 { return uint8(s) & 15 }

// Known tells a signal that the profile defines from a type_N.
func (s Signal) Known() bool { return s < NumKnown }

// String is the name used in output: min_abw, min_abw_ratio, max_delay, max_nqd
// or type_N.
func (s Signal) String() string {
	switch s {
	case MinABW:
		return "min_abw"
	case MinABWRatio:
		return "min_abw_ratio"
	case MaxDelay:
		return "max_delay"
	case MaxNQD:
		return "max_nqd"
	}
	return "type_" + strconv.Itoa(int(s.Type()))
}

// ParseSignal reads a Signal's String or FullName. A type_N is the type without a
// table.
func ParseSignal(name string) (Signal, error) {
	for s := MinABW; s < NumKnown; s++ {
		if s.String() == name {
			return s, nil
		}
	}
	if rest, ok := strings.CutPrefix(name, "type_"); ok {
		n, meaning, full := strings.Cut(rest, ":")
		if t, err := strconv.ParseUint(n, 10, 4); err == nil {
			if !full {
				meaning = "unknown"
			}
			s, err := parseMeaning(uint8(t), meaning)
			if err != nil {
				return 0, fmt.Errorf("parse signal %q: %w", name, err)
			}
			return s, nil
		}
	}
	return 0, fmt.Errorf("parse signal %q: expected min_abw, min_abw_ratio, max_delay, max_nqd or type_0 to type_15", name)
}

// Unit is the physical unit of a signal. Stored values are integers, so that sums
// merge exactly.
type Unit uint8

// The units, and what is stored.
const (
	UnitNone     Unit = iota // of types without a table: no value
	BitPerSecond             // kbit/s
	Ratio                    // of 1, in parts per million
	Nanosecond               // ns
	Count                    // plain numbers, such as of hops
)

// ParseUnit reads a Unit's name: bit/s, ratio, ns or count.
func ParseUnit(name string) (Unit, error) {
	for u := BitPerSecond; u <= Count; u++ {
		if u.String() == name {
			return u, nil
		}
	}
	return UnitNone, fmt.Errorf("parse unit %q: expected bit/s, ratio, ns or count", name)
}

// Unit is the signal's unit: UnitNone for a type without a table, which has no value.
func (s Signal) Unit() Unit {
	switch s {
	case MinABW:
		return BitPerSecond
	case MinABWRatio, MaxNQD:
		return Ratio
	case MaxDelay:
		return Nanosecond
	}
	if s.Configured() {
		return s.configuredUnit()
	}
	return UnitNone
}

// Aggregation is how hops combine the signal. A type without a table is taken as a
// max signal, which only decides the order in which its locations are listed.
func (s Signal) Aggregation() Aggregation {
	switch {
	case s == MinABW || s == MinABWRatio:
		return AggregateMin
	case s.Configured():
		return Aggregation((s - configuredBase) / configuredAgg)
	}
	return AggregateMax
}

// Direction is the side on which the signal is tighter, that of its Aggregation.
func (s Signal) Direction() Direction { return s.Aggregation().Direction() }

// String is the unit as it is printed: "bit/s", "ratio", "ns", "count" or "".
func (u Unit) String() string {
	switch u {
	case BitPerSecond:
		return "bit/s"
	case Ratio:
		return "ratio"
	case Nanosecond:
		return "ns"
	case Count:
		return "count"
	}
	return ""
}

// PerStored is how many of the unit one stored integer is worth: 1000 bit/s per
// kbit/s, 0.000001 per part per million, 1 ns per nanosecond, 1 per count.
func (u Unit) PerStored() float64 {
	switch u {
	case BitPerSecond:
		return 1e3
	case Ratio:
		return 1e-6
	}
	return 1
}

// Max is the largest stored integer of a value: a ratio of 1, and 2^40 of the others, which
// is 1.1 Pbit/s, a delay of 18 minutes, or a count. Buckets of a table that lie beyond have it
// as their value, such as the last of 2^20 buckets of 1 ppm. 0 for UnitNone.
func (u Unit) Max() uint64 {
	switch u {
	case UnitNone:
		return 0
	case Ratio:
		return 1e6
	}
	return 1 << 40
}

// FromStored converts a stored integer to the unit.
func (u Unit) FromStored(v uint64) float64 { return u.FromStoredMean(float64(v)) }

// FromStoredMean converts a mean of stored integers to the unit.
func (u Unit) FromStoredMean(v float64) float64 {
	if u == Ratio {
		return v / 1e6
	}
	return v * u.PerStored()
}

// Aggregation is how the hops of a path combine a signal (section 5), and so what a
// value that arrives says:
//
//	        what arrives                 worse   heavy                  locator metadata
//	min     the lowest of the hops       lower   whole bucket at most   the hop with that value
//	max     the highest of the hops      higher  whole bucket at least  the hop with that value
//	sum     the total over the hops      higher  whole bucket at least  no bottleneck
//	count   how many hops met a          higher  whole bucket at least  no bottleneck
//	        condition; unit count
//
// Every hop adds to a sum or a count, so none of them is the bottleneck: whatever LM
// says is not read. Such values enter means, distributions and the share of heavy
// observations, and never the mode.
type Aggregation uint8

// The aggregations. The defined signals are min and max signals; sums and counts
// of hops are for types to come.
const (
	AggregateMin Aggregation = iota
	AggregateMax
	AggregateSum
	AggregateCount
	numAggregations
)

var aggregationNames = [numAggregations]string{"min", "max", "sum", "count"}

// String is the name used in configuration: "min", "max", "sum" or "count".
func (a Aggregation) String() string {
	if a < numAggregations {
		return aggregationNames[a]
	}
	return fmt.Sprintf("aggregation_%d", uint8(a))
}

// ParseAggregation reads an Aggregation's name: min, max, sum or count.
func ParseAggregation(name string) (Aggregation, error) {
	for a := range numAggregations {
		if a.String() == name {
			return a, nil
		}
	}
	return 0, fmt.Errorf("parse aggregation %q: expected min, max, sum or count", name)
}

// Direction is the tighter side of the aggregation: the more of a sum or a count,
// the worse the path.
func (a Aggregation) Direction() Direction {
	if a == AggregateMin {
		return Min
	}
	return Max
}

// Locates tells whether a value is that of one hop, which LM names.
func (a Aggregation) Locates() bool { return a == AggregateMin || a == AggregateMax }

// Direction tells which of two values is the tighter bottleneck.
type Direction uint8

// Min signals keep the lowest value on the path, max signals the highest.
const (
	Min Direction = iota
	Max
)

// Tighter reports whether code a is a strictly tighter bottleneck than code b,
// after quantization: the comparison by which a hop replaces a tag (sections
// 5.3.3 and 5.4.2).
func (d Direction) Tighter(a, b uint32) bool {
	if d == Min {
		return a < b
	}
	return a > b
}

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
