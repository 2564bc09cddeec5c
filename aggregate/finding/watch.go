package finding

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Version changes whenever a Watcher's findings or their names change for the same observations.
const Version = 7

// Watcher finds faults in single observations: unauthorised senders, senders' values that are not
// initial, unknown locators, values above the capacity, reserved bits and orphans, as a Detector
// does; and in windows: stuck ports. A Live one also finds swapped locators, whole packets with the
// trim bit, duplicate frames and a clock that is set back. Collectors and exporters find
// contested-name and clock-ahead; the table of kinds says why only a Detector finds the others.
//
// It is the window.Watch of one shard, and not safe for concurrent use. It allocates for a new
// subject, and nothing for each observation of it.
type Watcher struct {
	cfg Config
	// windowsAlone says that a Detector checks everything else.
	windowsAlone bool
	file         string // in which packets are numbered, empty if they are not
	cases        cases
	runs         runs
	heads        *heads // nil unless in pieces
	ended        ended  // of the pieces so far, for Follow
	live         *live  // nil unless Live
	locations    map[aggregate.LocationID]*watchedLocation
	limits       map[limitKey]uint32 // least codes above a capacity
	before       []Finding           // of the previous watcher that this one continues
	made         []Finding           // last result of Findings, nil after a new finding
}

// watchedLocation is a location's data.
type watchedLocation struct {
	unknown  bool
	capacity uint64
	found    *Finding // UnknownLocator there, nil for none yet
}

type limitKey struct {
	table    *csig.Table
	capacity uint64
}

// maxLocations bounds the remembered locations, and the limits.
const maxLocations = 1 << 16

// NewWatcher makes a Watcher of a capture file, or, without a name, of live packets, which have no
// numbers. Of the tags at a tap in the middle of paths, it gets only orphans and those with reserved
// bits. It fails without a Domain or a Locator in cfg.
func NewWatcher(cfg Config, file string) (*Watcher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("make watcher: %w", err)
	}
	w := &Watcher{cfg: cfg, limits: make(map[limitKey]uint32)}
	w.Begin(file)
	return w, nil
}

// Begin forgets all findings, and starts with another file.
func (w *Watcher) Begin(file string) {
	w.file, w.cases, w.before, w.made = file, newCases(&w.cfg, new([NumKinds]int)), nil, nil
	w.locations = make(map[aggregate.LocationID]*watchedLocation)
	w.runs = runs{of: make(map[runKey]*Run), here: make(map[runKey]*Run), mixed: make(map[runKey]bool), flows: make(map[runKey]bounds), left: make(map[portKey]portLeft)}
	w.heads = nil
}

// Resume continues with the Findings of another Watcher. It keeps the list.
func (w *Watcher) Resume(list []Finding) {
	w.before, w.made = list, nil
	for i := range list {
		w.cases.sizes[list[i].Kind]++
	}
}

// Suspicious implements window.Watch.
func (w *Watcher) Suspicious(src netip.Addr) bool { return !w.windowsAlone && !w.cfg.authorised(src) }

// SourceBits implements window.Watch.
func (w *Watcher) SourceBits() (v4, v6 int) {
	for _, p := range w.cfg.Senders {
		if p.Addr().Is4() {
			v4 = max(v4, p.Bits())
		} else {
			v6 = max(v6, p.Bits())
		}
	}
	return v4, v6
}

// WatchFrom implements window.Watch.
func (w *Watcher) WatchFrom(t *csig.Table, at aggregate.LocationID, capacity uint64) uint32 {
	switch {
	case w.windowsAlone:
		return aggregate.NotWatched
	case w.location(at, capacity).unknown:
		return 0
	}
	k := limitKey{t, capacity}
	code, known := w.limits[k]
	if !known {
		if code = leastAbove(t, capacity); len(w.limits) < maxLocations {
			w.limits[k] = code
		}
	}
	return code
}

// leastAbove returns the least code of values above a capacity. Codes ascend with their values.
func leastAbove(t *csig.Table, capacity uint64) uint32 {
	code := uint32(sort.Search(int(t.Codes()), func(c int) bool {
		low, _, _ := t.Range(uint32(c))
		return above(t.Signal(), low, capacity)
	}))
	if code == t.Codes() {
		return aggregate.NotWatched
	}
	return code
}

