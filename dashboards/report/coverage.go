package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/decode"
)

const (
	// maxCovered is the maximum number of incompletely covered cells in the list.
	maxCovered = 40
	// endsEarly is the share of the captures' span by which a tap must end before the others to
	// count as silent.
	endsEarly = 0.1
)

// Coverage describes how completely the captures cover the network.
type Coverage struct {
	Taps   []Tap    `json:"taps"`
	Silent []string `json:"silent"` // configured taps that read nothing
	// Cells lists the cells with gaps in their coverage, the worst first.
	Cells        []CellCoverage `json:"cells"`
	CellsLeftOut int            `json:"cells_left_out,omitempty"`
	// ByReflections is the number of cells without tags.
	ByReflections int `json:"by_reflections"`
}

// Tap counts the packets of one tap and their outcomes. Tags to Trimmed are weighted.
type Tap struct {
	Name         string            `json:"name"`
	Place        string            `json:"place"`
	Interface    string            `json:"interface,omitempty"`
	Weight       uint64            `json:"weight"`        // packets represented by each captured one
	From         time.Time         `json:"from,omitzero"` // of the packets with a time, as To
	To           time.Time         `json:"to,omitzero"`
	Packets      uint64            `json:"packets"`
	Frames       map[string]uint64 `json:"frames"` // packets by decoding outcome
	Tags         uint64            `json:"tags"`
	Reflections  uint64            `json:"reflections"`
	Observations uint64            `json:"observations"` // = stored + overflow + late + rejected
	Stored       uint64            `json:"stored"`
	Overflow     uint64            `json:"overflow"`
	Late         uint64            `json:"late"`
	Rejected     map[string]uint64 `json:"rejected"`
	Untouched    uint64            `json:"untouched"`
	Trimmed      uint64            `json:"trimmed"`
	Note         string            `json:"note,omitempty"` // gap in the tap's coverage
}

// Refused returns the tap's rejected observations by reason, in words.
func (t *Tap) Refused() string { return counted(t.Rejected) }

// Unread returns in words, by reason, how many packets could not be decoded completely.
func (t *Tap) Unread() string {
	left := maps.Clone(t.Frames)
	maps.DeleteFunc(left, func(reason string, _ uint64) bool { return reason == "ok" || reason == "no-csig" })
	return counted(left)
}

func counted(counts map[string]uint64) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d %s", counts[name], name))
	}
	return strings.Join(list, ", ")
}

// CellCoverage describes a cell's coverage over all signals.
type CellCoverage struct {
	Src          string `json:"src"`
	Dst          string `json:"dst"`
	Observations uint64 `json:"observations"`
	Untouched    uint64 `json:"untouched"` // no hop replaced the tag, so it names no bottleneck
	Trimmed      uint64 `json:"trimmed"`   // the tag covers only a part of the path
	// Packets with and without a tag, if any packet has one, and reflections that report a path
	// without CSIG support.
	Tagged    uint64 `json:"tagged"`
	Untagged  uint64 `json:"untagged"`
	Incapable uint64 `json:"incapable"`

	missing float64 // largest share of missing information
	tags    bool    // some signal has tags
}

// Legend explains the columns of cells.
func (c *Coverage) Legend() string {
	return "untouched: no hop replaced the tag; trimmed: the tag stands for a part of the path; without a tag: senders do not tag all packets, or a device strips tags; not capable: empty or invalid reflections, which say that the path does not support CSIG"
}

// Share returns n as a share of the cell's observations.
func (c *CellCoverage) Share(n uint64) float64 {
	return query.ZeroNaN(float64(n) / float64(c.Observations))
}

// UntaggedShare returns the share of packets without a tag.
func (c *CellCoverage) UntaggedShare() float64 {
	return query.ZeroNaN(float64(c.Untagged) / float64(c.Tagged+c.Untagged))
}

// CellPackets counts packets from one group to another at taps that see whole paths.
type CellPackets struct {
	Src, Dst                    aggregate.GroupID
	Tagged, Untagged, Incapable uint64
}

type groups struct{ src, dst aggregate.GroupID }

