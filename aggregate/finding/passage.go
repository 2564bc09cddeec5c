package finding

import (
	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// A Passage is what a piece of a capture leaves to tell which ports are stuck, for what the
// pieces before and after it tell: whoever looks at pieces apart has each port's first run
// and its last one.
type Passage struct {
	Heads []Head
	Tails []Run // that go on at the end
	Full  bool  // ports are missing in Heads
}

// A Head is what a port writes first.
type Head struct {
	At       aggregate.LocationID
	Signal   csig.Signal
	Encoding aggregate.Encoding
	Value    uint64 // in stored units
	Run      *Run   // nil where no window tells anything
	Over     bool   // in the piece
}

// heads are those of a Watcher that looks at a piece.
type heads struct {
	of   map[runKey]*head
	full bool
}

// head is one; its run is that of the Watcher as long as it goes on.
type head struct {
	value uint64
	run   *Run
	over  bool
}

// InPieces makes the Watcher remember what Passage gives until the next Begin.
func (w *Watcher) InPieces() { w.heads = &heads{of: make(map[runKey]*head)} }

// Passage is what the Watcher knows at the end of a piece, or before it; without heads, for
// ResumePassage alone, unless InPieces.
func (w *Watcher) Passage() *Passage {
	p := &Passage{Tails: w.Runs()}
	if w.heads == nil {
		return p
	}
	p.Full = w.heads.full
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

// ResumePassage goes on in the middle of a piece.
func (w *Watcher) ResumePassage(p *Passage) {
	w.ResumeRuns(p.Tails)
	if w.heads == nil {
		return
	}
	w.heads.full = p.Full
	for i := range p.Heads {
		one := &p.Heads[i]
		k := runKey{one.At, one.Signal, one.Encoding}
		h := &head{value: one.Value, run: one.Run, over: one.Over}
		if h.run != nil && !h.over {
			h.run = w.runs.of[k]
		}
		w.heads.of[k] = h
	}
}

// note takes what a window says of a port: its value and the run that it is of, if any, or
// that it writes something else.
func (h *heads) note(k runKey, value uint64, run *Run, otherwise bool) {
	if h == nil {
		return
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

// open tells whether what a port writes may be of its head.
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

// Follow goes on with the pieces before a piece, and adds what they find together to what was
// found in it. It is for Watchers that follow pieces in their order, and do nothing else.
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
	for k, was := range w.runs.of {
		h := heads[k]
		switch {
		case h == nil && !p.Full:
			continue
		case h != nil && h.Value == was.Value && h.Run != nil && h.Run.From <= was.To+stuckPause:
			was.add(h.Run)
			w.tell(k, was)
		}
		if h == nil || h.Over || h.Value != was.Value || h.Run != nil && h.Run.From > was.To+stuckPause {
			delete(w.runs.of, k)
		}
	}
	for i := range p.Tails {
		r := p.Tails[i]
		k := runKey{r.At, r.Signal, r.Encoding}
		if _, goesOn := w.runs.of[k]; !goesOn && w.runs.room(r.From) {
			w.runs.of[k] = &r
		}
	}
	return w.Findings()
}

// add makes a run of the next piece part of one. Pieces may share a window.
func (r *Run) add(next *Run) {
	r.Windows += next.Windows
	if next.From < r.To {
		r.Windows--
	}
	r.To = max(r.To, next.To)
	r.Count, r.Told = r.Count+next.Count, r.Told+next.Told
}