func (w *Watcher) location(id aggregate.LocationID, capacity uint64) *watchedLocation {
	if p, known := w.locations[id]; known {
		return p
	}
	at, ok := w.cfg.Locator.Location(id)
	p := &watchedLocation{unknown: ok && at.Kind == fabric.KindUnknown, capacity: capacity}
	if len(w.locations) < maxLocations {
		w.locations[id] = p
	}
	return p
}

// watched maps the reason for watching an observation to the kind that it breaks, except for
// values, which need a check.
var watched = [...]Kind{
	aggregate.WatchedSource: UnauthorisedSender, aggregate.WatchedOrphan: OrphanTag,
	aggregate.WatchedSent: ForgedValue, aggregate.WatchedReserved: ReservedBits,
}

// Watched implements window.Watch.
func (w *Watcher) Watched(list []aggregate.Watched) {
	for i := range list {
		o := &list[i]
		switch {
		case w.windowsAlone:
		case o.Flags&decode.HasAddrs == 0 && o.Why != aggregate.WatchedOrphan:
		case o.Why == aggregate.WatchedValue:
			w.value(o)
		case o.Why != aggregate.WatchedLength:
			w.found(watched[o.Why], o)
		case w.live != nil:
			w.live.length(o.Observation)
		}
	}
}

// value judges a value that some port wrote.
func (w *Watcher) value(o *aggregate.Watched) {
	p, known := w.locations[o.Location]
	if !known {
		src, dst := ends(o.Observation)
		_, capacity := w.cfg.Locator.Locate(o.Tag.Layout, o.Tag.T&15, o.Tag.LM, src, dst)
		p = w.location(o.Location, capacity)
	}
	if p.unknown {
		if p.found == nil {
			p.found = w.cases.get(keyOf(UnknownLocator, o.Observation, o.Location, ""))
		}
		w.count(p.found, o)
		if w.live != nil {
			w.live.layouts[o.Tag.Layout.Index()].unknownLM++
		}
		return
	}
	table := w.cfg.Domain.Table(o.Tag.Layout, o.Tag.T)
	if low, _, _ := table.Range(table.Code(o.Tag.S)); above(table.Signal(), low, p.capacity) {
		w.found(AboveCapacity, o)
	}
}

// found counts an observation for the subject of a broken rule.
func (w *Watcher) found(k Kind, o *aggregate.Watched) {
	w.count(w.cases.get(keyOf(k, o.Observation, o.Location, "")), o)
}

func (w *Watcher) count(f *Finding, o *aggregate.Watched) {
	w.made = nil
	f.seen(w.file, o.Observation)
}

// Findings returns the findings since Begin, errors first. The list does not change, and is the
// same one until the next finding.
func (w *Watcher) Findings() []Finding {
	if w.made != nil {
		return w.made
	}
	var list []Finding
	for _, f := range w.cases.of {
		list = append(list, *f)
	}
	order(list)
	list = merge(slices.Concat(w.before, list))
	order(list)
	w.made = list
	return list
}

// A Passage is the result of one piece of a capture for the search for stuck ports: the first and
// the last run of each port. Pieces are processed separately, and Follow joins them.
type Passage struct {
	Heads []Head
	Tails []Run // that continue at the end
	Full  bool  // ports are missing in Heads
	ended ended
}

// A Head is the first value that a port writes.
type Head struct {
	At       aggregate.LocationID
	Signal   csig.Signal
	Encoding aggregate.Encoding
	Value    uint64 // in stored units
	Run      *Run   // nil if no window is evidence; Follow reports it
	Over     bool   // the run ended in the piece
}

// ended are the ports that also write other values in the newest window. The next piece may hold
// the rest of this window, which then is no evidence either.
type ended struct {
	window int64 // start
	of     map[runKey]bool
}

// begin forgets the ports of earlier windows.
func (e *ended) begin(window int64) {
	if e.of == nil || window > e.window {
		e.window, e.of = window, make(map[runKey]bool)
	}
}

// add adds a port, if the window is the newest one.
func (e *ended) add(k runKey, window int64) {
	if window == e.window && len(e.of) < maxRuns {
		e.of[k] = true
	}
}

// heads are those of a Watcher in pieces.
type heads struct {
	of    map[runKey]*head
	full  bool
	ended ended
}

// head is one port's; its run is the Watcher's while the run lasts.
type head struct {
	value uint64
	run   *Run
	over  bool
}

