// Package model is the query API's answers as they are on the wire: what a server encodes
// and a client decodes.
//
// It knows names, units and JSON. It must never know where answers come from or how they
// travel.
package model

import "time"

// Measure is a value with its unit in the name of the field that is there.
type Measure struct {
	BPS   *float64 `json:"bps,omitempty" doc:"bit/s" example:"41000000000"`
	Ratio *float64 `json:"ratio,omitempty" doc:"from 0 to 1" example:"0.41"`
	NS    *float64 `json:"ns,omitempty" doc:"nanoseconds" example:"18500"`
	Count *float64 `json:"count,omitempty" doc:"plain number, such as of hops" example:"3"`
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
	Location   string   `json:"location" doc:"name at the level that was asked for" example:"leaf3:up1"`
	Heavy      uint64   `json:"heavy" doc:"heavily loaded observations that name it" example:"480"`
	ShareRatio float64  `json:"share_ratio" doc:"of the cell's heavily loaded observations" example:"0.75"`
	Mean       *Measure `json:"mean,omitempty" doc:"of those observations; not of a runner-up"`
}

// Cell is one source and destination group.
type Cell struct {
	Src          string      `json:"src" doc:"source group" example:"rack1"`
	Dst          string      `json:"dst" doc:"destination group" example:"rack2"`
	Kind         string      `json:"kind" enum:"tag,reflection" doc:"what the observations are: tags at receivers, or reflections at senders" example:"tag"`
	State        string      `json:"state" enum:"congested,clear,too_few" doc:"congested: heavily loaded observations name a bottleneck; clear: none do; too_few: less than 10 observations" example:"congested"`
	Observations uint64      `json:"observations" doc:"how many tags or reflections, weighted by the sampling" example:"1200"`
	Mean         *Measure    `json:"mean,omitempty" doc:"of a signal of available bandwidth: the room left"`
	Min          *Measure    `json:"min,omitempty" doc:"the least value that was observed"`
	Max          *Measure    `json:"max,omitempty" doc:"the greatest value that was observed"`
	Untouched    uint64      `json:"untouched" doc:"tags that no hop replaced" example:"0"`
	Trimmed      uint64      `json:"trimmed" doc:"observations of a part of the path" example:"12"`
	Heavy        uint64      `json:"heavy" doc:"heavily loaded observations" example:"480"`
	HeavyRatio   float64     `json:"heavy_ratio" doc:"heavy of observations" example:"0.4"`
	Mode         *Bottleneck `json:"mode,omitempty" doc:"the limiting location: most heavily loaded observations name it"`
	RunnerUp     *Bottleneck `json:"runner_up,omitempty" doc:"the location with the second most heavily loaded observations"`
}

// About says what an answer is of.
type About struct {
	Source   string    `json:"source" enum:"memory,store" doc:"recent windows in memory, or history" example:"memory"`
	Revision string    `json:"revision,omitempty" doc:"of the memory: EPOCH-NUMBER" example:"0000000000000007-42"`
	Signal   string    `json:"signal" doc:"the signal, as it was asked for" example:"min_abw"`
	Unit     string    `json:"unit" doc:"bit/s, ratio, ns, count or empty" example:"bit/s"`
	Level    string    `json:"level" enum:"location,set,device,stage" doc:"that locations are named at" example:"location"`
	From     time.Time `json:"from" doc:"start of the first window" example:"2026-01-20T09:00:00Z"`
	To       time.Time `json:"to" doc:"end of the last window" example:"2026-01-20T09:00:01Z"`
	Windows  int       `json:"windows,omitempty" doc:"added up, in memory" example:"1"`
	// Completeness is of the newest window, or of the history of a path.
	Completeness float64    `json:"completeness_ratio,omitempty" doc:"producers that have told of the newest window, of those known; of a path's history, the share of the range without a known gap" example:"1"`
	AsOf         *time.Time `json:"as_of,omitempty" doc:"when the store was asked: all pages are of that answer" example:"2026-01-20T09:01:00Z"`
}

// Cells is a page of cells.
type Cells struct {
	About
	Total  int    `json:"total" doc:"cells on all pages" example:"240"`
	Next   string `json:"next_cursor,omitempty" doc:"asks for the next page, of the same revision or the same answer of the store" example:"MDAwMDAwMDAwMDAwMDAwNy00Mi4xLjEw"`
	Frames []byte `json:"frames,omitempty" doc:"the cells of a watch with encoding=frames, in their place; see there" example:"Q1NGMQ=="`
	Values []Cell `json:"cells" nullable:"false" doc:"source and destination groups with observations"`
}

// Matrix is a signal as a matrix of sources (rows) and destinations (columns), null where
// nothing was observed.
type Matrix struct {
	About
	Groups []string      `json:"groups" nullable:"false" doc:"of rows and columns" example:"[\"rack1\",\"rack2\"]"`
	Mean   [][]*float64  `json:"mean" nullable:"false" doc:"in the unit" example:"[[97000000000,41000000000],[52000000000,98000000000]]"`
	Heavy  [][]*float64  `json:"heavy_ratio" nullable:"false" doc:"share of heavily loaded observations, from 0 to 1" example:"[[0,0.4],[0,0]]"`
	Mode   [][]*string   `json:"mode" nullable:"false" doc:"limiting locations" example:"[[\"leaf1:down1\",\"leaf3:up1\"],[\"leaf3:up2\",\"leaf1:down2\"]]"`
	State  [][]CellState `json:"state" nullable:"false" doc:"states of the cells" example:"[[\"no_data\",\"congested\"],[\"clear\",\"no_data\"]]"`
}