// Cover fills in the coverage of the cells, over all signals.
func (c *Coverage) Cover(ctx context.Context, data Totals, names Names, packets []CellPackets) error {
	signals, err := data.Signals(ctx)
	if err != nil {
		return fmt.Errorf("build coverage: %w", err)
	}
	known := map[groups]*CellCoverage{}
	at := func(src, dst aggregate.GroupID) *CellCoverage {
		k := groups{src, dst}
		if known[k] == nil {
			known[k] = &CellCoverage{Src: names.GroupName(src), Dst: names.GroupName(dst)}
		}
		return known[k]
	}
	for _, s := range signals {
		cells, err := data.Cells(ctx, s)
		if err != nil {
			return fmt.Errorf("build coverage: %w", err)
		}
		for i := range cells {
			one := at(cells[i].Src, cells[i].Dst)
			one.Observations = aggregate.AddSat(one.Observations, cells[i].Observations)
			one.Untouched = aggregate.AddSat(one.Untouched, cells[i].Untouched)
			one.Trimmed = aggregate.AddSat(one.Trimmed, cells[i].Trimmed)
			one.tags = one.tags || cells[i].Kind == decode.Tag
		}
	}
	for _, p := range packets {
		if p.Tagged > 0 || p.Incapable > 0 {
			one := at(p.Src, p.Dst)
			one.Tagged, one.Untagged, one.Incapable = p.Tagged, p.Untagged, p.Incapable
		}
	}
	c.list(slices.Collect(maps.Values(known)))
	return nil
}

// list fills in the cells with gaps.
func (c *Coverage) list(all []*CellCoverage) {
	c.Cells = []CellCoverage{}
	for _, one := range all {
		if !one.tags && one.Observations > 0 {
			c.ByReflections++
		}
		// Some untouched tags are usual, since an empty queue replaces none. If all are, no hop takes part.
		one.missing = max(one.Share(one.Trimmed), one.UntaggedShare())
		if one.Untouched == one.Observations && one.Untouched > 0 || one.Incapable > 0 && one.Observations == 0 {
			one.missing = 1
		}
		if one.missing > 0 || one.Incapable > 0 {
			c.Cells = append(c.Cells, *one)
		}
	}
	slices.SortFunc(c.Cells, func(x, y CellCoverage) int {
		return cmp.Or(cmp.Compare(y.missing, x.missing), fabric.CompareNames(x.Src, y.Src), fabric.CompareNames(x.Dst, y.Dst))
	})
	c.CellsLeftOut = max(len(c.Cells)-maxCovered, 0)
	c.Cells = c.Cells[:len(c.Cells)-c.CellsLeftOut]
}

// rejected adds up the rejected observations of all taps by reason.
func (c *Coverage) rejected() map[string]uint64 {
	all := make(map[string]uint64)
	for i := range c.Taps {
		for reason, n := range c.Taps[i].Rejected {
			all[reason] += n
		}
	}
	return all
}

// Period returns the times of the first and the last packet of all taps; the zero Time if none has one.
func (c *Coverage) Period() (from, to time.Time) { return periodOf(c.Taps) }

func periodOf(taps []Tap) (from, to time.Time) {
	for i := range taps {
		t := &taps[i]
		if t.To.IsZero() {
			continue
		}
		if from.IsZero() || t.From.Before(from) {
			from = t.From
		}
		if t.To.After(to) {
			to = t.To
		}
	}
	return from, to
}

// SetTaps sorts the taps and marks the silent ones. configured holds the names of all configured
// taps.
func (c *Coverage) SetTaps(list []Tap, configured []string) {
	slices.SortStableFunc(list, func(x, y Tap) int { return fabric.CompareNames(x.Name, y.Name) })
	from, to := periodOf(list)
	met := map[string]bool{}
	for i := range list {
		met[list[i].Name] = true
	}
	early := to.Add(-time.Duration(endsEarly * float64(to.Sub(from))))
	for i := range list {
		t := &list[i]
		switch {
		case t.Packets == 0:
			t.Note = "no packets"
		case t.Observations == 0:
			t.Note = "no tags and no reflections"
		case t.To.IsZero():
			t.Note = "packets without a time"
		case t.Stored == 0 && t.Place == "receiver":
			t.Note = "enters no heatmap"
		case t.To.Before(early):
			t.Note = "silent for the last " + short(int64(to.Sub(t.To)))
		}
	}
	c.Taps, c.Silent = append([]Tap{}, list...), []string{}
	for _, name := range configured {
		if !met[name] {
			c.Silent = append(c.Silent, name)
		}
	}
	slices.SortFunc(c.Silent, fabric.CompareNames)
}
