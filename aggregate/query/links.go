package query

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// Link is a port of the fabric, or a named location, with the measurements of its tags.
type Link struct {
	Location fabric.Location
	// Named is the sum of all cells' observations that name the link. Tags name only the tightest
	// hop: the link has at least that much available bandwidth.
	Named aggregate.CellLocation
	// Cells are those whose observations name it, the most heavy ones first, then the largest.
	// CellObservations are all observations of those cells.
	Cells            []Dependent
	CellObservations uint64
	// Passed are the observations with a value that certainly passed a port and do not name it. For
	// a signal of the least available bandwidth, such a tag is a lower bound of the port's value
	// when the tag passed, if the port's device writes tags. Bound is the best mean of such tags,
	// taken for each cell and each location that they name, or none, by itself, in stored integers; NaN if
	// none of these has MinObservations samples.
	Passed        uint64
	passedSamples uint64 // of Passed, unweighted
	Bound         float64
	// Among are the observations that name a set of ports including it.
	Among uint64
	// Flows are the named flows most of whose heavy observations name the link.
	Flows uint64

	// Verdict covers the windows in which the signal's tags name it. State is the state at the
	// end of the range, of the observations that certainly passed it.
	aggregate.Verdict
	State aggregate.State
}

// Dependent is a cell whose observations name a link.
type Dependent struct {
	Src, Dst            aggregate.GroupID
	Observations, Heavy uint64 // that name the link
	Total               uint64 // of the cell
}

// Recent are the windows that decide the states of links: all locations of a signal in the last
// aggregate.Horizon windows before the end of a range.
type Recent struct {
	Thresholds aggregate.Thresholds
	Length     int64 // of a window, ns
	End        int64 // of the range, Unix ns
	Windows    []aggregate.LocationWindow
	// Lacking has the starts of windows for which a producer may still send rows. These windows end no congestion, since
	// that producer may see it.
	Lacking map[int64]bool
}

// judged is the judgement of a location in one window.
type judged struct {
	start     int64 // of the window, Unix ns
	judgement aggregate.Judgement
}

// judgements returns the judgements of each location in all windows, by time. at maps a named
// location to the one that is judged: itself, or the first of those with which it is merged. If a
// window names other locations, and a location only rarely and in no heavy observation, it judges the
// location clear: tags name the tightest hop.
func (r *Recent) judgements(at func(aggregate.LocationID) aggregate.LocationID) map[aggregate.LocationID][]judged {
	starts := make(map[int64]int)
	for i := range r.Windows {
		starts[r.Windows[i].Start] = 0
	}
	below := make([]judged, 0, len(starts))
	for i, start := range slices.Sorted(maps.Keys(starts)) {
		starts[start] = i
		below = append(below, judged{start, aggregate.Below})
		if r.Lacking[start] {
			below[i].judgement = aggregate.Undecided
		}
	}
	sums := make(map[aggregate.LocationID][]aggregate.LocationStats)
	for i := range r.Windows {
		w := &r.Windows[i]
		location := at(w.Location)
		if sums[location] == nil {
			sums[location] = make([]aggregate.LocationStats, len(below))
		}
		s := &sums[location][starts[w.Start]]
		s.Observations, s.Samples = aggregate.AddSat(s.Observations, w.Observations), aggregate.AddSat(s.Samples, w.Samples)
		s.Heavy, s.Unjudged = aggregate.AddSat(s.Heavy, w.Heavy), aggregate.AddSat(s.Unjudged, w.Unjudged)
	}
	out := make(map[aggregate.LocationID][]judged, len(sums))
	for location, windows := range sums {
		out[location] = slices.Clone(below)
		for i, s := range windows {
			j := r.Thresholds.Judge(s.Observations, s.Samples, s.Heavy, s.Unjudged)
			if j&^aggregate.Loaded == aggregate.Below {
				j = j&aggregate.Loaded | below[i].judgement
			}
			if j != aggregate.Unjudged || s.Unjudged > 0 {
				out[location][i].judgement = j
			}
		}
	}
	return out
}

// verdict is the verdict over the windows that judge a location.
func (r *Recent) verdict(windows []judged) aggregate.Verdict {
	var h aggregate.History
	for _, w := range windows {
		h.Set(w.start/r.Length, w.judgement)
	}
	return h.Verdict((r.End+r.Length-1)/r.Length, r.Length)
}

