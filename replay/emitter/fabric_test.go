package emitter

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// The fabric file is good enough to find every port of every route again by what
// the port writes: alone with the port locator, among others with the class locator.
func TestFabricFileResolvesEveryPort(t *testing.T) {
	for _, layout := range []csig.Layout{wideUEC, compactIETF} {
		s := tiny().WithLayout(layout)
		m := prepare(t, s)
		f := resolver(t, s)
		address := func(host int32) netip.Addr { return netip.MustParseAddr(ipv4(m.topology.address(int(host)))) }
		for i := range m.flows {
			flow := &m.flows[i]
			for _, number := range flow.forward.ports[1:flow.forward.n] {
				info := &m.topology.ports[number]
				for j := range m.signals {
					sig := &m.signals[j]
					id, capacity := f.Locate(layout, sig.kind.Type(), sig.metadata[number], address(flow.src), address(flow.dst))
					l, ok := f.Location(id)
					if !ok || capacity != uint64(info.speed) || !slices.Contains(l.Candidates, info.name()) {
						t.Fatalf("%s: %s writes %d, which is %+v of %d kbit/s", layout, info.name(), sig.metadata[number], l, capacity)
					}
					if layout == wideUEC && id != fabric.PortLocationID(info.device, info.port) {
						t.Fatalf("%s: %s resolves to %s", layout, info.name(), l.Name)
					}
				}
			}
		}
	}
}

// resolver compiles the fabric file of a scenario as its readers do.
func resolver(t *testing.T, s Scenario) *fabric.Fabric {
	t.Helper()
	s = s.withDefaults()
	path := filepath.Join(t.TempDir(), FabricFile)
	domain, err := writeFabric(path, &s, topologyOf(t, &s))
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	spec, err := fabric.Parse(file, path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fabric.New(spec, domain)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
