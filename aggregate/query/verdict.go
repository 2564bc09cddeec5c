package query

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// VerdictInput is the data behind a FabricVerdict: the rows of all signals over a range, from
// memory or a store.
type VerdictInput struct {
	From, To time.Time
	Signals  []SignalRows
	Coverage Producers
	Fabric   *fabric.Fabric // for the peers of ports; nil without a fabric file
	Location func(aggregate.LocationID) *fabric.Location
	Group    func(aggregate.GroupID) fabric.Group
}

// SignalRows are the rows of one signal.
type SignalRows struct {
	Signal    csig.Signal
	Cells     []aggregate.CellStats    // with their states at the end of the range
	Locations []aggregate.CellLocation // by the locations that the observations of each cell name
	Recent    *Recent                  // the windows that decide states
	// Earlier are windows of the range before those of Recent, only for times; nil for none.
	Earlier *Recent
}

// Producers describe the coverage of the range.
type Producers struct {
	Expected, Present int      // both 0 if unknown
	Silent            []string // names of silent expected ones, as far as they are known
	Covered           float64  // share of the range without a known gap
	// Newest is the end of the newest window with observations, which may be after the range; the zero
	// Time if unknown.
	Newest time.Time
}

// VerdictKind is the kind of a verdict.
type VerdictKind uint8

// The kinds. Their numbers are those of the API's enum, less one.
const (
	VerdictNoData       VerdictKind = iota // nothing was observed
	VerdictNotJudged                       // there are observations, but none could be judged
	VerdictIncomplete                      // nothing observed was congested, but coverage is incomplete
	VerdictHealthy                         // no cell was congested, and nothing was heavy
	VerdictBrief                           // something was heavy or trimmed, and nothing was congested
	VerdictWasCongested                    // something was congested, but is not at the end of the range
	VerdictCongested                       // something is congested at the end of the range, or at a time that nothing shows
)

var verdictKinds = [...]string{"no_data", "not_judged", "incomplete", "healthy", "brief", "was_congested", "congested"}

// String returns the kind's name in the API.
func (k VerdictKind) String() string { return verdictKinds[k] }

// FabricVerdict describes in words where a fabric is congested, with all signals merged.
type FabricVerdict struct {
	Kind VerdictKind
	Text string // a sentence or two
	// Statements are about the locations that limit cells, those with the most heavy observations
	// first.
	Statements []Statement
	// Rest are the locations with brief loads that have no statement.
	Rest struct {
		Places int
		Share  float64 // of the heavy observations
	}
	Notes []string // gaps in the data and the configuration, in sentences

	Signals []csig.Signal

	Observations, Heavy uint64 // of all signals
	// Cells are pairs of groups, each counted once for all signals.
	Cells, JudgedCells, CongestedCells int
}

// StatementKind is the kind of a statement's subject.
type StatementKind uint8

// The kinds. Their numbers are those of the API's enum, less one.
const (
	AboutLocation  StatementKind = iota // a location of another kind, such as raw locator metadata
	AboutPort                           // one port between two devices
	AboutUplinks                        // ports of one device, towards the spines
	AboutDownlinks                      // ports of one device, towards the hosts
	AboutFarEnd                         // links into one device
	AboutHost                           // the links into one host
	AboutIncast                         // links into hosts of one group, from three or more sources
	AboutUnlocated                      // observations without a location
)

var statementKinds = [...]string{"location", "port", "uplinks", "downlinks", "far_end", "host", "incast", "unlocated"}

// String returns the kind's name in the API.
func (k StatementKind) String() string { return statementKinds[k] }

