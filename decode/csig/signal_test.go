package csig_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

// configured returns all signals that tables can define.
func configured() (list []csig.Signal) {
	for t := range uint8(16) {
		for _, agg := range []csig.Aggregation{csig.AggregateMin, csig.AggregateMax, csig.AggregateSum} {
			for u := csig.BitPerSecond; u <= csig.Count; u++ {
				list = append(list, csig.ConfiguredSignal(t, u, agg))
			}
		}
		list = append(list, csig.ConfiguredSignal(t, csig.Count, csig.AggregateCount))
	}
	return list
}

// Signal numbers are stored: each meaning of each type has its own.
func TestConfiguredSignals(t *testing.T) {
	t.Parallel()
	seen := map[csig.Signal]bool{}
	for typ := range uint8(16) {
		seen[csig.SignalOf(csig.IETF01, typ)], seen[csig.SignalOf(csig.UEC050, typ)] = true, true
	}
	for s := range seen {
		if s.Configured() || s.HasValue() != s.Known() {
			t.Errorf("%s is taken for one that a table defines", s)
		}
	}
	for _, s := range configured() {
		if seen[s] || int(s) >= csig.NumSignals || !s.Configured() || !s.HasValue() || s.Known() {
			t.Errorf("signal %d: taken, or not one that a table defines", s)
		}
		seen[s] = true
		if again := csig.ConfiguredSignal(s.Type(), s.Unit(), s.Aggregation()); again != s {
			t.Errorf("signal %d is %s, which is %d", s, s.FullName(), again)
		}
		if back, err := csig.ParseSignal(s.FullName()); err != nil || back != s {
			t.Errorf("ParseSignal(%s) = %d, %v, want %d", s.FullName(), back, err, s)
		}
		if s.Direction() != s.Aggregation().Direction() || s.Aggregation().Locates() != (s.Aggregation() <= csig.AggregateMax) {
			t.Errorf("%s: direction and place do not follow from the aggregation", s.FullName())
		}
	}
	// Stored numbers keep their meaning.
	for s, want := range map[csig.Signal]string{
		0: "min_abw", 3: "max_nqd", 16 + 9: "type_9:unknown",
		32 + 5: "type_5:min:count", 48: "type_0:min:bit/s", 96 + 48 + 5: "type_5:max:ns", 160 + 32 + 15: "type_15:sum:ratio", 224 + 15: "type_15:count:count",
	} {
		if got := s.FullName(); got != want {
			t.Errorf("signal %d is %s, want %s", s, got, want)
		}
	}
	for _, bad := range []string{"type_5:", "type_5:max", "type_5:mean:ns", "type_5:max:us", "type_5:count:ns", "type_16:max:ns", "min_abw:min:bit/s", "type_5:max:ns:"} {
		if s, err := csig.ParseSignal(bad); err == nil {
			t.Errorf("ParseSignal(%s) = %s", bad, s.FullName())
		}
	}
}

