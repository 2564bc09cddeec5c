package replay

import (
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Found counts observations by kind, tag layout and signal, as they were decoded.
type Found [2][csig.NumLayouts][csig.NumSignals]uint64

func (f *Found) add(o *decode.Observation) {
	f[o.Kind-decode.Tag][o.Tag.Layout.Index()][o.Tag.Signal()]++
}

func (f *Found) merge(other *Found) {
	for k := range f {
		for l := range f[k] {
			for s := range f[k][l] {
				f[k][l][s] += other[k][l][s]
			}
		}
	}
}

// FoundCount is one count of Found that is not zero.
type FoundCount struct {
	Kind   decode.Kind
	Layout csig.Layout
	Signal csig.Signal
	Count  uint64
}

func (f *Found) list() (counts []FoundCount) {
	for k := range f {
		for l := range f[k] {
			for s, n := range f[k][l] {
				if n > 0 {
					counts = append(counts, FoundCount{decode.Kind(k) + decode.Tag, csig.LayoutAt(l), csig.Signal(s), n})
				}
			}
		}
	}
	return counts
}