// Statement is about one location that limits cells.
type Statement struct {
	Kind  StatementKind
	Text  string // such as "leaf5 uplinks (4 ports): 43 % of heavy observations since 00:00:00 UTC, 30 cells"
	Place string // its beginning, such as "leaf5 uplinks (4 ports)"

	Device    string              // device of the ports, if it is one
	FarEnd    string              // device at the other end of the ports, if it is one
	Host      string              // host at the other end of the ports, if it is one
	Locations []fabric.Location   // named by observations, the most heavy ones first
	Ports     int                 // number of ports that a considerable part of the heavy observations names, with all possible ports of a set
	OfPorts   int                 // number of ports of the whole, such as all uplinks of the device
	State     aggregate.State     // at the end of the range, the worst of the signals
	Since     int64               // of a congested location, Unix ns
	Dated     bool                // Since is known
	First     int64               // start of the first congested window, else the first one with heavy observations, Unix ns; 0 if unknown
	Last      int64               // end of the last one
	Onset     bool                // some window reached the onset
	Paused    bool                // nothing was heavy there in some windows between First and Last
	Heavy     uint64              // heavy observations of all signals
	Share     float64             // of the heavy observations of all locations
	Signals   []StatementSignal   // the most heavy observations first
	Cells     []StatementCell     // with heavy observations there, in descending order
	Sources   []aggregate.GroupID // with a considerable part of them, in descending order
	// Destination is the only destination with a considerable part of them; nil if there are several.
	Destination *aggregate.GroupID
}

// StatementSignal sums up one signal at a location.
type StatementSignal struct {
	Signal csig.Signal
	Heavy  uint64
	Worst  float64 // the least or the greatest value, whichever is tight, in stored integers; NaN without any

	sums aggregate.Sums
}

// StatementCell is a cell with heavy observations at a location.
type StatementCell struct {
	Src, Dst aggregate.GroupID
	Heavy    uint64 // of all signals
}

// considerable is the minimum fraction of the heaviest one that counts as involved: a port in a
// group of ports, or a source of an incast.
const considerable = 0.1

// leastSources is the minimum number of sources of an incast.
const leastSources = 3

// leastShare is the minimum share of the heavy observations for a statement about a location that
// was not congested.
const leastShare = 0.05

// NewFabricVerdict makes the verdict.
func NewFabricVerdict(g *VerdictInput) *FabricVerdict {
	b := &verdictBuilder{VerdictInput: g, out: &FabricVerdict{}, locations: make(map[aggregate.LocationID]*locationSums), peers: make(map[string]string), switches: make(map[string]bool)}
	if g.Fabric != nil {
		for _, p := range g.Fabric.Ports() {
			b.peers[p.Name] = p.Peer
		}
		for _, d := range g.Fabric.Devices() {
			b.switches[d.Name] = true
		}
	}
	b.count()
	for _, members := range b.groups() {
		b.out.Statements = append(b.out.Statements, b.statement(members))
	}
	b.time()
	b.rank()
	b.speak()
	return b.out
}

type verdictBuilder struct {
	*VerdictInput
	out       *FabricVerdict
	locations map[aggregate.LocationID]*locationSums // with heavy observations
	peers     map[string]string                      // of ports, by name
	switches  map[string]bool
	states    map[aggregate.State]int // number of pairs by state, the best known of their signals
	silent    int                     // of them, pairs whose observations are all earlier than the windows that decide
	unjudged  map[csig.Signal]int     // number of cells that are not judged
	trimmed   uint64
	ongoing   map[pair]aggregate.Verdict // congested cells, the longest one of their signals
}

// pair is a cell, for any signal and kind.
type pair struct{ src, dst aggregate.GroupID }

// locationSums are the heavy observations of one location.
type locationSums struct {
	location *fabric.Location
	heavy    uint64
	signals  map[csig.Signal]*aggregate.Sums // of all its cells with heavy observations there
	cells    map[pair]uint64
}

