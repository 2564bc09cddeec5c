package api

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// changeSubscription is a subscription to changes. Each change depends only on two successive
// states, so all readers, including those that resume, receive the same changes. If something that
// they know gets another name, they begin again.
type changeSubscription struct {
	*subscription
	in    *wire.ChangesRequest
	names *names // those in the last events
}

func (a *API) newChanges(ctx context.Context, s *table.State, in *wire.ChangesRequest) (*subscription, error) {
	signal, err := findSignal(in.GetSignal(), s.Signals())
	if err != nil {
		return nil, err
	}
	n, err := resolve(ctx, &a.names, func(n *names) error {
		_, err := changeFilterOf(n, in)
		return err
	})
	if err != nil {
		return nil, err
	}
	c := &changeSubscription{in: in, names: n, subscription: &subscription{
		key: viewKey{signal, fabric.LevelLocation, int(in.GetWindows()), s.Resolution}, resumable: a.renamed.see(n, a.Memory),
	}}
	c.of = c
	return c.subscription, nil
}

// snapshot implements follower.
func (c *changeSubscription) snapshot(ctx context.Context, s *table.State) error {
	revision := token(s) // a slow reader must not keep the state
	list, err := c.api.changesOf(ctx, nil, s, c.key)
	if err != nil {
		return err
	}
	if err := c.sendChanges(ctx, list, eventInitial, s); err != nil {
		return err
	}
	c.passed = revision
	return c.deliverOwn(eventSynced, revision, &wire.Synced{Revision: revision})
}

// changed implements follower. Revisions without a change for the reader send nothing.
func (c *changeSubscription) changed(ctx context.Context, step table.Step) error {
	switch {
	case step.Kind == table.Durable:
		return nil
	case step.Before == nil: // the first revision, or memory forgot the previous one
		return c.snapshot(ctx, step.State)
	}
	list, err := c.api.changesOf(ctx, step.Before, step.State, c.key)
	if err != nil {
		return err
	}
	if list.renames(c.names, c.in) {
		return c.snapshot(ctx, step.State)
	}
	revision := token(step.State)
	if err := c.sendChanges(ctx, list, eventChanges, step.State); err != nil {
		return err
	}
	c.passed = revision
	return nil
}

// sendChanges sends the changes that lead to a state: eventInitial also without any.
func (c *changeSubscription) sendChanges(ctx context.Context, list *changeList, name string, now *table.State) error {
	c.names = list.names
	f, err := changeFilterOf(list.names, c.in)
	if err != nil {
		return err
	}
	chosen := f.choose(list.changes)
	if name == eventChanges && len(chosen) == 0 {
		return nil
	}
	set := &wire.ChangeSet{Revision: token(now), Signal: csig.SignalNames([]csig.Signal{c.key.signal})[0]}
	if newest := now.Newest(); newest != nil {
		set.WindowStart, set.WindowEnd, set.Final = timestamppb.New(newest.Start), timestamppb.New(newest.End), newest.Final
	}
	e := &event{name: name, content: content{value: set}}
	if name == eventChanges { // in an initial set only synced carries the id
		e.id = set.Revision
	}
	key := askedEvent{eventOf{name: e.name, revision: now.Revision}, c.key, c.filter, "", list.names.version}
	t, err := c.api.sends.begin(ctx, c.to.charge(key), len(chosen)*textBytes, c.to.stop)
	if err != nil {
		return err
	}
	if e, err = c.share(t, key, func() (*event, error) {
		for _, one := range chosen {
			set.Changes = append(set.Changes, list.names.change(one))
		}
		e.bytes = len(chosen) * textBytes
		return e, nil
	}); err != nil {
		return err
	}
	return c.deliver(t, e)
}

// change is one change of a cell, or of a producer.
type change struct {
	kind           wire.ChangeKind
	cell           aggregate.CellStats // the present values
	silent         []string            // silent producers of the cell
	state, before  aggregate.State
	congested      bool                   // before or after, even without data
	since          *timestamppb.Timestamp // of the congestion, nil for none
	lasted         time.Duration
	location, from aggregate.LocationID // from is the location before a move
	producer       *table.Producer      // nil for a cell
	age            time.Duration        // of the producer's last window
}

// changeList are the changes of one revision.
type changeList struct {
	names     *names
	changes   []change
	held      []heldCell // of the state before
	producers bool       // a silent producer had another name
}

// heldCell is a cell that readers remember: it is congested or lacks data.
type heldCell struct {
	src, dst aggregate.GroupID
	location aggregate.LocationID
}

