package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

const (
	// maxDependents bounds the cells listed under a link.
	maxDependents = 10
	// linkBytes is the approximate size of a link with its name and cells.
	linkBytes = 1 << 10
	// locationBytes is the approximate size of a location of a window.
	locationBytes = 80
)

// asResolved selects level 0: locations as they were resolved.
type asResolved struct{ linksChoice }

// linksChoice is a signal and a time.
type linksChoice interface {
	times
	GetSignal() string
	GetWindows() uint32
}

// GetLevel implements subject.
func (asResolved) GetLevel() string { return fabric.LevelLocation.String() }

// topology returns the fabric for paths and links: the one in use, else the one of the last
// stored configuration. It is nil without a fabric file. While the store is slow or away, it is the
// last one read; a question to memory gets nil if none was read.
func (a *API) topology(ctx context.Context, s *table.State) (*fabric.Fabric, error) {
	if w, ok := a.Names.(query.Wired); ok {
		if f, err := w.Topology(ctx); f != nil || err != nil {
			return f, err
		}
	}
	w, ok := a.Reader.(query.Wired)
	if !ok {
		return nil, nil
	}
	list, err := a.wired.get(ctx, a.patience, func(ctx context.Context) ([]*fabric.Fabric, error) {
		f, err := w.Topology(ctx)
		return []*fabric.Fabric{f}, err
	})
	switch {
	case err == nil:
		return list[0], nil
	case s != nil:
		return nil, nil
	}
	return nil, err
}

// Topology implements query.Wired.
func (n *BothNames) Topology(context.Context) (*fabric.Fabric, error) {
	if n.Fabric != nil {
		if f := n.Fabric(); f.TopologyRevision() != "" {
			return f, nil
		}
	}
	return nil, nil
}

// linksOf returns the links of a signal, with their flows. For memory they are computed once per
// revision.
func (a *API) linksOf(ctx context.Context, s *table.State, on *scope, f *fabric.Fabric) (*query.Links, error) {
	if !on.Signal.Aggregation().Locates() {
		return nil, wrong("signal", on.about.GetSignal(), "is a sum or a count over hops, which names no link: ask for a minimum or maximum over hops")
	}
	if s == nil {
		links, err := a.makeLinks(ctx, s, on, f)
		if err != nil {
			return nil, err
		}
		flows, err := a.Reader.Flows(ctx, linkFlows(on))
		if err != nil {
			return nil, err
		}
		links.CountFlows(query.CountFlows(flows))
		return links, nil
	}
	type linksOf struct {
		signal          csig.Signal
		windows         int
		revision, names uint64
		topology        *fabric.Fabric
	}
	return getOrCompute(a.cache, linksOf{on.Signal, len(on.windows), s.Revision, on.names.version, f}, func() (*query.Links, int, error) {
		links, err := a.makeLinks(ctx, s, on, f)
		if err != nil {
			return nil, 0, err
		}
		flows, _ := query.FlowsOfWindows(on.windows, linkFlows(on), s.Old(on.windows))
		links.CountFlows(query.CountFlows(flows))
		return links, len(links.List) * linkBytes, nil
	})
}

// linkFlows asks for the flows that are counted at links: those of all windows that overlap the range.
func linkFlows(on *scope) query.FlowQuestion {
	length := on.decidingLength()
	return query.FlowQuestion{Signal: on.Signal, From: on.From.Truncate(length), To: on.To, Resolution: length, MinHeavy: 1, Limit: maxRecords}
}

func (a *API) makeLinks(ctx context.Context, s *table.State, on *scope, f *fabric.Fabric) (*query.Links, error) {
	rows, err := on.CellLocations(ctx, on.Question)
	if err != nil {
		return nil, err
	}
	recent, err := a.recent(ctx, s, on, on.decidingLength())
	if err != nil {
		return nil, err
	}
	return query.NewLinks(on.Signal, rows, recent, f, on.names.describe), nil
}

// decidingLength is the length of the stored windows that decide the states of links, and of the flows at
// them: 1 min if the range is long.
func (on *scope) decidingLength() time.Duration {
	if on.length == time.Minute || on.To.Sub(on.From) > time.Hour {
		return time.Minute
	}
	return time.Second
}

// recent returns the windows that decide the states of links: those of memory, or those of a length
// of the store.
func (a *API) recent(ctx context.Context, s *table.State, on *scope, length time.Duration) (*query.Recent, error) {
	r := &query.Recent{Thresholds: a.Thresholds, End: on.To.UnixNano()}
	if s != nil {
		r.Length, r.Windows, r.Lacking = int64(s.Resolution), a.locationWindows(s, on.Signal), make(map[int64]bool)
		for _, w := range s.Windows {
			r.Lacking[w.Start.UnixNano()] = w.Lacks()
		}
		return r, nil
	}
	q := on.Question
	q.Resolution, q.Step, r.Length = 0, length, int64(length)
	q.From = startOf(q.To, aggregate.Horizon*length)
	var err error
	r.Windows, err = a.Reader.LocationWindows(ctx, q)
	return r, err
}

