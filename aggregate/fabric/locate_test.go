package fabric

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

type locateCase struct {
	name       string
	layout     csig.Layout
	signal     csig.Signal
	lm         uint16
	src, dst   string
	want       string // name
	kind       string
	capacity   uint64
	candidates string
}

func (c *locateCase) run(t *testing.T, f *Fabric) {
	loc, capacity := locate(t, f, c.layout, c.signal, c.lm, c.src, c.dst)
	if loc.Name != c.want || loc.Kind != c.kind {
		t.Errorf("got %s %q, want %s %q", loc.Kind, loc.Name, c.kind, c.want)
	}
	if capacity != c.capacity {
		t.Errorf("capacity %d kbit/s, want %d", capacity, c.capacity)
	}
	if got := strings.Join(loc.Candidates, " "); got != c.candidates {
		t.Errorf("candidates %q, want %q", got, c.candidates)
	}
	if loc.CandidateCount != len(loc.Candidates) {
		t.Errorf("%d candidates counted, %d listed", loc.CandidateCount, len(loc.Candidates))
	}
}

func TestLocateLeafSpine(t *testing.T) {
	_, f := load(t, "leafspine.yaml")
	const h11, h12, h21, h31 = "10.0.1.1", "10.0.1.2", "10.0.2.1", "10.0.3.1"
	const bw, delay = csig.MinABWRatio, csig.MaxDelay
	for _, c := range []locateCase{
		{"port id forces a port", wide, delay, 6, h21, h31, "leaf2:up1", KindPort, 100e6, "leaf2:up1"},
		{"port id without a path", wide, delay, 6, "", "", "leaf2:up1", KindPort, 100e6, "leaf2:up1"},
		{
			"destination host forces the last port", compact, bw, class(leaf, down, g25), h21, h31,
			"leaf3:down1", KindPort, 25e6, "leaf3:down1",
		},
		{"within a rack too", compact, bw, class(leaf, down, g25), h11, h12, "leaf1:down2", KindPort, 25e6, "leaf1:down2"},
		{
			"uplinks stay a set", compact, bw, class(leaf, up, g100), h21, h31,
			"leaf2 up", KindSet, 100e6, "leaf2:up1 leaf2:up2",
		},
		{"capacity forces an uplink", compact, bw, class(leaf, up, g50), h31, h21, "leaf3:up2", KindPort, 50e6, "leaf3:up2"},
		{
			"spines toward one leaf", compact, bw, class(spine, down, g100), h11, h21,
			"spine down to leaf2", KindSet, 100e6, "spine1:down2 spine2:down2",
		},
		{"one spine by speed", compact, bw, class(spine, down, g50), h11, h31, "spine2:down3", KindPort, 50e6, "spine2:down3"},
		{
			"no path: all leaves' uplinks of a speed", compact, bw, class(leaf, up, g100), "", h21,
			"leaf up 100G", KindSet, 100e6, "leaf1:up1 leaf1:up2 leaf2:up1 leaf2:up2 leaf3:up1",
		},
		{
			"no path, no capacity: mixed speeds", wide, csig.MinABW, leaf<<10 | up<<8 | 61, "192.0.2.1", h21,
			"leaf up", KindSet, 0, "leaf1:up1 leaf1:up2 leaf2:up1 leaf2:up2 leaf3:up1 leaf3:up2",
		},
		{
			"unlisted address of a rack", compact, bw, class(leaf, down, g25), h21, "10.0.3.99",
			"leaf3 down", KindSet, 25e6, "leaf3:down1 leaf3:down2 leaf3:down3",
		},
		{
			"unlisted source of a rack", compact, bw, class(leaf, up, g100), "10.0.2.77", h31,
			"leaf2 up", KindSet, 100e6, "leaf2:up1 leaf2:up2",
		},
		{"port off the path", wide, delay, 1, h21, h31, "off-path: leaf1:up1", KindUnknown, 0, "leaf1:up1"},
		{
			"class off the path", compact, bw, class(leaf, up, g50), h11, h21,
			"off-path: leaf3:up2", KindUnknown, 0, "leaf3:up2",
		},
		{
			"no spine within a rack", compact, bw, class(spine, down, g100), h11, h12,
			"off-path: spine down 100G", KindUnknown, 0, "spine1:down1 spine1:down2 spine1:down3 spine2:down1 spine2:down2",
		},
		{"no such port", wide, delay, 999, h21, h31, "unknown lm 0x3e7 (wide/uec050)", KindUnknown, 0, ""},
		{"fits no port", compact, bw, class(spine, up, g400), h21, h31, "unknown lm 0x4c (compact/ietf01)", KindUnknown, 0, ""},
		{"not in the value table", compact, bw, class(leaf, 3, g25), h21, h31, "unknown lm 0x39 (compact/ietf01)", KindUnknown, 0, ""},
		{"zero names nothing", compact, bw, 0, h21, h31, "unknown lm 0x00 (compact/ietf01)", KindUnknown, 0, ""},
		{"no locator: raw", wide, csig.MaxNQD, 5, h21, h31, "lm:wide/uec050:5", KindRaw, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, f) })
	}
}