func TestFindSignal(t *testing.T) {
	t.Parallel()
	unknown5 := csig.SignalOf(csig.IETF01, 5)
	delay5 := csig.ConfiguredSignal(5, csig.Nanosecond, csig.AggregateMax)
	hops5 := csig.ConfiguredSignal(5, csig.Count, csig.AggregateCount)
	for _, tc := range []struct {
		name   string
		stored []csig.Signal
		want   csig.Signal
		fails  string
	}{
		{"min_abw", nil, csig.MinABW, ""},
		{"type_5", nil, unknown5, ""},
		{"type_5", []csig.Signal{csig.MinABW, unknown5}, unknown5, ""},
		{"type_5", []csig.Signal{unknown5, delay5}, delay5, ""},
		{"type_5:unknown", []csig.Signal{unknown5, delay5}, unknown5, ""},
		{"type_5", []csig.Signal{delay5, hops5}, 0, "name one of type_5:max:ns, type_5:count:count"},
		{"type_5:count:count", []csig.Signal{delay5, hops5}, hops5, ""},
		{"type_6", []csig.Signal{delay5}, csig.SignalOf(csig.IETF01, 6), ""},
		{"abw", nil, 0, "parse signal"},
	} {
		got, err := csig.FindSignal(tc.name, tc.stored)
		if tc.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("FindSignal(%s, %v): %v, want %q", tc.name, tc.stored, err, tc.fails)
			}
			continue
		}
		if err != nil || got != tc.want {
			t.Errorf("FindSignal(%s, %v) = %s, %v, want %s", tc.name, tc.stored, got.FullName(), err, tc.want.FullName())
		}
	}
	all := []csig.Signal{csig.MaxDelay, unknown5, delay5, hops5, csig.ConfiguredSignal(6, csig.Ratio, csig.AggregateMax)}
	names := csig.SignalNames(all)
	if want := []string{"max_delay", "type_5:unknown", "type_5:max:ns", "type_5:count:count", "type_6"}; !slices.Equal(names, want) {
		t.Errorf("names %v, want %v", names, want)
	}
	for i, name := range names {
		if got, err := csig.FindSignal(name, all); err != nil || got != all[i] {
			t.Errorf("FindSignal(%s) = %s, %v", name, got.FullName(), err)
		}
	}
}

// Each profile and type has its own table: sentinel, mask and shift, scale, unit, threshold and
// aggregation of one do not affect another.
func TestTablesOfProfilesAndTypes(t *testing.T) {
	t.Parallel()
	mask3, mask5, shift, initial, steps := uint32(0x1c), uint32(31), uint8(2), uint32(9), uint8(3)
	d := compile(t, csig.Spec{Tables: []csig.TableSpec{
		{
			Format: "compact", Profile: "ietf01", Signal: "type_4", Unit: "bit/s", Aggregation: "min",
			Buckets: []string{"0Gbps-10Gbps", "10Gbps-40Gbps"}, Mask: &mask3, Shift: shift, Fixed: 1, Initial: &initial, Heavy: "10Gbps",
		},
		{Format: "compact", Profile: "uec050", Signal: "type_4", Unit: "ns", Aggregation: "sum", Quantum: "2us", Mask: &mask5, Heavy: "50us"},
		{Format: "compact", Profile: "ietf01", Signal: "type_5", Unit: "count", Aggregation: "count", Base: "1", StepBits: &steps, StepUnit: "2", Heavy: "200"},
	}})
	for _, tc := range []struct {
		layout           csig.Layout
		typ              uint8
		name             string
		initial, codes   uint32
		raw1             uint32 // raw S of code 1
		low1, high1      uint64
		heavyLo, heavyHi uint32
	}{
		{allLayouts[0], 4, "type_4:min:bit/s", 9, 2, 1<<2 | 1, 10e6, 40e6, 0, 0},
		{allLayouts[1], 4, "type_4:sum:ns", 0, 32, 1, 2000, 4000, 25, 31},
		{allLayouts[0], 5, "type_5:count:count", 0, 32, 1, 17, 33, 13, 31},
	} {
		table := d.Table(tc.layout, tc.typ)
		low, high, _ := table.Range(1)
		lo, hi, ok := table.HeavyCodes(0)
		if table.Signal().FullName() != tc.name || table.Initial() != tc.initial || table.Codes() != tc.codes || table.Raw(1) != tc.raw1 ||
			low != tc.low1 || high != tc.high1 || !ok || lo != tc.heavyLo || hi != tc.heavyHi {
			t.Errorf("%s type %d: %s, initial %d, %d codes, code 1 is 0x%x for [%d, %d), heavy [%d, %d]", tc.layout, tc.typ,
				table.Signal().FullName(), table.Initial(), table.Codes(), table.Raw(1), low, high, lo, hi)
		}
		checkInvertible(t, table)
	}
	if d.Table(allLayouts[1], 5) != nil || d.Table(allLayouts[2], 4) != nil {
		t.Error("a table reaches a profile or format that it does not name")
	}
}