// count adds up cells and locations.
func (b *verdictBuilder) count() {
	best := make(map[pair]aggregate.State)
	congested, observed := make(map[pair]bool), make(map[pair]bool)
	b.unjudged, b.ongoing = make(map[csig.Signal]int), make(map[pair]aggregate.Verdict)
	for i := range b.Signals {
		s := &b.Signals[i]
		b.out.Signals = append(b.out.Signals, s.Signal)
		for k := range s.Cells {
			c := &s.Cells[k]
			p := pair{c.Src, c.Dst}
			if known, ok := best[p]; !ok || certainty(c.State) > certainty(known) {
				best[p] = c.State
			}
			if c.WasCongested() {
				congested[p] = true
			}
			if c.Observations > 0 {
				observed[p] = true
			}
			if known, ok := b.ongoing[p]; c.State == aggregate.Congested && (!ok || known.Lasted < c.Lasted) {
				b.ongoing[p] = c.Verdict
			}
			if c.State == aggregate.NotJudged {
				b.unjudged[s.Signal]++
			}
			b.trimmed = aggregate.AddSat(b.trimmed, c.Trimmed)
			b.out.Observations, b.out.Heavy = aggregate.AddSat(b.out.Observations, c.Observations), aggregate.AddSat(b.out.Heavy, c.Heavy)
		}
		for k := range s.Locations {
			if row := &s.Locations[k]; row.Heavy > 0 {
				b.add(s.Signal, row)
			}
		}
	}
	b.states = make(map[aggregate.State]int)
	for p, state := range best {
		b.states[state]++
		if state == aggregate.NoData && observed[p] {
			b.silent++
		}
	}
	b.out.Cells, b.out.CongestedCells = len(best), len(congested)
	b.out.JudgedCells = b.states[aggregate.Clear] + b.states[aggregate.Brief] + b.states[aggregate.Congested]
}

// certainty is higher for more informative states.
func certainty(s aggregate.State) int {
	return [aggregate.NumStates]int{
		aggregate.NoData: 0, aggregate.TooFew: 1, aggregate.NotJudged: 2, aggregate.Clear: 3, aggregate.Brief: 4, aggregate.Congested: 5,
	}[s]
}

func (b *verdictBuilder) add(signal csig.Signal, row *aggregate.CellLocation) {
	p := b.locations[row.Location]
	if p == nil {
		p = &locationSums{location: b.Location(row.Location), signals: make(map[csig.Signal]*aggregate.Sums), cells: make(map[pair]uint64)}
		b.locations[row.Location] = p
	}
	p.heavy = aggregate.AddSat(p.heavy, row.Heavy)
	if p.signals[signal] == nil {
		p.signals[signal] = &aggregate.Sums{}
	}
	p.signals[signal].Merge(&row.Sums)
	cell := pair{row.Src, row.Dst}
	p.cells[cell] = aggregate.AddSat(p.cells[cell], row.Heavy)
}

// compareLocations puts more heavy observations first.
func compareLocations(x, y *locationSums) int {
	return cmp.Or(cmp.Compare(y.heavy, x.heavy), cmp.Compare(x.location.Name, y.location.Name), cmp.Compare(x.location.ID, y.location.ID))
}

// group is the locations of one statement, the most heavy ones first. whole is their common
// ancestor; nil for a single location.
type group struct {
	members []*locationSums
	whole   *fabric.Location
}

// groups merges locations that belong together: the uplinks of a device, else the links into one.
// Upward traffic of a device meets its own uplinks, and downward traffic meets the links into a
// device. If a location fits into no group of that kind, the other kind is tried, such as all links
// to the hosts of a rack, and must be nearly complete.
func (b *verdictBuilder) groups() (list []group) {
	left := slices.SortedFunc(maps.Values(b.locations), compareLocations)
	for _, kind := range []struct {
		parent func(*fabric.Location) aggregate.LocationID
		least  int
		share  float64 // of the ports
	}{{firstParent, 2, 0.5}, {secondParent, 3, 0.75}} {
		families := make(map[aggregate.LocationID][]*locationSums)
		for _, p := range left {
			if id := kind.parent(p.location); id != aggregate.NoLocation {
				families[id] = append(families[id], p)
			}
		}
		merged := make(map[*locationSums]bool)
		for id, members := range families {
			whole := b.Location(id)
			if !b.together(whole, members, kind.least, kind.share) {
				continue
			}
			list = append(list, group{members, whole})
			for _, p := range members {
				merged[p] = true
			}
		}
		left = slices.DeleteFunc(left, func(p *locationSums) bool { return merged[p] })
	}
	for _, p := range left {
		list = append(list, group{members: []*locationSums{p}})
	}
	return list
}

