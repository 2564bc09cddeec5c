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
	for _, want := range []csig.Spec{{}, csig.DefaultSpec(), full} {
		text, err := yaml.Marshal(want)
		if err != nil {
			t.Fatal(err)
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
