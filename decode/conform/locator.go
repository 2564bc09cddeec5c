package conform

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// writer is a port with the layout and signal type of its tags: locator metadata belongs to all
// three (draft-ravi-ippm-csig-01, section 5.5.1).
type writer struct {
	port   uint8
	layout csig.Layout
	t      uint8
}

// maxLocators bounds the different locator metadata remembered for a writer. A device that writes
// more breaks the rule in any case.
const maxLocators = 4096

// written counts the locator metadata that a writer put in place of others, and those that it left
// although it replaced the signal.
type written struct {
	locator *csig.Locator
	lms     map[named]*usage
	beyond  uint64 // written with locator metadata that are not remembered
}

// named is locator metadata and its possible writers.
type named struct {
	lm uint16
	by uint16 // as in sighting
}

func compareNamed(a, b named) int { return cmp.Or(cmp.Compare(a.lm, b.lm), cmp.Compare(a.by, b.by)) }

// usage counts the writes of one value of locator metadata, and the tags that kept it.
type usage struct {
	wrote, kept     uint64
	wrotes, keeps   Example // the first ones
	keptWhichBreaks Rule    // if the value is not the writer's own
}

// of returns the record of the writer of a packet's tag.
func (j *Judge) of(after *sighting) *written {
	k := writer{after.port, after.Layout, after.T}
	w := j.locators[k]
	if w == nil {
		w = &written{locator: j.domain.Locator(after.Layout, after.T), lms: make(map[named]*usage)}
		j.locators[k] = w
	}
	return w
}

// usage returns the record of a value. It ignores the hop count, which depends on the packet, and
// remembers 1 in its place: with 0 the value could be 0, which is no location in most layouts.
func (w *written) usage(after *sighting) *usage {
	lm := after.LM
	if w.locator != nil {
		if a, ok := w.locator.Decode(lm); ok && a.Has(csig.FieldTTL) {
			a.TTL = 1
			if same, err := w.locator.Encode(a); err == nil {
				lm = same
			}
		}
	}
	of := named{lm, after.by}
	u := w.lms[of]
	if u == nil && len(w.lms) < maxLocators {
		u = new(usage)
		w.lms[of] = u
	}
	return u
}

func (w *written) write(before, after *sighting) {
	u := w.usage(after)
	if u == nil {
		w.beyond++
		return
	}
	u.wrote++
	u.wrotes = first(u.wrote, u.wrotes, before, after)
}

func (w *written) keep(before, after *sighting, breaks Rule) {
	u := w.usage(after)
	if u == nil {
		w.beyond++
		return
	}
	u.kept++
	u.keeps, u.keptWhichBreaks = first(u.kept, u.keeps, before, after), breaks
}

// own returns the locator metadata that the writer wrote most. ok is false if it wrote none.
func (w *written) own() (lm uint16, ok bool) {
	var most uint64
	for _, v := range w.sorted() {
		if n := w.lms[v].wrote; n > most {
			lm, most = v.lm, n
		}
	}
	return lm, most > 0
}

// sorted returns the locator metadata in a stable order.
func (w *written) sorted() []named { return slices.SortedFunc(maps.Keys(w.lms), compareNamed) }

// writers are the devices that may have written tags.
type writers struct {
	lists  []string // results of Config.Writers; the first one stands for unknown
	of     map[tagOnWay]uint16
	device string // the judged device, empty if unknown
}

// tagOnWay determines the possible writers of locator metadata.
type tagOnWay struct {
	layout   csig.Layout
	t        uint8
	lm       uint16
	src, dst netip.Addr
}

// writersOf returns the index of the devices that may have written the last decoded tag.
func (j *Judge) writersOf(s *sighting) uint16 {
	w := &j.writers
	k := tagOnWay{layout: s.Layout, t: s.T, lm: s.LM}
	for i := range j.result.Obs[:j.result.N] {
		if o := &j.result.Obs[i]; o.Kind == decode.Tag {
			k.src, k.dst = o.Addrs()
		}
	}
	n, known := w.of[k]
	if known || len(w.of) >= maxFlows {
		return n
	}
	if devices, known := j.cfg.Writers(&s.Tag, k.src, k.dst); known {
		at := slices.Index(w.lists[1:], devices)
		if n = uint16(at + 1); at < 0 && len(w.lists) < maxLocators {
			n = uint16(len(w.lists))
			w.lists = append(w.lists, devices)
		}
	}
	w.of[k] = n
	return n
}

// mostNamed returns the device that most of the written locators name.
func (j *Judge) mostNamed() (device string) {
	named := map[string]uint64{}
	for _, w := range j.locators {
		for v, u := range w.lms {
			for _, one := range strings.Split(j.writers.lists[v.by], "\n") {
				named[one] += u.wrote
			}
		}
	}
	delete(named, "") // no device
	for _, one := range slices.Sorted(maps.Keys(named)) {
		if named[one] > named[device] {
			device = one
		}
	}
	return device
}

// judgeLocators judges all packets together, to find each port's own locator metadata.
func (j *Judge) judgeLocators() {
	j.writers.device = cmp.Or(j.cfg.Device, j.mostNamed())
	for _, k := range slices.SortedFunc(maps.Keys(j.locators), func(a, b writer) int {
		return cmp.Or(cmp.Compare(a.port, b.port), cmp.Compare(a.layout.Index(), b.layout.Index()), cmp.Compare(a.t, b.t))
	}) {
		j.judgeWriter(k, j.locators[k])
	}
}

func (j *Judge) judgeWriter(k writer, w *written) {
	own, known := w.own()
	for _, v := range w.sorted() {
		u := w.lms[v]
		is, certain := j.isOwn(k, w, v)
		switch {
		case certain && is || !certain && known && v.lm == own:
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

// isOwn reports whether locator metadata is the writer's own; certain is false where that is
// unknown. A value that is no location in the layout is nobody's own.
func (j *Judge) isOwn(k writer, w *written, v named) (is, certain bool) {
	if j.cfg.Own != nil {
		if is, certain = j.cfg.Own(int(k.port), k.layout, k.t, v.lm); certain {
			return is, true
		}
	}
	if v.by != 0 && j.writers.device != "" {
		return slices.Contains(strings.Split(j.writers.lists[v.by], "\n"), j.writers.device), true
	}
	if w.locator == nil {
		return false, false
	}
	_, is = w.locator.Decode(v.lm)
	return is, !is
}

// judgeKeeper judges a writer that always left the locator metadata. If it is always the same, it
// may be the writer's own; of different values at most one is.
func (j *Judge) judgeKeeper(k writer, w *written) {
	var most named
	var n uint64
	unsure := make(map[named]*usage)
	for _, v := range w.sorted() {
		if _, certain := j.isOwn(k, w, v); certain {
			continue
		}
		unsure[v] = w.lms[v]
		if w.lms[v].kept > n {
			most, n = v, w.lms[v].kept
		}
	}
	for _, v := range slices.SortedFunc(maps.Keys(unsure), compareNamed) {
		u := unsure[v]
		if v.lm == most.lm && u.keptWhichBreaks != NotScrubbed { // which got through unchanged
			j.counts.OwnUnknown += u.kept
			continue
		}
		j.brokeOften(u.keptWhichBreaks, u.kept, u.keeps)
	}
}
