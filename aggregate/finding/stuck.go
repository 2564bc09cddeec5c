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
	// stuckWindow is the length of the windows in which a Watcher looks for stuck ports: one that
	// all taps have.
	stuckWindow = int64(time.Second)
	// stuckWindows is the number of windows needed, each at most stuckPause after the previous one:
	// a middle window has values from its whole length.
	stuckWindows = 3
	// stuckObservations is the number of observations needed.
	stuckObservations = 200
	// stuckPause is how long a port may write nothing within a run.
	stuckPause = 10 * stuckWindow
	// maxRuns bounds the tracked ports and signals.
	maxRuns = 1 << 14
	// largeWindow is the number of ports and signals of a window up to which a map is reused.
	largeWindow = 1 << 10
)

// A Run is a port that writes one value of a signal in successive windows.
type Run struct {
	At       aggregate.LocationID
	Signal   csig.Signal
	Encoding aggregate.Encoding
	Value    uint64 // in stored units
	Count    uint64 // observations
	First    uint64 // those of them in the first window
	Reported uint64 // those of them that a finding counts
	Windows  int
	Src      netip.Addr // of all known flows that name the port, invalid if there are several
	From, To int64      // start of the first window, end of the last one, Unix ns
	Second   int64      // start of the second window
}

type runKey struct {
	at       aggregate.LocationID
	signal   csig.Signal
	encoding aggregate.Encoding
}

// runs are the runs of a Watcher.
type runs struct {
	of map[runKey]*Run
	// swept is the start of the window in which ended runs were last removed.
	swept int64
	// Of the current block; flows only by port and signal.
	here  map[runKey]*Run
	mixed map[runKey]bool // ports that write several values
	flows map[runKey]bounds
	left  map[portKey]portLeft // of ports of here with one delay or queue depth
}

// portKey is a port in the tags of an encoding.
type portKey struct {
	at       aggregate.LocationID
	encoding aggregate.Encoding
}

// portLeft is what a port reports as its available bandwidth.
type portLeft uint8

const (
	leftUnknown portLeft = iota
	leftNone             // at least one value says that there is none
	leftSome
)

const (
	// minCodes is the number of codes that a signal must have for equal values alone to be
	// evidence: with 32, a port with a steady load or a full queue writes one value for a long
	// time.
	minCodes = 256
	// minQueued is the minimum number of bytes waiting before a packet if its delay comes from a
	// queue, and not from storing and forwarding large packets.
	minQueued = 4 * 9216
)

// mayStick reports whether a long run of one value is evidence: the value is fine-grained, and not
// the tightest one, which a saturated port writes.
func mayStick(table *csig.Table, code uint32) bool {
	if table.Codes() < minCodes {
		return false
	}
	if table.Aggregation().Direction() == csig.Min {
		return code > 0
	}
	return code < table.Codes()-1
}

// mayContradict reports whether a coarse value means that the port's queue is never empty, so that
// none of its bandwidth (kbit/s) is available.
func mayContradict(table *csig.Table, value, capacity uint64) bool {
	switch {
	case table.Codes() >= minCodes:
		return false
	case table.Signal() == csig.MaxDelay: // ns
		return capacity > 0 && float64(value)*float64(capacity) >= minQueued*8*1e6
	}
	return table.Signal() == csig.MaxNQD
}

// suspicious reports whether a value that may stick is heavy: an idle port also writes one
// value for a long time.
func suspicious(table *csig.Table, capacity uint64, code uint32) bool {
	lo, hi, ok := table.HeavyCodes(capacity)
	return ok && code >= lo && code <= hi && mayStick(table, code)
}

// Closed implements window.Watch. A port is stuck if it writes one value in 3 windows of 1 s, at
// least 200 times, and no flow through it contradicts that. With 32 codes, it
// must be a delay or a queue depth that the port's own bandwidth contradicts: a port with a steady
// load writes one value for a long time. Windows without flows that name the port are no evidence.
func (w *Watcher) Closed(b *aggregate.Block, weight uint64) {
	if b.Resolution != stuckWindow {
		return
	}
	if w.live != nil {
		w.closed(b)
	}
	w.heads.begin(b.WindowStart)
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
			left := w.runs.left[portKey{r.At, r.Encoding}]
			known, agree = known && (!agree || left != leftUnknown), agree && left == leftSome
		}
		switch was := w.runs.of[k]; {
		case !may, known && !agree, was != nil && was.Value != r.Value:
			delete(w.runs.of, k)
		}
		if may && agree {
			w.takeOver(k, r)
		}
		w.heads.note(k, value, w.runs.of[k], !may || known && !agree, b.WindowStart)
	}
}

// steady finds the locations that write one heavy value in a window, among those that a flow names
// or that did so before. There may be many more, under the control of senders.
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
			if k.signal == csig.MaxDelay || k.signal == csig.MaxNQD {
				w.runs.left[portKey{k.at, k.encoding}] = leftUnknown
			}
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

// emptied returns the map without its content. It replaces a large map: clearing it would take as
// long in each later window.
func emptied[K comparable, V any](m map[K]V) map[K]V {
	if len(m) > largeWindow {
		return make(map[K]V)
	}
	clear(m)
	return m
}

// bounds are the bounds of flows' values, with the source of all these flows, invalid if there are
// several.
type bounds struct {
	least, most uint64
	src         netip.Addr
}

