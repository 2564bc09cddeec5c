package csig_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/decode/csig"
)

func TestDefaultDomain(t *testing.T) {
	t.Parallel()
	d := compile(t, csig.DefaultSpec())
	for id, want := range map[uint16]string{0x9900: "compact/ietf01", 0x88b5: "compact/uec050", 0x88b6: "wide/uec050"} {
		l, ok := d.LayoutOf(id)
		if !ok || l.String() != want {
			t.Errorf("LayoutOf(0x%x) = %s, %v, want %s", id, l, ok, want)
		}
		if back, ok := d.TPID(l); !ok || back != id {
			t.Errorf("TPID(%s) = 0x%x, %v", l, back, ok)
		}
	}
	if diff := cmp.Diff([]uint16{0x9900, 0x88b5, 0x88b6}, d.TPIDs()); diff != "" {
		t.Errorf("TPIDs (-want +got):\n%s", diff)
	}
	if _, ok := d.LayoutOf(0x0800); ok {
		t.Error("IPv4 is a TPID")
	}
	if _, ok := d.TPID(allLayouts[2]); ok {
		t.Error("wide/ietf01 has a default TPID")
	}
	r := d.Reflections()
	if len(r) != 1 || r[0].Kind != 253 || r[0].ExIDLen != 2 || r[0].Payload {
		t.Fatalf("reflections are %+v", r)
	}
	for n, want := range map[int]string{2: "compact/ietf01", 6: "wide/uec050"} {
		if l, ok := r[0].Layout(n); !ok || l.String() != want {
			t.Errorf("%d bytes of reflection are %s, %v, want %s", n, l, ok, want)
		}
	}
	if _, ok := r[0].Layout(4); ok {
		t.Error("4 bytes of reflection have a layout")
	}
}

func TestSpecRoundTripsYAML(t *testing.T) {
	t.Parallel()
	mask, initial := uint32(7), uint32(0x17)
	full := csig.DefaultSpec().Overlay(csig.Spec{
		Tables: []csig.TableSpec{{
			Format: "compact", Profile: "ietf01", Signal: "min_abw_ratio", Buckets: []string{"0%", "50%"},
			Mask: &mask, Initial: &initial, Fixed: 0x10, Interval: "100us",
		}},
		Locators:    []csig.LocatorSpec{compactLocator},
		Reflections: []csig.ReflectionSpec{{Kind: 254, ExID: 0xc516_0001, ExIDBits: 32, Length: "payload", Wide: "ietf01"}},
	})
	for _, want := range []csig.Spec{
		{},
		csig.DefaultSpec(), full,
		{TPIDs: []csig.TPIDSpec{}},
		{Reflections: []csig.ReflectionSpec{}},
		{UDPReflections: []csig.UDPReflectionSpec{}},
	} {
		text, err := yaml.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if empty := cmp.Equal(want, csig.Spec{}); want.IsZero() != empty {
			t.Errorf("IsZero is %v of:\n%s", !empty, text)
		}
		var got csig.Spec
		dec := yaml.NewDecoder(strings.NewReader(string(text)))
		dec.KnownFields(true)
		if err := dec.Decode(&got); err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("round trip (-want +got):\n%s", diff)
		}
		compile(t, got)
	}
}

