package csig_test

import (
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

func TestHeavyCodes(t *testing.T) {
	t.Parallel()
	shares := []string{"0%", "10%", "20%", "50%"}
	rates := []string{"0Gbps", "10Gbps", "20Gbps", "50Gbps"}
	delays := []string{"0us", "10us", "20us", "50us"}
	for _, tc := range []struct {
		name     string
		table    csig.TableSpec
		capacity uint64 // kbit/s
		lo, hi   uint32
		ok       bool
	}{
		{"share at a bound", csig.TableSpec{Signal: "min_abw_ratio", Buckets: shares, Upper: "100%", Heavy: "20%"}, 0, 0, 1, true},
		{"share inside a bucket", csig.TableSpec{Signal: "min_abw_ratio", Buckets: shares, Upper: "100%", Heavy: "19.9%"}, 0, 0, 0, true},
		{"share below the first bucket's end", csig.TableSpec{Signal: "min_abw_ratio", Buckets: shares, Upper: "100%", Heavy: "9%"}, 0, 0, 0, false},
		{"every share", csig.TableSpec{Signal: "min_abw_ratio", Buckets: shares, Upper: "100%", Heavy: "100%"}, 0, 0, 3, true},
		{"an open bucket is never wholly below", csig.TableSpec{Signal: "min_abw_ratio", Buckets: shares, Heavy: "100%"}, 0, 0, 2, true},
		{"no threshold", csig.TableSpec{Signal: "min_abw_ratio", Buckets: shares}, 0, 0, 0, false},
		{"absolute rate", csig.TableSpec{Signal: "min_abw", Buckets: rates, Heavy: "20Gbps"}, 0, 0, 1, true},
		{"relative rate", csig.TableSpec{Signal: "min_abw", Buckets: rates, Heavy: "20%"}, 100e6, 0, 1, true},
		{"relative rate, slow port", csig.TableSpec{Signal: "min_abw", Buckets: rates, Heavy: "20%"}, 10e6, 0, 0, false},
		{"relative rate, unknown port", csig.TableSpec{Signal: "min_abw", Buckets: rates, Heavy: "20%"}, 0, 0, 0, false},
		{"relative rate, largest port", csig.TableSpec{Signal: "min_abw", Buckets: rates, Heavy: "100%"}, ^uint64(0), 0, 2, true},
		{"delay at a bound", csig.TableSpec{Signal: "max_delay", Buckets: delays, Heavy: "20us"}, 0, 2, 3, true},
		{"delay inside a bucket", csig.TableSpec{Signal: "max_delay", Buckets: delays, Heavy: "21us"}, 0, 3, 3, true},
		{"delay beyond the table", csig.TableSpec{Signal: "max_delay", Buckets: delays, Heavy: "1s"}, 0, 0, 0, false},
		{"no delay threshold", csig.TableSpec{Signal: "max_delay", Buckets: delays}, 0, 0, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.table.Format = "compact"
			lo, hi, ok := tableOf(t, tc.table).HeavyCodes(tc.capacity)
			if ok != tc.ok || (ok && (lo != tc.lo || hi != tc.hi)) {
				t.Errorf("HeavyCodes(%d) = %d, %d, %v, want %d, %d, %v", tc.capacity, lo, hi, ok, tc.lo, tc.hi, tc.ok)
			}
		})
	}
}

// The definition, code by code, on wide tables: a code is heavy when its whole range is at or
// beyond the threshold.
func TestHeavyCodesOfWideTables(t *testing.T) {
	t.Parallel()
	d := compile(t, csig.DefaultSpec())
	wide := csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
	const capacity = 400e6 // kbit/s
	for typ, threshold := range []uint64{capacity / 5, 200_000, 20_000, 500_000} {
		table := d.Table(wide, uint8(typ))
		lo, hi, ok := table.HeavyCodes(capacity)
		if !ok {
			t.Fatalf("%s: no heavy code", table.Signal())
		}
		for code := uint32(0); code < table.Codes(); code += stride(table) {
			low, high, open := table.Range(code)
			want := low >= threshold
			if table.Signal().Direction() == csig.Min {
				want = !open && high <= threshold
			}
			if got := code >= lo && code <= hi; got != want {
				t.Fatalf("%s: code %d [%d, %d): heavy is %v, threshold %d", table.Signal(), code, low, high, got, threshold)
			}
		}
	}
}

func TestDistIndex(t *testing.T) {
	t.Parallel()
	last := -1
	for code := range uint32(1 << 20) {
		i := csig.DistIndex(code)
		if int(i) != last && int(i) != last+1 {
			t.Fatalf("code %d: bucket %d after %d", code, i, last)
		}
		last = int(i)
		lo, hi := csig.DistCodes(i)
		if code < lo || code > hi {
			t.Fatalf("code %d: bucket %d holds [%d, %d]", code, i, lo, hi)
		}
		if code < 128 && (lo != code || hi != code) {
			t.Fatalf("code %d: shares bucket %d with [%d, %d]", code, i, lo, hi)
		}
		mid := (float64(lo) + float64(hi)) / 2
		if off := mid - float64(code); max(off, -off) > 0.01*float64(code) {
			t.Fatalf("code %d: bucket middle %v is more than 1%% off", code, mid)
		}
	}
	if last != csig.DistIndexes-1 {
		t.Errorf("the last bucket is %d, want %d", last, csig.DistIndexes-1)
	}
}