// locationWindows returns the locations of all windows of a state, as parts of their sum, computed once
// per revision.
func (a *API) locationWindows(s *table.State, signal csig.Signal) []aggregate.LocationWindow {
	type windowsOf struct {
		signal   csig.Signal
		revision uint64
		length   time.Duration
	}
	list, _ := getOrCompute(a.cache, windowsOf{signal, s.Revision, s.Resolution}, func() (list []aggregate.LocationWindow, size int, err error) {
		for _, w := range s.Parts(s.Windows) {
			for _, l := range w.Locations(signal) {
				list = append(list, aggregate.LocationWindow{Start: w.Start.UnixNano(), LocationStats: l})
			}
		}
		return list, len(list) * locationBytes, nil
	})
	return list
}

func (a *API) links(ctx context.Context, s *table.State, in *wire.LinksRequest) (*answer, error) {
	on, err := a.scope(ctx, s, asResolved{in})
	if err != nil {
		return nil, err
	}
	f, err := a.topology(ctx, s)
	if err != nil {
		return nil, err
	}
	links, err := a.linksOf(ctx, s, &on, f)
	if err != nil {
		return nil, err
	}
	if err := knowLinks(links, f, in); err != nil {
		return nil, err
	}
	out := &wire.LinksResponse{About: on.about, Topology: links.Topology}
	for i := range links.List {
		l := &links.List[i]
		if !chosen(in.GetLink(), l.Location.Name) || !chosen(in.GetDevice(), l.Location.Device) || !chosen(in.GetPeer(), l.Location.Peer) || !chosen(in.GetState(), stateOf(l.State)) {
			continue
		}
		if out.Total++; len(out.Links) < int(in.GetTop()) {
			out.Links = append(out.Links, on.names.link(l, on.Signal))
			if l.State == aggregate.NotJudged {
				out.About.NotJudgedHint = aggregate.HowToJudge(on.Signal)
			}
		}
	}
	return of(s, out)
}

// chosen reports whether a list contains a name; an empty list contains all.
func chosen[T comparable](list []T, name T) bool {
	return len(list) == 0 || slices.Contains(list, name)
}

// knowLinks refuses names of links, devices and peers that are neither in the fabric nor in an
// answer.
func knowLinks(links *query.Links, f *fabric.Fabric, in *wire.LinksRequest) error {
	known := map[string]map[string]bool{"link": {}, "device": {}, "peer": {}}
	for i := range links.List {
		p := &links.List[i].Location
		known["link"][p.Name], known["device"][p.Device], known["peer"][p.Peer] = true, true, true
	}
	if f != nil {
		for _, d := range f.Devices() {
			known["device"][d.Name], known["peer"][d.Name] = true, true
		}
	}
	for _, asked := range []struct {
		parameter string
		names     []string
	}{{"link", in.GetLink()}, {"device", in.GetDevice()}, {"peer", in.GetPeer()}} {
		for _, name := range asked.names {
			if !known[asked.parameter][name] {
				return wrong(asked.parameter, name, "no such %s %q: /api/v1/topology lists them, and without a fabric file links are the locations that were named", asked.parameter, name)
			}
		}
	}
	return nil
}

func (n *names) link(l *query.Link, s csig.Signal) *wire.Link {
	value := func(stored float64) *wire.Measure { return measure(s, sixDigits(s.Unit().FromStoredMean(stored))) }
	p, named := &l.Location, &l.Named
	out := &wire.Link{
		Link: text(p.Name), Kind: kindOf(p), Device: text(p.Device), Stage: text(p.Stage), Peer: text(p.Peer),
		CapacityBps: p.Capacity * 1000, CandidateCount: uint32(p.CandidateCount), State: stateOf(l.State), Since: sinceOf(&l.Verdict), SustainedS: seconds(l.Lasted),
		Mean: value(l.Mean()), Last: value(l.Last()), Trend: value(l.Named.Trend()), Bound: value(l.Bound),
		Observations: named.Observations, Heavy: named.Heavy, Passed: l.Passed, Among: l.Among,
		HeavyRatio: ratioOf(named.Heavy, aggregate.AddSat(named.Observations, l.Passed)),
		Cells:      uint64(len(l.Cells)), ShareRatio: sixDigits(share(named.Observations, l.CellObservations)), Flows: l.Flows,
	}
	if named.Measured > 0 {
		out.Min, out.Max = value(float64(named.Min)), value(float64(named.Max))
	}
	for _, c := range l.Cells[:min(len(l.Cells), maxDependents)] {
		out.Dependents = append(out.Dependents, &wire.Dependent{
			Src: n.groupName(c.Src), Dst: n.groupName(c.Dst), Observations: c.Observations, Heavy: c.Heavy, ShareRatio: sixDigits(share(c.Observations, c.Total)),
		})
	}
	return out
}