func TestOverlay(t *testing.T) {
	t.Parallel()
	base := csig.DefaultSpec()
	before := csig.DefaultSpec()
	got := base.Overlay(csig.Spec{
		TPIDs:  []csig.TPIDSpec{{TPID: 0x9901, Format: "wide", Profile: "ietf01"}},
		Tables: []csig.TableSpec{{Format: "compact", Profile: "ietf01", Signal: "max_delay", Quantum: "1us"}},
	})
	if diff := cmp.Diff(before, base); diff != "" {
		t.Errorf("Overlay changed its receiver:\n%s", diff)
	}
	d := compile(t, got)
	if _, ok := d.LayoutOf(0x9900); ok {
		t.Error("TPIDs are not replaced as a whole")
	}
	if _, ok := d.LayoutOf(0x9901); !ok {
		t.Error("the new TPID is missing")
	}
	if high := high(d.Table(allLayouts[0], 2)); high != 1000 {
		t.Errorf("ietf01 delay bucket 0 ends at %d, want the overlay's 1000", high)
	}
	if high := high(d.Table(allLayouts[1], 2)); high != 250 {
		t.Errorf("uec050 delay bucket 0 ends at %d, want the default's 250", high)
	}
	if len(d.Reflections()) != 1 {
		t.Error("reflections that the overlay does not mention are gone")
	}
	if same := base.Overlay(csig.Spec{}); !cmp.Equal(same, base) {
		t.Error("an empty overlay changes the specification")
	}
	if again := base.Overlay(got); !cmp.Equal(again, got) {
		t.Errorf("a specification over its own base is another (-want +got):\n%s", cmp.Diff(got, again))
	}
}

