package csig_test

import (
	"strings"
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

var compactLocator = csig.LocatorSpec{
	Format: "compact",
	Fields: []csig.FieldSpec{
		{Field: "capacity", Bits: 2, Values: map[uint16]string{1: "100Gbps", 2: "400Gbps"}},
		{Field: "stage", Bits: 2, Values: map[uint16]string{0: "leaf", 1: "spine"}},
		{Field: "orientation", Bits: 2, Values: map[uint16]string{0: "up", 1: "down", 2: "side"}},
	},
}

func locatorOf(t testing.TB, s csig.LocatorSpec, l csig.Layout) *csig.Locator {
	t.Helper()
	return compile(t, csig.Spec{Locators: []csig.LocatorSpec{s}}).Locator(l, 0)
}

func TestLocatorDecode(t *testing.T) {
	t.Parallel()
	wide := csig.LocatorSpec{
		Format: "wide", Profile: "ietf01", ZeroIsLocation: true,
		Fields: []csig.FieldSpec{
			{Field: "ttl", Bits: 3}, {Field: "device_id", Bits: 6}, {Field: "port_id", Bits: 5}, {Field: "opaque", Bits: 2},
		},
	}
	noPort := func(a csig.Attributes) bool { return !a.Has(csig.FieldPort) }
	for _, tc := range []struct {
		name  string
		spec  csig.LocatorSpec
		lm    uint16
		ok    bool
		check func(csig.Attributes) bool
	}{
		{"three fields", compactLocator, 0b10_01_00, true, func(a csig.Attributes) bool {
			return a.Capacity == 400e6 && a.Stage == "spine" && a.Orientation == "up" && noPort(a)
		}},
		{"number without a value", compactLocator, 0b11_01_00, false, noPort},
		{"bits outside the layout", compactLocator, 0b1_10_01_00, false, noPort},
		{"zero", compactLocator, 0, false, noPort},
		{"numbers", wide, 5<<13 | 33<<7 | 17<<2 | 2, true, func(a csig.Attributes) bool {
			return a.TTL == 5 && a.Device == 33 && a.Port == 17 && a.Opaque == 2 && a.Has(csig.FieldPort) && !a.Has(csig.FieldStage)
		}},
		{"zero is a location", wide, 0, true, func(a csig.Attributes) bool { return a.Port == 0 && a.Has(csig.FieldPort) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := allLayouts[0]
			if tc.spec.Format == "wide" {
				l = allLayouts[2]
			}
			loc := locatorOf(t, tc.spec, l)
			a, ok := loc.Decode(tc.lm)
			if ok != tc.ok || !tc.check(a) {
				t.Fatalf("Decode(0x%x) = %+v, %v", tc.lm, a, ok)
			}
			if !ok {
				return
			}
			if back, err := loc.Encode(a); err != nil || back != tc.lm {
				t.Errorf("Encode(%+v) = 0x%x, %v, want 0x%x", a, back, err, tc.lm)
			}
		})
	}
}

func TestLocatorEncodeErrors(t *testing.T) {
	t.Parallel()
	named := locatorOf(t, compactLocator, allLayouts[0])
	numbered := locatorOf(t, csig.LocatorSpec{Format: "compact", Fields: []csig.FieldSpec{{Field: "port_id", Bits: 6}}}, allLayouts[0])
	for _, tc := range []struct {
		name string
		loc  *csig.Locator
		a    csig.Attributes
		want string
	}{
		{"unknown stage", named, csig.Attributes{Capacity: 100e6, Stage: "core", Orientation: "up"}, "stage"},
		{"unknown capacity", named, csig.Attributes{Capacity: 1, Stage: "leaf", Orientation: "up"}, "capacity"},
		{"port beyond the field", numbered, csig.Attributes{Port: 64}, "port_id"},
		{"port beyond 16 bits", numbered, csig.Attributes{Port: 1 << 16}, "port_id"},
	} {
		if lm, err := tc.loc.Encode(tc.a); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: Encode() = 0x%x, %v, want an error about %s", tc.name, lm, err, tc.want)
		}
	}
}

func TestLocatorPerSignal(t *testing.T) {
	t.Parallel()
	port := csig.LocatorSpec{Format: "compact", Fields: []csig.FieldSpec{{Field: "port_id", Bits: 6}}}
	delay := csig.LocatorSpec{Format: "compact", Profile: "uec050", Signal: "max_delay", Fields: []csig.FieldSpec{{Field: "device_id", Bits: 6}}}
	d := compile(t, csig.Spec{Locators: []csig.LocatorSpec{port, delay}})
	for _, tc := range []struct {
		layout csig.Layout
		typ    uint8
		want   csig.Field
	}{
		{allLayouts[0], 2, csig.FieldPort},
		{allLayouts[1], 2, csig.FieldDevice},
		{allLayouts[1], 1, csig.FieldPort},
		{allLayouts[1], 7, csig.FieldPort},
	} {
		a, ok := d.Locator(tc.layout, tc.typ).Decode(9)
		if !ok || !a.Has(tc.want) {
			t.Errorf("%s type %d: %+v, want %s", tc.layout, tc.typ, a, tc.want)
		}
	}
	d = compile(t, csig.Spec{Locators: []csig.LocatorSpec{delay, port}})
	if a, ok := d.Locator(allLayouts[1], 2).Decode(9); !ok || !a.Has(csig.FieldPort) {
		t.Errorf("the last entry is the general one: %+v, want %s", a, csig.FieldPort)
	}
	if d.Locator(allLayouts[2], 0) != nil {
		t.Error("a wide tag has a locator that was not configured")
	}
}

// A Domain is immutable: it must not share maps with the specification.
func TestLocatorKeepsItsOwnValues(t *testing.T) {
	t.Parallel()
	spec := csig.LocatorSpec{Format: "compact", Fields: []csig.FieldSpec{{Field: "stage", Bits: 2, Values: map[uint16]string{1: "leaf"}}}}
	loc := locatorOf(t, spec, allLayouts[0])
	spec.Fields[0].Values[1] = "spine"
	if a, _ := loc.Decode(1); a.Stage != "leaf" {
		t.Errorf("stage is %q after the specification changed", a.Stage)
	}
}

// The TTL counts down from the hosts' initial value, and so do its low bits.
func TestHop(t *testing.T) {
	for _, test := range []struct {
		bits uint8
		lm   uint16
		want uint8
	}{
		{8, 63, 1},
		{8, 60, 4},
		{8, 127, 1},
		{8, 120, 8},
		{8, 254, 1},
		{8, 250, 5},
		{8, 64, 0},
		{7, 63, 1},
		{7, 127, 1},
		{3, 7, 1},
		{3, 5, 3},
		{3, 1, 7},
	} {
		spec := csig.DefaultSpec()
		spec.Locators = []csig.LocatorSpec{{Format: "wide", Profile: "uec050", ZeroIsLocation: true, Fields: []csig.FieldSpec{{Field: "ttl", Bits: test.bits}}}}
		d, err := spec.Compile()
		if err != nil {
			t.Fatal(err)
		}
		a, ok := d.Locator(csig.Layout{Format: csig.Wide, Profile: csig.UEC050}, 0).Decode(test.lm)
		if got := a.Hop(); !ok || got != test.want {
			t.Errorf("%d bits of TTL, %d: hop %d, want %d", test.bits, test.lm, got, test.want)
		}
	}
	var none csig.Attributes
	if none.Hop() != 0 {
		t.Error("a hop without a TTL")
	}
}