func TestLocateThreeTier(t *testing.T) {
	_, f := load(t, "threetier.yaml")
	const h11, h12, h21, h22 = "2001:db8:1:1::1", "2001:db8:1:2::1", "2001:db8:2:1::1", "2001:db8:2:2::1"
	const dual, bw = "2001:db8:1:1::d", csig.MinABWRatio
	for _, c := range []locateCase{
		{
			"aggregation of the source's pod", compact, bw, class(agg, up, g400), h11, h21,
			"agg11,agg12 up", KindSet, 400e6, "agg11:up1 agg11:up2 agg12:up1 agg12:up2",
		},
		{
			"core toward the destination's pod", compact, bw, class(core, down, g400), h11, h21,
			"core down to agg21,agg22", KindSet, 400e6, "core11:down2 core12:down2 core21:down2 core22:down2",
		},
		{
			"aggregation toward the destination's leaf", compact, bw, class(agg, down, g100), h11, h21,
			"agg down to leaf21", KindSet, 100e6, "agg21:down1 agg22:down1",
		},
		{"last port", compact, bw, class(leaf, down, g25), h11, h22, "leaf22:down1", KindPort, 25e6, "leaf22:down1"},
		{
			"no core within a pod", compact, bw, class(core, down, g400), h11, h12, "off-path: core down", KindUnknown, 0,
			"core11:down1 core11:down2 core12:down1 core12:down2 core21:down1 core21:down2 core22:down1 core22:down2",
		},
		{
			"to a host of two leaves", compact, bw, class(leaf, down, g25), h21, dual,
			"leaf down to dual", KindSet, 25e6, "leaf11:down2 leaf12:down2",
		},
		{"nearest of its leaves", compact, bw, class(leaf, down, g25), h11, dual, "leaf11:down2", KindPort, 25e6, "leaf11:down2"},
		{
			"from a host of two leaves", compact, bw, class(leaf, up, g100), dual, h21,
			"leaf11,leaf12 up", KindSet, 100e6, "leaf11:up1 leaf11:up2 leaf12:up1 leaf12:up2",
		},
		{
			"unlisted address of a pod", compact, bw, class(agg, down, g100), h21, "2001:db8:1:9::9",
			"agg11,agg12 down", KindSet, 100e6, "agg11:down1 agg11:down2 agg12:down1 agg12:down2",
		},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, f) })
	}
}

func TestPortIDNamesItsPortOnEveryPath(t *testing.T) {
	for _, file := range []string{"leafspine.yaml", "threetier.yaml"} {
		s, f := load(t, file)
		for _, d := range s.Devices {
			for _, p := range d.Ports {
				loc, _ := locate(t, f, wide, csig.MaxDelay, uint16(p.ID), "", "")
				if loc.ID != PortLocationID(d.Name, p.Name) || loc.Name != portName(d.Name, p.Name) {
					t.Errorf("%s: port id %d is %q, want %s:%s", file, p.ID, loc.Name, d.Name, p.Name)
				}
			}
		}
	}
}

// TestNeverOneOfSeveral compares every result with a brute-force enumeration of shortest paths: all
// ports that fit on some path are candidates, and no others.
func TestNeverOneOfSeveral(t *testing.T) {
	for _, file := range []string{"leafspine.yaml", "threetier.yaml"} {
		s, f := load(t, file)
		for _, src := range s.Hosts {
			for _, dst := range s.Hosts {
				if src.Name == dst.Name {
					continue
				}
				onPath := bruteForcePaths(s, src.Name, dst.Name)
				for lm := uint16(1); lm < 1<<7; lm++ {
					checkAgainst(t, f, s, lm, src, dst, onPath)
				}
			}
		}
	}
}

func checkAgainst(t *testing.T, f *Fabric, s *Spec, lm uint16, src, dst HostSpec, onPath map[string]bool) {
	t.Helper()
	a, ok := domainOf(t, s).Locator(compact, csig.MaxDelay.Type()).Decode(lm)
	if !ok {
		return
	}
	var want []string
	for _, d := range s.Devices {
		for _, p := range d.Ports {
			speed, err := csig.ParseQuantity(csig.BitPerSecond, p.Speed)
			if err != nil {
				t.Fatal(err)
			}
			name := portName(d.Name, p.Name)
			if onPath[name] && d.Stage == a.Stage && p.Orientation == a.Orientation && speed == a.Capacity {
				want = append(want, name)
			}
		}
	}
	slices.Sort(want)
	loc, _ := locate(t, f, compact, csig.MaxDelay, lm, src.Addresses[0], dst.Addresses[0])
	switch {
	case len(want) == 0 && loc.Kind != KindUnknown:
		t.Errorf("lm 0x%x from %s to %s: %q, but no port of the path fits", lm, src.Name, dst.Name, loc.Name)
	case len(want) == 0:
	case !slices.Equal(loc.Candidates, want), (loc.Kind == KindPort) != (len(want) == 1):
		t.Errorf("lm 0x%x from %s to %s: %s %q of %v, want %v", lm, src.Name, dst.Name, loc.Kind, loc.Name, loc.Candidates, want)
	}
}