// state returns the verdict and the state of a location with the sums of a range.
func (r *Recent) state(windows []judged, sums aggregate.Sums) (aggregate.Verdict, aggregate.State) {
	v := r.verdict(windows)
	v.Silent = v.Silent || len(r.Windows) == 0
	if len(windows) == 0 {
		sums.Heavy = 0 // was heavy earlier in the range
	}
	return v, r.Thresholds.State(v, sums.Observations, sums.Samples, sums.Heavy, sums.Unjudged)
}

// judge sets the states of links.
func (r *Recent) judge(links map[aggregate.LocationID]*Link) {
	windows := r.judgements(func(id aggregate.LocationID) aggregate.LocationID { return id })
	for id, l := range links {
		sums := l.Named.Sums
		sums.Observations, sums.Samples = aggregate.AddSat(sums.Observations, l.Passed), aggregate.AddSat(sums.Samples, l.passedSamples)
		l.Verdict, l.State = r.state(windows[id], sums)
		if l.State == aggregate.NoData { // silence says nothing about how long congestion lasts
			l.Since, l.Lasted = 0, 0
		}
	}
}

// Mean returns the mean of the values that name the link, in stored integers; NaN without any.
func (l *Link) Mean() float64 { return aggregate.Ratio(l.Named.Sum, l.Named.Measured) }

// Last returns the mean in the last window that names the link; NaN without any.
func (l *Link) Last() float64 { return aggregate.Ratio(l.Named.LastSum, l.Named.LastMeasured) }

// Known returns the mean of the values that name the link, else its bound; NaN if both are
// unknown.
func (l *Link) Known() float64 {
	if l.Named.Measured > 0 {
		return l.Mean()
	}
	return l.Bound
}

// Links are the ports of a fabric and all named locations.
type Links struct {
	// Topology is the revision of the fabric, empty without one: then links are only the named
	// locations, without bounds.
	Topology string
	List     []Link // the most heavy observations first, then the tightest, then by name
	at       map[aggregate.LocationID]int
}

// Find returns the link of a location, nil if there is none.
func (l *Links) Find(id aggregate.LocationID) *Link {
	if i, ok := l.at[id]; ok {
		return &l.List[i]
	}
	return nil
}

// NewLinks makes the links that cells' observations of a signal name. f is nil without a fabric
// file; location describes the named locations. recent are the windows that decide their states.
func NewLinks(signal csig.Signal, rows []aggregate.CellLocation, recent *Recent, f *fabric.Fabric, location func(aggregate.LocationID) *fabric.Location) *Links {
	b := linkBuilder{signal: signal, fabric: f, location: location, links: make(map[aggregate.LocationID]*Link), totals: make(map[aggregate.CellID]uint64)}
	out := &Links{}
	if f != nil {
		out.Topology = f.TopologyRevision()
		for _, port := range f.Ports() {
			b.links[port.ID] = &Link{Location: port, Bound: math.NaN()}
		}
	}
	for i := range rows {
		b.totals[rows[i].CellID] = aggregate.AddSat(b.totals[rows[i].CellID], rows[i].Observations)
	}
	for i := range rows {
		b.add(&rows[i])
	}
	recent.judge(b.links)
	for _, l := range b.links {
		slices.SortFunc(l.Cells, func(x, y Dependent) int {
			return cmp.Or(cmp.Compare(y.Heavy, x.Heavy), cmp.Compare(y.Observations, x.Observations), cmp.Compare(x.Src, y.Src), cmp.Compare(x.Dst, y.Dst))
		})
		out.List = append(out.List, *l)
	}
	slices.SortFunc(out.List, func(x, y Link) int {
		return cmp.Or(cmp.Compare(y.Named.Heavy, x.Named.Heavy), compareTightness(signal, x.Known(), y.Known()),
			cmp.Compare(x.Location.Name, y.Location.Name), cmp.Compare(x.Location.ID, y.Location.ID))
	})
	out.at = make(map[aggregate.LocationID]int, len(out.List))
	for i := range out.List {
		out.at[out.List[i].Location.ID] = i
	}
	return out
}