// firstParent is the ancestor that a location is first merged into.
func firstParent(l *fabric.Location) aggregate.LocationID {
	if l.Orientation == "up" {
		return l.Set
	}
	return l.FarEnd
}

// secondParent is the other one.
func secondParent(l *fabric.Location) aggregate.LocationID {
	if l.Orientation == "up" {
		return l.FarEnd
	}
	return l.Set
}

// together reports whether a minimum number of members have a considerable part of the heavy
// observations, and these at least a share of the ports of the whole.
func (b *verdictBuilder) together(whole *fabric.Location, members []*locationSums, minimum int, share float64) bool {
	ports, involved := b.ports(members)
	return involved >= minimum && float64(ports) >= share*float64(whole.CandidateCount)
}

// ports counts the members with a considerable part of the heavy observations, and their ports.
func (b *verdictBuilder) ports(members []*locationSums) (ports, involved int) {
	names := make(map[string]bool)
	hidden := 0 // ports of sets beyond the names of their candidates
	for _, p := range members {
		if float64(p.heavy) < considerable*float64(members[0].heavy) {
			continue
		}
		involved++
		for _, name := range p.location.Candidates {
			names[name] = true
		}
		hidden += max(p.location.CandidateCount, 1) - len(p.location.Candidates)
	}
	return len(names) + hidden, involved
}

// facesHosts reports whether all ports face hosts.
func (b *verdictBuilder) facesHosts(members []*locationSums) bool {
	for _, p := range members {
		for _, port := range p.location.Candidates {
			if peer := b.peers[port]; peer == "" || b.switches[peer] {
				return false
			}
		}
	}
	return b.Fabric != nil && len(members[0].location.Candidates) > 0
}

// statement adds up the members of a group.
func (b *verdictBuilder) statement(g group) Statement {
	s := Statement{OfPorts: 1}
	first := g.members[0].location
	if whole := cmp.Or(g.whole, first); whole.CandidateCount > 0 {
		s.OfPorts = whole.CandidateCount
	}
	s.Ports, _ = b.ports(g.members)
	signals, cells := make(map[csig.Signal]*aggregate.Sums), make(map[pair]uint64)
	device, peer := first.Device, b.peerOf(first)
	for _, p := range g.members {
		s.Heavy = aggregate.AddSat(s.Heavy, p.heavy)
		s.Locations = append(s.Locations, *p.location)
		if p.location.Device != device {
			device = ""
		}
		if b.peerOf(p.location) != peer {
			peer = ""
		}
		for signal, n := range p.signals {
			if signals[signal] == nil {
				signals[signal] = &aggregate.Sums{}
			}
			signals[signal].Merge(n)
		}
		for c, n := range p.cells {
			cells[c] = aggregate.AddSat(cells[c], n)
		}
	}
	s.Device = device
	switch {
	case peer == "":
	case b.switches[peer] || b.Fabric == nil:
		s.FarEnd = peer
	default:
		s.Host = peer
	}
	s.Share = ZeroNaN(float64(s.Heavy) / float64(b.out.Heavy))
	for signal, n := range signals {
		s.Signals = append(s.Signals, StatementSignal{signal, n.Heavy, worstOf(signal, n), *n})
	}
	slices.SortFunc(s.Signals, func(x, y StatementSignal) int {
		return cmp.Or(cmp.Compare(y.Heavy, x.Heavy), cmp.Compare(x.Signal, y.Signal))
	})
	for c, n := range cells {
		s.Cells = append(s.Cells, StatementCell{c.src, c.dst, n})
	}
	slices.SortFunc(s.Cells, func(x, y StatementCell) int {
		return cmp.Or(cmp.Compare(y.Heavy, x.Heavy), cmp.Compare(x.Src, y.Src), cmp.Compare(x.Dst, y.Dst))
	})
	s.Sources, s.Destination = ends(s.Cells)
	s.Kind = b.kindOf(&g, &s)
	s.Place = b.nameOf(&g, &s)
	return s
}

