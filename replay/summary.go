package replay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// worstCells is the number of cells in a summary, per signal.
const worstCells = 5

// Names resolves IDs to names.
type Names interface {
	GroupName(aggregate.GroupID) string
	Location(aggregate.LocationID) (fabric.Location, bool)
}

// WriteSummary prints the result of a replay: packets, observations by outcome, the number of
// findings, and for each signal the cells with most heavy observations and the mode of their
// bottleneck.
func (r *Result) WriteSummary(w io.Writer, s table.Rows, names Names) error {
	if err := r.WriteAccounting(w); err != nil {
		return err
	}
	writeLocationSizes(w, locationSizes(s, names))
	for _, sig := range s.Signals() {
		writeSignal(w, sig, s, names)
	}
	return nil
}

// WriteAccounting prints the part of a summary that counts packets, observations and findings by
// outcome. Live captures end with it too.
func (r *Result) WriteAccounting(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	seconds := max(r.Elapsed, time.Microsecond).Seconds()
	fmt.Fprintf(tw, "packets\t%d\t%.0f/s, %.1f MB on the wire, %.2f s\n", r.Packets, float64(r.Packets)/seconds, float64(r.WireBytes)/1e6, r.Elapsed.Seconds())
	for i, n := range r.Frames {
		if n > 0 {
			fmt.Fprintf(tw, "  %s\t%d\t\n", decode.Reason(i), n)
		}
	}
	r.SkippedLink.List(func(u window.UnreadableLink, n uint64) {
		fmt.Fprintf(tw, "  not read\t%d\tof %s\n", n, u)
	})
	if r.Repeated > 0 {
		fmt.Fprintf(tw, "  duplicates\t%d\tare left out\n", r.Repeated)
	}
	if r.Damaged.Gaps > 0 {
		fmt.Fprintf(tw, "  damaged places\t%d\t%d bytes are left out\n", r.Damaged.Gaps, r.Damaged.Bytes)
	}
	r.writeConservation(tw)
	r.Findings.write(tw)
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

// Conserved reports whether every observation is accounted for.
func (r *Result) Conserved() bool {
	c := &r.Counts
	return c.In == c.Stored+c.Late+c.Overflow+rejected(c)
}

func rejected(c *aggregate.Counts) (sum uint64) {
	for _, n := range c.Rejected {
		sum += n
	}
	return sum
}

func (r *Result) writeConservation(w io.Writer) {
	c := &r.Counts
	verdict := "every one accounted for"
	if !r.Conserved() {
		verdict = "NOT CONSERVED: please report this"
	}
	fmt.Fprintf(w, "observations\t%d\t= %d stored + %d late + %d rejected + %d overflow: %s\n",
		c.In, c.Stored, c.Late, rejected(c), c.Overflow, verdict)
	for i, n := range c.Rejected {
		if n > 0 {
			fmt.Fprintf(w, "  rejected, %s\t%d\t%s\n", aggregate.Rejection(i), n, aggregate.Rejection(i).About())
		}
	}
	if r.Excess > 0 {
		fmt.Fprintf(w, "  excess reflections\t%d\tnot among these, beyond %d observations of one packet\n", r.Excess, decode.MaxObservations)
	}
	for _, f := range r.Found.List() {
		fmt.Fprintf(w, "  %s %s %s\t%d\t\n", f.Kind, f.Layout, f.Signal, f.Count)
	}
	fmt.Fprintf(w, "  untouched\t%d\tno hop replaced the tag\n", c.Untouched)
	fmt.Fprintf(w, "  trimmed\t%d\tcounted apart, out of the mode\n", c.Trimmed)
	fmt.Fprintf(w, "  unknown type\t%d\t\n", c.Unknown)
}

// LocationSizes describes how precisely heavy observations are located. A locator of few bits names
// sets of ports.
type LocationSizes struct {
	Heavy     uint64 `json:"heavy"`     // heavy observations with a resolved location
	OnePort   uint64 `json:"one_port"`  // the part that names a single port
	Locations int    `json:"locations"` // distinct locations
	Median    int    `json:"median"`    // candidate ports per location
	Largest   int    `json:"largest"`
}

func locationSizes(s table.Rows, names Names) (z LocationSizes) {
	sizes := map[aggregate.LocationID]int{}
	for _, sig := range s.Signals() {
		for _, found := range s.Locations(sig, nil) {
			l, ok := names.Location(found.Location)
			if !ok || l.CandidateCount == 0 || found.Heavy == 0 {
				continue
			}
			z.Heavy += found.Heavy
			if l.CandidateCount == 1 {
				z.OnePort += found.Heavy
			}
			sizes[found.Location] = l.CandidateCount
		}
	}
	if z.Locations = len(sizes); z.Locations > 0 {
		sorted := slices.Sorted(maps.Values(sizes))
		z.Median, z.Largest = sorted[len(sorted)/2], sorted[len(sorted)-1]
	}
	return z
}

func writeLocationSizes(w io.Writer, z LocationSizes) {
	if z.Locations == 0 {
		return
	}
	fmt.Fprintf(w, "\nlocations named by heavy observations: %d; %.1f %% of these observations name a single port (candidate ports of a location: median %d, at most %d)\n",
		z.Locations, 100*share(z.OnePort, z.Heavy), z.Median, z.Largest)
}

func writeSignal(w io.Writer, sig csig.Signal, s table.Rows, names Names) {
	cells := s.Cells(sig, nil)
	if len(cells) == 0 {
		return
	}
	var states [aggregate.NumStates]int
	congested, still := 0, 0
	for i := range cells {
		states[cells[i].State]++
		if cells[i].Sustained {
			still++
		}
		if cells[i].WasCongested() {
			congested++
		}
	}
	unjudged := states[aggregate.NotJudged]
	var heavy []*aggregate.CellStats
	for i := range cells {
		if cells[i].Heavy > 0 {
			heavy = append(heavy, &cells[i])
		}
	}
	slices.SortStableFunc(heavy, func(a, b *aggregate.CellStats) int { return cmp.Compare(b.Heavy, a.Heavy) })
	fmt.Fprintf(w, "\n%s: %d of %d cells were congested, %d of them at the end\n", sig, congested, len(cells), still)
	if unjudged > 0 {
		fmt.Fprintf(w, "  %d of %d cells are not judged: %s\n", unjudged, len(cells), aggregate.HowToJudge(sig))
	}
	if congested+states[aggregate.Brief] == 0 {
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "  source\tdestination\tfrom\tmean\theavy\tmode of the bottleneck\tshare\trunner-up\tshare\tsamples\tstate")
	for _, c := range heavy[:min(len(heavy), worstCells)] {
		writeCell(tw, c, names)
	}
	_ = tw.Flush()
	if len(heavy) > worstCells {
		fmt.Fprintf(w, "  %s had heavy observations\n", counted(uint64(len(heavy)-worstCells), "more cell"))
	}
}

// counted returns a number with its noun in singular or plural.
func counted(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func writeCell(w io.Writer, c *aggregate.CellStats, names Names) {
	fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%.1f %%\t%s\t%s\t%s\t%s\t%d\t%s\n",
		names.GroupName(c.Src), names.GroupName(c.Dst), c.Kind,
		csig.FormatQuantity(c.Signal.Unit(), c.Mean()), 100*share(c.Heavy, c.Observations),
		bottleneckName(c.Mode, c.ModeCount, names), bottleneckShare(c.ModeCount, c.Heavy),
		bottleneckName(c.RunnerUp, c.RunnerUpCount, names), bottleneckShare(c.RunnerUpCount, c.Heavy), c.Samples, c.StateText())
}

// bottleneckName returns the name of a mode or runner-up. There may be no runner-up, and a signal
// that sums over hops has no mode.
func bottleneckName(id aggregate.LocationID, count uint64, names Names) string {
	if count == 0 {
		return "-"
	}
	return locationName(id, names)
}

func bottleneckShare(count, heavy uint64) string {
	if count == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*share(count, heavy))
}