// compareTightness puts the tighter value first and unknown ones last.
func compareTightness(s csig.Signal, x, y float64) int {
	switch {
	case math.IsNaN(x) || math.IsNaN(y):
		return cmp.Compare(y, x) // NaN is less than all others
	case s.Direction() == csig.Max:
		return cmp.Compare(y, x)
	}
	return cmp.Compare(x, y)
}

type linkBuilder struct {
	signal   csig.Signal
	fabric   *fabric.Fabric
	location func(aggregate.LocationID) *fabric.Location
	links    map[aggregate.LocationID]*Link
	totals   map[aggregate.CellID]uint64
}

// add adds the observations of one cell and location.
func (b *linkBuilder) add(row *aggregate.CellLocation) {
	location := &fabric.Location{}
	if row.Location != aggregate.NoLocation {
		location = b.location(row.Location)
		b.name(location, row)
	}
	if b.fabric == nil {
		return
	}
	if location.CandidateCount > 1 {
		for _, name := range location.Candidates {
			if l := b.links[fabric.LocationIDOf(fabric.KindPort, name)]; l != nil {
				l.Among = aggregate.AddSat(l.Among, row.Observations)
			}
		}
	}
	if row.Measured == 0 {
		return
	}
	value := aggregate.Ratio(row.Sum, row.Measured)
	for _, id := range b.fabric.Passed(row.Src, row.Dst, location) {
		l := b.links[id]
		if id == row.Location {
			continue
		}
		l.Passed, l.passedSamples = aggregate.AddSat(l.Passed, row.Measured), aggregate.AddSat(l.passedSamples, row.Samples)
		if row.Samples >= aggregate.MinObservations && (math.IsNaN(l.Bound) || compareTightness(b.signal, value, l.Bound) > 0) {
			l.Bound = value
		}
	}
}

// name adds a cell's observations to the link that they name.
func (b *linkBuilder) name(location *fabric.Location, row *aggregate.CellLocation) {
	l := b.links[row.Location]
	if l == nil {
		l = &Link{Location: *location, Bound: math.NaN()}
		b.links[row.Location] = l
	}
	l.Named.Location = row.Location
	l.Named.Merge(row)
	total := b.totals[row.CellID]
	l.Cells = append(l.Cells, Dependent{row.Src, row.Dst, row.Observations, row.Heavy, total})
	l.CellObservations = aggregate.AddSat(l.CellObservations, total)
}

// Route is one of the shortest paths of a pair of groups, with the values of its links.
type Route struct {
	Ports []fabric.Location
	// Room is the tightest known value of its links, in stored integers; NaN if none is known.
	// Limit is the link with that value.
	Room  float64
	Limit *Link
	// Numbers of links with a value, with a bound only, and without either.
	Named, Bounded, Unknown int
}

// maxRoutes bounds the listed paths of a pair.
const maxRoutes = 64

// Routes lists the shortest paths of a pair of groups, those with the most available bandwidth
// first, then unknown ones. more reports whether there are further paths than the first 64.
func (l *Links) Routes(f *fabric.Fabric, signal csig.Signal, src, dst aggregate.GroupID) (list []Route, more bool) {
	routes, more := f.GroupRoutes(src, dst, maxRoutes)
	for _, ports := range routes {
		r := Route{Room: math.NaN()}
		for _, id := range ports {
			link := l.Find(id)
			r.Ports = append(r.Ports, link.Location)
			known := link.Known()
			switch {
			case math.IsNaN(known):
				r.Unknown++
				continue
			case link.Named.Measured > 0:
				r.Named++
			default:
				r.Bounded++
			}
			if r.Limit == nil || compareTightness(signal, known, r.Room) < 0 {
				r.Room, r.Limit = known, link
			}
		}
		list = append(list, r)
	}
	slices.SortStableFunc(list, func(x, y Route) int {
		if math.IsNaN(x.Room) || math.IsNaN(y.Room) {
			return cmp.Compare(y.Room, x.Room)
		}
		return cmp.Or(compareTightness(signal, y.Room, x.Room), cmp.Compare(x.Unknown, y.Unknown))
	})
	return list, more
}

// CountFlows sets the number of flows that name each link.
func (l *Links) CountFlows(at map[aggregate.LocationID]uint64) {
	for id, n := range at {
		if link := l.Find(id); link != nil {
			link.Flows = n
		}
	}
}
