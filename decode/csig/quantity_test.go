package csig_test

import (
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

func TestParseQuantity(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		unit csig.Unit
		text string
		want uint64
	}{
		{csig.BitPerSecond, "100Gbps", 100e6},
		{csig.BitPerSecond, " 100 Gbit/s ", 100e6},
		{csig.BitPerSecond, "8Mbps", 8e3},
		{csig.BitPerSecond, "1.6Tbps", 1.6e9},
		{csig.BitPerSecond, "64kbit/s", 64},
		{csig.BitPerSecond, "499bps", 0},
		{csig.BitPerSecond, "1500bit/s", 2},
		{csig.BitPerSecond, "12.5GB/s", 100e6},
		{csig.BitPerSecond, "1 MB/s", 8e3},
		{csig.BitPerSecond, "0.2TB/s", 1.6e9},
		{csig.BitPerSecond, "125kB/s", 1000},
		{csig.Ratio, "20%", 200_000},
		{csig.Ratio, "0.2", 200_000},
		{csig.Ratio, "1ppm", 1},
		{csig.Ratio, "3.125%", 31_250},
		{csig.Nanosecond, "128ns", 128},
		{csig.Nanosecond, "20us", 20_000},
		{csig.Nanosecond, "20µs", 20_000},
		{csig.Nanosecond, "1.5ms", 1_500_000},
		{csig.Nanosecond, "2s", 2_000_000_000},
	} {
		got, err := csig.ParseQuantity(tc.unit, tc.text)
		if err != nil || got != tc.want {
			t.Errorf("ParseQuantity(%s, %q) = %d, %v, want %d", tc.unit, tc.text, got, err, tc.want)
		}
	}
}

func TestParseQuantityErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		unit csig.Unit
		text string
	}{
		{csig.BitPerSecond, ""},
		{csig.BitPerSecond, "100"},
		{csig.BitPerSecond, "20%"},
		{csig.BitPerSecond, "20us"},
		{csig.BitPerSecond, "Gbps"},
		{csig.BitPerSecond, "-1Gbps"},
		{csig.BitPerSecond, "NaNGbps"},
		{csig.BitPerSecond, "InfGbps"},
		{csig.BitPerSecond, "1e300bps"},
		{csig.BitPerSecond, "100GBps"},
		{csig.BitPerSecond, "100Gb/s"},
		{csig.Ratio, "twenty%"},
		{csig.Nanosecond, "20"},
		{csig.Nanosecond, "20m"},
		{csig.UnitNone, "20"},
	} {
		if v, err := csig.ParseQuantity(tc.unit, tc.text); err == nil {
			t.Errorf("ParseQuantity(%s, %q) = %d, want an error", tc.unit, tc.text, v)
		}
	}
}

func TestFormatQuantity(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		unit   csig.Unit
		stored float64
		want   string
	}{
		{csig.BitPerSecond, 99.5e6, "99.5 Gbit/s"},
		{csig.BitPerSecond, 0, "0 bit/s"},
		{csig.BitPerSecond, 8e9, "8 Tbit/s"},
		{csig.Ratio, 125_000, "12.5 %"},
		{csig.Nanosecond, 18_000, "18 us"},
		{csig.Nanosecond, 250, "250 ns"},
		{csig.UnitNone, 7, "7"},
	} {
		if got := csig.FormatQuantity(tc.unit, tc.stored); got != tc.want {
			t.Errorf("FormatQuantity(%s, %v) = %q, want %q", tc.unit, tc.stored, got, tc.want)
		}
	}
}

func TestUnitConversion(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		unit   csig.Unit
		stored uint64
		want   float64
	}{
		{csig.BitPerSecond, 5, 5000},
		{csig.Ratio, 200_000, 0.2},
		{csig.Nanosecond, 5, 5},
	} {
		if got := tc.unit.FromStored(tc.stored); got != tc.want {
			t.Errorf("%s: FromStored(%d) = %v, want %v", tc.unit, tc.stored, got, tc.want)
		}
	}
}