// CellState is a state, no_data where nothing was observed.
type CellState string

// Location is how often a location was named.
type Location struct {
	Location     string   `json:"location" doc:"name of the location at the level that was asked for" example:"leaf3:up1"`
	Kind         string   `json:"kind,omitempty" doc:"port, set, raw, unknown or overflow" example:"port"`
	Device       string   `json:"device,omitempty" doc:"device of the location" example:"leaf3"`
	Stage        string   `json:"stage,omitempty" doc:"stage of the fabric that the location is in, such as leaf" example:"leaf"`
	CapacityBPS  uint64   `json:"capacity_bps,omitempty" doc:"capacity in bit/s" example:"100000000000"`
	Observations uint64   `json:"observations" doc:"how many tags or reflections, weighted by the sampling" example:"1200"`
	Heavy        uint64   `json:"heavy" doc:"heavily loaded observations" example:"480"`
	Cells        uint64   `json:"cells,omitempty" doc:"with a heavily loaded observation there; of a timeline in memory alone" example:"15"`
	HeavyMean    *Measure `json:"heavy_mean,omitempty" doc:"of heavily loaded observations"`
}

// Locations are the locations that heavily loaded observations name most.
type Locations struct {
	About
	Total  int        `json:"total" doc:"locations that were named" example:"240"`
	Values []Location `json:"locations" nullable:"false" doc:"the most heavily loaded first"`
}

// Moment is one window of a timeline.
type Moment struct {
	Start        time.Time  `json:"window_start" doc:"start of the window" example:"2026-01-20T09:00:00Z"`
	Observations uint64     `json:"observations" doc:"how many tags or reflections, weighted by the sampling" example:"1200"`
	Heavy        uint64     `json:"heavy" doc:"heavily loaded observations" example:"480"`
	Cells        int        `json:"cells" doc:"with an observation" example:"15"`
	Congested    int        `json:"congested" doc:"cells in that state" example:"9"`
	Completeness float64    `json:"completeness_ratio" doc:"producers that have told of the window, of those known; from 0 to 1" example:"1"`
	Locations    []Location `json:"locations" nullable:"false" doc:"those with the most heavily loaded observations, of all cells also where src and dst are given"`
	Cell         *Cell      `json:"cell,omitempty" doc:"where src and dst name one group each"`
}

// Timeline is what windows came to, one by one.
type Timeline struct {
	About
	StepSeconds float64  `json:"step_s" doc:"length of a window" example:"1"`
	HeavyOnly   bool     `json:"heavy_only,omitempty" doc:"windows so short are kept of cells alone where something was heavily loaded" example:"false"`
	Values      []Moment `json:"timeline" nullable:"false" doc:"windows, the oldest first"`
}

// Path is what is known of one source and destination.
type Path struct {
	About
	Cell       Cell     `json:"cell" doc:"what was observed"`
	Room       *Measure `json:"room,omitempty" doc:"left on the path: the mean of a signal of available bandwidth"`
	Limit      *Place   `json:"limit,omitempty" doc:"the limiting location"`
	AgeSeconds float64  `json:"age_s" doc:"since the end of the newest window, or of the range, now" example:"1.2"`
}

// Place is a location and what it stands for.
type Place struct {
	Location       string   `json:"location" doc:"name of the location at the level that was asked for" example:"leaf3:up1"`
	Kind           string   `json:"kind" doc:"port, set, raw, unknown or overflow" example:"set"`
	Device         string   `json:"device,omitempty" doc:"device of the location" example:"leaf3"`
	Stage          string   `json:"stage,omitempty" doc:"stage of the fabric that the location is in, such as leaf" example:"leaf"`
	Orientation    string   `json:"orientation,omitempty" doc:"up or down, as seen from the device" example:"up"`
	CapacityBPS    uint64   `json:"capacity_bps,omitempty" doc:"that all candidates share" example:"100000000000"`
	Candidates     []string `json:"candidates,omitempty" nullable:"false" doc:"ports that it may be, the first 64" example:"[\"leaf3:up1\",\"leaf3:up2\"]"`
	CandidateCount int      `json:"candidate_count,omitempty" doc:"of all candidates" example:"2"`
}

// Group is a row and column of the matrix.
type Group struct {
	Name   string `json:"name" doc:"as parameters and answers have it" example:"rack1"`
	Level  string `json:"level,omitempty" doc:"host, rack, pod, cluster or prefix" example:"rack"`
	Parent string `json:"parent,omitempty" doc:"the group that it is in" example:"pod1"`
}

