// Package model is the query API's answers as they are on the wire: what a server encodes
// and a client decodes.
//
// It knows names, units and JSON. It must never know where answers come from or how they
// travel.
package model

import "time"

// Measure is a value with its unit in the name of the field that is there.
type Measure struct {
	BPS   *float64 `json:"bps,omitempty" doc:"bit/s"`
	Ratio *float64 `json:"ratio,omitempty" doc:"from 0 to 1"`
	NS    *float64 `json:"ns,omitempty" doc:"nanoseconds"`
	Count *float64 `json:"count,omitempty" doc:"plain number, such as of hops"`
}

// Value is the value and its unit; ok is false without one.
func (m *Measure) Value() (v float64, unit string, ok bool) {
	switch {
	case m == nil:
	case m.BPS != nil:
		return *m.BPS, "bit/s", true
	case m.Ratio != nil:
		return *m.Ratio, "ratio", true
	case m.NS != nil:
		return *m.NS, "ns", true
	case m.Count != nil:
		return *m.Count, "count", true
	}
	return 0, "", false
}

// Bottleneck is a location that heavily loaded observations name.
type Bottleneck struct {
	Location   string   `json:"location"`
	Heavy      uint64   `json:"heavy" doc:"heavily loaded observations that name it"`
	ShareRatio float64  `json:"share_ratio" doc:"of the cell's heavily loaded observations"`
	Mean       *Measure `json:"mean,omitempty" doc:"of those observations; not of a runner-up"`
}

// Cell is one source and destination group.
type Cell struct {
	Src          string      `json:"src"`
	Dst          string      `json:"dst"`
	Kind         string      `json:"kind" enum:"tag,reflection"`
	State        string      `json:"state" enum:"congested,clear,too_few"`
	Observations uint64      `json:"observations"`
	Mean         *Measure    `json:"mean,omitempty" doc:"of a signal of available bandwidth: the room left"`
	Min          *Measure    `json:"min,omitempty"`
	Max          *Measure    `json:"max,omitempty"`
	Untouched    uint64      `json:"untouched" doc:"tags that no hop replaced"`
	Trimmed      uint64      `json:"trimmed" doc:"observations of a part of the path"`
	Heavy        uint64      `json:"heavy" doc:"heavily loaded observations"`
	HeavyRatio   float64     `json:"heavy_ratio" doc:"heavy of observations"`
	Mode         *Bottleneck `json:"mode,omitempty" doc:"the limiting location: most heavily loaded observations name it"`
	RunnerUp     *Bottleneck `json:"runner_up,omitempty"`
}

// About says what an answer is of.
type About struct {
	Source   string    `json:"source" enum:"memory,store" doc:"recent windows in memory, or history"`
	Revision string    `json:"revision,omitempty" doc:"of the memory: EPOCH-NUMBER"`
	Signal   string    `json:"signal"`
	Unit     string    `json:"unit" doc:"bit/s, ratio, ns, count or empty"`
	Level    string    `json:"level" enum:"location,set,device,stage" doc:"that locations are named at"`
	From     time.Time `json:"from" doc:"start of the first window"`
	To       time.Time `json:"to" doc:"end of the last window"`
	Windows  int       `json:"windows,omitempty" doc:"added up, in memory"`
	// Completeness is of the newest window, or of the history of a path.
	Completeness float64    `json:"completeness_ratio,omitempty" doc:"producers that have told of the newest window, of those known; of a path's history, the share of the range without a known gap"`
	AsOf         *time.Time `json:"as_of,omitempty" doc:"when the store was asked: all pages are of that answer"`
}

// Cells is a page of cells.
type Cells struct {
	About
	Total  int    `json:"total" doc:"cells on all pages"`
	Next   string `json:"next_cursor,omitempty" doc:"asks for the next page, of the same revision or the same answer of the store"`
	Frames []byte `json:"frames,omitempty" doc:"the cells of a watch with encoding=frames, in their place; see there"`
	Values []Cell `json:"cells"`
}

// Matrix is a signal as a matrix of sources (rows) and destinations (columns), null where
// nothing was observed.
type Matrix struct {
	About
	Groups []string      `json:"groups" doc:"of rows and columns"`
	Mean   [][]*float64  `json:"mean" doc:"in the unit"`
	Heavy  [][]*float64  `json:"heavy_ratio"`
	Mode   [][]*string   `json:"mode" doc:"limiting locations"`
	State  [][]CellState `json:"state"`
}

// CellState is a state, no_data where nothing was observed.
type CellState string

// Location is how often a location was named.
type Location struct {
	Location     string   `json:"location"`
	Kind         string   `json:"kind,omitempty"`
	Device       string   `json:"device,omitempty"`
	Stage        string   `json:"stage,omitempty"`
	CapacityBPS  uint64   `json:"capacity_bps,omitempty"`
	Observations uint64   `json:"observations"`
	Heavy        uint64   `json:"heavy"`
	Cells        uint64   `json:"cells,omitempty" doc:"with a heavily loaded observation there; of a timeline in memory alone"`
	HeavyMean    *Measure `json:"heavy_mean,omitempty" doc:"of heavily loaded observations"`
}

// Locations are the locations that heavily loaded observations name most.
type Locations struct {
	About
	Total  int        `json:"total" doc:"locations that were named"`
	Values []Location `json:"locations"`
}

