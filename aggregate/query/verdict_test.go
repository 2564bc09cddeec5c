package query_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/decode/csig"
)

// clos is a fabric of four leaves with four uplinks each, below four spines, with four hosts per
// leaf.
func clos(t *testing.T) *fabric.Fabric {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	spec := &fabric.Spec{Version: fabric.SpecVersion}
	for i := 1; i <= 4; i++ {
		leaf, spine := fabric.DeviceSpec{Name: fmt.Sprintf("leaf%d", i), Stage: "leaf"}, fabric.DeviceSpec{Name: fmt.Sprintf("spine%d", i), Stage: "spine"}
		for n := 1; n <= 4; n++ {
			host := fmt.Sprintf("h%d-%d", i, n)
			leaf.Ports = append(leaf.Ports,
				fabric.PortSpec{Name: fmt.Sprintf("up%d", n), Orientation: "up", Peer: fmt.Sprintf("spine%d", n), Speed: "100Gbps"},
				fabric.PortSpec{Name: fmt.Sprintf("down%d", n), Orientation: "down", Peer: host, Speed: "100Gbps"})
			spine.Ports = append(spine.Ports, fabric.PortSpec{Name: fmt.Sprintf("down%d", n), Orientation: "down", Peer: fmt.Sprintf("leaf%d", n), Speed: "100Gbps"})
			spec.Hosts = append(spec.Hosts, fabric.HostSpec{Name: host, Addresses: []string{fmt.Sprintf("10.0.%d.%d", i, n)}})
		}
		spec.Devices = append(spec.Devices, leaf, spine)
		spec.Groups = append(spec.Groups, fabric.GroupSpec{Name: fmt.Sprintf("rack%d", i), Level: "rack", Prefixes: []string{fmt.Sprintf("10.0.%d.0/24", i)}})
	}
	f, err := fabric.New(spec, domain)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// load is a cell's observations at a port in windows of 1 s: 20 in each.
type load struct {
	src, dst   int // racks; 0 to 0: no tag names a port
	port       string
	from, to   int // seconds, exclusive
	heavy      uint64
	unjudged   uint64
	signal     csig.Signal
	congested  bool // the state of the cell
	wasInRange bool
}

// ground is ten seconds of loads.
func ground(f *fabric.Fabric, seconds int, loads ...load) *query.VerdictInput {
	end := start.Add(time.Duration(seconds) * time.Second)
	g := &query.VerdictInput{
		From: start, To: end, Fabric: f, Coverage: query.Producers{Expected: 4, Present: 4, Covered: 1},
		Location: func(id aggregate.LocationID) *fabric.Location {
			l, ok := f.Location(id)
			if !ok {
				return &fabric.Location{ID: id, Name: "?", Kind: fabric.KindUnknown}
			}
			return &l
		},
		Group: func(id aggregate.GroupID) fabric.Group {
			for _, one := range f.Groups() {
				if one.ID == id {
					return one
				}
			}
			return fabric.Group{ID: id}
		},
	}
	for _, signal := range []csig.Signal{csig.MinABWRatio, csig.MaxDelay} {
		rows := query.SignalRows{Signal: signal, Recent: &query.Recent{Thresholds: aggregate.DefaultThresholds(), Length: 1e9, End: end.UnixNano()}}
		for _, l := range loads {
			if l.signal != 0 && l.signal != signal {
				continue
			}
			device, port, _ := strings.Cut(l.port, ":")
			id := fabric.PortLocationID(device, port)
			if port == "" {
				id = aggregate.NoLocation
			}
			n := uint64(l.to - l.from)
			cell := aggregate.CellID{Src: fabric.GroupIDOf(fmt.Sprintf("rack%d", l.src)), Dst: fabric.GroupIDOf(fmt.Sprintf("rack%d", l.dst)), Kind: 1}
			sums := aggregate.Sums{Observations: 20 * n, Samples: 20 * n, Measured: 20 * n, Sum: 20 * n * 1e5, Min: 5e4, Max: 2e5, Heavy: l.heavy * n, Unjudged: l.unjudged * n}
			rows.Locations = append(rows.Locations, aggregate.CellLocation{CellID: cell, Location: id, Sums: sums})
			c := aggregate.CellStats{Src: cell.Src, Dst: cell.Dst, Kind: 1, Signal: signal, Observations: 20 * n, Samples: 20 * n, Heavy: l.heavy * n, Unjudged: l.unjudged * n}
			switch c.Judge(aggregate.DefaultThresholds()); {
			case l.congested:
				c.State, c.CongestedWindows = aggregate.Congested, n
			case l.wasInRange:
				c.State, c.CongestedWindows = aggregate.Brief, n
			}
			rows.Cells = append(rows.Cells, c)
			for w := l.from; w < l.to; w++ {
				rows.Recent.Windows = append(rows.Recent.Windows, aggregate.LocationWindow{
					Start:         start.Add(time.Duration(w) * time.Second).UnixNano(),
					LocationStats: aggregate.LocationStats{Location: id, Observations: 20, Samples: 20, Heavy: l.heavy, Unjudged: l.unjudged},
				})
			}
		}
		if len(rows.Cells) > 0 {
			g.Signals = append(g.Signals, rows)
		}
	}
	return g
}

// TestFabricVerdict: places that belong together are merged if the loads of their ports justify
// it, and silence is never health.
func TestFabricVerdict(t *testing.T) {
	t.Parallel()
	f := clos(t)
	clear := load{src: 1, dst: 2, port: "leaf2:down1", from: 0, to: 10}
	hot := func(src, dst int, port string, heavy uint64) load {
		return load{src: src, dst: dst, port: port, from: 2, to: 10, heavy: heavy, congested: true}
	}
	over := func(l load) load {
		l.from, l.to, l.congested, l.wasInRange = 3, 6, false, true
		return l
	}
	sparse := func(g *query.VerdictInput) { // of the observations at leaf2:down1
		for i := range g.Signals {
			for k := range g.Signals[i].Recent.Windows {
				if w := &g.Signals[i].Recent.Windows[k]; w.Location == fabric.PortLocationID("leaf2", "down1") {
					w.Observations, w.Samples, w.Heavy = 5, 5, 2
				}
			}
		}
	}
	for name, test := range map[string]struct {
		loads  []load
		change func(*query.VerdictInput)
		kind   query.VerdictKind
		want   []string // the lines
	}{
		"healthy": {[]load{clear}, nil, query.VerdictHealthy, []string{"No cell was congested: 1 cell judged, 4 of 4 taps sent data."}},
		"silent taps": {[]load{clear}, func(g *query.VerdictInput) {
			g.Coverage = query.Producers{Expected: 4, Present: 2, Covered: 1, Silent: []string{"tap3", "tap4"}}
		}, query.VerdictIncomplete, []string{
			"No observed cell was congested, but data is missing: 1 cell judged, 2 of 4 taps sent data.",
			"note: 2 of 4 taps are silent: tap3, tap4; cells seen there may be missing or look better than they are.",
		}},
		"too few observations in each window": {[]load{hot(1, 2, "leaf2:down1", 10)}, sparse, query.VerdictCongested, []string{
			"Congested over the range as a whole: 1 place, with too few observations in each window to say when. In the whole range 1 of 1 cells were congested, over all signals.",
			"leaf2:down1, h2-1: 100 % of heavy observations, at some time between 09:00:02 and 09:00:10 UTC, 1 cell",
		}},
		"too few at one place": {[]load{hot(1, 2, "leaf2:down1", 10), over(hot(3, 4, "leaf4:down1", 10))}, sparse, query.VerdictCongested, []string{
			"Congested over the range as a whole: 1 place, with too few observations in each window to say when; 1 other was earlier. In the whole range 2 of 2 cells were congested, over all signals.",
			"leaf2:down1, h2-1: 73 % of heavy observations, at some time between 09:00:02 and 09:00:10 UTC, 1 cell",
			"leaf4:down1, h4-1: 27 % of heavy observations, 09:00:03 to 09:00:06 UTC, 1 cell",
		}},
		"too few at one of two": {[]load{hot(1, 2, "leaf2:down1", 10), hot(3, 4, "leaf4:down1", 10)}, sparse, query.VerdictCongested, []string{
			"Congested at the end (2026-01-20 09:00:10 UTC): 1 place; 1 other had too few observations in each window to say when. In the whole range 2 of 2 cells were congested, over all signals.",
			"leaf2:down1, h2-1: 50 % of heavy observations, at some time between 09:00:02 and 09:00:10 UTC, 1 cell",
			"leaf4:down1, h4-1: 50 % of heavy observations since 09:00:02 UTC, 1 cell",
		}},
		"a pair that stopped": {[]load{clear, {src: 1, dst: 3, port: "leaf1:up1", to: 10}}, func(g *query.VerdictInput) {
			for i := range g.Signals {
				g.Signals[i].Cells[1].State = aggregate.NoData
			}
		}, query.VerdictHealthy, []string{"No cell was congested: 1 of 2 cells judged, 4 of 4 taps sent data.", "note: 1 cell sent nothing lately."}},
		"gaps": {[]load{clear}, func(g *query.VerdictInput) { g.Coverage.Covered = 0.75 }, query.VerdictIncomplete, []string{
			"No observed cell was congested, but data is missing: 1 cell judged, 4 of 4 taps sent data.", "note: Windows of at least one tap are missing in 25 % of the range.",
		}},
		"nothing": {nil, func(g *query.VerdictInput) { g.Coverage.Present = 0 }, query.VerdictNoData, []string{
			"Nothing was observed from 09:00:00 to 09:00:10 UTC, 0 of 4 taps sent data.", "note: 4 of 4 taps are silent; cells seen there may be missing or look better than they are.",
		}},
		"silence": {nil, func(g *query.VerdictInput) {
			g.Coverage = query.Producers{Expected: 1, Covered: 1, Newest: start.Add(4 * time.Second)}
		}, query.VerdictNoData, []string{
			"Nothing was observed since 2026-01-20 09:00:04 UTC, 0 of 1 tap sent data.", "note: 1 of 1 tap is silent; cells seen there may be missing or look better than they are.",
		}},
		"an empty range": {nil, func(g *query.VerdictInput) { g.From = g.To }, query.VerdictNoData, []string{"Nothing was observed, 4 of 4 taps sent data."}},
		"data that ends early": {[]load{{src: 3, dst: 1, port: "leaf3:up1", from: 2, to: 10, heavy: 20, congested: true}}, func(g *query.VerdictInput) {
			g.Coverage.Newest, g.To = g.To, g.To.Add(time.Minute)
		}, query.VerdictCongested, []string{
			"Congested at the end (2026-01-20 09:00:10 UTC): 1 place. In the whole range 1 of 1 cells were congested, over all signals.", "leaf3:up1: 100 % of heavy observations since 09:00:02 UTC, 1 cell",
			"note: Nothing was observed in the last 1m0s of the range.",
		}},
		"since before the windows": {[]load{{src: 3, dst: 1, port: "leaf3:up1", from: 0, to: 10, heavy: 20, congested: true}}, func(g *query.VerdictInput) {
			for i := range g.Signals {
				v := &g.Signals[i].Cells[0].Verdict
				v.Since, v.Lasted = start.Add(time.Duration(i-30)*time.Second).UnixNano(), int64(40-i)*int64(time.Second)
			}
		}, query.VerdictCongested, []string{
			"Congested at the end (2026-01-20 09:00:10 UTC): 1 place. In the whole range 1 of 1 cells were congested, over all signals.", "leaf3:up1: 100 % of heavy observations since 08:59:30 UTC, 1 cell",
		}},
		"no threshold": {[]load{{src: 1, dst: 2, port: "leaf2:down1", to: 10, unjudged: 20, signal: csig.MaxDelay}}, nil, query.VerdictNotJudged, []string{
			"Nothing could be judged: no threshold applies to 1 cell. max_delay: " + aggregate.HowToJudge(csig.MaxDelay) + ".",
		}},
		"brief": {[]load{clear, {src: 1, dst: 3, port: "leaf1:up1", from: 4, to: 10, heavy: 0}, {src: 1, dst: 3, port: "leaf1:up1", from: 3, to: 4, heavy: 0}}, func(g *query.VerdictInput) {
			for i := range g.Signals { // one observation of twenty is the onset: one of forty is not
				g.Signals[i].Locations[1].Heavy, g.Signals[i].Cells[1].Heavy = 1, 1
				g.Signals[i].Cells[1].State = aggregate.Brief
				g.Signals[i].Recent.Windows[12].Observations, g.Signals[i].Recent.Windows[12].Heavy = 40, 1
			}
		}, query.VerdictBrief, []string{
			"No cell was congested; 0.3 % of the observations were heavy: 2 cells judged, 4 of 4 taps sent data.",
			"leaf1:up1: 100 % of heavy observations, briefly between 09:00:06 and 09:00:07 UTC, 1 cell",
		}},
		"slow rack": {[]load{hot(3, 1, "leaf3:up1", 20), hot(3, 2, "leaf3:up2", 15), hot(3, 4, "leaf3:up3", 20), hot(3, 4, "leaf3:up4", 5), hot(1, 3, "spine1:down3", 10), hot(2, 3, "spine2:down3", 10), hot(4, 3, "spine4:down3", 10)}, nil, query.VerdictCongested, []string{
			"Congested at the end (2026-01-20 09:00:10 UTC): 2 places. In the whole range 6 of 6 cells were congested, over all signals.",
			"leaf3 uplinks (4 ports): 67 % of heavy observations since 09:00:02 UTC, 3 cells",
			"links into leaf3 (3 of 4 ports): 33 % of heavy observations since 09:00:02 UTC, 3 cells",
		}},
		"one link": {[]load{hot(3, 1, "leaf3:up1", 20), hot(3, 2, "leaf3:up2", 1)}, nil, query.VerdictCongested, []string{
			"Congested at the end (2026-01-20 09:00:10 UTC): 2 places. In the whole range 2 of 2 cells were congested, over all signals.",
			"leaf3:up1: 95 % of heavy observations since 09:00:02 UTC, 1 cell", "leaf3:up2: 4.8 % of heavy observations since 09:00:02 UTC, 1 cell",
		}},
		"a spine": {[]load{hot(1, 2, "leaf1:up2", 20), hot(2, 3, "leaf2:up2", 20), hot(4, 3, "leaf4:up2", 20)}, nil, query.VerdictCongested, []string{
			"Congested at the end (2026-01-20 09:00:10 UTC): 1 place. In the whole range 3 of 3 cells were congested, over all signals.", "links into spine2 (3 of 4 ports): 100 % of heavy observations since 09:00:02 UTC, 3 cells",
		}},
		"incast that is over": {[]load{over(hot(1, 4, "leaf4:down2", 20)), over(hot(2, 4, "leaf4:down2", 20)), over(hot(3, 4, "leaf4:down2", 10)), {src: 1, dst: 2, port: "leaf2:down1", from: 0, to: 10}}, nil, query.VerdictWasCongested, []string{
			"Nothing is congested at the end (2026-01-20 09:00:10 UTC); before that 1 place and 3 of 4 cells were, over all signals.",
			"leaf4:down2, h4-2: incast from 3 racks, 100 % of heavy observations, 09:00:03 to 09:00:06 UTC, 3 cells",
		}},
		"two hosts": {[]load{hot(1, 4, "leaf4:down1", 20), hot(2, 4, "leaf4:down2", 20)}, nil, query.VerdictCongested, []string{
			"Congested at the end (2026-01-20 09:00:10 UTC): 2 places. In the whole range 2 of 2 cells were congested, over all signals.",
			"leaf4:down1, h4-1: 50 % of heavy observations since 09:00:02 UTC, 1 cell", "leaf4:down2, h4-2: 50 % of heavy observations since 09:00:02 UTC, 1 cell",
		}},
		"all hosts of a rack": {[]load{hot(1, 4, "leaf4:down1", 20), hot(1, 4, "leaf4:down2", 20), hot(2, 4, "leaf4:down3", 20), hot(2, 4, "leaf4:down4", 10)}, nil, query.VerdictCongested, []string{
			"Congested at the end (2026-01-20 09:00:10 UTC): 1 place. In the whole range 2 of 2 cells were congested, over all signals.", "leaf4 downlinks (4 ports): 100 % of heavy observations since 09:00:02 UTC, 2 cells",
		}},
		"no place": {[]load{hot(1, 4, "", 20)}, nil, query.VerdictCongested, []string{
			"Congested at the end (2026-01-20 09:00:10 UTC): 1 place. In the whole range 1 of 1 cells were congested, over all signals.", "no location named: 100 % of heavy observations since 09:00:02 UTC, 1 cell",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := ground(f, 10, test.loads...)
			if test.change != nil {
				test.change(g)
			}
			v := query.NewFabricVerdict(g)
			got := []string{v.Text}
			for i := range v.Statements {
				got = append(got, v.Statements[i].Text)
			}
			for _, note := range v.Notes {
				got = append(got, "note: "+note)
			}
			if text, want := strings.Join(got, "\n"), strings.Join(test.want, "\n"); v.Kind != test.kind || text != want {
				t.Errorf("kind %d:\n%s\nwant %d:\n%s", v.Kind, text, test.kind, want)
			}
		})
	}
}

// TestVerdictOfBursts: silence between bursts is a pause too, though it has no windows.
func TestVerdictOfBursts(t *testing.T) {
	t.Parallel()
	f := clos(t)
	for _, second := range []int{5, 6} {
		g := ground(f, 20, load{src: 3, dst: 1, port: "leaf3:up1", from: 2, to: 5, heavy: 20, wasInRange: true},
			load{src: 3, dst: 1, port: "leaf3:up1", from: second, to: 8, heavy: 20, wasInRange: true})
		got := query.NewFabricVerdict(g).Statements
		if len(got) != 1 || got[0].Paused != (second > 5) {
			t.Errorf("bursts from 2 to 5 and from %d to 8: %+v", second, got)
		}
	}
}

// TestVerdictOfLongRange: windows before those that decide states only supply times, and dates
// are given if the range has several days.
func TestVerdictOfLongRange(t *testing.T) {
	t.Parallel()
	f := clos(t)
	g := ground(f, 10, load{src: 3, dst: 1, port: "leaf3:up1", to: 10}, load{src: 3, dst: 1, port: "leaf3:up1", from: 4, to: 5, heavy: 20, wasInRange: true})
	id := fabric.PortLocationID("leaf3", "up1")
	g.From = start.Add(-24 * time.Hour)
	for i := range g.Signals {
		g.Signals[i].Earlier = &query.Recent{Thresholds: aggregate.DefaultThresholds(), Length: int64(5 * time.Minute), End: start.UnixNano(), Windows: []aggregate.LocationWindow{
			{Start: g.From.Add(-time.Hour).UnixNano(), LocationStats: aggregate.LocationStats{Location: id, Observations: 20, Samples: 20, Heavy: 20}}, // before the range
			{Start: g.From.Add(time.Hour).UnixNano(), LocationStats: aggregate.LocationStats{Location: id, Observations: 20, Samples: 20, Heavy: 20}},
		}}
	}
	v := query.NewFabricVerdict(g)
	const want = "leaf3:up1: 100 % of heavy observations, on and off from 2026-01-19 10:00:00 to 2026-01-20 09:00:05 UTC, 1 cell"
	if len(v.Statements) != 1 || v.Statements[0].Text != want || v.Statements[0].Since != 0 {
		t.Errorf("%+v, want %s", v.Statements, want)
	}
	const text = "Nothing is congested at the end (2026-01-20 09:00:10 UTC); before that 1 place and in the last 300 windows of the range 1 of 1 cells were, over all signals."
	if v.Text != text {
		t.Errorf("%s\nwant %s", v.Text, text)
	}
	g = ground(f, 10, load{src: 3, dst: 1, port: "leaf3:up1", to: 10})
	for i := range g.Signals { // a brief load: in a range without any, no window can have been congested
		g.Signals[i].Cells[0].Heavy = 1
	}
	for windows, want := range map[int]string{
		aggregate.Horizon:     "No cell was congested; 0.5 % of the observations were heavy: 1 cell judged, 4 of 4 taps sent data.",
		aggregate.Horizon + 1: "No cell was congested in the last 300 windows of the range; 0.5 % of the observations were heavy: 1 cell judged, 4 of 4 taps sent data.",
	} {
		g.From = g.To.Add(-time.Duration(windows) * time.Second)
		if got := query.NewFabricVerdict(g).Text; got != want {
			t.Errorf("%d windows: %s\nwant %s", windows, got, want)
		}
	}
}