// Fabric is what answers name.
type Fabric struct {
	Name      string  `json:"name" doc:"of the fabric file" example:"lab"`
	Groups    []Group `json:"groups" nullable:"false" doc:"all groups"`
	Locations []Place `json:"locations" nullable:"false" doc:"all locations"`
}

// Health is how the feed does.
type Health struct {
	Source         string     `json:"source" enum:"memory,store" doc:"store: there is history alone" example:"memory"`
	Revision       string     `json:"revision,omitempty" doc:"of the memory: EPOCH-NUMBER" example:"0000000000000007-42"`
	Windows        int        `json:"windows" doc:"in memory" example:"600"`
	WindowSeconds  float64    `json:"resolution_s,omitempty" doc:"length of a window" example:"1"`
	First          *time.Time `json:"first,omitempty" doc:"start of the oldest window" example:"2026-01-20T09:00:00Z"`
	Last           *time.Time `json:"last,omitempty" doc:"end of the newest window" example:"2026-01-20T09:10:00Z"`
	AgeSeconds     *float64   `json:"age_s,omitempty" doc:"since the end of the newest window" example:"1.2"`
	Completeness   float64    `json:"completeness_ratio" doc:"producers that have told of the newest window, of those known; from 0 to 1" example:"1"`
	Producers      int        `json:"producers" doc:"that have told of the newest window" example:"4"`
	Expected       int        `json:"expected_producers" doc:"that are known" example:"4"`
	Watchers       int        `json:"watchers" doc:"that are being served" example:"2"`
	OldBlocks      uint64     `json:"old_blocks" doc:"not kept: older than all windows in memory" example:"0"`
	DroppedWindows uint64     `json:"dropped_windows" doc:"forgotten early, for want of room" example:"0"`
	Signals        []string   `json:"signals" nullable:"false" doc:"that the windows in memory have" example:"[\"min_abw\",\"max_delay\"]"`
}

// WindowEvent is one window as it is now, in place of what was told of it before.
type WindowEvent struct {
	Revision     string    `json:"revision" doc:"of the memory: EPOCH-NUMBER" example:"0000000000000007-42"`
	Start        time.Time `json:"window_start" doc:"start of the window" example:"2026-01-20T09:00:00Z"`
	End          time.Time `json:"window_end" doc:"end of the window, exclusive" example:"2026-01-20T09:00:01Z"`
	Late         bool      `json:"late" doc:"the window was told of before, or is not the newest" example:"false"`
	Completeness float64   `json:"completeness_ratio" doc:"producers that have told of the window, of those known; from 0 to 1" example:"1"`
	Signal       string    `json:"signal" doc:"the signal, as it was asked for" example:"min_abw"`
	// Base is the start of the newest window that the stream has told of before, where Frames
	// are what differs from that; nil where they are all cells.
	Base   *time.Time `json:"base,omitempty" doc:"with encoding=frames: the frames hold only what differs from the newest window that was told before, which began then; cells without observations have gone" example:"2026-01-20T09:00:00Z"`
	Frames []byte     `json:"frames,omitempty" doc:"the cells of a watch with encoding=frames, in their place; see there" example:"Q1NGMQ=="`
	Values []Cell     `json:"cells" nullable:"false" doc:"all cells of the window that the watch is about"`
}

// Synced ends what a stream begins with: all that follows are changes.
type Synced struct {
	Revision string `json:"revision" doc:"of the memory: EPOCH-NUMBER" example:"0000000000000007-42"`
}

// Heartbeat says that a silent stream lives.
type Heartbeat struct {
	Revision   string    `json:"revision" doc:"of the memory: EPOCH-NUMBER" example:"0000000000000007-42"`
	Time       time.Time `json:"time" doc:"of the server, now" example:"2026-01-20T09:00:16Z"`
	AgeSeconds *float64  `json:"age_s,omitempty" doc:"since the end of the newest window" example:"1.2"`
}

// Gap says that something between what was seen and what follows is missing; a snapshot
// follows.
type Gap struct {
	Revision string `json:"revision" doc:"of the snapshot that follows" example:"0000000000000007-42"`
	Reason   string `json:"reason" enum:"expired,restarted,lagging" doc:"expired: older than what is kept; restarted: of another process; lagging: the watcher was too slow" example:"lagging"`
	Missed   uint64 `json:"missed_revisions,omitempty" doc:"how many revisions were not told of" example:"17"`
}

// Problem is an error (RFC 9457).
type Problem struct {
	Title  string          `json:"title" doc:"the status in words" example:"Unprocessable Entity"`
	Status int             `json:"status" doc:"the HTTP status" example:"422"`
	Detail string          `json:"detail" doc:"what is wrong, and what to change" example:"src: no such group: /api/v1/fabric lists them"`
	Errors []ProblemDetail `json:"errors,omitempty" nullable:"false" doc:"each parameter that is wrong"`
}

// ProblemDetail says which parameter is wrong, and what was expected.
type ProblemDetail struct {
	Message  string `json:"message" doc:"what was expected" example:"no such group: /api/v1/fabric lists them"`
	Location string `json:"location" doc:"the parameter, such as query.signal" example:"query.src"`
	Value    any    `json:"value,omitempty" doc:"what was given"`
}
