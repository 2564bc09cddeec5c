package finding

import (
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

const (
	// stuckWindow is the length of the windows in which a Watcher looks for stuck ports:
	// one that all taps have.
	stuckWindow = int64(time.Second)
	// stuckWindows is how many it takes, none of them more than stuckPause after the one
	// before: values of the one in between are from all of its time.
	stuckWindows = 3
	// stuckObservations is how many observations it takes.
	stuckObservations = 200
	// stuckPause is how long a port may write nothing and go on.
	stuckPause = 10 * stuckWindow
	// maxRuns bounds the ports and signals that are followed.
	maxRuns = 1 << 14
	// largeWindow is how many ports and signals of a window a map is kept for.
	largeWindow = 1 << 10
)

// A Run is a port that writes one value of a signal from window to window.
type Run struct {
	At       aggregate.LocationID
	Signal   csig.Signal
	Encoding aggregate.Encoding
	Value    uint64 // in stored units
	Count    uint64 // observations
	Told     uint64 // of them, those that a finding counts
	Windows  int
	Src      netip.Addr // of all flows that are known to name the port, invalid for several
	From, To int64      // beginning of the first window, end of the last one, Unix ns
}

type runKey struct {
	at       aggregate.LocationID
	signal   csig.Signal
	encoding aggregate.Encoding
}

// runs are those of a Watcher.
type runs struct {
	of map[runKey]*Run
	// swept is the beginning of the window in which those were last looked for that are over.
	swept int64
	// Of the block at hand; flows by port and signal alone.
	here  map[runKey]*Run
	flows map[runKey]bounds
	left  map[portKey]bool // whether ports of here say that they have bandwidth left
}

// portKey is a port in the tags of an encoding.
type portKey struct {
	at       aggregate.LocationID
	encoding aggregate.Encoding
}

func newRuns() runs {
	return runs{of: make(map[runKey]*Run), here: make(map[runKey]*Run), flows: make(map[runKey]bounds), left: make(map[portKey]bool)}
}

const (
	// minCodes is how many codes a signal must have for equal ones alone to mean something: of 32,
	// a port whose load is steady, or whose queue is full, writes one for long.
	minCodes = 256
	// minQueued is how many bytes wait at least before a packet whose delay is one of a queue, and
	// not of the store and forward of large packets.
	minQueued = 4 * 9216
)

// mayStick reports whether it means something that a port writes one value for long: the value is
// fine, and not the tightest one, which a saturated port writes.
func mayStick(table *csig.Table, code uint32) bool {
	if table.Codes() < minCodes {
		return false
	}
	if table.Aggregation().Direction() == csig.Min {
		return code > 0
	}
	return code < table.Codes()-1
}

// mayContradict reports whether a coarse value says that there are always packets in the queue of a
// port, so that none of its bandwidth (kbit/s) is available.
func mayContradict(table *csig.Table, value, capacity uint64) bool {
	switch {
	case table.Codes() >= minCodes:
		return false
	case table.Signal() == csig.MaxDelay: // ns
		return capacity > 0 && float64(value)*float64(capacity) >= minQueued*8*1e6
	}
	return table.Signal() == csig.MaxNQD
}

// suspicious reports whether a value that may stick is heavily loaded: an idle port writes one
// value for long as well.
func suspicious(table *csig.Table, capacity uint64, code uint32) bool {
	lo, hi, ok := table.HeavyCodes(capacity)
	return ok && code >= lo && code <= hi && mayStick(table, code)
}

// Closed implements window.Watch: a port is stuck that writes one value in stuckWindows
// windows of 1 s, stuckObservations times or more, and that no flow through it contradicts. One of
// 32 values must be a delay or a queue depth that the port's own bandwidth contradicts: a port whose
// load is steady writes one for long. Windows without flows that name the port tell nothing.
func (w *Watcher) Closed(b *aggregate.Block, weight uint64) {
	if b.Resolution != stuckWindow {
		return
	}
	if w.live != nil {
		w.closed(b)
	}
	w.steady(b, weight)
	if len(w.runs.of)+len(w.runs.here) > 0 || w.heads != nil {
		w.otherwise(b)
	}
	for k, r := range w.runs.here {
		may, contradicts := w.meaning(r)
		value, may := r.Value, r.Windows > 0 && may
		flows, known := w.runs.flows[runKey{at: r.At, signal: r.Signal}]
		agree := known && flows.agree(r)
		r.Src = flows.src
		if contradicts {
			left, said := w.runs.left[portKey{r.At, r.Encoding}]
			known, agree = known && !agree || known && said, agree && left
		}
		switch was := w.runs.of[k]; {
		case !may, known && !agree, was != nil && was.Value != r.Value:
			delete(w.runs.of, k)
		}
		if may && agree {
			w.goOn(k, r)
		}
		w.heads.note(k, value, w.runs.of[k], !may || known && !agree)
	}
}

// steady finds the locations that write one heavy value in a window, of those that a flow
// names or that did so before. There may be many more, at will of who sends.
func (w *Watcher) steady(b *aggregate.Block, weight uint64) {
	w.runs.here = emptied(w.runs.here)
	w.runs.flows = emptied(w.runs.flows)
	w.runs.left = emptied(w.runs.left)
	w.runs.bound(b)
	for i := range b.Len() {
		if n := b.Observations[i] - b.Trimmed[i]; n == 0 || b.Heavy[i] != n || b.Min[i] != b.Max[i] || b.Location[i] == 0 {
			continue
		}
		k := keyOfRow(b, i)
		r := w.runs.here[k]
		if r == nil {
			if !w.follows(k) {
				continue
			}
			r = &Run{At: k.at, Signal: k.signal, Encoding: k.encoding, Value: b.Min[i], Windows: 1, From: b.WindowStart, To: b.WindowStart + b.Resolution}
			w.runs.here[k] = r
		}
		if r.Value != b.Min[i] {
			r.Windows = 0
		}
		r.Count += (b.Observations[i] - b.Trimmed[i]) / max(weight, 1)
	}
}

// follows reports whether a window may begin a run, or matters to one.
func (w *Watcher) follows(k runKey) bool {
	if w.runs.of[k] != nil || w.heads.open(k) {
		return true
	}
	_, named := w.runs.flows[runKey{at: k.at, signal: k.signal}]
	return named
}

// emptied returns the map without what is in it. One that was large is made anew: clearing it would
// take as long in each window ever after.
func emptied[K comparable, V any](m map[K]V) map[K]V {
	if len(m) > largeWindow {
		return make(map[K]V)
	}
	clear(m)
	return m
}

// bounds are those of the values of flows, and the source of all of these, invalid for several.
type bounds struct {
	least, most uint64
	src         netip.Addr
}

// agree reports whether all values of the flows are as tight as the run's: one that was less would
// have been replaced by a port that writes a constant.
func (b bounds) agree(r *Run) bool {
	if r.Signal.Aggregation().Direction() == csig.Min {
		return b.most <= r.Value
	}
	return b.least >= r.Value
}

// bound finds the bounds of the flows that name ports most of the time.
func (r *runs) bound(b *aggregate.Block) {
	for i := range b.Flows {
		f := &b.Flows[i]
		k := runKey{at: aggregate.LocationID(f.Location), signal: csig.Signal(f.Signal)}
		src := netip.AddrFrom16(f.Src).Unmap()
		was, known := r.flows[k]
		if !known {
			was = bounds{f.Min, f.Max, src}
		}
		r.flows[k] = bounds{min(was.least, f.Min), max(was.most, f.Max), same(was.src, src)}
	}
}

// same returns the source of two, invalid if they have several.
func same(a, b netip.Addr) netip.Addr {
	if a == b {
		return a
	}
	return netip.Addr{}
}

func keyOfRow(b *aggregate.Block, i int) runKey {
	return runKey{aggregate.LocationID(b.Location[i]), csig.Signal(b.Signal[i]), aggregate.Encoding(b.Encoding[i])}
}

// otherwise ends runs of ports that write other values as well.
func (w *Watcher) otherwise(b *aggregate.Block) {
	for i := range b.Len() {
		n := b.Observations[i] - b.Trimmed[i]
		if n > b.Untouched[i] {
			w.leave(b, i)
		}
		if n == 0 || b.Heavy[i] == n && b.Min[i] == b.Max[i] {
			continue
		}
		k := keyOfRow(b, i)
		delete(w.runs.of, k)
		w.heads.note(k, 0, nil, true)
		if r := w.runs.here[k]; r != nil {
			r.Windows = 0
		}
	}
}

// meaning reports whether a run may mean something, which it does of ports alone, and whether it
// does so only where the port says that bandwidth is left meanwhile.
func (w *Watcher) meaning(r *Run) (may, contradicts bool) {
	at, ok := w.cfg.Locator.Location(r.At)
	if !ok || at.Kind != fabric.KindPort {
		return false, false
	}
	t := w.table(r.Encoding.Layout(), r.Signal)
	if t == nil {
		return false, false
	}
	contradicts = mayContradict(t, r.Value, at.Capacity)
	return contradicts || mayStick(t, t.Quantize(r.Value)), contradicts
}

// leave notes whether all values of bandwidth of a row say that some is left, for ports that
// seem to have a queue of one length.
func (w *Watcher) leave(b *aggregate.Block, i int) {
	k := keyOfRow(b, i)
	if k.signal != csig.MinABW && k.signal != csig.MinABWRatio {
		return
	}
	if w.runs.here[runKey{k.at, csig.MaxDelay, k.encoding}] == nil && w.runs.here[runKey{k.at, csig.MaxNQD, k.encoding}] == nil {
		return
	}
	if t := w.table(k.encoding.Layout(), k.signal); t != nil {
		port := portKey{k.at, k.encoding}
		left, said := w.runs.left[port]
		w.runs.left[port] = (left || !said) && t.Quantize(b.Min[i]) > 0
	}
}

// table returns that of a signal.
func (w *Watcher) table(l csig.Layout, s csig.Signal) *csig.Table {
	for t := range uint8(16) {
		if table := w.cfg.Domain.Table(l, t); table != nil && table.Signal() == s {
			return table
		}
	}
	return nil
}

// goOn makes a window part of a run, or the first one of another.
func (w *Watcher) goOn(k runKey, r *Run) {
	was := w.runs.of[k]
	switch {
	case was == nil && !w.runs.room(r.From):
		return
	case was == nil, r.From > was.To+stuckPause:
		w.runs.of[k] = r
		return
	case r.From >= was.To:
		was.Windows++
		was.To = r.To
	}
	was.Count += r.Count
	was.Src = same(was.Src, r.Src)
	w.tell(k, was)
}

// tell makes a finding of a run that is long enough, or adds to it what it does not count yet.
func (w *Watcher) tell(k runKey, was *Run) {
	if was.Windows < stuckWindows || was.Count < stuckObservations || was.Count == was.Told {
		return
	}
	f := w.cases.get(caseKey{kind: StuckPort, layout: uint8(k.encoding.Layout().Index()), at: k.at, signal: k.signal})
	if f.Subject != beyond {
		at, _ := w.cfg.Locator.Location(k.at)
		f.Candidates = nil
		if f.place(&at); was.Src.IsValid() { // which may write the value itself
			f.Candidates, f.Device, f.Port = []string{at.Name, was.Src.String()}, "", ""
		}
	}
	if f.Count == 0 && f.Subject != beyond { // those say no one value
		f.Evidence = fmt.Sprintf("%d observations of %d windows of 1 s, with pauses of up to 10 s, that name %s say %s, to the bit",
			was.Count, was.Windows, f.Subject, csig.FormatQuantity(k.signal.Unit(), float64(was.Value)))
	}
	w.made = nil
	f.during(was.From, was.To)
	f.Count += was.Count - was.Told
	was.Told = was.Count
}

// room reports whether there is room for one more run, and makes it where runs are over: ports
// that went silent. It looks once a window.
func (r *runs) room(from int64) bool {
	if len(r.of) >= maxRuns && from > r.swept {
		r.swept = from
		maps.DeleteFunc(r.of, func(_ runKey, of *Run) bool { return of.To+stuckPause < from })
	}
	return len(r.of) < maxRuns
}

// Runs are what the Watcher would forget otherwise, for the ResumeRuns of another one.
func (w *Watcher) Runs() (list []Run) {
	for _, r := range w.runs.of {
		list = append(list, *r)
	}
	return list
}

// ResumeRuns goes on with runs of another Watcher.
func (w *Watcher) ResumeRuns(list []Run) {
	for i := range list {
		r := list[i]
		w.runs.of[runKey{r.At, r.Signal, r.Encoding}] = &r
	}
}
