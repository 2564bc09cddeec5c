package csig

import (
	"fmt"
	"strconv"
	"strings"
)

// Signal is the quantity that a tag measures, independent of profile and format. The numbers are
// stored, in one range for each of three kinds:
//
//	0 to 3      defined by the profile, the number is the type
//	16 + T      type T, neither defined by the profile nor by a table: it has no value
//	32 to 239   type T as a table defines it, see ConfiguredSignal
type Signal uint8

// The defined signals. Each number is the value of the T field.
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

// SignalOf maps the T field of a tag to a Signal. ietf01 defines types 0 to 2, uec050 also 3. Every
// other type is an unknown signal here, even where a table defines it: see Table.Signal.
func SignalOf(p Profile, t uint8) Signal {
	if t <= 2 || (t == 3 && p == UEC050) {
		return Signal(t)
	}
	return Signal(unknownBase + t&15)
}

// Type returns the T field that carries the signal, 0 to 15.
func (s Signal) Type() uint8 { return uint8(s) & 15 }

// Known reports whether the profile defines the signal; it does not define a type_N.
func (s Signal) Known() bool { return s < NumKnown }

// String returns the name used in output: min_abw, min_abw_ratio, max_delay, max_nqd or type_N.
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

// ParseSignal reads a Signal's String or FullName. A plain type_N is the type without a table.
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

// The units, each with its stored integer.
const (
	UnitNone     Unit = iota // for types without a table: no value
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

// Unit returns the signal's unit: UnitNone for a type without a table, which has no value.
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

// Aggregation returns how hops combine the signal. A type without a table counts as a max signal;
// this affects only the order in which its locations are listed.
func (s Signal) Aggregation() Aggregation {
	switch {
	case s == MinABW || s == MinABWRatio:
		return AggregateMin
	case s.Configured():
		return Aggregation((s - configuredBase) / configuredAgg)
	}
	return AggregateMax
}

// Direction returns the side on which the signal is tighter.
func (s Signal) Direction() Direction { return s.Aggregation().Direction() }

// String returns the unit as printed: "bit/s", "ratio", "ns", "count" or "".
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

// PerStored returns the value of one stored integer in the unit: 1000 bit/s per kbit/s, 0.000001
// per part per million, 1 ns per nanosecond, 1 per count.
func (u Unit) PerStored() float64 {
	switch u {
	case BitPerSecond:
		return 1e3
	case Ratio:
		return 1e-6
	}
	return 1
}

// Max returns the largest stored integer of a value: a ratio of 1, and 2^40 for the other units,
// which is 1.1 Pbit/s, a delay of 18 minutes, or a count. It is also the value of table buckets
// beyond it, such as the last of 2^20 buckets of 1 ppm. 0 for UnitNone.
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

// Aggregation is how the hops of a path combine a signal (section 5). It decides the meaning of the
// received value:
//
//	        what arrives                 worse   heavy                  locator metadata
//	min     the lowest of the hops       lower   whole bucket at most   the hop with that value
//	max     the highest of the hops      higher  whole bucket at least  the hop with that value
//	sum     the total over the hops      higher  whole bucket at least  no bottleneck
//	count   how many hops met a          higher  whole bucket at least  no bottleneck
//	        condition; unit count
//
// Every hop adds to a sum or a count, so no hop is the bottleneck and LM is not read. Such values
// enter means, distributions and the share of heavy observations, and never the mode.
type Aggregation uint8

// The aggregations. The defined signals are min and max signals; sums and counts of hops are for
// future types.
const (
	AggregateMin Aggregation = iota
	AggregateMax
	AggregateSum
	AggregateCount
	numAggregations
)

var aggregationNames = [numAggregations]string{"min", "max", "sum", "count"}

// String returns the name used in configuration: "min", "max", "sum" or "count".
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

// Direction returns the tighter side of the aggregation. A higher sum or count is a worse path.
func (a Aggregation) Direction() Direction {
	if a == AggregateMin {
		return Min
	}
	return Max
}

// Locates reports whether one hop set the value, the hop that LM names.
func (a Aggregation) Locates() bool { return a == AggregateMin || a == AggregateMax }

// Direction says which of two values is the tighter bottleneck.
type Direction uint8

// Min signals keep the lowest value on the path, max signals the highest.
const (
	Min Direction = iota
	Max
)

// Tighter reports whether code a is a strictly tighter bottleneck than code b. By this comparison,
// after quantization, a hop replaces a tag (sections 5.3.3 and 5.4.2).
func (d Direction) Tighter(a, b uint32) bool {
	if d == Min {
		return a < b
	}
	return a > b
}

// Numbers of configured signals follow those of types without a table, by aggregation, unit and
// type: 32 + 64*aggregation + 16*unit + T. Units are ordered by their numbers modulo 4: count,
// bit/s, ratio, ns. AggregateCount allows only the unit count, so type 15 with both
// has the last number.
const (
	configuredBase = 32
	configuredUnit = 16
	configuredAgg  = 4 * configuredUnit
)

// ConfiguredSignal returns the signal of type t under a table that gives it a unit and an
// aggregation. Its number holds all three, so values of one type with two meanings, in two layouts
// or before and after a change of the configuration, are two signals and never add up. u must not
// be UnitNone, t must be below 16, and AggregateCount requires Count.
func ConfiguredSignal(t uint8, u Unit, a Aggregation) Signal {
	return configuredBase + Signal(a)*configuredAgg + Signal(u&3)*configuredUnit + Signal(t&15)
}

// Configured reports whether a table, and not the profile, defines the signal.
func (s Signal) Configured() bool { return s >= configuredBase && s < NumSignals }

// HasValue reports whether observations of the signal can have a value: the profile or a table
// defines it.
func (s Signal) HasValue() bool { return s.Known() || s.Configured() }

func (s Signal) configuredUnit() Unit {
	if u := Unit((s - configuredBase) / configuredUnit & 3); u != UnitNone {
		return u
	}
	return Count
}

// FullName returns a name that no other signal has: String for a defined signal, and for a type_N
// its String with its meaning, "type_5:max:ns" with a table and "type_5:unknown" without one.
func (s Signal) FullName() string {
	switch {
	case s.Known():
		return s.String()
	case s.Configured():
		return s.String() + ":" + s.Aggregation().String() + ":" + s.Unit().String()
	}
	return s.String() + ":unknown"
}

// SignalNames returns names by which FindSignal finds each of the signals among all of them. They
// are short, except for a type_N with several meanings.
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

// parseMeaning reads the part of a FullName after type_N.
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

// FindSignal returns the signal that a user means by a name, among the given ones, such as all
// stored signals. A plain type_N means the one signal of type N that has a table. Several such
// signals are an error, which names them; without one, FindSignal returns the result of
// ParseSignal.
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