// agree reports whether all values of the flows are at least as tight as the run's: a port that
// writes a constant would have replaced a looser one.
func (b bounds) agree(r *Run) bool {
	if r.Signal.Aggregation().Direction() == csig.Min {
		return b.most <= r.Value
	}
	return b.least >= r.Value
}

// bound finds the bounds of the flows that mostly name ports.
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

// same returns the common source of two, invalid if they differ.
func same(a, b netip.Addr) netip.Addr {
	if a == b {
		return a
	}
	return netip.Addr{}
}

func keyOfRow(b *aggregate.Block, i int) runKey {
	return runKey{aggregate.LocationID(b.Location[i]), csig.Signal(b.Signal[i]), aggregate.Encoding(b.Encoding[i])}
}

// otherwise ends runs of ports that also write other values.
func (w *Watcher) otherwise(b *aggregate.Block) {
	w.runs.mixed = emptied(w.runs.mixed)
	for i := range b.Len() {
		n := b.Observations[i] - b.Trimmed[i]
		if n > b.Untouched[i] {
			w.leave(b, i)
		}
		if n == 0 || b.Heavy[i] == n && b.Min[i] == b.Max[i] {
			continue
		}
		k := keyOfRow(b, i)
		if w.runs.mixed[k] {
			continue
		}
		w.runs.mixed[k] = true
		delete(w.runs.of, k)
		w.heads.note(k, 0, nil, true, b.WindowStart)
		if r := w.runs.here[k]; r != nil {
			r.Windows = 0
		}
	}
}

// meaning reports whether a run can be evidence, which only runs of ports can, and whether it is so
// only while the port reports available bandwidth.
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

// leave records whether all bandwidth values of a row leave some available, for ports that seem to
// have a queue of constant length.
func (w *Watcher) leave(b *aggregate.Block, i int) {
	if signal := csig.Signal(b.Signal[i]); len(w.runs.left) == 0 || signal != csig.MinABW && signal != csig.MinABWRatio {
		return
	}
	k := keyOfRow(b, i)
	port := portKey{k.at, k.encoding}
	was, ok := w.runs.left[port]
	if !ok || was == leftNone {
		return
	}
	if t := w.table(k.encoding.Layout(), k.signal); t != nil {
		w.runs.left[port] = leftNone
		if t.Quantize(b.Min[i]) > 0 {
			w.runs.left[port] = leftSome
		}
	}
}

// table returns the table of a signal.
func (w *Watcher) table(l csig.Layout, s csig.Signal) *csig.Table {
	for t := range uint8(16) {
		if table := w.cfg.Domain.Table(l, t); table != nil && table.Signal() == s {
			return table
		}
	}
	return nil
}

// takeOver adds a window to a run, or starts another run with it.
func (w *Watcher) takeOver(k runKey, r *Run) {
	was := w.runs.of[k]
	switch {
	case was == nil && !w.runs.room(r.From):
		return
	case was == nil, r.From > was.To+stuckPause:
		r.First = r.Count
		w.runs.of[k] = r
		return
	case r.From == was.From:
		was.First += r.Count
	case r.From >= was.To:
		if was.Windows++; was.Windows == 2 {
			was.Second = r.From
		}
		was.To = r.To
	}
	was.Count += r.Count
	was.Src = same(was.Src, r.Src)
	if !w.heads.begins(k, was) {
		w.reportRun(k, was)
	}
}

// reportRun makes a finding of a run that is long enough, or adds the counts that its finding does not
// include yet.
func (w *Watcher) reportRun(k runKey, was *Run) {
	if was.Windows < stuckWindows || was.Count < stuckObservations || was.Count == was.Reported {
		return
	}
	f := w.cases.get(caseKey{kind: StuckPort, layout: uint8(k.encoding.Layout().Index()), at: k.at, signal: k.signal})
	if f.Subject != beyond {
		at, _ := w.cfg.Locator.Location(k.at)
		f.Candidates = nil
		if f.setLocation(&at); was.Src.IsValid() { // the source may write the value itself
			f.Candidates, f.Device, f.Port = []string{at.Name, was.Src.String()}, "", ""
		}
	}
	if f.Count == 0 && f.Subject != beyond { // others have no single value
		f.Evidence = fmt.Sprintf("%d observations of %s have the same value, %s, in %d windows of 1 s, with pauses of up to 10 s",
			was.Count, f.Subject, csig.FormatQuantity(k.signal.Unit(), float64(was.Value)), was.Windows)
	}
	w.made = nil
	f.during(was.From, was.To)
	f.Count += was.Count - was.Reported
	was.Reported = was.Count
}

// room reports whether there is room for one more run. Once a window, it makes room by removing
// runs of ports that went silent.
func (r *runs) room(from int64) bool {
	if len(r.of) >= maxRuns && from > r.swept {
		r.swept = from
		maps.DeleteFunc(r.of, func(_ runKey, of *Run) bool { return of.To+stuckPause < from })
	}
	return len(r.of) < maxRuns
}

// Runs returns the Watcher's runs, for ResumeRuns of another Watcher.
func (w *Watcher) Runs() (list []Run) {
	for _, r := range w.runs.of {
		list = append(list, *r)
	}
	return list
}

// ResumeRuns continues the runs of another Watcher.
func (w *Watcher) ResumeRuns(list []Run) {
	for i := range list {
		r := list[i]
		w.runs.of[runKey{r.At, r.Signal, r.Encoding}] = &r
	}
}
