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
		info := &all[i]
		info.table = d.Table(l, t)
		info.signal = csig.SignalOf(l.Profile, t)
		if info.table != nil {
			info.signal = info.table.Signal()
		}
		info.located = info.signal.Aggregation().Locates()
		info.wide = l.Format == csig.Wide
		info.set()
	}
	return all
}

func (info *signalInfo) set() {
	if info.table == nil {
		info.initial = noInitial
		info.class = classCount
		if !info.wide && !info.signal.Known() {
			info.class = classRaw
			for s := range info.code {
				info.code[s] = uint8(s)
			}
		}
		return
	}
	info.initial = info.table.Initial()
	info.class = classValue
	if info.wide {
		return
	}
	for s := range info.code {
		info.code[s] = uint8(info.table.Code(uint32(s)))
	}
	for c := range info.table.Codes() {
		info.value[c] = info.table.Value(c)
		info.most = max(info.most, info.value[c])
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
