package report

import (
	"context"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// Data gives access to the captures' aggregates, wherever they are held. The order of results is
// unspecified unless stated otherwise. In all results but those of Flows, a cell consists of its
// tags if it has any, else of its reflections.
type Data interface {
	Totals
	Steps
	Details
}

// Totals cover all captures.
type Totals interface {
	// Signals returns the signals with values, ascending.
	Signals(context.Context) ([]csig.Signal, error)
	// Cells returns one entry per source and destination.
	Cells(context.Context, csig.Signal) ([]aggregate.CellStats, error)
	Locations(context.Context, csig.Signal) ([]aggregate.LocationStats, error)
	// CellLocations returns a row for each cell and each location that its observations name.
	CellLocations(context.Context, csig.Signal) ([]aggregate.CellLocation, error)
}

// Steps gives access to time steps. Steps without observations are left out.
type Steps interface {
	// Span returns the range of known steps.
	Span() Span
	// LocationSteps counts heavy observations in steps of the given length, a multiple of the
	// span's step. Locations without heavy observations may be left out.
	LocationSteps(context.Context, csig.Signal, time.Duration) ([]aggregate.LocationWindow, error)
	// LocationWindows returns all locations in windows of Span().Window.
	LocationWindows(context.Context, csig.Signal) ([]aggregate.LocationWindow, error)
	// CellSteps returns one list for each of the cells.
	CellSteps(context.Context, csig.Signal, []aggregate.CellID) ([][]CellStep, error)
	Sampler
}

// Sampler gives access to sampled stretches of time in shorter steps, if the whole time is only
// known in longer ones.
type Sampler interface {
	// Samples returns the samples of the given cells, shortest steps first. cells may be empty.
	Samples(context.Context, csig.Signal, []aggregate.CellID) ([]Sample, error)
	// Unsampled returns the step lengths for which memory did not suffice for any stretch, shortest
	// first.
	Unsampled() []time.Duration
}

// Sample holds the stretches of time that are known in steps of one length.
type Sample struct {
	Step   time.Duration
	Series []SampledSeries // ascending
}

// SampledSeries is a stretch of time within the span.
type SampledSeries struct {
	First, Last int64        // starts of the first and the last step, Unix ns
	Cells       [][]CellStep // one list for each of the cells
}

// Details gives access to details of cells.
type Details interface {
	// Distributions returns the counts of codes of all cells together, with Start 0, and those of the given cells in
	// windows of Span().Window.
	Distributions(context.Context, csig.Signal, []aggregate.CellID) (all []table.CodeCount, of [][]table.CodeCount, err error)
	// Flows returns the flows with the most heavy observations, most first.
	Flows(context.Context, csig.Signal) ([]FlowStats, error)
}

// Span is a range of time in steps. Step starts are multiples of Step, in Unix ns.
type Span struct {
	First, Last int64 // starts of the first and the last step, Unix ns
	Step        time.Duration
	Window      time.Duration // of distributions and of locations' states
}

// CellStep counts a cell's observations in one step.
type CellStep struct {
	Start               int64 // of the step, Unix ns
	Observations, Heavy uint64
}

// FlowStats counts the heavy observations of a flow.
type FlowStats struct {
	flow.Flow
	Cell          aggregate.CellID
	Heavy, Bytes  uint64
	Mean          float64 // of heavy observations, in the signal's unit
	Location      aggregate.LocationID
	LocationHeavy uint64 // heavy observations that name it
}

// Names resolves IDs to names, and cells to paths.
type Names interface {
	GroupName(aggregate.GroupID) string
	Location(aggregate.LocationID) (fabric.Location, bool)
	Hops(src, dst aggregate.GroupID) []fabric.Hop
}