// renames reports whether anything that readers remember by the known names has another name now, or whether
// their question is now about other cells. Rows may come before the store has the names of their groups and
// locations, and a reload may move groups.
func (l *changeList) renames(known *names, in *wire.ChangesRequest) bool {
	if known == l.names {
		return l.producers
	}
	before, _ := changeFilterOf(known, in)
	now, _ := changeFilterOf(l.names, in) // fails in sendChanges
	return l.producers || slices.ContainsFunc(l.held, func(h heldCell) bool {
		return known.groupName(h.src) != l.names.groupName(h.src) || known.groupName(h.dst) != l.names.groupName(h.dst) ||
			known.locationName(h.location) != l.names.locationName(h.location) || before.holds(&h) != now.holds(&h)
	})
}

// renamed knows the last revision that may have been sent with earlier names. It is safe for
// concurrent use.
type renamed struct {
	mu      sync.Mutex
	version uint64 // of the latest names
	until   uint64
}

// see records names before they are sent, and returns the first revision after which readers of
// the memory can resume: those of earlier ones may know groups and locations by other names.
func (r *renamed) see(n *names, m *table.Memory) (resumable uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n.version > r.version {
		if r.version > 0 {
			r.until = m.State().Revision + 1
		}
		r.version = n.version
	}
	return r.until
}

// Approximate sizes in memory, in bytes.
const (
	changeBytes = 512
	heldBytes   = 24
)

// changesOf returns the changes between two states, computed once for all streams of the signal.
func (a *API) changesOf(ctx context.Context, before, now *table.State, k viewKey) (*changeList, error) {
	type changesOf struct {
		viewKey
		revision uint64
		initial  bool
		names    uint64
	}
	n, err := a.names.get(ctx)
	if err != nil {
		return nil, err
	}
	return getOrCompute(a.cache, changesOf{k, now.Revision, before == nil, n.version}, func() (*changeList, int, error) {
		is, err := a.cellStates(ctx, now, k)
		if err != nil {
			return nil, 0, err
		}
		was := &cellStates{state: &table.State{Coverage: &table.Coverage{}}, view: newView(is.view.names, nil, nil)}
		if before != nil {
			if was, err = a.cellStates(ctx, before, k); err != nil {
				return nil, 0, err
			}
		}
		list := &changeList{names: is.view.names, changes: slices.Concat(is.producersSince(was), is.cellsSince(was)), held: was.held(), producers: is.renamesProducers(was)}
		a.renamed.see(list.names, a.Memory)
		return list, len(list.changes)*changeBytes + len(list.held)*heldBytes, nil
	})
}

// cellStates is the cells of a view at one state.
type cellStates struct {
	state *table.State
	view  *view
	key   viewKey
	upTo  map[int][]aggregate.CellStats // see cellsUpTo
}

func (a *API) cellStates(ctx context.Context, s *table.State, k viewKey) (*cellStates, error) {
	v, err := a.view(ctx, s, k)
	return &cellStates{s, v, k, make(map[int][]aggregate.CellStats)}, err
}

// condition is the part of a cell that changes depend on. The zero value is an unknown cell.
type condition struct {
	cell      *aggregate.CellStats
	cover     *table.CellCoverage
	verdict   aggregate.Verdict
	state     aggregate.State
	congested bool // even without data, until a producer sees that the traffic has ended
}

func (o *cellStates) at(i int) condition {
	is := condition{cell: &o.view.cells[i], cover: &o.view.covers[i]}
	is.verdict, is.state = is.cell.Verdict, is.cell.State
	if is.cell.Observations == 0 {
		is.verdict = o.state.Verdict(o.keyOf(is.cell), is.cover.Newest)
		if is.verdict.Sustained && o.state.Coverage.IsCurrent(is.cover) { // no row in these windows, but a recent one before them
			is.state = aggregate.Congested
		}
	}
	is.congested = is.state == aggregate.Congested || is.verdict.Sustained && !o.state.Coverage.IsIdle(is.cover)
	return is
}

// held returns the cells that readers of the state remember.
func (o *cellStates) held() (list []heldCell) {
	for i := range o.view.cells {
		if is := o.at(i); is.congested || len(is.cover.Silent) > 0 {
			list = append(list, heldCell{is.cell.Src, is.cell.Dst, o.location(&is)})
		}
	}
	return list
}

func (o *cellStates) keyOf(c *aggregate.CellStats) aggregate.CellKey {
	return aggregate.CellKey{Src: c.Src, Dst: c.Dst, Signal: o.key.signal, Kind: c.Kind}
}

