package fabric

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

func TestNewRefusesNothing(t *testing.T) {
	if _, err := New(nil, nil); err == nil {
		t.Error("no error without a specification")
	}
	if _, err := New(&Spec{}, defaultDomain(t)); err == nil {
		t.Error("no error for version 0")
	}
}

func TestFingerprintSeesWhatMatters(t *testing.T) {
	base, f := load(t, "leafspine.yaml")
	before := f.Fingerprint()
	for name, change := range map[string]func(*Spec){
		"speed":     func(s *Spec) { s.Devices[0].Ports[0].Speed = "50Gbps" },
		"peer":      func(s *Spec) { s.Devices[0].Ports[0].Peer = "spine2" },
		"port id":   func(s *Spec) { s.Devices[0].Ports[0].ID = 700 },
		"device id": func(s *Spec) { s.Devices[0].ID = 77 },
		"address":   func(s *Spec) { s.Hosts[0].Addresses[0] = "10.0.1.9" },
		"prefix":    func(s *Spec) { s.Groups[1].Prefixes[0] = "10.0.1.0/25" },
		"locator":   func(s *Spec) { s.CSIG.Locators[0].Fields[2].Values[4] = "800Gbps" },
		"zero":      func(s *Spec) { s.CSIG.Locators[0].ZeroIsLocation = true },
		"tpid":      func(s *Spec) { s.CSIG.TPIDs[0].TPID = 0x9901 },
		"threshold": func(s *Spec) {
			s.CSIG.Tables = []csig.TableSpec{{Format: "wide", Signal: "min_abw_ratio", Quantum: "1ppm", Heavy: "19.9999%"}}
		},
	} {
		s, _ := load(t, "leafspine.yaml")
		change(s)
		if compile(t, s).Fingerprint() == before {
			t.Errorf("%s: another fabric with the same fingerprint", name)
		}
	}
	base.Name, base.Taps = "renamed", nil
	base.Devices[0].Ports[0].Speed = "0.1Tbps"
	if compile(t, base).Fingerprint() != before {
		t.Error("the same fabric in other words has another fingerprint")
	}
}

// manySets returns a fabric in which every pair of racks has its own set: the names of spines allow
// only a digest to distinguish them.
func manySets(leaves, spines int) *Spec {
	s := &Spec{Version: SpecVersion, CSIG: csig.Spec{Locators: []csig.LocatorSpec{{
		Format: "compact", Fields: []csig.FieldSpec{{Field: "stage", Bits: 2, Values: map[uint16]string{1: "leaf", 2: "spine"}}},
	}}}}
	for i := range leaves {
		d := DeviceSpec{Name: fmt.Sprintf("leaf%d", i), Stage: "leaf"}
		for j := range spines {
			d.Ports = append(d.Ports, PortSpec{Name: fmt.Sprintf("up%d", j), Orientation: "up", Peer: fmt.Sprintf("spine%d", j), Speed: "1Gbps"})
		}
		host := fmt.Sprintf("h%d", i)
		d.Ports = append(d.Ports, PortSpec{Name: "down", Orientation: "down", Peer: host, Speed: "1Gbps"})
		s.Devices = append(s.Devices, d)
		s.Hosts = append(s.Hosts, HostSpec{Name: host, Addresses: []string{fmt.Sprintf("10.%d.%d.1", i>>8, i&255)}})
	}
	for j := range spines {
		d := DeviceSpec{Name: fmt.Sprintf("spine%d", j), Stage: "spine"}
		for i := range leaves {
			d.Ports = append(d.Ports, PortSpec{Name: fmt.Sprintf("down%d", i), Orientation: "down", Peer: fmt.Sprintf("leaf%d", i), Speed: "1Gbps"})
		}
		s.Devices = append(s.Devices, d)
	}
	return s
}