// Moment is one window of a timeline.
type Moment struct {
	Start        time.Time  `json:"window_start"`
	Observations uint64     `json:"observations"`
	Heavy        uint64     `json:"heavy"`
	Cells        int        `json:"cells" doc:"with an observation"`
	Congested    int        `json:"congested" doc:"cells in that state"`
	Completeness float64    `json:"completeness_ratio"`
	Locations    []Location `json:"locations" doc:"those with the most heavily loaded observations"`
	Cell         *Cell      `json:"cell,omitempty" doc:"where src and dst name one group each"`
}

// Timeline is what windows came to, one by one.
type Timeline struct {
	About
	StepSeconds float64  `json:"step_s" doc:"length of a window"`
	HeavyOnly   bool     `json:"heavy_only,omitempty" doc:"windows so short are kept of cells alone where something was heavily loaded"`
	Values      []Moment `json:"timeline"`
}

// Path is what is known of one source and destination.
type Path struct {
	About
	Cell       Cell     `json:"cell"`
	Room       *Measure `json:"room,omitempty" doc:"left on the path: the mean of a signal of available bandwidth"`
	Limit      *Place   `json:"limit,omitempty" doc:"the limiting location"`
	AgeSeconds float64  `json:"age_s" doc:"since the end of the newest window, or of the range, now"`
}

// Place is a location and what it stands for.
type Place struct {
	Location       string   `json:"location"`
	Kind           string   `json:"kind" doc:"port, set, raw, unknown or overflow"`
	Device         string   `json:"device,omitempty"`
	Stage          string   `json:"stage,omitempty"`
	Orientation    string   `json:"orientation,omitempty"`
	CapacityBPS    uint64   `json:"capacity_bps,omitempty" doc:"that all candidates share"`
	Candidates     []string `json:"candidates,omitempty" doc:"ports that it may be, the first 64"`
	CandidateCount int      `json:"candidate_count,omitempty"`
}

// Group is a row and column of the matrix.
type Group struct {
	Name   string `json:"name"`
	Level  string `json:"level,omitempty"`
	Parent string `json:"parent,omitempty"`
}

// Fabric is what answers name.
type Fabric struct {
	Name      string  `json:"name"`
	Groups    []Group `json:"groups"`
	Locations []Place `json:"locations"`
}

// Health is how the feed does.
type Health struct {
	Source         string     `json:"source" enum:"memory,store" doc:"store: there is history alone"`
	Revision       string     `json:"revision,omitempty"`
	Windows        int        `json:"windows" doc:"in memory"`
	WindowSeconds  float64    `json:"resolution_s,omitempty" doc:"length of a window"`
	First          *time.Time `json:"first,omitempty" doc:"start of the oldest window"`
	Last           *time.Time `json:"last,omitempty" doc:"end of the newest window"`
	AgeSeconds     *float64   `json:"age_s,omitempty" doc:"since the end of the newest window"`
	Completeness   float64    `json:"completeness_ratio"`
	Producers      int        `json:"producers" doc:"that have told of the newest window"`
	Expected       int        `json:"expected_producers"`
	Watchers       int        `json:"watchers"`
	OldBlocks      uint64     `json:"old_blocks" doc:"not kept: older than all windows in memory"`
	DroppedWindows uint64     `json:"dropped_windows" doc:"forgotten early, for want of room"`
	Signals        []string   `json:"signals"`
}

// WindowEvent is one window as it is now, in place of what was told of it before.
type WindowEvent struct {
	Revision     string    `json:"revision"`
	Start        time.Time `json:"window_start"`
	End          time.Time `json:"window_end"`
	Late         bool      `json:"late" doc:"the window was told of before, or is not the newest"`
	Completeness float64   `json:"completeness_ratio"`
	Signal       string    `json:"signal"`
	// Base is the start of the newest window that the stream has told of before, where Frames
	// are what differs from that; nil where they are all cells.
	Base   *time.Time `json:"base,omitempty" doc:"with encoding=frames: the frames hold only what differs from the newest window that was told before, which began then; cells without observations have gone"`
	Frames []byte     `json:"frames,omitempty" doc:"the cells of a watch with encoding=frames, in their place; see there"`
	Values []Cell     `json:"cells"`
}

// Synced ends what a stream begins with: all that follows are changes.
type Synced struct {
	Revision string `json:"revision"`
}

// Heartbeat says that a silent stream lives.
type Heartbeat struct {
	Revision   string    `json:"revision"`
	Time       time.Time `json:"time"`
	AgeSeconds *float64  `json:"age_s,omitempty" doc:"since the end of the newest window"`
}

// Gap says that something between what was seen and what follows is missing; a snapshot
// follows.
type Gap struct {
	Revision string `json:"revision" doc:"of the snapshot that follows"`
	Reason   string `json:"reason" enum:"expired,restarted,lagging"`
	Missed   uint64 `json:"missed_revisions,omitempty"`
}

// Problem is an error (RFC 9457).
type Problem struct {
	Title  string          `json:"title"`
	Status int             `json:"status"`
	Detail string          `json:"detail"`
	Errors []ProblemDetail `json:"errors,omitempty"`
}

// ProblemDetail says which parameter is wrong, and what was expected.
type ProblemDetail struct {
	Message  string `json:"message"`
	Location string `json:"location"`
	Value    any    `json:"value,omitempty"`
}