// named returns the location that limits a cell among cells; ok is false if no observations of its kind name one.
func named(cells []aggregate.CellStats, cell *aggregate.CellStats) (at aggregate.LocationID, ok bool) {
	i, found := slices.BinarySearchFunc(cells, cell, func(c aggregate.CellStats, want *aggregate.CellStats) int {
		return cmp.Or(cmp.Compare(c.Src, want.Src), cmp.Compare(c.Dst, want.Dst))
	})
	if !found || cells[i].Kind != cell.Kind || cells[i].ModeCount == 0 { // a window without its tags may have reflections
		return aggregate.NoLocation, false
	}
	return cells[i].Mode, true
}

// cellsUpTo returns the cells that a view of the first n windows of the state has.
func (o *cellStates) cellsUpTo(n int) []aggregate.CellStats {
	if _, ok := o.upTo[n]; !ok {
		earlier := *o.state
		earlier.Windows = earlier.Windows[:n]
		windows := earlier.Last(o.key.windows)
		o.upTo[n] = table.Merge(windows).Without(earlier.Old(windows)).Cells(o.key.signal, nil)
	}
	return o.upTo[n]
}

// location is the location that limits a cell: if the windows of the view name none, the location
// in the last window since the onset in which its kind of observations named one. The last windows do not count as
// long as they lack rows of the cell: one of its producers may name another location than all of them.
func (o *cellStates) location(is *condition) aggregate.LocationID {
	if !is.congested || !o.key.signal.Aggregation().Locates() {
		return is.cell.Mode
	}
	windows := o.state.Windows
	whole := len(windows)
	for whole > 0 && windows[whole-1].LacksRowsOf(o.keyOf(is.cell)) {
		whole--
	}
	if whole > 0 && whole < len(windows) && windows[whole-1].Start.UnixNano() >= is.verdict.Since {
		if at, ok := named(o.cellsUpTo(whole), is.cell); ok {
			return at
		}
	}
	if is.cell.ModeCount > 0 || !is.verdict.Sustained {
		return is.cell.Mode
	}
	last := sort.Search(len(windows), func(i int) bool { return windows[i].Start.UnixNano() > is.cover.Newest }) - 1
	for i := last; i >= 0 && windows[i].Start.UnixNano() >= is.verdict.Since; i-- {
		if at, ok := named(windows[i].Cells(o.key.signal), is.cell); ok {
			return at
		}
	}
	return aggregate.NoLocation
}

// cellsSince returns the changes of cells.
func (o *cellStates) cellsSince(was *cellStates) (list []change) {
	before, now := was.view.cells, o.view.cells
	for i, j := 0, 0; i < len(before) || j < len(now); {
		order := 1
		if i < len(before) {
			order = -1
			if j < len(now) {
				order = cmp.Or(cmp.Compare(before[i].Src, now[j].Src), cmp.Compare(before[i].Dst, now[j].Dst))
			}
		}
		var from, to condition
		if order <= 0 {
			from = was.at(i)
			i++
		}
		if order >= 0 {
			to = o.at(j)
			j++
		}
		list = o.compare(list, was, &from, &to)
	}
	return list
}

// compare appends the changes of one cell.
func (o *cellStates) compare(list []change, was *cellStates, from, to *condition) []change {
	var silentBefore []string
	one := change{state: to.state, before: from.state, congested: to.congested || from.congested}
	if to.congested {
		one.since = sinceOf(&to.verdict)
	}
	if from.cell != nil {
		silentBefore = from.cover.Silent
		one.cell = aggregate.CellStats{Src: from.cell.Src, Dst: from.cell.Dst, Signal: from.cell.Signal, Kind: from.cell.Kind}
	}
	if to.cell != nil {
		one.cell, one.silent, one.location = *to.cell, to.cover.Silent, o.location(to)
	}
	add := func(kind wire.ChangeKind) {
		one.kind = kind
		list = append(list, one)
	}
	switch {
	case slices.Equal(silentBefore, one.silent):
	case len(one.silent) == 0:
		add(wire.ChangeKind_CHANGE_KIND_COVERAGE_BACK)
	default:
		add(wire.ChangeKind_CHANGE_KIND_COVERAGE_LOST)
	}
	switch {
	case to.congested && !from.congested:
		add(wire.ChangeKind_CHANGE_KIND_ONSET)
	case from.congested && !to.congested:
		one.since, one.location = sinceOf(&from.verdict), was.location(from)
		if newest := o.state.Newest(); newest != nil && one.since != nil {
			one.lasted = max(newest.Start.Sub(one.since.AsTime()), 0)
		}
		add(wire.ChangeKind_CHANGE_KIND_CLEARED)
	case to.congested:
		if one.from = was.location(from); one.location != one.from {
			add(wire.ChangeKind_CHANGE_KIND_MOVED)
		}
	}
	return list
}

