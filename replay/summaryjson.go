package replay

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
)

// summaryJSON is the summary for programs. Means are in the signal's unit.
type summaryJSON struct {
	Packets        uint64                   `json:"packets"`
	WireBytes      uint64                   `json:"wire_bytes"`
	UnreadLink     window.Links             `json:"unread_link_types"`
	Damaged        Damage                   `json:"damaged"`
	Frames         map[string]uint64        `json:"frames"`
	Observations   observationsJSON         `json:"observations"`
	Found          []foundJSON              `json:"found"`
	Conserved      bool                     `json:"conserved"`
	Findings       map[finding.Severity]int `json:"findings"` // null where nothing was looked for
	LocationSizes  LocationSizes            `json:"location_sizes"`
	Cells          []cellJSON               `json:"cells"`
	Cuts           []string                 `json:"cuts"`
	ElapsedSeconds float64                  `json:"elapsed_seconds"`
}

type observationsJSON struct {
	In        uint64            `json:"in"`
	Stored    uint64            `json:"stored"`
	Late      uint64            `json:"late"`
	Rejected  map[string]uint64 `json:"rejected"`
	Overflow  uint64            `json:"overflow"`
	Untouched uint64            `json:"untouched"`
	Trimmed   uint64            `json:"trimmed"`
	Unknown   uint64            `json:"unknown_type"`
}

type foundJSON struct {
	Kind    string `json:"kind"`
	Format  string `json:"format"`
	Profile string `json:"profile"`
	Signal  string `json:"signal"`
	Count   uint64 `json:"count"`
}

type cellJSON struct {
	Signal        string  `json:"signal"`
	Src           string  `json:"src_group"`
	Dst           string  `json:"dst_group"`
	Kind          string  `json:"kind"`
	Observations  uint64  `json:"observations"`
	Mean          float64 `json:"mean"`
	Unit          string  `json:"unit"`
	Heavy         uint64  `json:"heavy"`
	Untouched     uint64  `json:"untouched"`
	Trimmed       uint64  `json:"trimmed"`
	Mode          string  `json:"mode,omitempty"`
	ModeCount     uint64  `json:"mode_count"`
	RunnerUp      string  `json:"runner_up,omitempty"`
	RunnerUpCount uint64  `json:"runner_up_count"`
	State         string  `json:"state"`
}

// WriteJSON writes what WriteSummary writes as one JSON object, with every cell.
func (r *Result) WriteJSON(w io.Writer, s table.Rows, names Names) error {
	out := summaryJSON{
		Packets: r.Packets, WireBytes: r.WireBytes, UnreadLink: r.SkippedLink, Damaged: r.Damaged,
		Frames: map[string]uint64{}, Conserved: r.Conserved(), Findings: r.Findings.Count(),
		LocationSizes: locationSizes(s, names), Cells: []cellJSON{}, Cuts: []string{},
		ElapsedSeconds: r.Elapsed.Seconds(),
	}
	for i, n := range r.Frames {
		if n > 0 {
			out.Frames[decode.Reason(i).String()] = n
		}
	}
	c := &r.Counts
	out.Observations = observationsJSON{
		In: c.In, Stored: c.Stored, Late: c.Late, Overflow: c.Overflow, Rejected: map[string]uint64{},
		Untouched: c.Untouched, Trimmed: c.Trimmed, Unknown: c.Unknown,
	}
	for i, n := range c.Rejected {
		out.Observations.Rejected[aggregate.Rejection(i).String()] = n
	}
	for _, f := range r.Found.List() {
		out.Found = append(out.Found, foundJSON{f.Kind.String(), f.Layout.Format.String(), f.Layout.Profile.String(), f.Signal.String(), f.Count})
	}
	for _, cut := range r.Cuts {
		out.Cuts = append(out.Cuts, cut.Error())
	}
	for _, sig := range s.Signals() {
		cells := s.Cells(sig, nil)
		for i := range cells {
			out.Cells = append(out.Cells, newCellJSON(&cells[i], names))
		}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(out); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

func newCellJSON(c *aggregate.CellStats, names Names) cellJSON {
	unit := c.Signal.Unit()
	out := cellJSON{
		Signal: c.Signal.String(), Src: names.GroupName(c.Src), Dst: names.GroupName(c.Dst), Kind: c.Kind.String(),
		Observations: c.Observations, Mean: c.Mean() * unit.PerStored(), Unit: unit.String(),
		Heavy: c.Heavy, Untouched: c.Untouched, Trimmed: c.Trimmed,
		ModeCount: c.ModeCount, RunnerUpCount: c.RunnerUpCount, State: c.State.String(),
	}
	if c.ModeCount > 0 {
		out.Mode = locationName(c.Mode, names)
	}
	if c.RunnerUpCount > 0 {
		out.RunnerUp = locationName(c.RunnerUp, names)
	}
	return out
}
