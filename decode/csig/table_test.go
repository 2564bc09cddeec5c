package csig_test

import (
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

func compile(t testing.TB, s csig.Spec) *csig.Domain {
	t.Helper()
	d, err := s.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// tableOf compiles a single table and returns it.
func tableOf(t testing.TB, s csig.TableSpec) *csig.Table {
	t.Helper()
	d := compile(t, csig.Spec{Tables: []csig.TableSpec{s}})
	signal, err := csig.ParseSignal(s.Signal)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range allLayouts {
		if table := d.Table(l, signal.Type()); table != nil {
			return table
		}
	}
	t.Fatal("no table")
	return nil
}

func TestDefaultTables(t *testing.T) {
	t.Parallel()
	d := compile(t, csig.DefaultSpec())
	for _, l := range allLayouts {
		for typ := range uint8(l.Types()) {
			signal := csig.SignalOf(l.Profile, typ)
			table := d.Table(l, typ)
			if (table != nil) != signal.Known() {
				t.Errorf("%s %s: table is %v", l, signal, table)
			}
			if table == nil {
				continue
			}
			if table.Layout() != l || table.Signal() != signal {
				t.Errorf("%s %s: is the table of %s %s", l, signal, table.Layout(), table.Signal())
			}
			wantInitial := uint32(0)
			if signal.Direction() == csig.Min {
				wantInitial = l.MaxS()
			}
			if table.Initial() != wantInitial || !table.Untouched(wantInitial) || table.Untouched(wantInitial^1) {
				t.Errorf("%s %s: initial %d, want %d", l, signal, table.Initial(), wantInitial)
			}
			checkInvertible(t, table)
		}
	}
}

// stride is the step between the codes of a table that a test checks: every code, except that
// coverage under the race detector costs 20 times more.
func stride(table *csig.Table) uint32 {
	if testing.CoverMode() == "atomic" && table.Codes() > 1000 {
		return 61
	}
	return 1
}

// checkInvertible checks that codes, raw values and ranges of a table agree.
func checkInvertible(t *testing.T, table *csig.Table) {
	t.Helper()
	for code := uint32(0); code < table.Codes(); code += stride(table) {
		low, high, open := table.Range(code)
		value := table.Value(code)
		if code > 0 {
			if _, end, _ := table.Range(code - 1); low != end {
				t.Fatalf("code %d: starts at %d, the one before ends at %d", code, low, end)
			}
		}
		if open != (high == 0) || (open && code != table.Codes()-1) {
			t.Fatalf("code %d: range [%d, %d), open %v", code, low, high, open)
		}
		top := high - 1
		if open {
			top = low + 1<<40
		}
		if most := table.Unit().Max(); value > most {
			t.Fatalf("code %d: value %d is beyond its unit", code, value)
		} else if low == most {
			continue // a bucket beyond it: such values are quantized to the first of these buckets
		}
		if table.Quantize(low) != code || table.Quantize(value) != code || table.Quantize(top) != code {
			t.Fatalf("code %d: values %d, %d, %d are quantized to %d, %d, %d", code, low, value, top,
				table.Quantize(low), table.Quantize(value), table.Quantize(top))
		}
		if got := table.Code(table.Raw(code)); got != code {
			t.Fatalf("Code(Raw(%d)) = %d", code, got)
		}
	}
}

func TestQuantizeClamps(t *testing.T) {
	t.Parallel()
	three := uint8(3)
	buckets := tableOf(t, csig.TableSpec{Format: "compact", Signal: "min_abw_ratio", Buckets: []string{"0%", "50%"}, Upper: "100%"})
	steps := tableOf(t, csig.TableSpec{Format: "wide", Profile: "uec050", Signal: "max_delay", Base: "16ns", StepBits: &three})
	for _, tc := range []struct {
		name  string
		table *csig.Table
		value uint64
		want  uint32
	}{
		{"beyond the upper bound", buckets, 2_000_000, 1},
		{"largest value", buckets, ^uint64(0), 1},
		{"below the base", steps, 15, 0},
		{"zero", steps, 0, 0},
		{"at the base", steps, 16, 0},
		{"one step up", steps, 24, 1},
		{"last step", steps, 16 + (1<<20-1)*8, 1<<20 - 1},
		{"largest step value", steps, ^uint64(0), 1<<20 - 1},
	} {
		if got := tc.table.Quantize(tc.value); got != tc.want {
			t.Errorf("%s: Quantize(%d) = %d, want %d", tc.name, tc.value, got, tc.want)
		}
	}
	if got := buckets.Code(31); got != 1 {
		t.Errorf("a code without a bucket counts as %d, want the last one", got)
	}
}

// The IETF 124 slides define B = (O - bV) >> b and then show examples, some of which contradict it.
// There, the formula holds.
func TestStepFormula(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		base, b  uint8
		observed uint64
		want     uint32
		slip     bool // the slides print another bucket
	}{
		{0, 3, 16, 2, false},
		{0, 3, 8, 1, false},
		{0, 3, 7, 0, false},
		{8, 3, 24, 2, false},
		{8, 3, 16, 1, false},
		{8, 3, 8, 0, false},
		{16, 3, 40, 3, true}, // printed as (16-0)>>3 = 2
		{16, 3, 32, 2, true}, // printed as (8-0)>>3 = 1
		{16, 3, 16, 0, false},
		{16, 3, 75, 7, true}, // allocation table: bucket 6 ends at 80
		{0, 4, 48, 3, false},
		{0, 4, 32, 2, false},
		{16, 4, 80, 4, false},
		{16, 4, 64, 3, false},
		{16, 4, 32, 1, true}, // printed as bucket 0
		{32, 4, 144, 7, false},
		{32, 4, 96, 4, false},
		{32, 4, 8, 0, false},
	} {
		bits := tc.b
		table := tableOf(t, csig.TableSpec{
			Format: "wide", Profile: "uec050", Signal: "max_delay",
			Base: csig.FormatQuantity(csig.Nanosecond, float64(tc.base)), StepBits: &bits,
		})
		if got := table.Quantize(tc.observed); got != tc.want {
			t.Errorf("(%d-%d)>>%d = %d, want %d (slip in the slides: %v)", tc.observed, tc.base, tc.b, got, tc.want, tc.slip)
		}
	}
}

// Figures of section 4.1.3: 8 Mbit/s steps reach 8 Tbit/s, 128 ns steps 128 ms.
func TestWideSpans(t *testing.T) {
	t.Parallel()
	d := compile(t, csig.DefaultSpec())
	wide := csig.Layout{Format: csig.Wide, Profile: csig.IETF01}
	for _, tc := range []struct {
		typ  uint8
		step uint64
		low  float64
	}{{0, 8_000, 8e9}, {2, 128, 128e6}} {
		table := d.Table(wide, tc.typ)
		low, high, _ := table.Range(1)
		last, _, open := table.Range(table.Codes() - 1)
		if high-low != tc.step || !open || float64(last) < tc.low {
			t.Errorf("%s: step %d, last bucket from %d, want %d and at least %g", table.Signal(), high-low, last, tc.step, tc.low)
		}
	}
}

// Table 2 of Appendix A: a 3-bit value.
func TestAppendixA(t *testing.T) {
	t.Parallel()
	mask := uint32(7)
	for _, tc := range []struct {
		signal, upper string
		buckets       []string
		value         uint64
		want          uint32
	}{
		{"min_abw_ratio", "100%", []string{"0%", "1%", "5%", "10%", "20%", "50%", "75%", "90%"}, 150_000, 3},
		{"min_abw", "", []string{"0Gbps", "1Gbps", "5Gbps", "10Gbps", "20Gbps", "50Gbps", "75Gbps", "90Gbps"}, 400e6, 7},
		{"max_delay", "", []string{"0us", "10us", "50us", "100us", "200us", "400us", "800us", "2000us"}, 2_000_000, 7},
	} {
		table := tableOf(t, csig.TableSpec{Format: "compact", Signal: tc.signal, Buckets: tc.buckets, Upper: tc.upper, Mask: &mask})
		checkInvertible(t, table)
		if got := table.Quantize(tc.value); got != tc.want {
			t.Errorf("%s: Quantize(%d) = %d, want %d", tc.signal, tc.value, got, tc.want)
		}
	}
}

// One family of switches writes S as a constant two bits and a 3-bit bucket.
func TestThreeBitBuckets(t *testing.T) {
	t.Parallel()
	mask, initial := uint32(7), uint32(0x17)
	table := tableOf(t, csig.TableSpec{
		Format: "compact", Profile: "ietf01", Signal: "min_abw_ratio",
		Buckets: []string{"0%", "1%", "5%", "10%", "20%", "50%", "75%", "90%"}, Upper: "100%",
		Mask: &mask, Fixed: 0x10, Initial: &initial, Heavy: "20%",
	})
	checkInvertible(t, table)
	tag := csig.Parse(allLayouts[0], unhex(t, "2b85"))
	if !table.Untouched(tag.S) || table.Code(tag.S) != 7 {
		t.Errorf("S 0x%x: code %d, untouched %v", tag.S, table.Code(tag.S), table.Untouched(tag.S))
	}
	tag = csig.Parse(allLayouts[0], unhex(t, "2842"))
	if table.Untouched(tag.S) || table.Code(tag.S) != 0 || table.Raw(0) != tag.S {
		t.Errorf("S 0x%x: code %d, raw of 0 is 0x%x", tag.S, table.Code(tag.S), table.Raw(0))
	}
	if table.Untouched(31) {
		t.Error("all ones are not the configured initial value")
	}
	if lo, hi, ok := table.HeavyCodes(0); !ok || lo != 0 || hi != 3 {
		t.Errorf("heavy codes [%d, %d] %v, want [0, 3]", lo, hi, ok)
	}
}

func TestShiftedMask(t *testing.T) {
	t.Parallel()
	mask := uint32(0x1c)
	table := tableOf(t, csig.TableSpec{
		Format: "compact", Profile: "uec050", Signal: "max_nqd", Quantum: "10%", Mask: &mask, Shift: 2, Fixed: 1,
	})
	checkInvertible(t, table)
	if table.Codes() != 8 || table.Raw(5) != 5<<2|1 {
		t.Errorf("%d codes, raw of 5 is 0x%x", table.Codes(), table.Raw(5))
	}
}
