package window

import "github.com/csigscope/csigscope/decode/csig"

// obsClass is an observation's contribution to a row. Observations of different classes have different
// series inside a shard, so that the hot path counts without a decision; their rows merge when the
// window closes.
type obsClass uint8

const (
	classValue     obsClass = iota + 1 // has a value and a location
	classUntouched                     // has a value, no hop replaced it
	classTrimmed                       // counts, its value covers only a part of the path
	classRaw                           // unknown compact type: the raw code is kept
	classCount                         // no table: counts only
)

// numSignalInfos is the number of (layout, T) pairs, whose index is layout<<4 | T.
const numSignalInfos = csig.NumLayouts * 16

// noInitial is a raw S that no tag carries.
const noInitial = 1 << 31

// signalInfo is the hot path's data about one signal type in one layout.
type signalInfo struct {
	table   *csig.Table
	initial uint32 // raw S of an untouched tag, or noInitial
	signal  csig.Signal
	wide    bool
	class   obsClass   // of an observation that is neither untouched nor trimmed
	located bool       // locator metadata names the hop that set the value
	code    [32]uint8  // compact: code by raw S
	value   [32]uint64 // compact: value by code
	most    uint64     // compact: the greatest of them
}

func newSignalInfos(d *csig.Domain) *[numSignalInfos]signalInfo {
	all := new([numSignalInfos]signalInfo)
	for i := range all {
		l, t := csig.LayoutAt(i>>4), uint8(i&15)
		tr := &all[i]
		tr.table = d.Table(l, t)
		tr.signal = csig.SignalOf(l.Profile, t)
		if tr.table != nil {
			tr.signal = tr.table.Signal()
		}
		tr.located = tr.signal.Aggregation().Locates()
		tr.wide = l.Format == csig.Wide
		tr.set()
	}
	return all
}

func (tr *signalInfo) set() {
	if tr.table == nil {
		tr.initial = noInitial
		tr.class = classCount
		if !tr.wide && !tr.signal.Known() {
			tr.class = classRaw
			for s := range tr.code {
				tr.code[s] = uint8(s)
			}
		}
		return
	}
	tr.initial = tr.table.Initial()
	tr.class = classValue
	if tr.wide {
		return
	}
	for s := range tr.code {
		tr.code[s] = uint8(tr.table.Code(uint32(s)))
	}
	for c := range tr.table.Codes() {
		tr.value[c] = tr.table.Value(c)
		tr.most = max(tr.most, tr.value[c])
	}
}

// layoutIndex is Layout.Index for any bit pattern: it returns NumLayouts for layouts that do not
// exist.
func layoutIndex(l csig.Layout) uint {
	f, p := uint(l.Format)-1, uint(l.Profile)-1
	if f > 1 || p > 1 {
		return csig.NumLayouts
	}
	return f<<1 | p
}
