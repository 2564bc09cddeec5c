package finding

import (
	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

const (
	// swapWindows is the number of windows of stuckWindow for which flows are collected before
	// their ports are compared. A swap must show twice in a row: a reroute looks like one, but
	// shows once.
	swapWindows = 10
	// maxSwapFlows and maxSwapRoutes bound this comparison, which takes the ring's time, to a few
	// milliseconds.
	maxSwapFlows, maxSwapRoutes = 512, 64
)

// live is the state of a Watcher of live packets besides single observations and stuck ports.
// Of whole captures, a Detector finds the same faults.
type live struct {
	tap     tapState
	longest uint32 // packet without D
	layouts [csig.NumLayouts]liveLayout

	flows   map[flowKey]*flow // that name ports in the last windows
	windows int
	before  map[string]bool // the swaps of the previous comparison
}

// liveLayout counts the packets of a layout with D that are about as long as the longest one.
type liveLayout struct {
	wholes
	reported           uint64
	touched, unknownLM uint64 // values, and those that no port of their path writes
}

// report adds the counts that a case does not include yet.
func (w *Watcher) report(k caseKey, of *Finding, reported *uint64) {
	w.made = nil
	f := w.cases.get(k)
	f.during(of.From, of.To)
	f.Count += of.Count - *reported
	*reported = of.Count
}

// Live makes the Watcher also check a live tap of that name: its clock, duplicate frames, the trim bit
// D and swapped locators.
func (w *Watcher) Live(tap string) {
	w.live = &live{tap: tapState{Tap: Tap{Name: tap}}, flows: make(map[flowKey]*flow)}
}

// ObserveTime takes the time of each frame (Unix ns), in the order of capture.
func (w *Watcher) ObserveTime(ns int64) {
	if t := &w.live.tap; t.behind == 0 && ns >= t.last-int64(minBack) && t.last > 0 {
		t.last = max(t.last, ns)
		return
	}
	w.behind(ns)
}

// behind takes the first time, and times far behind the latest one.
func (w *Watcher) behind(ns int64) {
	t := &w.live.tap
	before := t.back.Count
	if t.clock(&Frame{TimeNS: ns}, false); t.back.Count != before {
		w.report(caseKey{kind: ClockSet, name: t.Name}, &t.back, &t.reportedBack)
	}
}

// ObserveContent takes a frame of the sample that is compared with preceding frames: its time (Unix
// ns), a number for its bytes, and whether they equal those of an earlier frame.
func (w *Watcher) ObserveContent(ns int64, content uint64, repeated bool) {
	t := &w.live.tap
	before := t.repeated.Count
	t.frames++
	t.copied(&Frame{TimeNS: ns, Content: content, Repeated: repeated})
	if n := t.repeated.Count; n != before && t.repeats(n) {
		w.report(caseKey{kind: DuplicateFrames, name: t.Name}, &t.repeated, &t.reportedRepeated)
	}
}

// length takes a tag of a packet that is the longest so far, or has D and is about as long.
func (l *live) length(o *decode.Observation) {
	if !o.Tag.D {
		l.longest = max(l.longest, o.Bytes)
		return
	}
	l.layouts[o.Tag.Layout.Index()].trimmed(&l.tap.Tap, o)
}

// closed takes the rows of a window of stuckWindow.
func (w *Watcher) closed(b *aggregate.Block) {
	l := w.live
	for i := range b.Len() {
		l.layouts[aggregate.Encoding(b.Encoding[i]).Layout().Index()].touched += b.Observations[i] - b.Trimmed[i] - b.Untouched[i]
	}
	for i := range l.layouts {
		of := &l.layouts[i]
		if of.Count >= minUnknownLMs && of.Count > of.reported && of.whole(l.longest) && 10*of.unknownLM <= of.touched {
			w.report(caseKey{kind: TrimInvented, layout: uint8(i)}, &of.Finding, &of.reported)
		}
	}
	if w.cfg.Routes == nil {
		return
	}
	for i := range b.Flows {
		w.names(&b.Flows[i], b.WindowStart, b.WindowStart+b.Resolution)
	}
	if l.windows++; l.windows == swapWindows {
		w.swaps()
		clear(l.flows)
		l.windows = 0
	}
}

// names records the port that a flow names in a window.
func (w *Watcher) names(f *aggregate.FlowRow, from, to int64) {
	at := aggregate.LocationID(f.Location)
	if at == aggregate.NoLocation || decode.Kind(f.Kind) != decode.Tag {
		return
	}
	key := flowKey{f.Src, f.Dst, uint32(f.SrcPort)<<16 | uint32(f.DstPort), f.Proto}
	one := w.live.flows[key]
	if port, ok := w.cfg.Locator.Location(at); !ok || port.Kind != fabric.KindPort || one == nil && len(w.live.flows) >= maxSwapFlows {
		return
	}
	if one == nil {
		one = &flow{key: key}
		w.live.flows[key] = one
	}
	one.passed(at)
	one.cover(from, to)
	one.touched += f.LocationHeavy
}

// swaps finds the ports that write each other's locators by the flows of the last windows.
func (w *Watcher) swaps() {
	c := newLocalizer(&w.cfg)
	c.most = maxSwapRoutes
	flows := flows{of: w.live.flows}
	found := map[string]bool{}
	for _, swap := range c.swapped(flows.inOrder()) {
		found[swap.Subject] = true
		if !w.live.before[swap.Subject] {
			continue
		}
		f := w.cases.get(caseKey{kind: SwappedLocators, name: swap.Subject})
		if f.Count == 0 && f.Subject != beyond {
			swap.ID, swap.Of = f.ID, 0 // Watchers do not count Of
			*f = swap
		} else {
			f.add(&swap)
		}
		w.made = nil
	}
	w.live.before = found
}
