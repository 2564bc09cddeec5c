package feed

import (
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Found counts observations by kind, tag layout and signal type, as they were decoded.
type Found [2][csig.NumLayouts][numTypes]uint64

// numTypes is the number of signal types that the wider layouts can carry.
const numTypes = 16

func (f *Found) add(o *decode.Observation) {
	f[o.Kind-decode.Tag][o.Tag.Layout.Index()][o.Tag.T&(numTypes-1)]++
}

// Merge adds what another Feeder found.
func (f *Found) Merge(other *Found) {
	for k := range f {
		for l := range f[k] {
			for t := range f[k][l] {
				f[k][l][t] += other[k][l][t]
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

// List is what was found, by kind, layout and signal type.
func (f *Found) List() (counts []FoundCount) {
	for k := range f {
		for l := range f[k] {
			for t, n := range f[k][l] {
				if n > 0 {
					layout := csig.LayoutAt(l)
					counts = append(counts, FoundCount{decode.Kind(k) + decode.Tag, layout, csig.SignalOf(layout.Profile, uint8(t)), n})
				}
			}
		}
	}
	return counts
}
