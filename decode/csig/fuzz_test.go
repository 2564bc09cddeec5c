package csig_test

import (
	"bytes"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/decode/csig"
)

func FuzzParse(f *testing.F) {
	f.Add(uint8(0), []byte{0x2b, 0x85, 0, 0, 0, 0})
	f.Add(uint8(1), []byte{0x28, 0x43, 0, 0, 0, 0})
	f.Add(uint8(2), []byte{0x12, 0x34, 0x21, 0x23, 0x45, 0x67})
	f.Add(uint8(3), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, layout uint8, data []byte) {
		l := csig.LayoutAt(int(layout) % csig.NumLayouts)
		n := l.Format.DataLen()
		if len(data) < n {
			return
		}
		tag := csig.Parse(l, data)
		if int(tag.T) >= l.Types() || tag.S > l.MaxS() || int(tag.LM)>>l.LMBits() != 0 {
			t.Fatalf("%s: %+v has fields wider than the layout", l, tag)
		}
		if got := tag.Append(nil); !bytes.Equal(got, data[:n]) {
			t.Fatalf("%s: %x comes back as %x", l, data[:n], got)
		}
	})
}

func FuzzParseQuantity(f *testing.F) {
	for _, s := range []string{"100Gbps", "8 Mbit/s", "20%", "0.2", "1ppm", "128ns", "20µs", "NaNs", "-0", "0x1p60bps", "1e15bps"} {
		for u := range uint8(5) {
			f.Add(u, s)
		}
	}
	f.Fuzz(func(t *testing.T, u uint8, s string) {
		v, err := csig.ParseQuantity(csig.Unit(u%5), s)
		if err == nil && v >= 1<<53 {
			t.Fatalf("%q is %d", s, v)
		}
	})
}

// FuzzCompile feeds configuration text: Compile returns an error, or a domain whose tables and
// locators are consistent.
func FuzzCompile(f *testing.F) {
	text, err := yaml.Marshal(csig.DefaultSpec())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`tables: [{format: compact, signal: min_abw_ratio, buckets: ["0%", "50%"], mask: 7, fixed: 0x10, initial: 0x17}]`))
	f.Add([]byte(`tables: [{format: wide, signal: max_delay, step_bits: 30, step_unit: 8ms, base: 1s, heavy: 20us}]`))
	f.Add([]byte(`locators: [{format: wide, fields: [{field: stage, bits: 3, values: {1: leaf}}, {field: port_id, bits: 12}]}]`))
	f.Add([]byte(`tables: [{format: compact, profile: ietf01, signal: type_5, unit: count, aggregation: sum, buckets: ["0-1", "1-3", "3"]}]`))
	f.Add([]byte(`udp_reflections: [{offset: 16, format: wide, profile: uec050, pds_type: 8, valid_offset: 1, valid_mask: 1}]`))
	f.Add([]byte(`reflections: [{kind: 254, exid: 0x12345678, exid_bits: 32, length: payload}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s csig.Spec
		if yaml.Unmarshal(text, &s) != nil {
			return
		}
		d, err := s.Compile()
		if err != nil {
			return
		}
		for i := range csig.NumLayouts {
			l := csig.LayoutAt(i)
			for typ := range uint8(l.Types()) {
				if table := d.Table(l, typ); table != nil {
					checkTableEnds(t, table)
				}
				if loc := d.Locator(l, typ); loc != nil {
					checkLocator(t, loc, uint16(1<<l.LMBits()-1))
				}
			}
		}
	})
}

func checkTableEnds(t *testing.T, table *csig.Table) {
	t.Helper()
	last := table.Codes() - 1
	for _, code := range []uint32{0, 1, last / 2, last} {
		code = min(code, last)
		low, _, _ := table.Range(code)
		if v := table.Value(code); v > table.Unit().Max() || v < low {
			t.Fatalf("code %d: value %d of a bucket from %d, and of at most %d", code, v, low, table.Unit().Max())
		}
		// Buckets beyond the unit's end all have its value.
		if got := table.Quantize(table.Value(code)); got != code && low < table.Unit().Max() {
			t.Fatalf("code %d: value %d is quantized to %d", code, table.Value(code), got)
		}
		if got := table.Code(table.Raw(code)); got != code {
			t.Fatalf("code %d: raw 0x%x is code %d", code, table.Raw(code), got)
		}
	}
	if lo, hi, ok := table.HeavyCodes(100e6); ok && (lo > hi || hi > last) {
		t.Fatalf("heavy codes [%d, %d] of %d", lo, hi, last)
	}
}

func checkLocator(t *testing.T, loc *csig.Locator, top uint16) {
	t.Helper()
	for _, lm := range []uint16{0, 1, 2, top / 2, top} {
		a, ok := loc.Decode(lm)
		if !ok {
			continue
		}
		if back, err := loc.Encode(a); err != nil || back != lm {
			t.Fatalf("locator 0x%x: encoded as 0x%x, %v", lm, back, err)
		}
	}
}
