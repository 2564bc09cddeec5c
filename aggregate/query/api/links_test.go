package api_test

import (
	"encoding/csv"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	csigdecode "github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// wired serves a fabric of two racks below two spines, and a window in which tags name the second
// hop over spine1.
func wired(t *testing.T, more ...func(*api.Config)) *served {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	port := func(name, orientation, peer string) fabric.PortSpec {
		return fabric.PortSpec{Name: name, Orientation: orientation, Peer: peer, Speed: "100Gbps"}
	}
	leaf := func(name, host string) fabric.DeviceSpec {
		return fabric.DeviceSpec{Name: name, Stage: "leaf", Ports: []fabric.PortSpec{port("up1", "up", "spine1"), port("up2", "up", "spine2"), port("down1", "down", host)}}
	}
	spine := func(name string) fabric.DeviceSpec {
		return fabric.DeviceSpec{Name: name, Stage: "spine", Ports: []fabric.PortSpec{port("down1", "down", "leaf1"), port("down2", "down", "leaf2")}}
	}
	f, err := fabric.New(&fabric.Spec{
		Version: fabric.SpecVersion, Devices: []fabric.DeviceSpec{leaf("leaf1", "h1"), leaf("leaf2", "h2"), spine("spine1"), spine("spine2")},
		Groups: []fabric.GroupSpec{{Name: "rack1", Level: "rack", Prefixes: []string{"10.0.1.0/24"}}, {Name: "rack2", Level: "rack", Prefixes: []string{"10.0.2.0/24"}}},
		Hosts:  []fabric.HostSpec{{Name: "h1", Addresses: []string{"10.0.1.1"}}, {Name: "h2", Addresses: []string{"10.0.2.1"}}},
	}, domain)
	if err != nil {
		t.Fatal(err)
	}
	s := newServed(t, 4, func(c *api.Config) {
		c.Names = &api.BothNames{Fabric: func() *fabric.Fabric { return f }}
		for _, set := range more {
			set(c)
		}
	})
	s.writeBlock(t, namedBlock(0))
	s.memory.Publish()
	return s
}

// namedBlock is a block in which a flow from rack1 to rack2 names the second hop over spine1.
func namedBlock(second int) *aggregate.Block {
	b := &aggregate.Block{
		Source: aggregate.Source{Producer: 1}, Resolution: 1e9, WindowStart: begin.Add(time.Duration(second) * time.Second).UnixNano(),
		Signal: []uint8{uint8(csig.MinABWRatio)}, Kind: []uint8{1}, Encoding: []uint8{0},
		SrcGroup: []uint64{uint64(fabric.GroupIDOf("rack1"))}, DstGroup: []uint64{uint64(fabric.GroupIDOf("rack2"))},
		Location: []uint64{uint64(fabric.PortLocationID("spine1", "down2"))},
		DistCode: []uint16{3}, DistCount: []uint64{20}, DistEnd: []uint32{1},
	}
	b.AppendSums(&aggregate.Sums{Observations: 20, Samples: 20, Bytes: 20_000, Sum: 20 * 100_000, Min: 100_000, Max: 100_000, Heavy: 15, HeavySum: 15 * 100_000})
	b.Flows = []aggregate.FlowRow{{
		Flow:   flow.Flow{Src: [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: 0, 14: 1, 15: 1}, Dst: [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: 0, 14: 2, 15: 1}, SrcPort: 1, DstPort: 2, Proto: 6},
		Signal: b.Signal[0], Kind: b.Kind[0], SrcGroup: b.SrcGroup[0], DstGroup: b.DstGroup[0], Observations: 20, Measured: 20, Sum: 20 * 100_000, Min: 100_000, Max: 100_000,
		Heavy: 15, HeavySum: 15 * 100_000, Location: b.Location[0], LocationHeavy: 15,
	}}
	return b
}

func TestLinksFromMemory(t *testing.T) {
	s := wired(t)
	all := read[wire.LinksResponse](t, s.get(t, "/api/v1/links"))
	if all.Total != 10 || len(all.Topology) != 16 || all.About.Source != "memory" {
		t.Fatalf("%d links of topology %q from %s", all.Total, all.Topology, all.About.Source)
	}
	if l := all.Links[0]; l.Link != "spine1:down2" || l.State != wire.State_STATE_CONGESTED || l.Mean.GetRatio() != 0.1 || l.Heavy != 15 || l.Flows != 1 || l.Peer != "leaf2" ||
		l.CapacityBps != 100e9 || l.Cells != 1 || l.ShareRatio != 1 || len(l.Dependents) != 1 || l.Dependents[0].Dst != "rack2" || l.Bound != nil {
		t.Errorf("first link %+v", l)
	}
	for target, want := range map[string][]string{
		"links?link=leaf1:up1":                  {"leaf1:up1"},
		"links?device=spine1":                   {"spine1:down2", "spine1:down1"},
		"links?peer=leaf2&state=no_data":        {"spine2:down2"},
		"links?state=clear":                     {"leaf1:up1", "leaf2:down1"},
		"links?top=1":                           {"spine1:down2"},
		"links?signal=max_delay&link=leaf1:up1": {"leaf1:up1"},
	} {
		got := read[wire.LinksResponse](t, s.get(t, "/api/v1/"+target))
		if len(got.Links) != len(want) {
			t.Errorf("%s: %d links, want %q", target, len(got.Links), want)
			continue
		}
		for i, l := range got.Links {
			if l.Link != want[i] {
				t.Errorf("%s: %q, want %q", target, l.Link, want)
			}
		}
	}
	up := read[wire.LinksResponse](t, s.get(t, "/api/v1/links?link=leaf1:up1")).Links[0]
	if up.Passed != 20 || up.Bound.GetRatio() != 0.1 || up.Mean != nil || up.Observations != 0 {
		t.Errorf("a link that tags passed: %+v", up)
	}
	for _, target := range []string{"links?link=leaf9:up1", "links?peer=nobody", "links?device=h1", "links?windows=0", "topology?src=rack1", "topology?src=rack1&dst=rack9"} {
		if w := s.get(t, "/api/v1/"+target); w.Code != 422 {
			t.Errorf("%s: status %d", target, w.Code)
		}
	}
}

// TestLinksAcrossIdleWindows: links have the flows of all windows of their answer, also where memory
// without a clock has none for idle seconds.
func TestLinksAcrossIdleWindows(t *testing.T) {
	s := wired(t, func(c *api.Config) {
		c.Memory = table.NewMemory(table.MemoryOptions{Epoch: 7, Log: 16, Now: tabletest.Still, Ahead: -1})
	})
	late := namedBlock(5)
	late.Flows = nil
	s.writeBlock(t, late)
	s.memory.Publish()
	got := read[wire.LinksResponse](t, s.get(t, "/api/v1/links?windows=6&link=spine1:down2"))
	if l := got.Links[0]; got.About.Windows != 2 || l.Observations != 40 || l.Flows != 1 {
		t.Errorf("%d observations and %d flows in %d windows", l.Observations, l.Flows, got.About.Windows)
	}
}

func TestTopologyAndRoutes(t *testing.T) {
	s := wired(t)
	whole := read[wire.TopologyResponse](t, s.get(t, "/api/v1/topology"))
	if len(whole.Devices) != 4 || len(whole.Ports) != 10 || len(whole.Groups) != 2 || whole.Revision == "" || whole.Paths != nil {
		t.Errorf("%d devices, %d ports, %d groups, revision %q", len(whole.Devices), len(whole.Ports), len(whole.Groups), whole.Revision)
	}
	pair := read[wire.TopologyResponse](t, s.get(t, "/api/v1/topology?src=rack1&dst=rack2"))
	if len(pair.Paths) != 2 || len(pair.Paths[0].Links) != 3 || len(pair.Hops) != 3 || pair.Hops[0].Count != 2 || pair.Ports != nil {
		t.Errorf("paths %v, hops %v", pair.Paths, pair.Hops)
	}
	path := read[wire.PathResponse](t, s.get(t, "/api/v1/path?src=rack1&dst=rack2"))
	if len(path.Routes) != 2 || path.RoutesTruncated {
		t.Fatalf("routes %v", path.Routes)
	}
	known := 0
	for _, r := range path.Routes {
		if r.Room.GetRatio() == 0.1 && r.Named == 1 && r.Bounded == 2 && r.Unknown == 0 {
			known++ // over spine1
		}
	}
	if known != 1 {
		t.Errorf("routes %v", path.Routes)
	}
	without := newServed(t, 4, nil)
	without.window(t, 0)
	if got := read[wire.TopologyResponse](t, without.get(t, "/api/v1/topology")); got.Revision != "" || got.Ports != nil {
		t.Errorf("a topology without a fabric file: %v", got)
	}
	links := read[wire.LinksResponse](t, without.get(t, "/api/v1/links"))
	if links.Topology != "" || links.Total == 0 || links.Total > tabletest.Locations {
		t.Errorf("%d links without a fabric file, topology %q", links.Total, links.Topology)
	}
	for _, l := range links.Links {
		if l.Bound != nil || l.Passed != 0 {
			t.Errorf("without a fabric file %s has a bound", l.Link)
		}
	}
}

func TestFlowsFromMemory(t *testing.T) {
	s := wired(t)
	for target, want := range map[string]int{
		"flows?windows=10": 1, "flows?windows=1&src=rack1&min_heavy=15": 1, "flows?windows=1&min_heavy=16": 0, "flows?windows=1&src=rack2": 0,
		"flows?windows=1&link=spine1:down2": 1, "flows?windows=1&link=leaf1:up1": 0, "flows?windows=1&location=spine1:down2": 1,
		"flows?windows=1&src_address=::ffff:10.0.1.0/120": 1, "flows?windows=1&src_address=::ffff:0:0/96": 1, "flows?windows=1&src_address=::fffe:0:0/95": 0, "flows?windows=1&src_address=::/0": 0,
		"flows?windows=1&src_address=10.0.1.0/24": 1, "flows?windows=1&dst_address=10.0.1.0/24": 0, "flows?windows=1&kind=reflection": 0,
	} {
		got := read[wire.FlowsResponse](t, s.get(t, "/api/v1/"+target))
		if len(got.Flows) != want || int(got.Total) != want || got.About.Source != "memory" {
			t.Errorf("%s: %d flows from %s, want %d", target, len(got.Flows), got.About.Source, want)
		}
		if want == 1 && (got.Flows[0].SrcAddress != "10.0.1.1" || got.Flows[0].Mode.GetLocation() != "spine1:down2" || got.Flows[0].Mean.GetRatio() != 0.1 || got.Flows[0].Windows != 1) {
			t.Errorf("%s: %v", target, got.Flows[0])
		}
	}
	for _, target := range []string{
		"flows?windows=1&from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:04Z", "flows?windows=1&window=1m", "flows?windows=1&link=leaf9:up1", "flows?windows=1&location=nowhere",
	} {
		if w := s.get(t, "/api/v1/"+target); w.Code != 422 {
			t.Errorf("%s: status %d", target, w.Code)
		}
	}
}

// TestFlowPages: all pages of an answer from memory are about the same windows, and truncated if the first
// one is, even when memory has forgotten the windows.
func TestFlowPages(t *testing.T) {
	s := wired(t, func(c *api.Config) {
		c.Memory = table.NewMemory(table.MemoryOptions{Windows: 3, MaxRows: 24, Now: tabletest.Still}) // and 3 flows
	})
	for second := 1; second < 3; second++ {
		b := namedBlock(second)
		other := b.Flows[0]
		other.SrcPort = 9
		b.Flows = append(b.Flows, other)
		s.writeBlock(t, b)
	}
	s.memory.Publish() // without the flows of the first of both, for which there is no room
	whole := read[wire.FlowsResponse](t, s.get(t, "/api/v1/flows?windows=3"))
	one := read[wire.FlowsResponse](t, s.get(t, "/api/v1/flows?windows=3&limit=1"))
	if one.Total != 2 || !one.Truncated || one.NextCursor == "" || one.About.To.AsTime() != begin.Add(3*time.Second) {
		t.Fatalf("first page: %d flows, truncated %t, about %s", one.Total, one.Truncated, one.About)
	}
	for second := 3; second < 9; second++ {
		two := read[wire.FlowsResponse](t, s.get(t, "/api/v1/flows?windows=3&limit=1&cursor="+one.NextCursor))
		if two.Total != one.Total || !two.Truncated || !proto.Equal(two.About, one.About) || !proto.Equal(two.Flows[0], whole.Flows[1]) {
			t.Errorf("second page at second %d: %d flows, truncated %t, about %s, want %s", second, two.Total, two.Truncated, two.About, one.About)
		}
		s.writeBlock(t, namedBlock(second))
		s.memory.Publish()
	}
}

// TestKindOfARange: a cell that has tags in the range has no reflections in any of its windows: links, the
// verdict, timelines and exported windows add up to the cell.
func TestKindOfARange(t *testing.T) {
	s := newServed(t, 36, nil)
	for second, heavy := range []uint64{0, 30, 0, 30} { // the odd windows have reflections only
		b := &aggregate.Block{
			Source: aggregate.Source{Producer: 1}, Resolution: 1e9, WindowStart: begin.Add(time.Duration(second) * time.Second).UnixNano(),
			Signal: []uint8{uint8(csig.MinABWRatio)}, Kind: []uint8{uint8(csigdecode.Tag) + uint8(second%2)}, Encoding: []uint8{0},
			SrcGroup: []uint64{tabletest.FirstGroup}, DstGroup: []uint64{tabletest.FirstGroup + 1}, Location: []uint64{tabletest.FirstLocation},
			DistCode: []uint16{3}, DistCount: []uint64{30}, DistEnd: []uint32{1},
		}
		b.AppendSums(&aggregate.Sums{Observations: 30, Samples: 30, Sum: 3e6, Min: 1e5, Max: 1e5, Heavy: heavy, HeavySum: heavy * 1e5})
		s.writeBlock(t, b)
		s.memory.Publish()
	}
	cell := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?windows=4")).Cells[0]
	if cell.Kind != wire.Kind_KIND_TAG || cell.State != wire.State_STATE_CLEAR || cell.Observations != 60 {
		t.Fatalf("cell %v", cell)
	}
	if l := read[wire.LinksResponse](t, s.get(t, "/api/v1/links?windows=4")).Links[0]; l.State != wire.State_STATE_CLEAR || l.Since != nil || l.Observations != 60 {
		t.Errorf("link %v", l)
	}
	if v := read[wire.VerdictResponse](t, s.get(t, "/api/v1/verdict?windows=4")); v.Kind != wire.VerdictKind_VERDICT_KIND_HEALTHY || len(v.Statements) > 0 {
		t.Errorf("verdict %v", v)
	}
	for _, chosen := range []string{"", "&src=rack1&dst=rack2"} {
		line := read[wire.TimelineResponse](t, s.get(t, "/api/v1/timeline?windows=4"+chosen)).Timeline
		for i, m := range line {
			if want := uint64(30 * (1 - i%2)); m.Observations != want || m.Cells != want/30 || m.Heavy+m.Congested > 0 || len(m.Locations) > 0 || (m.Cell != nil) != (want > 0 && chosen != "") {
				t.Errorf("window %d%s: %v", i, chosen, m)
			}
		}
	}
	rows, err := csv.NewReader(s.get(t, "/api/v1/export?table=windows&windows=4&format=csv").Body).ReadAll()
	if err != nil || !slices.Equal(column(t, rows, "kind"), []string{"tag", "tag"}) || !slices.Equal(column(t, rows, "heavy"), []string{"0", "0"}) {
		t.Errorf("%v, exported %q", err, rows)
	}
	// A window alone is a range of its own.
	if m := read[wire.TimelineResponse](t, s.get(t, "/api/v1/timeline?windows=1")).Timeline[0]; m.Heavy != 30 || m.Congested != 1 {
		t.Errorf("the last window alone: %v", m)
	}
}

// TestWatchFlows: each window comes with the requested flows, by link and location.
func TestWatchFlows(t *testing.T) {
	s := wired(t)
	url := listen(t, s) + "/api/v1/watch?"
	watches := map[string]int{
		"flows=5": 1, "flows=5&link=spine1:down2": 1, "flows=5&link=leaf1:up1": 0, "": 0, "flows=5&location=spine1&level=device": 1, "flows=5&src=rack2": 0, "flows=5&encoding=frames": 1,
	}
	streams := map[string]*subscription{}
	for question := range watches {
		streams[question] = open(t, url+question)
		for e := streams[question].next(t); e.name != "synced"; e = streams[question].next(t) {
		}
	}
	s.writeBlock(t, namedBlock(1))
	s.memory.Publish()
	for question, want := range watches {
		e := decode[wire.WindowEvent](t, streams[question].next(t), "window")
		if len(e.Flows) != want || want == 1 && (e.Flows[0].SrcAddress != "10.0.1.1" || e.Flows[0].Heavy != 15) {
			t.Errorf("%s: %d flows, want %d: %v", question, len(e.Flows), want, e.Flows)
		}
	}
	if w := s.get(t, "/api/v1/watch?flows=5&link=leaf9:up1"); w.Code != 422 {
		t.Errorf("an unknown link: status %d", w.Code)
	}
}

// TestSilentLink: a link that was congested when its tap fell silent has no data, and no duration.
func TestSilentLink(t *testing.T) {
	now := begin.Add(time.Second)
	clock := func() time.Time { return now }
	s := wired(t, func(c *api.Config) {
		c.Memory, c.Now = table.NewMemory(table.MemoryOptions{Log: 16, Now: clock}), clock
	})
	link := func() *wire.Link {
		return read[wire.LinksResponse](t, s.get(t, "/api/v1/links?signal=min_abw_ratio&link=spine1:down2")).Links[0]
	}
	if l := link(); l.State != wire.State_STATE_CONGESTED || l.Since == nil || l.SustainedS != 1 {
		t.Errorf("while its tap sends: %v", l)
	}
	now = now.Add(20 * time.Second)
	s.memory.Publish()
	if l := link(); l.State != wire.State_STATE_NO_DATA || l.Since != nil || l.SustainedS != 0 {
		t.Errorf("20 s later: %v", l)
	}
}

// TestLinkOfLateProducer: a window that still lacks the rows of a producer does not end the congestion of a link, which
// that producer may see, in links and verdicts.
func TestLinkOfLateProducer(t *testing.T) {
	now := begin
	s := newClocked(t, table.MemoryOptions{}, &now, tabletest.Names{Racks: 3})
	announce := func(producer uint64, second int, list []seen, want wire.State) {
		t.Helper()
		s.memory.WriteProvisional((*aggregate.Provisional)(rows(producer, second, list)))
		s.memory.Publish()
		if second == 0 {
			return
		}
		links := read[wire.LinksResponse](t, s.get(t, "/api/v1/links?windows=3&link=leaf1:up1")).Links
		verdict := read[wire.VerdictResponse](t, s.get(t, "/api/v1/verdict?windows=3")).Statements
		if len(links) != 1 || links[0].State != want || len(verdict) != 1 || verdict[0].State != want {
			t.Errorf("second %d, producer %d: want %s: %v, %v", second, producer, want, links, verdict)
		}
	}
	for second, list := range [][]seen{loaded, loaded, loaded, quiet} {
		now = begin.Add(time.Duration(second+1) * time.Second)
		announce(1, second, []seen{{2, 1, 3, 0, 100}}, wire.State_STATE_CONGESTED)
		ends := wire.State_STATE_CONGESTED
		if second == 3 {
			ends = wire.State_STATE_BRIEF
		}
		announce(2, second, list, ends)
	}
}