// locationName returns the name of a location, with its size if it is a set.
func locationName(id aggregate.LocationID, names Names) string {
	l, ok := names.Location(id)
	if !ok {
		return id.Placeholder()
	}
	if l.CandidateCount > 1 {
		return fmt.Sprintf("%s (%d ports)", strings.TrimSpace(l.Name), l.CandidateCount)
	}
	return l.Name
}

func share(part, whole uint64) float64 {
	return float64(part) / float64(max(whole, 1))
}

// summaryJSON is the summary for programs.
type summaryJSON struct {
	Packets        uint64                   `json:"packets"`
	WireBytes      uint64                   `json:"wire_bytes"`
	UnreadLink     window.UnreadableLinks   `json:"unread_link_types"`
	Duplicates     uint64                   `json:"duplicates,omitempty"`
	Damaged        Damage                   `json:"damaged"`
	Frames         map[string]uint64        `json:"frames"`
	Observations   observationsJSON         `json:"observations"`
	Found          []foundJSON              `json:"found"`
	Conserved      bool                     `json:"conserved"`
	Findings       map[finding.Severity]int `json:"findings"` // null if findings were not enabled
	LocationSizes  LocationSizes            `json:"location_sizes"`
	Cells          []json.RawMessage        `json:"cells"`
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
	Excess    uint64            `json:"excess_reflections,omitempty"` // not part of In
}

type foundJSON struct {
	Kind    string `json:"kind"`
	Format  string `json:"format"`
	Profile string `json:"profile"`
	Signal  string `json:"signal"`
	Count   uint64 `json:"count"`
}

// WriteJSON writes the content of WriteSummary as one JSON object with every cell. cells must be
// all cells of the rows, encoded.
func (r *Result) WriteJSON(w io.Writer, s table.Rows, names Names, cells []json.RawMessage) error {
	out := summaryJSON{
		Packets: r.Packets, WireBytes: r.WireBytes, UnreadLink: r.SkippedLink, Duplicates: r.Repeated, Damaged: r.Damaged,
		Frames: map[string]uint64{}, Found: []foundJSON{}, Conserved: r.Conserved(), Findings: r.Findings.Count(),
		LocationSizes: locationSizes(s, names), Cells: cells, Cuts: []string{},
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
		Untouched: c.Untouched, Trimmed: c.Trimmed, Unknown: c.Unknown, Excess: r.Excess,
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
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(out); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}
