package query_test

import (
	"math"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// linkFabric has two leaves below two spines, with one host each.
func linkFabric(t *testing.T) *fabric.Fabric {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	port := func(name, orientation, peer string) fabric.PortSpec {
		return fabric.PortSpec{Name: name, Orientation: orientation, Peer: peer, Speed: "100Gbps"}
	}
	f, err := fabric.New(&fabric.Spec{
		Version: fabric.SpecVersion,
		Groups:  []fabric.GroupSpec{{Name: "rack1", Level: "rack", Prefixes: []string{"10.0.1.0/24"}}, {Name: "rack2", Level: "rack", Prefixes: []string{"10.0.2.0/24"}}},
		Devices: []fabric.DeviceSpec{
			{Name: "leaf1", Stage: "leaf", Ports: []fabric.PortSpec{port("up1", "up", "spine1"), port("up2", "up", "spine2"), port("down1", "down", "h1")}},
			{Name: "leaf2", Stage: "leaf", Ports: []fabric.PortSpec{port("up1", "up", "spine1"), port("up2", "up", "spine2"), port("down1", "down", "h2")}},
			{Name: "spine1", Stage: "spine", Ports: []fabric.PortSpec{port("down1", "down", "leaf1"), port("down2", "down", "leaf2")}},
			{Name: "spine2", Stage: "spine", Ports: []fabric.PortSpec{port("down1", "down", "leaf1"), port("down2", "down", "leaf2")}},
		},
		Hosts: []fabric.HostSpec{{Name: "h1", Addresses: []string{"10.0.1.1"}}, {Name: "h2", Addresses: []string{"10.0.2.1"}}},
	}, domain)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// named is a cell's observations of a location, with one value each, in parts per million.
func named(src, dst string, at aggregate.LocationID, n, heavy, ppm uint64) aggregate.CellLocation {
	return aggregate.CellLocation{
		CellID:   aggregate.CellID{Src: fabric.GroupIDOf(src), Dst: fabric.GroupIDOf(dst), Kind: decode.Tag},
		Location: at,
		Sums:     aggregate.Sums{Observations: n, Samples: n, Measured: n, Sum: n * ppm, Min: ppm, Max: ppm, Heavy: heavy, HeavySum: heavy * ppm},
	}
}

// recent are the rows as one window, the last one.
func recent(rows []aggregate.CellLocation) *query.Recent {
	r := &query.Recent{Thresholds: aggregate.DefaultThresholds(), Length: 1e9, End: 1e18}
	for i := range rows {
		c := &rows[i]
		r.Windows = append(r.Windows, aggregate.LocationWindow{Start: r.End - r.Length, LocationStats: aggregate.LocationStats{
			Location: c.Location, Observations: c.Observations, Samples: c.Samples, Heavy: c.Heavy, HeavySum: c.HeavySum,
		}})
	}
	return r
}

func TestLinks(t *testing.T) {
	f := linkFabric(t)
	at := func(name string) aggregate.LocationID { return fabric.LocationIDOf(fabric.KindPort, name) }
	uplink, _ := f.Location(at("leaf2:up1"))
	uplinks, _ := f.Location(uplink.At(fabric.LevelSet))
	rows := []aggregate.CellLocation{
		named("rack1", "rack2", at("spine1:down2"), 100, 60, 100_000), // passed leaf1:up1 and leaf2:down1
		named("rack1", "rack2", at("leaf1:up2"), 50, 0, 400_000),      // passed spine2:down2 and leaf2:down1
		named("rack1", "rack2", aggregate.NoLocation, 20, 0, 1_000_000),
		named("rack1", "rack2", at("spine2:down2"), 5, 0, 900_000), // too few for a bound
		named("rack2", "rack1", uplinks.ID, 30, 10, 200_000),       // one of two, unknown which
	}
	location := func(id aggregate.LocationID) *fabric.Location { l, _ := f.Location(id); return &l }
	links := query.NewLinks(csig.MinABWRatio, rows, recent(rows), f, location)
	if links.Topology == "" || len(links.List) != len(f.Ports())+1 {
		t.Fatalf("%d links, topology %q", len(links.List), links.Topology)
	}
	nan := math.NaN()
	for name, want := range map[string]struct {
		observations, heavy, passed, among uint64
		mean, bound                        float64
		state                              aggregate.State
		cells                              int
	}{
		"spine1:down2": {100, 60, 0, 0, 100_000, nan, aggregate.Congested, 1},
		"leaf1:up2":    {50, 0, 5, 0, 400_000, nan, aggregate.Clear, 1},
		"leaf1:up1":    {0, 0, 100, 0, nan, 100_000, aggregate.Clear, 0},
		"spine2:down2": {5, 0, 50, 0, 900_000, 400_000, aggregate.Clear, 1},
		"leaf2:down1":  {0, 0, 175, 0, nan, 1_000_000, aggregate.Clear, 0}, // the best one: no hop touched it
		"leaf1:down1":  {0, 0, 30, 0, nan, 200_000, aggregate.Clear, 0},
		"leaf2:up1":    {0, 0, 0, 30, nan, nan, aggregate.NoData, 0},
		"spine1:down1": {0, 0, 0, 0, nan, nan, aggregate.NoData, 0},
		uplinks.Name:   {30, 10, 0, 0, 200_000, nan, aggregate.Congested, 1},
	} {
		l := links.Find(at(name))
		if name == uplinks.Name {
			l = links.Find(uplinks.ID)
		}
		if l == nil {
			t.Errorf("%s: no such link", name)
			continue
		}
		if l.Named.Observations != want.observations || l.Named.Heavy != want.heavy || l.Passed != want.passed || l.Among != want.among ||
			!same2(l.Mean(), want.mean) || !same2(l.Bound, want.bound) || l.State != want.state || len(l.Cells) != want.cells {
			t.Errorf("%s: %d named, %d heavy, %d passed, %d among, mean %g, bound %g, %s, %d cells; want %+v", name,
				l.Named.Observations, l.Named.Heavy, l.Passed, l.Among, l.Mean(), l.Bound, l.State, len(l.Cells), want)
		}
	}
	if first := links.List[0].Location.Name; first != "spine1:down2" {
		t.Errorf("%s is first", first)
	}
	if l := links.Find(at("leaf1:up2")); l.CellObservations != 175 || l.Cells[0].Observations != 50 || l.Cells[0].Total != 175 {
		t.Errorf("leaf1:up2 has %d of %d observations: %+v", l.Named.Observations, l.CellObservations, l.Cells)
	}
	checkRoutes(t, f, links)
	// The rows are earlier than all windows that decide, and then earlier than those of others.
	for i, r := range []*query.Recent{recent(nil), recent(rows[1:2])} {
		late := query.NewLinks(csig.MinABWRatio, rows, r, f, location)
		if got, want := late.Find(at("spine1:down2")).State, []aggregate.State{aggregate.NoData, aggregate.Clear}[i]; got != want {
			t.Errorf("a link that was heavy before the windows that decide is %s, want %s", got, want)
		}
	}
	without := query.NewLinks(csig.MinABWRatio, rows, recent(rows), nil, location)
	if without.Topology != "" || len(without.List) != 4 || without.Find(at("leaf2:down1")) != nil || !math.IsNaN(without.Find(at("spine2:down2")).Bound) {
		t.Errorf("without a fabric there are %d links of topology %q", len(without.List), without.Topology)
	}
}

// checkRoutes: the path over spine2 has more available bandwidth than the one over spine1, whose
// second hop is heavily loaded.
func checkRoutes(t *testing.T, f *fabric.Fabric, links *query.Links) {
	t.Helper()
	routes, more := links.Routes(f, csig.MinABWRatio, fabric.GroupIDOf("rack1"), fabric.GroupIDOf("rack2"))
	if len(routes) != 2 || more {
		t.Fatalf("%d routes, more %t", len(routes), more)
	}
	best, worst := routes[0], routes[1]
	if best.Limit.Location.Name != "leaf1:up2" || best.Room != 400_000 || best.Named != 2 || best.Bounded != 1 || best.Unknown != 0 {
		t.Errorf("best route %+v, limited by %+v", best, best.Limit)
	}
	if worst.Limit.Location.Name != "leaf1:up1" && worst.Limit.Location.Name != "spine1:down2" || worst.Room != 100_000 || worst.Named != 1 || worst.Bounded != 2 {
		t.Errorf("worst route %+v, limited by %+v", worst, worst.Limit)
	}
	back, _ := links.Routes(f, csig.MinABWRatio, fabric.GroupIDOf("rack2"), fabric.GroupIDOf("rack1"))
	if len(back) != 2 || back[0].Unknown != 2 || back[0].Bounded != 1 {
		t.Errorf("routes back %+v", back)
	}
}

func same2(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// TestLinkBoundOfDelay: tags of the greatest delay bound it from above.
func TestLinkBoundOfDelay(t *testing.T) {
	f := linkFabric(t)
	at := func(name string) aggregate.LocationID { return fabric.LocationIDOf(fabric.KindPort, name) }
	rows := []aggregate.CellLocation{
		named("rack1", "rack2", at("spine1:down2"), 100, 0, 9000), named("rack1", "rack2", at("leaf1:up2"), 100, 0, 700),
	}
	links := query.NewLinks(csig.MaxDelay, rows, recent(rows), f, func(id aggregate.LocationID) *fabric.Location { l, _ := f.Location(id); return &l })
	if l := links.Find(at("leaf2:down1")); l.Bound != 700 || l.Passed != 200 {
		t.Errorf("bound %g of %d", l.Bound, l.Passed)
	}
	if links.List[0].Location.Name != "leaf1:up1" && links.List[0].Location.Name != "spine1:down2" {
		t.Errorf("%s is first: the greatest delay is the tightest", links.List[0].Location.Name)
	}
}

// TestLinkTrend compares the later half of the range with the earlier one, and checks the last
// window.
func TestLinkTrend(t *testing.T) {
	var l query.Link
	for i, v := range []uint64{900, 700, 500, 300} {
		window := aggregate.Sums{Observations: 2, Measured: 2, Sum: 2 * v, Min: v, Max: v}
		l.Named.Sums.Merge(&window)
		l.Named.AddWindow(int64(i), aggregate.LaterHalf(0, 4), &window)
	}
	if l.Mean() != 600 || l.Last() != 300 || l.Named.Trend() != -400 {
		t.Errorf("mean %g, last %g, trend %g", l.Mean(), l.Last(), l.Named.Trend())
	}
	var one query.Link
	if one.Named.AddWindow(0, 5, &aggregate.Sums{Observations: 1, Measured: 1, Sum: 7}); !math.IsNaN(one.Named.Trend()) {
		t.Errorf("trend %g of one half", one.Named.Trend())
	}
}
