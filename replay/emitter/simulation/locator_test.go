package simulation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// Locator metadata with device, port and time to live (section 5.5.2): the TTL gives the hop, the
// other fields its port.
func TestLocatorWithTTL(t *testing.T) {
	s := named(t, "three-tier")
	s.Duration, s.Locator = 200*time.Millisecond, "custom"
	s.Fields = []csig.FieldSpec{{Field: "ttl", Bits: 7}, {Field: "device_id", Bits: 5}, {Field: "port_id", Bits: 3}}
	m := prepare(t, s)
	domain, err := scenario.CompileFabric(&m.scenario, m.topology)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint8]int{}
	watch(t, m, func(h hop) {
		if h.after.tag.SameOnWire(&h.before.tag) {
			return
		}
		sig := &m.signals[h.before.tag.Signal]
		a, ok := domain.Locator(m.scenario.Layout, sig.Kind.Type()).Decode(h.after.tag.LM)
		p := &m.topology.Ports[h.number]
		if !ok || a.TTL != uint8(scenario.FirstTTL-h.before.hop) || a.Device != p.DeviceID || a.Port != p.ID {
			t.Fatalf("%s at hop %d writes %+v", p.Name(), h.before.hop, a)
		}
		seen[a.TTL]++
	})
	if len(seen) != 5 {
		t.Errorf("tags were written at TTLs %v, want 5 hops", seen)
	}
}

// The time to live alone gives the bottleneck's hop: the resolver must name the ports at that hop
// and no others.
func TestTTLGivesTheHop(t *testing.T) {
	for _, bits := range []uint8{7, 8} {
		s := named(t, "three-tier")
		s.Duration, s.Locator = 100*time.Millisecond, "custom"
		s.Fields = []csig.FieldSpec{{Field: "ttl", Bits: bits}}
		m := prepare(t, s)
		path := filepath.Join(t.TempDir(), scenario.FabricFile)
		if err := scenario.WriteFabric(path, &m.scenario, m.topology); err != nil {
			t.Fatal(err)
		}
		spec, err := fabric.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		domain, err := scenario.CompileFabric(&m.scenario, m.topology)
		if err != nil {
			t.Fatal(err)
		}
		f, err := fabric.New(spec, domain)
		if err != nil {
			t.Fatal(err)
		}
		single, sets := 0, map[string]int{}
		watch(t, m, func(h hop) {
			if h.after.tag.SameOnWire(&h.before.tag) || h.before.ack {
				return
			}
			tuple := m.flows[h.before.flow].tuple
			id, _ := f.Locate(m.scenario.Layout, m.signals[h.before.tag.Signal].Kind.Type(), h.after.tag.LM,
				scenario.AddressOf(4, tuple.Src), scenario.AddressOf(4, tuple.Dst))
			l, _ := f.Location(id)
			p := &m.topology.Ports[h.number]
			if !slices.Contains(l.Candidates, p.Name()) || l.Stage != p.Stage {
				t.Fatalf("%s at hop %d is located at %s: %v", p.Name(), h.before.hop, l.Name, l.Candidates)
			}
			if sets[l.Name]++; l.CandidateCount == 1 {
				single++
			}
		})
		if single == 0 || len(sets) < 20 {
			t.Errorf("%d tags have one port, locations %v", single, sets)
		}
	}
}

// Devices "SHOULD support configuring per-port values for LM" and may do so by signal
// type (section 5.5.1).
func TestConfiguredLocatorValues(t *testing.T) {
	s := tiny()
	s.LocatorValues = []scenario.LocatorValue{{Match: "leaf1", LM: 700}, {Match: "leaf1:up1", Signals: []string{"max_delay"}, LM: 701}}
	m := prepare(t, s)
	for i := range m.signals {
		sig := &m.signals[i]
		want := uint16(700)
		if sig.Kind == csig.MaxDelay {
			want = 701
		}
		if sig.Metadata[0] != want || sig.Metadata[1] != 700 || sig.Metadata[4] != 5 {
			t.Errorf("%s: metadata %v", sig.Kind, sig.Metadata)
		}
	}
	for _, v := range []scenario.LocatorValue{{Match: "x", LM: 1}, {Match: "leaf1", LM: 1 << 15}, {Match: "leaf1", Signals: []string{"x"}}} {
		s := tiny()
		s.LocatorValues = []scenario.LocatorValue{v}
		if _, err := Run(t.Context(), s, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "locator_values[0]") {
			t.Errorf("%+v: error %v", v, err)
		}
	}
}

// A scenario with a fabric file uses its port numbers and its locators (one per signal if it has
// them), and finds the file relative to the scenario file.
func TestLocatorOfTheFabricFile(t *testing.T) {
	r, dir := run(t, tiny())
	spec, err := fabric.Load(r.Fabric)
	if err != nil {
		t.Fatal(err)
	}
	spec.CSIG.Locators = []csig.LocatorSpec{
		{Format: "wide", Profile: "uec050", Fields: []csig.FieldSpec{{Field: "device_id", Bits: 7}, {Field: "port_id", Bits: 8}}},
		{Format: "wide", Profile: "uec050", Signal: "max_delay", Fields: []csig.FieldSpec{{Field: "port_id", Bits: 15}}},
	}
	f, err := os.Create(filepath.Join(dir, "other.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Write(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	const text = "fabric_file: other.yaml\nlocator: file\nduration: 100ms\nworkloads: [{kind: ring, rate: 10Mbps}]\n"
	s, err := scenario.Parse(strings.NewReader(text), filepath.Join(dir, "scenario.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m := prepare(t, s)
	for i := range m.signals {
		sig := &m.signals[i]
		want := uint16(2<<8 | 5)
		if sig.Kind == csig.MaxDelay {
			want = 5
		}
		if name := m.topology.Ports[4].Name(); name != "leaf2:up1" || sig.Metadata[4] != want {
			t.Errorf("%s: %s writes %d, want %d", sig.Kind, name, sig.Metadata[4], want)
		}
	}
	if _, again := run(t, s); len(again) == 0 {
		t.Error("nothing was written")
	}
	s.Locator = "file"
	s = s.WithLayout(compactIETF)
	s.Locator = "file"
	if _, err := Run(t.Context(), s, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "no locator of compact") {
		t.Errorf("error %v", err)
	}
}
