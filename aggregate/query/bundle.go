// Package query answers operators' questions about cells, locations, links and flows from a Reader,
// whether the rows are in the store or in memory. It makes the two matrices (mean, mode of the
// bottleneck) over time and serves them to the page over HTTP, and it words the verdict. The query
// API for programs is in package api, which uses this package.
//
// It knows operators' questions and the form of the page's data. It must never know how rows got
// into the store, nor how a page draws them.
package query

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Version is the version of the bundle's JSON. It changes when a reader of the old form would
// misread the new one.
const Version = 1

// Bundle is the page's data for one time range: names, and per signal the cells of the whole
// range and the locations of every window. The cells of windows come as frames (BuildFrames).
// Numbers are columns of equal length. Identifiers and times in ns are JSON strings, since they
// exceed 2^53.
type Bundle struct {
	Version         int          `json:"version"`
	GeneratedAt     time.Time    `json:"generated_at"`
	Fabric          string       `json:"fabric"`
	ResolutionNS    int64        `json:"resolution_ns"` // of the rows read, 0 if the reader chose among several
	StepNS          int64        `json:"step_ns"`       // length of a window of this bundle
	HeavyOnly       bool         `json:"heavy_only"`    // the rows read cover only cells with heavy observations
	MinObservations uint64       `json:"min_observations"`
	OnsetRatio      float64      `json:"onset_ratio"` // minimum share of heavy observations of a congested cell, above 0 to 1
	ClearRatio      float64      `json:"clear_ratio"` // share below which congestion ends, at most OnsetRatio
	Windows         []NS         `json:"windows"`     // starts, ascending, every window of the range
	Signals         []SignalInfo `json:"signals"`     // those of the last stored day, even without data here
	Levels          []string     `json:"levels"`      // the levels of modes
	Groups          []Group      `json:"groups"`      // the matrix axes, in order
	Locations       []Location   `json:"locations"`
	Data            []SignalData `json:"data"`
}

// SignalInfo describes a signal. A type_N without a table has no unit and no aggregation, and its
// cells have no mean. If several meanings of a type are stored, their names are those of
// csig.Signal.FullName.
type SignalInfo struct {
	Name        string `json:"name"`
	Unit        string `json:"unit"`        // bit/s, ratio, ns, count or empty
	Direction   string `json:"direction"`   // min: low values are tight; max: high values are
	Aggregation string `json:"aggregation"` // of hops: min, max, sum, count or empty; sums and counts have no mode

	NotJudgedHint string `json:"not_judged_hint"` // how to get states for unjudged cells
}

// Group is one row and column of the matrices.
type Group struct {
	ID     ID     `json:"id"`
	Name   string `json:"name"`
	Level  string `json:"level"`
	Parent string `json:"parent,omitempty"`
	Order  int    `json:"order"`
}

// Location is a location of a mode or of a row in the location heatmap. Set, DeviceIndex,
// StageIndex and FarEndIndex are indexes of locations: the ancestor at that level, or itself.
type Location struct {
	ID             ID       `json:"id"`
	Name           string   `json:"name"`
	Kind           string   `json:"kind"`
	Device         string   `json:"device,omitempty"`
	Stage          string   `json:"stage,omitempty"`
	Orientation    string   `json:"orientation,omitempty"`
	CapacityBPS    uint64   `json:"capacity_bps,omitempty"` // bit/s, 0 when unknown or mixed
	Peer           string   `json:"peer,omitempty"`         // device or host at the other end of a port
	Candidates     []string `json:"candidates,omitempty"`
	CandidateCount int      `json:"candidate_count,omitempty"`
	Color          string   `json:"color"` // #rrggbb, a function of the names only
	Set            int      `json:"set"`
	DeviceIndex    int      `json:"device_index"`
	StageIndex     int      `json:"stage_index"`
	FarEndIndex    int      `json:"far_end_index"`
}

// SignalData holds one signal's numbers.
type SignalData struct {
	Signal    int             `json:"signal"`    // index of signals
	Total     Cells           `json:"total"`     // over the whole range, ordered by source, destination
	Locations LocationColumns `json:"locations"` // ordered by window, location
	Sum       Totals          `json:"sum"`
}