// bruteForcePaths walks all ways of growing length from each device of src until some reach dst,
// and returns their ports.
func bruteForcePaths(s *Spec, src, dst string) map[string]bool {
	devices := map[string]DeviceSpec{}
	for _, d := range s.Devices {
		devices[d.Name] = d
	}
	used := map[string]bool{}
	var walk func(device string, hops int, ports []string) bool
	walk = func(device string, hops int, ports []string) (found bool) {
		for _, p := range devices[device].Ports {
			way := slices.Concat(ports, []string{portName(device, p.Name)})
			if hops == 0 {
				if p.Peer == dst {
					found = true
					for _, name := range way {
						used[name] = true
					}
				}
			} else if _, ok := devices[p.Peer]; ok && walk(p.Peer, hops-1, way) {
				found = true
			}
		}
		return found
	}
	for _, d := range s.Devices {
		if slices.ContainsFunc(d.Ports, func(p PortSpec) bool { return p.Peer == src }) {
			for hops := 0; hops < 6 && !walk(d.Name, hops, nil); hops++ {
			}
		}
	}
	return used
}

// Bits beyond AddressBits do not matter.
func TestAddressBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 24))
	racks := &Spec{Version: SpecVersion, Groups: []GroupSpec{
		{Name: "rack1", Level: "rack", Prefixes: []string{"10.0.1.0/24", "2001:db8:0:1::/64"}},
		{Name: "rack2", Level: "rack", Prefixes: []string{"10.0.2.0/26", "2001:db8:0:20::/60"}},
	}}
	_, leafspine := load(t, "leafspine.yaml")
	_, threetier := load(t, "threetier.yaml")
	prefixes, err := New(racks, defaultDomain(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*Fabric{
		"leafspine": leafspine, "threetier": threetier, "none": None(defaultDomain(t)), "racks": prefixes,
	} {
		v4, v6 := f.AddressBits()
		for range 20_000 {
			b, bits := [16]byte{10, 0, byte(rng.IntN(4)), byte(rng.IntN(256))}, 32
			if rng.IntN(2) == 0 {
				b, bits = [16]byte{0x20, 1, 0xd, 0xb8, 0, 0, 0, byte(rng.IntN(64)), 15: byte(rng.IntN(4))}, 128
			}
			at := func() netip.Addr {
				if bits == 32 {
					return netip.AddrFrom4([4]byte(b[:4]))
				}
				return netip.AddrFrom16(b)
			}
			a := at()
			for i := map[int]int{32: v4, 128: v6}[bits]; i < bits; i++ {
				b[i/8] ^= byte(rng.IntN(2)) << (7 - i%8)
			}
			aSrc, aDst := f.Classes(a)
			bSrc, bDst := f.Classes(at())
			if f.Group(a) != f.Group(at()) || aSrc != bSrc || aDst != bDst {
				t.Fatalf("%s: %s and %s differ, and share %d bits of IPv4 or %d of IPv6", name, a, at(), v4, v6)
			}
		}
	}
	if v4, v6 := prefixes.AddressBits(); v4 != 26 || v6 != 64 {
		t.Errorf("racks: %d and %d bits, want those of the longest prefixes, 26 and 64", v4, v6)
	}
}

// Addresses of one group and class are interchangeable in their role: for any locator metadata, the
// result is the same.
func TestClassesDecideLocations(t *testing.T) {
	for _, file := range []string{"leafspine.yaml", "threetier.yaml"} {
		s, f := load(t, file)
		addresses := []netip.Addr{{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
		for _, h := range s.Hosts {
			for _, text := range h.Addresses {
				a := netip.MustParseAddr(text)
				addresses = append(addresses, a, a.Next())
			}
		}
		same := 0
		for _, a := range addresses {
			for _, b := range addresses {
				aSrc, aDst := f.Classes(a)
				bSrc, bDst := f.Classes(b)
				for _, other := range addresses {
					for lm := range uint16(1 << 7) {
						if aSrc == bSrc {
							same++
							x, _ := f.Locate(compact, 2, lm, a, other)
							if y, _ := f.Locate(compact, 2, lm, b, other); x != y {
								t.Fatalf("%s: lm %d from %v or %v to %v: sources of one class differ", file, lm, a, b, other)
							}
						}
						if aDst == bDst {
							x, _ := f.Locate(compact, 2, lm, other, a)
							if y, _ := f.Locate(compact, 2, lm, other, b); x != y {
								t.Fatalf("%s: lm %d from %v to %v or %v: destinations of one class differ", file, lm, other, a, b)
							}
						}
					}
				}
			}
		}
		if same == 0 {
			t.Errorf("%s: no two addresses share a class", file)
		}
	}
}
