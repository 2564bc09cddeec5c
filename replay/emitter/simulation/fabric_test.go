package simulation

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// The fabric file must suffice to find every port of every route by the LM that the port writes: as
// the only candidate with the port locator, among others with the class locator.
func TestFabricFileResolvesEveryPort(t *testing.T) {
	for _, layout := range []csig.Layout{wideUEC, compactIETF} {
		s := tiny().WithLayout(layout)
		m := prepare(t, s)
		spec, err := scenario.Fabric(s)
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
		address := func(host int32) netip.Addr { return scenario.AddressOf(4, m.topology.Address(int(host))) }
		for i := range m.flows {
			flow := &m.flows[i]
			for _, number := range flow.forward.Ports[1:flow.forward.N] {
				info := &m.topology.Ports[number]
				for j := range m.signals {
					sig := &m.signals[j]
					id, capacity := f.Locate(layout, sig.Kind.Type(), sig.Metadata[number], address(flow.src), address(flow.dst))
					l, ok := f.Location(id)
					if !ok || capacity != uint64(info.Speed) || !slices.Contains(l.Candidates, info.Name()) {
						t.Fatalf("%s: %s writes %d, which is %+v of %d kbit/s", layout, info.Name(), sig.Metadata[number], l, capacity)
					}
					if layout == wideUEC && id != fabric.PortLocationID(info.Device, info.Port) {
						t.Fatalf("%s: %s resolves to %s", layout, info.Name(), l.Name)
					}
				}
			}
		}
	}
}