// ZeroNaN returns v, or 0 for NaN.
func ZeroNaN(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// peerOf is the device or host at the other end of all ports of a location.
func (b *verdictBuilder) peerOf(l *fabric.Location) string {
	peer := l.Peer
	for i, port := range l.Candidates {
		switch at, ok := b.peers[port]; {
		case !ok:
		case i == 0:
			peer = at
		case peer != at:
			return ""
		}
	}
	return peer
}

// worstOf is the tightest value, in stored integers.
func worstOf(signal csig.Signal, s *aggregate.Sums) float64 {
	switch {
	case s.Measured == 0:
		return math.NaN()
	case signal.Direction() == csig.Max:
		return float64(s.Max)
	}
	return float64(s.Min)
}

// ends returns the sources with a considerable part of the heavy observations, in descending
// order, and the destination with such a part if there is only one.
func ends(cells []StatementCell) (sources []aggregate.GroupID, destination *aggregate.GroupID) {
	heavy, to := make(map[aggregate.GroupID]uint64), make(map[aggregate.GroupID]uint64)
	for _, c := range cells {
		heavy[c.Src] = aggregate.AddSat(heavy[c.Src], c.Heavy)
		to[c.Dst] = aggregate.AddSat(to[c.Dst], c.Heavy)
	}
	sources = involvedGroups(heavy)
	if destinations := involvedGroups(to); len(destinations) == 1 {
		destination = &destinations[0]
	}
	return sources, destination
}

// involvedGroups leaves only the groups with a considerable part in a map, and lists them in
// descending order.
func involvedGroups(heavy map[aggregate.GroupID]uint64) []aggregate.GroupID {
	most := uint64(0)
	for _, n := range heavy {
		most = max(most, n)
	}
	maps.DeleteFunc(heavy, func(_ aggregate.GroupID, n uint64) bool { return float64(n) < considerable*float64(most) })
	return slices.SortedFunc(maps.Keys(heavy), func(x, y aggregate.GroupID) int {
		return cmp.Or(cmp.Compare(heavy[y], heavy[x]), cmp.Compare(x, y))
	})
}

// kindOf is the kind of a statement.
func (b *verdictBuilder) kindOf(g *group, s *Statement) StatementKind {
	whole := cmp.Or(g.whole, g.members[0].location)
	switch {
	case g.members[0].location.ID == aggregate.NoLocation:
		return AboutUnlocated
	case s.Destination != nil && len(s.Sources) >= leastSources && b.facesHosts(g.members):
		return AboutIncast
	case s.Host != "":
		return AboutHost
	case whole.Kind == fabric.KindPort:
		return AboutPort
	case s.FarEnd != "" && s.Device == "":
		return AboutFarEnd
	case s.Device != "" && whole.Orientation == "up":
		return AboutUplinks
	case s.Device != "" && whole.Orientation == "down":
		return AboutDownlinks
	}
	return AboutLocation
}

// elsewhere stands for all locations without a statement.
const elsewhere aggregate.LocationID = math.MaxUint64

// time sets the times of congestion and the states of locations. All windows in which the members
// of a group are named judge it together, signal by signal.
func (b *verdictBuilder) time() {
	of := make(map[aggregate.LocationID]aggregate.LocationID) // the first location of the statement
	for i := range b.out.Statements {
		s := &b.out.Statements[i]
		for _, l := range s.Locations {
			of[l.ID] = s.Locations[0].ID
		}
	}
	location := func(id aggregate.LocationID) aggregate.LocationID {
		if first, ok := of[id]; ok {
			return first
		}
		return elsewhere
	}
	spans, first := make([]spans, len(b.out.Statements)), int64(math.MaxInt64)
	for i := range b.Signals {
		rows := &b.Signals[i]
		for k := range rows.Recent.Windows {
			first = min(first, rows.Recent.Windows[k].Start)
		}
		for _, r := range []*Recent{rows.Earlier, rows.Recent} {
			if r == nil {
				continue
			}
			windows := r.judgements(location)
			for n := range b.out.Statements {
				s := &b.out.Statements[n]
				at := slices.IndexFunc(s.Signals, func(x StatementSignal) bool { return x.Signal == rows.Signal })
				if at < 0 {
					continue
				}
				judged := windows[s.Locations[0].ID]
				spans[n].add(judged, r.Length, b.From.UnixNano(), b.To.UnixNano())
				if r == rows.Recent {
					s.judge(r.state(judged, s.Signals[at].sums))
				}
			}
		}
	}
	for n := range spans {
		s := &b.out.Statements[n]
		b.dateBack(s, first)
		s.First, s.Last, s.Onset = spans[n].loaded.first, spans[n].loaded.last, spans[n].congested.last > 0 || s.State == aggregate.Congested
		if spans[n].congested.last > 0 {
			s.First, s.Last = spans[n].congested.first, spans[n].congested.last
		}
		s.Paused = spans[n].paused(s.First, s.Last)
	}
}

// judge adds the state from one signal: the worst one counts.
func (s *Statement) judge(v aggregate.Verdict, state aggregate.State) {
	if certainty(state) > certainty(s.State) {
		s.State = state
	}
	if v.Lasted > 0 && (!s.Dated || v.Since < s.Since) {
		s.Since, s.Dated = v.Since, true
	}
}

// dateBack sets the time since which a location is congested if its windows at hand, from first on,
// do not show the beginning: then it is that of its cells, whose history is longer.
func (b *verdictBuilder) dateBack(s *Statement, first int64) {
	if !s.Dated || s.Since > first {
		return
	}
	for _, c := range s.Cells {
		if v := b.ongoing[pair{c.Src, c.Dst}]; v.Lasted > 0 {
			s.Since = min(s.Since, v.Since)
		}
	}
}

// spans are the times of congestion of a location, and of heavy observations there.
type spans struct {
	congested, loaded span
	heavy             map[int64]bool // by start of a window: whether something was heavy there, by any signal
}

// span is from the start of the first window to the end of the last one, Unix ns; 0 without one.
type span struct{ first, last int64 }

// add adds windows within a range.
func (s *spans) add(windows []judged, length, from, to int64) {
	for i, w := range windows {
		if w.start < from || w.start >= to {
			continue
		}
		if i > 0 && windows[i-1].start+length < w.start { // nothing was observed in between
			s.note(windows[i-1].start+length, false)
		}
		loaded := w.judgement&aggregate.Loaded != 0
		s.note(w.start, loaded)
		if loaded {
			s.loaded.add(w.start, w.start+length)
		}
		if w.judgement&^aggregate.Loaded == aggregate.Onset {
			s.congested.add(w.start, w.start+length)
		}
	}
}

func (s *spans) note(start int64, heavy bool) {
	if s.heavy == nil {
		s.heavy = make(map[int64]bool)
	}
	s.heavy[start] = s.heavy[start] || heavy
}

// paused reports whether nothing was heavy in some window between first and last.
func (s *spans) paused(first, last int64) bool {
	for start, heavy := range s.heavy {
		if !heavy && first <= start && start < last {
			return true
		}
	}
	return false
}

func (s *span) add(start, end int64) {
	if s.last == 0 || start < s.first {
		s.first = start
	}
	s.last = max(s.last, end)
}

// rank puts the locations with the most heavy observations first, and leaves out brief loads with a
// small share of them.
func (b *verdictBuilder) rank() {
	out := b.out
	slices.SortFunc(out.Statements, func(x, y Statement) int {
		return cmp.Or(cmp.Compare(y.Heavy, x.Heavy), cmp.Compare(x.Place, y.Place), cmp.Compare(x.Locations[0].ID, y.Locations[0].ID))
	})
	out.Statements = slices.DeleteFunc(out.Statements, func(s Statement) bool {
		small := !s.Onset && s.Share < leastShare
		if small {
			out.Rest.Places++
			out.Rest.Share += s.Share
		}
		return small
	})
}
