package query

import (
	"context"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Reader is what a bundle is built from. Implementations are safe for concurrent
// use and bound the rows they return; the order of rows is free.
type Reader interface {
	Catalog
	Analytics
	Records
}

// Catalog says what there is to ask for.
type Catalog interface {
	// Extent is the time range, the signals and the resolutions that are stored.
	Extent(context.Context) (Extent, error)
	// Groups are all groups that cells may name.
	Groups(context.Context) ([]fabric.Group, error)
	// Locations are all locations that a mode may name, ancestors included.
	Locations(context.Context) ([]fabric.Location, error)
}

// Linker is a Reader that knows what the ports of the fabric face.
type Linker interface {
	// Peers has the device or host that a port faces, by the port's name.
	Peers(context.Context) (map[string]string, error)
}

// Analytics answers questions about one signal over one time range.
type Analytics interface {
	// Cells has one row per cell over the whole range.
	Cells(context.Context, Question) ([]CellRow, error)
	// CellWindows has one row per cell and window of Question.Step.
	CellWindows(context.Context, Question) ([]CellRow, error)
	// EachCellWindow calls f with the first n rows of CellWindows as they come, by window, source
	// and destination, and tells whether there are more. A row is f's until it returns; an
	// error of f ends it.
	EachCellWindow(ctx context.Context, q Question, n int, f func(*CellRow) error) (more bool, err error)
	// LocationWindows has one row per location and window of Question.Step.
	LocationWindows(context.Context, Question) ([]LocationCount, error)
	// TopLocations has the n locations with the most heavy observations over the whole
	// range, the most first.
	TopLocations(ctx context.Context, q Question, n int) ([]LocationTotal, error)
}

// Question selects the rows of one signal. From and To are multiples of Step, and
// Step is a multiple of Resolution; To is exclusive. A Resolution of 0 is the
// coarsest complete one that divides Step and holds the range. Src and Dst choose cells,
// nil all of them; questions about locations are about all cells.
type Question struct {
	Signal     csig.Signal
	From, To   time.Time
	Resolution time.Duration
	Step       time.Duration
	Level      fabric.Level
	Src, Dst   *aggregate.GroupID
}

// Extent is what a store holds. It is empty when First equals Last.
type Extent struct {
	First, Last  time.Time     // start of the first window, end of the last one
	Signals      []csig.Signal // of at least the last day before Last
	Resolutions  []time.Duration
	Observations uint64 // of at least the last day before Last, both kinds
}

// Empty tells whether nothing is stored.
func (e Extent) Empty() bool { return !e.First.Before(e.Last) || len(e.Signals) == 0 }

// CellRow holds the numbers of one cell over one window or a whole range, from one
// kind of observation. Mean, Min and Max are in the signal's unit and NaN where
// nothing has a value or the reader does not know it.
type CellRow struct {
	Window         int64 // Unix ns of the window's start; 0 in answers over a whole range
	Src, Dst       aggregate.GroupID
	Kind           decode.Kind
	Observations   uint64
	Mean, Min, Max float64
	Untouched      uint64
	Trimmed        uint64
	Heavy          uint64
	Mode, RunnerUp aggregate.LocationID // NoLocation when nothing was heavy
	ModeCount      uint64               // heavy observations that name Mode
	RunnerUpCount  uint64
}

// LocationCount is how often a location was named in a window, and how often when
// it was heavily loaded.
type LocationCount struct {
	Window       int64 // Unix ns of the window's start
	Location     aggregate.LocationID
	Observations uint64
	Heavy        uint64
}

// LocationTotal is the same over a whole range.
type LocationTotal struct {
	Location     aggregate.LocationID
	Observations uint64
	Heavy        uint64
	HeavyMean    float64 // of heavy observations, in the signal's unit; NaN without any
	Cells        uint64  // with a heavy observation there
}