// Totals add up all cells over the whole range.
type Totals struct {
	Observations uint64 `json:"observations"`
	Untouched    uint64 `json:"untouched"`
	Trimmed      uint64 `json:"trimmed"`
	Heavy        uint64 `json:"heavy"`
}

// Cells are columns: the rows with index i belong together. Src and Dst are indexes of groups;
// Kind is 1 for tags and 2 for reflections.
type Cells struct {
	Src          []int    `json:"src"`
	Dst          []int    `json:"dst"`
	Kind         []int    `json:"kind"`
	State        []int    `json:"state"` // at the end of the range: 0 no_data, 1 too_few, 2 clear, 3 congested, 4 brief, 5 not_judged
	Observations []uint64 `json:"observations"`
	Samples      []uint64 `json:"samples"` // observations that are not trimmed, without the weight
	Mean         Values   `json:"mean"`    // in the signal's unit, null without a value
	Min          Values   `json:"min"`
	Max          Values   `json:"max"`
	Untouched    []uint64 `json:"untouched"`
	Trimmed      []uint64 `json:"trimmed"`
	Heavy        []uint64 `json:"heavy"`

	Modes map[string]*ModeColumns `json:"modes"` // by name of the level
}

// ModeColumns hold the mode of the bottleneck at one level, aligned with the rows of Cells. Mode
// and RunnerUp are indexes of locations, -1 for none; ModeEvidence and RunnerUpEvidence have the
// bits of aggregate.Evidence.
type ModeColumns struct {
	Mode             []int    `json:"mode"`
	ModeCount        []uint64 `json:"mode_count"`
	ModeEvidence     []int    `json:"mode_evidence"`
	RunnerUp         []int    `json:"runner_up"`
	RunnerUpCount    []uint64 `json:"runner_up_count"`
	RunnerUpEvidence []int    `json:"runner_up_evidence"`
}

// LocationColumns count the observations at each location in each window, at the level location:
// coarser levels are sums over Location.Set and its siblings.
type LocationColumns struct {
	Window       []int    `json:"window"`
	Location     []int    `json:"location"`
	Observations []uint64 `json:"observations"`
	Heavy        []uint64 `json:"heavy"`
}

// ID is an identifier, a decimal string in JSON.
type ID uint64

// MarshalJSON writes a decimal string.
func (id ID) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, strconv.FormatUint(uint64(id), 10)), nil
}

// UnmarshalJSON reads a decimal string.
func (id *ID) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("read id: %w", err)
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return fmt.Errorf("read id: %w", err)
	}
	*id = ID(v)
	return nil
}

// NS is a time in Unix ns, a decimal string in JSON.
type NS int64

// MarshalJSON writes a decimal string.
func (t NS) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, strconv.FormatInt(int64(t), 10)), nil
}

// UnmarshalJSON reads a decimal string.
func (t *NS) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("read time: %w", err)
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return fmt.Errorf("read time: %w", err)
	}
	*t = NS(v)
	return nil
}

// Values is a column of measurements. NaN stands for "no value" and is null in JSON; numbers have
// six significant digits, finer than any tag.
type Values []float64

// MarshalJSON writes an array of numbers and nulls.
func (v Values) MarshalJSON() ([]byte, error) {
	out := make([]byte, 0, 2+8*len(v))
	out = append(out, '[')
	for i, x := range v {
		if i > 0 {
			out = append(out, ',')
		}
		if math.IsNaN(x) || math.IsInf(x, 0) {
			out = append(out, "null"...)
			continue
		}
		out = strconv.AppendFloat(out, x, 'g', 6, 64)
	}
	return append(out, ']'), nil
}

// UnmarshalJSON reads an array of numbers and nulls.
func (v *Values) UnmarshalJSON(b []byte) error {
	var in []*float64
	if err := json.Unmarshal(b, &in); err != nil {
		return fmt.Errorf("read values: %w", err)
	}
	*v = make(Values, len(in))
	for i, x := range in {
		(*v)[i] = math.NaN()
		if x != nil {
			(*v)[i] = *x
		}
	}
	return nil
}
