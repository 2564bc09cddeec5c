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

// Data is what captures add up to, wherever it is held. The order of what it answers is
// free, unless said otherwise. A cell is made of its tags where it has any, else of its
// reflections, in all answers.
type Data interface {
	Totals
	Steps
	Details
}

// Totals are over all of the captures.
type Totals interface {
	// Signals are those with values, ascending.
	Signals(context.Context) ([]csig.Signal, error)
	// Cells are by source and destination.
	Cells(context.Context, csig.Signal) ([]aggregate.CellStats, error)
	Locations(context.Context, csig.Signal) ([]aggregate.LocationStats, error)
	// Places has a row for each cell and each location that its observations name.
	Places(context.Context, csig.Signal) ([]aggregate.CellLocation, error)
}

// Steps are pieces of time. Those in which nothing was observed are left out.
type Steps interface {
	// Span is in what steps time is known.
	Span() Span
	// LocationSteps counts heavy observations by steps of a length, a multiple of the
	// span's. Locations without any may be left out.
	LocationSteps(context.Context, csig.Signal, time.Duration) ([]aggregate.LocationWindow, error)
	// LocationWindows has all locations by windows of Span().Window.
	LocationWindows(context.Context, csig.Signal) ([]aggregate.LocationWindow, error)
	// CellSteps has a list for each of the cells.
	CellSteps(context.Context, csig.Signal, []aggregate.CellID) ([][]CellStep, error)
	Sampler
}

// Sampler knows stretches of time in shorter steps, where all of it is known in longer
// ones.
type Sampler interface {
	// Samples are those of some cells, which may be none, the shortest steps first.
	Samples(context.Context, csig.Signal, []aggregate.CellID) ([]Sample, error)
	// Unsampled are the steps of which there was no memory for any stretch, the shortest
	// first.
	Unsampled() []time.Duration
}

// Sample is stretches of time that are known in steps of a length.
type Sample struct {
	Step      time.Duration
	Stretches []Stretch // ascending
}

// Stretch is a stretch of time, within the span.
type Stretch struct {
	First, Last int64        // starts of the first and the last step, Unix ns
	Cells       [][]CellStep // of each of the cells
}

// Details are for a closer look.
type Details interface {
	// Codes has the codes of all cells, whose Start is 0, and those of some by windows of
	// Span().Window.
	Codes(context.Context, csig.Signal, []aggregate.CellID) (all []table.CodeCount, of [][]table.CodeCount, err error)
	// Flows are the flows with the most heavy observations, the most first.
	Flows(context.Context, csig.Signal) ([]FlowStats, error)
}

// Span is a range of time in steps. Starts are multiples of Step, Unix ns.
type Span struct {
	First, Last int64 // starts of the first and the last step, Unix ns
	Step        time.Duration
	Window      time.Duration // of distributions, and of the states of locations
}

// CellStep is how often a cell was observed.
type CellStep struct {
	Start               int64 // of the step, Unix ns
	Observations, Heavy uint64
}

// FlowStats are the heavy observations of a flow.
type FlowStats struct {
	flow.Flow
	Cell          aggregate.CellID
	Heavy, Bytes  uint64
	Mean          float64 // of heavy observations, in the signal's unit
	Location      aggregate.LocationID
	LocationHeavy uint64 // heavy observations that name it
}

// Names tells what identities are called, and where the cells' packets go.
type Names interface {
	GroupName(aggregate.GroupID) string
	Location(aggregate.LocationID) (fabric.Location, bool)
	Hops(src, dst aggregate.GroupID) []fabric.Hop
}