// TestReplaced: lists are replaced where an overlay has other entries for the same bits.
func TestReplaced(t *testing.T) {
	t.Parallel()
	table := csig.TableSpec{Format: "compact", Profile: "ietf01", Signal: "max_delay", Quantum: "1us"}
	both, finer, wide := table, table, table
	both.Profile, finer.Quantum, wide.Format = "", "500ns", "wide"
	base := csig.Spec{
		TPIDs:          []csig.TPIDSpec{{TPID: 0x9901, Format: "wide", Profile: "ietf01"}},
		Tables:         []csig.TableSpec{table},
		Locators:       []csig.LocatorSpec{{Format: "compact", Profile: "ietf01", Fields: []csig.FieldSpec{{Field: "opaque", Bits: 7}}}},
		Reflections:    []csig.ReflectionSpec{{Kind: 200}},
		UDPReflections: []csig.UDPReflectionSpec{{Ports: []uint16{4000}, Format: "compact", Profile: "ietf01"}},
	}
	for name, test := range map[string]struct {
		base, over csig.Spec
		want       string
	}{
		"nothing":          {base, csig.Spec{}, ""},
		"the same":         {base, base, ""},
		"defaults":         {base, csig.DefaultSpec(), "tpids tables reflections"},
		"over an empty":    {csig.Spec{}, base, ""},
		"empty lists":      {base, csig.Spec{TPIDs: []csig.TPIDSpec{}, Reflections: []csig.ReflectionSpec{}, UDPReflections: []csig.UDPReflectionSpec{}}, "tpids reflections udp_reflections"},
		"a finer table":    {base, csig.Spec{Tables: []csig.TableSpec{finer}}, "tables"},
		"a wider table":    {base, csig.Spec{Tables: []csig.TableSpec{both}}, "tables"},
		"and its own":      {base, csig.Spec{Tables: []csig.TableSpec{both, table}}, ""},
		"another format":   {base, csig.Spec{Tables: []csig.TableSpec{wide}}, ""},
		"shipped tables":   {base, csig.Spec{Shipped: []string{"linear-32"}}, "tables"},
		"a locator":        {base, csig.Spec{Locators: []csig.LocatorSpec{{Format: "compact", Signal: "max_delay"}}}, "locators"},
		"another's layout": {base, csig.Spec{Locators: []csig.LocatorSpec{{Format: "compact", Profile: "uec050"}}}, ""},
	} {
		if got := strings.Join(test.base.Replaced(test.over), " "); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func high(table *csig.Table) uint64 {
	_, high, _ := table.Range(0)
	return high
}

func TestInterval(t *testing.T) {
	t.Parallel()
	table := tableOf(t, csig.TableSpec{Format: "compact", Signal: "max_delay", Quantum: "1us", Interval: "100us"})
	if table.IntervalNS() != 100_000 {
		t.Errorf("interval is %d ns", table.IntervalNS())
	}
}

func shippedDomain(t *testing.T, name string) *csig.Domain {
	t.Helper()
	s, err := csig.Shipped(name)
	if err != nil {
		t.Fatal(err)
	}
	return compile(t, csig.DefaultSpec().Overlay(s))
}

func TestShipped(t *testing.T) {
	t.Parallel()
	want := map[string]map[string]uint32{ // codes by signal
		"appendix-a":     {"min_abw": 8, "min_abw_ratio": 8, "max_delay": 8},
		"linear-32":      {"min_abw": 32, "min_abw_ratio": 32, "max_delay": 32, "max_nqd": 32},
		"logarithmic-32": {"min_abw": 32, "min_abw_ratio": 32, "max_delay": 32, "max_nqd": 32},
		"switch-3bit":    {"min_abw_ratio": 8},
	}
	for _, name := range csig.ShippedNames() {
		s, err := csig.Shipped(name)
		if err != nil {
			t.Fatal(err)
		}
		d := compile(t, s)
		got := map[string]uint32{}
		for _, l := range allLayouts {
			for typ := range uint8(l.Types()) {
				if table := d.Table(l, typ); table != nil {
					checkInvertible(t, table)
					got[table.Signal().String()] = table.Codes()
					if _, _, ok := table.HeavyCodes(400e6); !ok {
						t.Errorf("%s: no code of %s is heavy", name, table.Signal())
					}
				}
			}
		}
		if diff := cmp.Diff(want[name], got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		delete(want, name)
	}
	if len(want) != 0 {
		t.Errorf("not shipped: %v", want)
	}
	if _, err := csig.Shipped("none"); err == nil || !strings.Contains(err.Error(), "expected one of appendix-a, linear-32, ") {
		t.Errorf("Shipped(none): %v", err)
	}
}

// Table 2 of Appendix A, copied from the draft.
func TestShippedAppendixA(t *testing.T) {
	t.Parallel()
	d := shippedDomain(t, "appendix-a")
	compactIETF := allLayouts[0]
	for _, tc := range []struct {
		signal csig.Signal
		scale  uint64
		bounds []uint64
		open   bool
	}{
		{csig.MinABWRatio, 10_000, []uint64{0, 1, 5, 10, 20, 50, 75, 90, 100}, false},
		{csig.MinABW, 1_000_000, []uint64{0, 1, 5, 10, 20, 50, 75, 90}, true},
		{csig.MaxDelay, 1_000, []uint64{0, 10, 50, 100, 200, 400, 800, 2000}, true},
	} {
		table := d.Table(compactIETF, tc.signal.Type())
		for code := range table.Codes() {
			low, high, open := table.Range(code)
			wantOpen := tc.open && code == 7
			if low != tc.bounds[code]*tc.scale || open != wantOpen || (!open && high != tc.bounds[code+1]*tc.scale) {
				t.Errorf("%s 0x%x: [%d, %d) open %v", tc.signal, code, low, high, open)
			}
		}
	}
}

// Bounds may be written with exponents, whose sign does not separate a range.
func TestBucketsWithExponents(t *testing.T) {
	t.Parallel()
	table := tableOf(t, csig.TableSpec{Format: "compact", Signal: "max_delay", Buckets: []string{"0s-1e-6s", "1e-6s", "2E-6s-1e+3us"}})
	checkInvertible(t, table)
	for code, want := range []uint64{0, 1000, 2000} {
		if low, _, _ := table.Range(uint32(code)); low != want {
			t.Errorf("code %d starts at %d, want %d", code, low, want)
		}
	}
	if _, high, open := table.Range(2); open || high != 1_000_000 {
		t.Errorf("the last bucket ends at %d, open %v", high, open)
	}
}

// The public vectors of that family of switches: S 0x17 is the initial value, 0x10
// the tightest bucket.
func TestShippedSwitch(t *testing.T) {
	t.Parallel()
	table := shippedDomain(t, "switch-3bit").Table(allLayouts[0], 1)
	untouched, tightest := csig.Parse(allLayouts[0], []byte{0x2b, 0x85}), csig.Parse(allLayouts[0], []byte{0x28, 0x42})
	if !table.Untouched(untouched.S) || table.Code(untouched.S) != 7 {
		t.Errorf("S 0x%x: code %d, untouched %v", untouched.S, table.Code(untouched.S), table.Untouched(untouched.S))
	}
	if table.Untouched(tightest.S) || table.Code(tightest.S) != 0 || table.Raw(0) != tightest.S {
		t.Errorf("S 0x%x: code %d, raw of 0 is 0x%x", tightest.S, table.Code(tightest.S), table.Raw(0))
	}
}

// A configuration names shipped tables and overrides one of them.
func TestShippedByName(t *testing.T) {
	t.Parallel()
	spec := csig.Spec{
		Shipped: []string{"appendix-a"},
		Tables:  []csig.TableSpec{{Format: "compact", Profile: "ietf01", Signal: "max_delay", Quantum: "1us"}},
	}
	for name, d := range map[string]*csig.Domain{
		"alone": compile(t, spec), "over the defaults": compile(t, csig.DefaultSpec().Overlay(spec)),
		"under an overlay": compile(t, spec.Overlay(csig.Spec{})),
	} {
		for typ, want := range map[uint8]uint32{0: 8, 1: 8, 2: 32} {
			if got := d.Table(allLayouts[0], typ).Codes(); got != want {
				t.Errorf("%s: type %d has %d codes, want %d", name, typ, got, want)
			}
		}
		if got := d.Table(allLayouts[1], 2).Codes(); got != 8 {
			t.Errorf("%s: the other profile's delay has %d codes, want the shipped 8", name, got)
		}
	}
	if _, err := csig.DefaultSpec().Overlay(csig.Spec{Shipped: []string{"x"}}).Compile(); err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("an overlay of tables that are not shipped: %v", err)
	}
}

// Future types have a table of their own, with its unit and aggregation.
func TestTableOfAnUnknownType(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		unit, aggregation, quantum string
		initial                    uint32
		heavyLow, heavyHigh        uint32
	}{
		{"count", "sum", "1", 0, 20, 31},
		{"count", "count", "1", 0, 20, 31},
		{"ns", "max", "1ns", 0, 20, 31},
		{"ratio", "max", "1ppm", 0, 20, 31},
		{"bit/s", "min", "1kbps", 31, 0, 19},
	} {
		heavy := strings.Replace(tc.quantum, "1", "20", 1)
		table := tableOf(t, csig.TableSpec{
			Format: "compact", Profile: "ietf01", Signal: "type_5", Unit: tc.unit, Aggregation: tc.aggregation, Quantum: tc.quantum, Heavy: heavy,
		})
		checkInvertible(t, table)
		if table.Unit().String() != tc.unit || table.Aggregation().String() != tc.aggregation || table.Initial() != tc.initial {
			t.Errorf("%s %s: %s %s, initial %d", tc.unit, tc.aggregation, table.Unit(), table.Aggregation(), table.Initial())
		}
		if lo, hi, ok := table.HeavyCodes(0); !ok || lo != tc.heavyLow || hi != tc.heavyHigh {
			t.Errorf("%s %s: heavy codes [%d, %d] %v", tc.unit, tc.aggregation, lo, hi, ok)
		}
	}
	for _, signal := range []csig.Signal{csig.MinABW, csig.MinABWRatio, csig.MaxDelay} {
		table := compile(t, csig.DefaultSpec()).Table(allLayouts[0], signal.Type())
		if table.Unit() != signal.Unit() || table.Aggregation().Direction() != signal.Direction() {
			t.Errorf("%s: %s %s", signal, table.Unit(), table.Aggregation())
		}
	}
	if csig.Aggregation(9).String() != "aggregation_9" {
		t.Error("an unknown aggregation has a name")
	}
}
