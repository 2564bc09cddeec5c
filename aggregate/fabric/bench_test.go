package fabric

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

// clos returns a leaf-spine fabric with port ids and a 7-bit locator beside them, and a
// rack of hosts for each leaf.
func clos(leaves, spines, hosts int) *Spec {
	s := &Spec{Version: SpecVersion, CSIG: csig.Spec{Locators: []csig.LocatorSpec{
		{Format: "wide", Profile: "uec050", Fields: []csig.FieldSpec{{Field: "port_id", Bits: 15}}},
		{Format: "wide", Profile: "ietf01", Fields: []csig.FieldSpec{{Field: "port_id", Bits: 16}}},
		{Format: "compact", Profile: "ietf01", Fields: []csig.FieldSpec{
			{Field: "stage", Bits: 2, Values: map[uint16]string{1: "leaf", 2: "spine"}},
			{Field: "orientation", Bits: 2, Values: map[uint16]string{1: "up", 2: "down"}},
			{Field: "capacity", Bits: 3, Values: map[uint16]string{1: "25Gbps", 3: "100Gbps"}},
		}},
	}}}
	id := uint32(0)
	add := func(d *DeviceSpec, name, orientation, peer, speed string) {
		// Uplinks and downlinks of spines have identifiers, as long as there are any left.
		id++
		p := PortSpec{Name: name, Orientation: orientation, Peer: peer, Speed: speed}
		if id < 1<<15 {
			p.ID = id
		}
		d.Ports = append(d.Ports, p)
	}
	for i := range leaves {
		d := DeviceSpec{Name: fmt.Sprintf("leaf%d", i), Stage: "leaf"}
		for j := range spines {
			add(&d, fmt.Sprintf("up%d", j), "up", fmt.Sprintf("spine%d", j), "100Gbps")
		}
		for j := range hosts {
			h := HostSpec{Name: fmt.Sprintf("h%d-%d", i, j), Addresses: []string{fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, j+1)}}
			add(&d, fmt.Sprintf("down%d", j), "down", h.Name, "25Gbps")
			s.Hosts = append(s.Hosts, h)
		}
		s.Devices = append(s.Devices, d)
		s.Groups = append(s.Groups, GroupSpec{
			Name: fmt.Sprintf("rack%d", i), Level: "rack", Prefixes: []string{fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255)},
		})
	}
	for j := range spines {
		d := DeviceSpec{Name: fmt.Sprintf("spine%d", j), Stage: "spine"}
		for i := range leaves {
			add(&d, fmt.Sprintf("down%d", i), "down", fmt.Sprintf("leaf%d", i), "100Gbps")
		}
		s.Devices = append(s.Devices, d)
	}
	return s
}

// asked is the input of Locate.
type asked struct {
	src, dst netip.Addr
	lm       uint16
}

// worstCase returns pseudo-random pairs of hosts with changing locator metadata: a cache of earlier
// results helps little. Every value names some port.
func worstCase(s *Spec, f *Fabric, l csig.Layout, n int) []asked {
	state := uint64(1)
	next := func(below int) int {
		state = state*6364136223846793005 + 1442695040888963407
		return int(state>>33) % below
	}
	var known []uint16
	for lm, class := range f.classes.byLM[l.Index()][csig.MaxDelay.Type()] {
		if class != none {
			known = append(known, uint16(lm))
		}
	}
	host := func() netip.Addr { return netip.MustParseAddr(s.Hosts[next(len(s.Hosts))].Addresses[0]) }
	list := make([]asked, n)
	for i := range list {
		list[i] = asked{host(), host(), known[next(len(known))]}
	}
	return list
}

func locateAll(f *Fabric, l csig.Layout, list []asked) {
	for i := range list {
		f.Locate(l, csig.MaxDelay.Type(), list[i].lm, list[i].src, list[i].dst)
	}
}

func BenchmarkLocate(b *testing.B) {
	for _, size := range []struct{ leaves, spines, hosts int }{{64, 8, 32}, {512, 64, 16}} {
		s := clos(size.leaves, size.spines, size.hosts)
		f := compile(b, s)
		for _, l := range []csig.Layout{wide, compact} {
			b.Run(fmt.Sprintf("%dx%d/%s", size.leaves, size.spines, l.Format), func(b *testing.B) {
				list := worstCase(s, f, l, 1<<18)
				locateAll(f, l, list)
				b.ReportAllocs()
				for b.Loop() {
					locateAll(f, l, list)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(list)), "ns/locate")
			})
		}
	}
}

// BenchmarkNew measures the construction of a fabric.
func BenchmarkNew(b *testing.B) {
	for _, size := range []struct{ leaves, spines, hosts int }{{64, 8, 32}, {512, 64, 16}} {
		s := clos(size.leaves, size.spines, size.hosts)
		d := domainOf(b, s)
		b.Run(fmt.Sprintf("%dx%d", size.leaves, size.spines), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := New(s, d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
