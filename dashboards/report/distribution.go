package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// maxBins is the maximum number of bars in a distribution: the number of compact codes.
const maxBins = 32

// Distribution counts measured values by range, for the tags of one layout.
type Distribution struct {
	Layout string `json:"layout"`
	// Threshold is the bound between heavy and other values, in the signal's unit; null if it
	// depends on the port.
	Threshold *float64 `json:"threshold"`
	Measured  uint64   `json:"measured"`
	Bins      []Bin    `json:"bins"` // ascending

	edges         []string // labels of bin edges, one more than bins
	thresholdText string
	thresholdEdge int // index of the edge at the threshold, -1 if none
}

// Bin counts the values in a range.
type Bin struct {
	Low   float64  `json:"low"`
	High  *float64 `json:"high"` // null: unbounded
	Heavy bool     `json:"heavy"`
	N     uint64   `json:"n"`
}

// axis holds the bins of one layout, shared by all cells.
type axis struct {
	encoding aggregate.Encoding
	blank    Distribution
	first    []uint16 // first csig.DistIndex of each bin
}

// axes returns bins that cover the codes, for each layout.
func (b *builder) axes(codes []table.CodeCount) []axis {
	used := map[aggregate.Encoding][]uint16{}
	for _, c := range codes {
		used[c.Encoding] = append(used[c.Encoding], c.Code)
	}
	var list []axis
	for _, encoding := range slices.Sorted(maps.Keys(used)) {
		if int(encoding) >= csig.NumLayouts {
			continue
		}
		table := b.domain.Table(encoding.Layout(), b.signal.Type())
		if table == nil || table.Signal() != b.signal {
			continue // the code means something else than the configured table
		}
		list = append(list, b.axis(encoding, table, slices.Min(used[encoding]), slices.Max(used[encoding])))
	}
	return list
}

// axis covers the codes from low to high and the threshold, which becomes a bin edge.
func (b *builder) axis(encoding aggregate.Encoding, table *csig.Table, low, high uint16) axis {
	a := axis{encoding: encoding, blank: Distribution{Layout: encoding.Layout().String(), thresholdEdge: -1}}
	lo, hi, known := table.HeavyCodes(0)
	cut := -1 // first index beyond the threshold
	if known {
		at, _, _ := table.Range(lo)
		if cut = int(csig.DistIndex(lo)); b.signal.Direction() == csig.Min {
			_, at, _ = table.Range(hi)
			cut = int(csig.DistIndex(hi)) + 1
		}
		value := b.signal.Unit().FromStored(at)
		a.blank.Threshold, a.blank.thresholdText = &value, b.edge(at)
		low, high = min(low, uint16(max(cut-1, 0))), max(high, uint16(min(cut, int(csig.DistIndex(table.Codes()-1)))))
	}
	width := (int(high)-int(low))/maxBins + 1
	for i := int(low); i <= int(high); {
		if i == cut {
			a.blank.thresholdEdge = len(a.first)
		}
		next := min(i+width, int(high)+1)
		if i < cut {
			next = min(next, cut)
		}
		heavy := known && (i < cut) == (b.signal.Direction() == csig.Min)
		a.add(b, table, uint16(i), uint16(next-1), heavy)
		i = next
	}
	return a
}

// add appends a bin of the indexes from first to last.
func (a *axis) add(b *builder, table *csig.Table, first, last uint16, heavy bool) {
	from, _ := csig.DistCodes(first)
	_, to := csig.DistCodes(last)
	low, _, _ := table.Range(min(from, table.Codes()-1))
	_, high, open := table.Range(min(to, table.Codes()-1))
	unit := b.signal.Unit()
	bin := Bin{Low: unit.FromStored(low), Heavy: heavy}
	if len(a.first) == 0 {
		a.blank.edges = []string{b.edge(low)}
	}
	edge := ""
	if !open {
		v := unit.FromStored(high)
		bin.High, edge = &v, b.edge(high)
	}
	a.first = append(a.first, first)
	a.blank.Bins, a.blank.edges = append(a.blank.Bins, bin), append(a.blank.edges, edge)
}

// edge returns a bound of bins as text. Shares have more digits than those of cells: bins of wide tags
// can be narrower than 0.1 %.
func (b *builder) edge(stored uint64) string {
	if b.signal.Unit() == csig.Ratio {
		return fmt.Sprintf("%.4g %%", float64(stored)/1e4)
	}
	return b.text(float64(stored))
}

// distributions counts the codes in the bins. It leaves out layouts without codes.
func distributions(axes []axis, codes []table.CodeCount) []Distribution {
	list := []Distribution{}
	for i := range axes {
		a := &axes[i]
		d := a.blank
		d.Bins = slices.Clone(d.Bins)
		for _, c := range codes {
			if c.Encoding != a.encoding {
				continue
			}
			at, found := slices.BinarySearchFunc(a.first, c.Code, cmp.Compare[uint16])
			if !found {
				at--
			}
			d.Bins[max(at, 0)].N += c.N
			d.Measured += c.N
		}
		if d.Measured > 0 {
			list = append(list, d)
		}
	}
	return list
}