// producersSince returns the changes of producers.
func (o *cellStates) producersSince(was *cellStates) (list []change) {
	end := o.state.Coverage.Newest
	if newest := o.state.Newest(); newest != nil {
		end = newest.End
	}
	before, now := was.state.Coverage.Silent, o.state.Coverage.Silent
	compare := func(from, to []table.Producer, kind func(id uint64) wire.ChangeKind) {
		known := make(map[uint64]bool, len(from))
		for i := range from {
			known[from[i].ID] = true
		}
		for i := range to {
			if !known[to[i].ID] {
				one := change{kind: kind(to[i].ID), producer: &to[i]}
				if !to[i].Newest.IsZero() {
					one.age = end.Sub(to[i].Newest)
				}
				list = append(list, one)
			}
		}
	}
	compare(before, now, func(uint64) wire.ChangeKind { return wire.ChangeKind_CHANGE_KIND_TAP_LOST })
	compare(now, before, func(id uint64) wire.ChangeKind {
		if o.state.Coverage.IsPresent(id) {
			return wire.ChangeKind_CHANGE_KIND_TAP_BACK
		}
		return wire.ChangeKind_CHANGE_KIND_TAP_FORGOTTEN
	})
	return list
}

// renamesProducers reports whether a silent producer had another name, or none: its rows may come
// before its name.
func (o *cellStates) renamesProducers(was *cellStates) bool {
	names := make(map[uint64]string, len(was.state.Coverage.Silent))
	for _, p := range was.state.Coverage.Silent {
		names[p.ID] = p.Name
	}
	return slices.ContainsFunc(o.state.Coverage.Silent, func(p table.Producer) bool {
		name, known := names[p.ID]
		return known && name != p.Name
	})
}

// changeFilter selects changes of cells. Empty lists select all.
type changeFilter struct {
	src, dst []aggregate.GroupID
	links    []aggregate.LocationID // and sets that contain one of them
	states   []aggregate.State
}

func changeFilterOf(n *names, in *wire.ChangesRequest) (f changeFilter, err error) {
	if f.src, err = n.findGroups("src", in.GetSrc()); err != nil {
		return f, err
	}
	if f.dst, err = n.findGroups("dst", in.GetDst()); err != nil {
		return f, err
	}
	for _, state := range in.GetState() {
		f.states = append(f.states, aggregate.State(state-wire.State_STATE_NO_DATA))
	}
	f.links, err = n.findLocations(nil, in.GetLink())
	return f, err
}

// choose returns the changes that the filter accepts; those of producers always.
func (f *changeFilter) choose(list []change) []*change {
	var out []*change
	for i := range list {
		if c := &list[i]; c.producer != nil || f.takes(c) {
			out = append(out, c)
		}
	}
	return out
}

func (f *changeFilter) takes(c *change) bool {
	return among(f.src, c.cell.Src) && among(f.dst, c.cell.Dst) &&
		(len(f.states) == 0 || slices.Contains(f.states, c.state) || slices.Contains(f.states, c.before) || c.congested && slices.Contains(f.states, aggregate.Congested)) &&
		(len(f.links) == 0 || f.isLink(c.location) || f.isLink(c.from))
}

// holds reports whether the filter selects a cell by its names.
func (f *changeFilter) holds(h *heldCell) bool {
	return among(f.src, h.src) && among(f.dst, h.dst) && (len(f.links) == 0 || f.isLink(h.location))
}

func (f *changeFilter) isLink(id aggregate.LocationID) bool {
	return id != aggregate.NoLocation && among(f.links, id)
}

// change converts a change to a message.
func (n *names) change(c *change) *wire.Change {
	out := &wire.Change{Kind: c.kind}
	if c.producer != nil {
		out.Producer = text(c.producer.Name)
		if !c.producer.Newest.IsZero() {
			age := c.age.Seconds()
			out.AgeS = &age
		}
		return out
	}
	cell := n.cell(&c.cell, &table.CellCoverage{Silent: c.silent})
	out.Src, out.Dst, out.State, out.StateBefore = cell.Src, cell.Dst, stateOf(c.state), stateOf(c.before)
	out.HeavyRatio, out.Mean, out.Candidates, out.Probabilities, out.SilentProducers = cell.HeavyRatio, cell.Mean, cell.Candidates, cell.Probabilities, cell.SilentProducers
	out.Since, out.LastedS = c.since, sixDigits(c.lasted.Seconds())
	if c.location != aggregate.NoLocation {
		out.Location = n.locationName(c.location)
	}
	if c.from != aggregate.NoLocation {
		out.LocationBefore = n.locationName(c.from)
	}
	return out
}