// TestSetsAreBounded: a leaf's stage alone gives the source's uplinks and the destination's port, a
// different set for every pair.
func TestSetsAreBounded(t *testing.T) {
	const leaves = 140
	s := manySets(leaves, 2)
	f := compile(t, s)
	names := map[string]aggregate.LocationID{}
	fallbacks := uint64(0)
	for i := range leaves {
		for j := range leaves {
			if i == j {
				continue
			}
			loc, _ := locate(t, f, compact, 0, 1, s.Hosts[i].Addresses[0], s.Hosts[j].Addresses[0])
			if loc.Name == "leaf" {
				fallbacks++
				continue
			}
			if other, taken := names[loc.Name]; taken && other != loc.ID {
				t.Fatalf("two sets are named %q", loc.Name)
			}
			names[loc.Name] = loc.ID
			if loc.CandidateCount != 3 || loc.Kind != KindSet {
				t.Fatalf("%+v", loc)
			}
		}
	}
	if len(names) != maxSets || fallbacks != leaves*(leaves-1)-maxSets || f.Counts().SetFallbacks != fallbacks {
		t.Errorf("%d sets, %d fallbacks, counts %+v", len(names), fallbacks, f.Counts())
	}
}

// TestOffPathIsBounded: metadata that names every port of a device that is on no path.
func TestOffPathIsBounded(t *testing.T) {
	const extra = 10
	s, _ := load(t, "leafspine.yaml")
	far := DeviceSpec{Name: "far", Stage: "leaf"}
	for i := range maxOffPath + extra {
		far.Ports = append(far.Ports, PortSpec{Name: fmt.Sprint(i), ID: uint32(1000 + i), Orientation: "up", Speed: "100Gbps"})
	}
	s.Devices = append(s.Devices, far)
	f := compile(t, s)
	overflow := 0
	for _, p := range far.Ports {
		loc, _ := locate(t, f, wide, csig.MaxDelay, uint16(p.ID), "10.0.1.1", "10.0.2.1")
		switch loc.Name {
		case overflowName:
			overflow++
		case "off-path: far:" + p.Name:
		default:
			t.Fatalf("port id %d is %q", p.ID, loc.Name)
		}
	}
	if overflow != extra || f.Counts().OffPathFallbacks != extra {
		t.Errorf("%d times overflow, counts %+v, want %d", overflow, f.Counts(), extra)
	}
}

func TestConcurrentUse(t *testing.T) {
	s, f := load(t, "threetier.yaml")
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for lm := range uint16(1 << 7) {
				for i := range s.Hosts {
					src, dst := s.Hosts[i], s.Hosts[(i+worker+1)%len(s.Hosts)]
					id, _ := f.Locate(compact, 0, lm, addr(src.Addresses[0]), addr(dst.Addresses[0]))
					if _, ok := f.Location(id); !ok {
						t.Errorf("location %x is not known", id)
					}
					f.Locate(wide, 3, lm, addr(src.Addresses[0]), addr(dst.Addresses[0]))
					f.Group(addr(src.Addresses[0]))
				}
			}
			f.Locations()
			f.Groups()
			f.Counts()
		})
	}
	wg.Wait()
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(small))
	f.Add([]byte("version: 1\ngroups: &g\n  - {name: a, level: rack}\ntaps: *g\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(bytes.NewReader(text), "f.yaml")
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Error("an error without a text")
			}
			return
		}
		fabric := compile(t, s)
		checkEverywhere(t, fabric, s)
		var b bytes.Buffer
		if err := s.Write(&b); err != nil {
			t.Fatal(err)
		}
		again, err := Parse(&b, "written")
		if err != nil {
			t.Fatalf("what was written is not read back: %v", err)
		}
		if compile(t, again).Fingerprint() != fabric.Fingerprint() {
			t.Error("another fabric after writing")
		}
	})
}

// checkEverywhere resolves a few values between all hosts: in any topology, every result is known
// and has known ancestors.
func checkEverywhere(t *testing.T, f *Fabric, s *Spec) {
	t.Helper()
	ends := []string{"", "10.0.3.99"}
	for i := range s.Hosts[:min(len(s.Hosts), 4)] {
		ends = append(ends, s.Hosts[i].Addresses[0])
	}
	for lm := range uint16(64) {
		for i, src := range ends {
			loc, _ := locate(t, f, csig.LayoutAt(int(lm&3)), csig.Signal(lm>>2), lm, src, ends[(i+1)%len(ends)])
			chain(t, f, loc)
			if loc.Kind == KindPort && loc.CandidateCount != 1 {
				t.Errorf("port %+v", loc)
			}
		}
	}
}