// routes adds the paths of a pair to its answer, if there is a topology and the signal names
// hops.
func (a *API) routes(ctx context.Context, s *table.State, in *wire.PathRequest, out *wire.PathResponse) error {
	f, err := a.topology(ctx, s)
	if f == nil || err != nil {
		return err
	}
	on, err := a.scope(ctx, s, asResolved{in})
	if err != nil || !on.Signal.Aggregation().Locates() {
		return err
	}
	links, err := a.linksOf(ctx, s, &on, f)
	if err != nil {
		return err
	}
	list, more := links.Routes(f, on.Signal, fabric.GroupIDOf(out.Cell.Src), fabric.GroupIDOf(out.Cell.Dst))
	out.RoutesTruncated = more
	for _, r := range list {
		route := &wire.Route{
			Room:  measure(on.Signal, sixDigits(on.Signal.Unit().FromStoredMean(r.Room))),
			Named: uint32(r.Named), Bounded: uint32(r.Bounded), Unknown: uint32(r.Unknown),
		}
		for _, port := range r.Ports {
			route.Links = append(route.Links, text(port.Name))
		}
		if r.Limit != nil {
			route.Limit = text(r.Limit.Location.Name)
		}
		out.Routes = append(out.Routes, route)
	}
	return nil
}

// maxPaths bounds the listed paths of a pair.
const maxPaths = 64

func (a *API) wires(ctx context.Context, _ *table.State, in *wire.TopologyRequest) (*answer, error) {
	if (in.GetSrc() == "") != (in.GetDst() == "") {
		return nil, wrong("src", in.GetSrc(), "src and dst go together: give both for the paths of a pair, or neither")
	}
	f, err := a.topology(ctx, nil)
	if err != nil {
		return nil, err
	}
	out := &wire.TopologyResponse{Name: text(a.Fabric)}
	if f == nil {
		return of(nil, out)
	}
	ports := f.Ports()
	if len(ports) > maxLocations {
		return nil, &refused{
			status: http.StatusUnprocessableEntity, detail: fmt.Sprintf("there are %d ports, at most %d are listed: see the fabric file", len(ports), maxLocations),
		}
	}
	out.Revision = f.TopologyRevision()
	if in.GetSrc() != "" {
		return a.pairPaths(ctx, f, in, out)
	}
	for _, g := range f.Groups() {
		if g.ID > aggregate.OverflowGroup {
			out.Groups = append(out.Groups, &wire.Group{Name: text(g.Name), Level: text(g.Level), Parent: text(g.Parent)})
		}
	}
	for _, d := range f.Devices() {
		out.Devices = append(out.Devices, &wire.Device{Name: text(d.Name), Stage: text(d.Stage)})
	}
	for _, p := range ports {
		out.Ports = append(out.Ports, &wire.Port{
			Link: text(p.Name), Device: text(p.Device), Stage: text(p.Stage), Orientation: text(p.Orientation), Peer: text(p.Peer), CapacityBps: p.Capacity * 1000,
		})
	}
	return of(nil, out)
}

// pairPaths adds the paths of a pair.
func (a *API) pairPaths(ctx context.Context, f *fabric.Fabric, in *wire.TopologyRequest, out *wire.TopologyResponse) (*answer, error) {
	var ends [2]aggregate.GroupID
	n, err := a.names.get(ctx)
	if err != nil {
		return nil, err
	}
	for i, end := range []struct{ parameter, name string }{{"src", in.GetSrc()}, {"dst", in.GetDst()}} {
		if _, ok := n.ids[end.name]; !ok {
			return nil, n.unknown(end.parameter, end.name, "group")
		}
		ends[i] = fabric.GroupIDOf(end.name)
	}
	for _, hop := range f.Hops(ends[0], ends[1]) {
		out.Hops = append(out.Hops, &wire.Hop{Name: text(hop.Name), Links: texts(hop.Ports), Count: uint32(hop.Count)})
	}
	paths, more := f.GroupRoutes(ends[0], ends[1], maxPaths)
	out.PathsTruncated = more
	for _, path := range paths {
		var names []string
		for _, id := range path {
			port, _ := f.Location(id)
			names = append(names, text(port.Name))
		}
		out.Paths = append(out.Paths, &wire.EqualCostPath{Links: names})
	}
	return of(nil, out)
}
