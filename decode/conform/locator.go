package conform

import (
	"cmp"
	"maps"
	"slices"

	"github.com/csigscope/csigscope/decode/csig"
)

// writer is a port and what it writes tags of: locator metadata belongs to both
// (draft-ravi-ippm-csig-01, section 5.5.1).
type writer struct {
	port   uint8
	layout csig.Layout
	t      uint8
}

// maxLocators bounds the different locator metadata that are remembered of a writer. A
// device that writes more breaks the rule in any case.
const maxLocators = 4096

// written is which locator metadata a writer put in place of others, and where it left
// what was there although it replaced the signal.
type written struct {
	locator *csig.Locator
	lms     map[uint16]*usage
	beyond  uint64 // written, of locator metadata that are not remembered
}

// usage is what became of one value of locator metadata.
type usage struct {
	wrote, kept     uint64
	wrotes, keeps   Example // the first ones
	keptWhichBreaks Rule    // where it is not the writer's own
}

// of is what the writer of a packet's tag has written so far.
func (j *Judge) of(after *sighting) *written {
	k := writer{after.port, after.Layout, after.T}
	w := j.locators[k]
	if w == nil {
		w = &written{locator: j.domain.Locator(after.Layout, after.T), lms: make(map[uint16]*usage)}
		j.locators[k] = w
	}
	return w
}

// usage is that of a value, whose hop count does not matter: it is the packet's.
func (w *written) usage(lm uint16) *usage {
	if w.locator != nil {
		if a, ok := w.locator.Decode(lm); ok && a.Has(csig.FieldTTL) {
			a.TTL = 0
			if same, err := w.locator.Encode(a); err == nil {
				lm = same
			}
		}
	}
	u := w.lms[lm]
	if u == nil && len(w.lms) < maxLocators {
		u = new(usage)
		w.lms[lm] = u
	}
	return u
}

func (w *written) write(before, after *sighting) {
	u := w.usage(after.LM)
	if u == nil {
		w.beyond++
		return
	}
	u.wrote++
	u.wrotes = first(u.wrote, u.wrotes, before, after)
}

func (w *written) keep(before, after *sighting, breaks Rule) {
	u := w.usage(after.LM)
	if u == nil {
		w.beyond++
		return
	}
	u.kept++
	u.keeps, u.keptWhichBreaks = first(u.kept, u.keeps, before, after), breaks
}

// own is the locator metadata that the writer wrote most. ok is false when it wrote none.
func (w *written) own() (lm uint16, ok bool) {
	var most uint64
	for _, v := range slices.Sorted(maps.Keys(w.lms)) {
		if n := w.lms[v].wrote; n > most {
			lm, most = v, n
		}
	}
	return lm, most > 0
}

// judgeLocators judges what all packets together show: which locator metadata is a
// port's own.
func (j *Judge) judgeLocators() {
	for _, k := range slices.SortedFunc(maps.Keys(j.locators), func(a, b writer) int {
		return cmp.Or(cmp.Compare(a.port, b.port), cmp.Compare(a.layout.Index(), b.layout.Index()), cmp.Compare(a.t, b.t))
	}) {
		j.judgeWriter(k, j.locators[k])
	}
}

func (j *Judge) judgeWriter(k writer, w *written) {
	own, known := w.own()
	for _, lm := range slices.Sorted(maps.Keys(w.lms)) {
		u := w.lms[lm]
		is, certain := j.isOwn(k, w, lm)
		switch {
		case certain && is || !certain && known && lm == own:
			continue
		case !certain && !known:
			continue // judged below
		}
		j.brokeOften(LocatorOther, u.wrote, u.wrotes)
		j.brokeOften(u.keptWhichBreaks, u.kept, u.keeps)
	}
	j.brokeOften(LocatorOther, w.beyond, Example{portNum: k.port})
	if !known {
		j.judgeKeeper(k, w)
	}
}

// isOwn tells whether locator metadata is the writer's own; certain is false where nobody
// knows. What the layout does not take for a location is nobody's.
func (j *Judge) isOwn(k writer, w *written, lm uint16) (is, certain bool) {
	if j.cfg.Own != nil {
		if is, certain = j.cfg.Own(int(k.port), k.layout, k.t, lm); certain {
			return is, true
		}
	}
	if w.locator == nil {
		return false, false
	}
	_, is = w.locator.Decode(lm)
	return is, !is
}

// judgeKeeper judges a writer that left what was there every time. Where that is always
// the same, it may be its own; of different values one at most is.
func (j *Judge) judgeKeeper(k writer, w *written) {
	var most uint16
	var n uint64
	unsure := make(map[uint16]*usage)
	for _, lm := range slices.Sorted(maps.Keys(w.lms)) {
		if _, certain := j.isOwn(k, w, lm); certain {
			continue
		}
		unsure[lm] = w.lms[lm]
		if w.lms[lm].kept > n {
			most, n = lm, w.lms[lm].kept
		}
	}
	for _, lm := range slices.Sorted(maps.Keys(unsure)) {
		u := unsure[lm]
		if lm == most && u.keptWhichBreaks != NotScrubbed { // that got through as it was
			j.counts.OwnUnknown += u.kept
			continue
		}
		j.brokeOften(u.keptWhichBreaks, u.kept, u.keeps)
	}
}