// InPieces makes the Watcher, which reads one piece of a capture, collect the data for Passage until
// the next Begin.
func (w *Watcher) InPieces() { w.heads = &heads{of: make(map[runKey]*head)} }

// Passage returns the data of a Watcher InPieces at the end of a piece.
func (w *Watcher) Passage() *Passage {
	p := &Passage{Tails: w.Runs(), Full: w.heads.full, ended: w.heads.ended}
	for k, h := range w.heads.of {
		one := Head{At: k.at, Signal: k.signal, Encoding: k.encoding, Value: h.value, Over: h.over}
		if h.run != nil {
			run := *h.run
			one.Run = &run
		}
		p.Heads = append(p.Heads, one)
	}
	return p
}

// begin starts the next window.
func (h *heads) begin(window int64) {
	if h != nil {
		h.ended.begin(window)
	}
}

// begins reports whether a run is the first one of its port, which may have begun before the piece.
func (h *heads) begins(k runKey, run *Run) bool {
	return h != nil && h.of[k] != nil && h.of[k].run == run
}

// note records a window's result for a port: its value with its run, if any, or that it writes
// other values.
func (h *heads) note(k runKey, value uint64, run *Run, otherwise bool, window int64) {
	if h == nil {
		return
	}
	if otherwise {
		h.ended.add(k, window)
	}
	one := h.of[k]
	if one == nil {
		if len(h.of) >= maxRuns {
			h.full = true
			return
		}
		one = &head{value: value}
		h.of[k] = one
	}
	switch {
	case one.over:
	case otherwise, value != one.value, one.run != nil && run != one.run:
		one.over = true
	default:
		one.run = run
	}
}

// open reports whether a port's values may still belong to its head.
func (h *heads) open(k runKey) bool {
	if h == nil {
		return false
	}
	one := h.of[k]
	if one == nil && len(h.of) >= maxRuns {
		h.full = true
		return false
	}
	return one == nil || !one.over
}

// Follow adds a piece to the earlier ones, and returns its findings with those that the pieces give
// together. It is for Watchers that only follow pieces, in order.
func (w *Watcher) Follow(p *Passage, found []Finding) []Finding {
	runs := w.runs
	w.Begin("")
	w.runs = runs
	w.Resume(found)
	heads := make(map[runKey]*Head, len(p.Heads))
	for i := range p.Heads {
		h := &p.Heads[i]
		heads[runKey{h.At, h.Signal, h.Encoding}] = h
	}
	for k := range w.runs.of {
		if p.Full && heads[k] == nil {
			delete(w.runs.of, k)
		}
	}
	for k, h := range heads {
		w.followHead(k, h)
	}
	for i := range p.Tails {
		r := p.Tails[i]
		k := runKey{r.At, r.Signal, r.Encoding}
		if h := heads[k]; (h == nil || h.Over) && w.runs.room(r.From) {
			w.runs.of[k] = &r
		}
	}
	w.ended.begin(p.ended.window)
	for k := range p.ended.of {
		w.ended.add(k, p.ended.window)
	}
	return w.Findings()
}

// followHead joins the first run of a port in the next piece to its run so far, and reports both.
func (w *Watcher) followHead(k runKey, h *Head) {
	was, run := w.runs.of[k], h.Run
	if was != nil && was.Value != h.Value {
		if run != nil && run.From < was.To { // the pieces share a window with both values
			w.ended.add(k, run.From)
		}
		was = nil
	}
	if run != nil && w.ended.of[k] && run.From == w.ended.window {
		run.Windows, run.Count, run.From = run.Windows-1, run.Count-run.First, run.Second
		if run.First = 0; run.Windows == 0 {
			run = nil
		}
	}
	switch {
	case run == nil:
	case was != nil && run.From <= was.To+stuckPause:
		was.add(run)
	default:
		was = run
	}
	if run != nil {
		w.reportRun(k, was)
	}
	if delete(w.runs.of, k); was != nil && !h.Over && w.runs.room(was.From) {
		w.runs.of[k] = was
	}
}

// add joins a run of the next piece to r. Pieces may share a window.
func (r *Run) add(next *Run) {
	r.Windows += next.Windows
	if next.From < r.To {
		r.Windows--
	}
	r.To = max(r.To, next.To)
	r.Count, r.Reported, r.Src = r.Count+next.Count, r.Reported+next.Reported, same(r.Src, next.Src)
}