// TestRestore reads whole topologies back from fingerprints, among other lines.
func TestRestore(t *testing.T) {
	for _, file := range []string{"leafspine.yaml", "threetier.yaml"} {
		spec, f := load(t, file)
		if file == "leafspine.yaml" { // evidence of paths is no part of the topology
			spec.Paths = []PathSpec{{Src: "h11", Dst: "h22", Via: []string{"spine2"}}}
			f = compile(t, spec)
		}
		back, err := Restore("endpoints outer\n" + f.Fingerprint() + "port\ndevice x\nhost\n")
		if err != nil {
			t.Fatal(err)
		}
		if f.TopologyRevision() == "" || back.TopologyRevision() != f.TopologyRevision() {
			t.Errorf("%s: revision %q became %q", file, f.TopologyRevision(), back.TopologyRevision())
		}
		if diff := cmp.Diff(f.Ports(), back.Ports()); diff != "" {
			t.Errorf("%s: ports (-file +text):\n%s", file, diff)
		}
		for _, src := range f.Groups() {
			for _, dst := range f.Groups() {
				if diff := cmp.Diff(f.Hops(src.ID, dst.ID), back.Hops(src.ID, dst.ID)); diff != "" {
					t.Fatalf("%s: hops from %s to %s (-file +text):\n%s", file, src.Name, dst.Name, diff)
				}
			}
		}
	}
	nothing, err := Restore("")
	if err != nil || nothing.TopologyRevision() != "" {
		t.Errorf("an empty text has revision %q, %v", nothing.TopologyRevision(), err)
	}
	if _, err := Restore("device d stage s id 1\nport d:p id 1 up peer \"x\" 99999999999999999999 kbit/s\n"); err == nil {
		t.Error("a port without a peer and with a speed out of range makes no error")
	}
}

// FuzzRestore: no text from an exporter stops the collector.
func FuzzRestore(f *testing.F) {
	_, known := load(f, "leafspine.yaml")
	f.Add(known.Fingerprint())
	f.Add("group \"a\" rack parent \"a\"\nprefix 10.0.0.0/8 \"a\"\n")
	f.Fuzz(func(_ *testing.T, text string) {
		if back, err := Restore(text); err == nil {
			back.TopologyRevision()
		}
	})
}

func TestWrites(t *testing.T) {
	t.Parallel()
	spec := csig.DefaultSpec()
	spec.Locators = []csig.LocatorSpec{{Format: "compact", Profile: "ietf01", Fields: []csig.FieldSpec{
		{Field: "stage", Bits: 1, Values: map[uint16]string{0: "leaf", 1: "spine"}},
		{Field: "orientation", Bits: 1, Values: map[uint16]string{0: "up", 1: "down"}},
	}, ZeroIsLocation: true}}
	domain, err := spec.Compile()
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(&Spec{Version: SpecVersion, Devices: []DeviceSpec{{Name: "leaf1", Stage: "leaf", Ports: []PortSpec{
		{Name: "up1", Orientation: "up", Speed: "100Gbps"}, {Name: "down1", Orientation: "down", Speed: "100Gbps"},
	}}}}, domain)
	if err != nil {
		t.Fatal(err)
	}
	compact, wide := csig.Layout{Format: csig.Compact, Profile: csig.IETF01}, csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
	tests := []struct {
		device, port  string
		layout        csig.Layout
		lm            uint16
		writes, known bool
	}{
		{"leaf1", "up1", compact, 0, true, true},
		{"leaf1", "up1", compact, 1, false, true},
		{"leaf1", "up1", compact, 2, false, true}, // a spine, which does not exist
		{"leaf1", "up1", compact, 99, false, true},
		{"leaf1", "down1", compact, 1, true, true},
		{"leaf1", "down2", compact, 1, false, false},
		{"leaf1", "up1", wide, 0, false, false},
	}
	for _, test := range tests {
		writes, known := f.Writes(portName(test.device, test.port), test.layout, 0, test.lm)
		if writes != test.writes || known != test.known {
			t.Errorf("%s:%s writes %d of %s: %t, known %t", test.device, test.port, test.lm, test.layout, writes, known)
		}
	}
}
