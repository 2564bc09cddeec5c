package query

import (
	"context"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
)

// Reader is what answers are made from. FromStore makes one of a store, and package querytest
// has one for tests; FromWindows answers Analytics from memory. Implementations are safe for
// concurrent use and bound the rows they return, and their errors are those of this package where
// the client can do something about them. Servers ask a Metered one.
type Reader interface {
	Catalog
	Analytics
	Records
}

// Questions and the rows of records have the types of the store. With these names, callers of a
// Reader need not import it.
type (
	// Question asks for cells or locations.
	Question = store.Question
	// FlowQuestion asks for flows.
	FlowQuestion = store.FlowQuestion
	// FindingQuestion asks for findings.
	FindingQuestion = store.FindingQuestion
	// Extent is what there is to ask for.
	Extent = store.Extent
	// FlowTotal is a flow over a range.
	FlowTotal = store.FlowTotal
	// FindingRow is something that broke the protocol or the configuration.
	FindingRow = store.FindingRow
	// Span is a time range.
	Span = store.Span
	// ProducerCounts are the producers of a range.
	ProducerCounts = store.ProducerCounts
)

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

// Wired is a Reader or Catalog that knows the topology.
type Wired interface {
	// Topology is the fabric for paths and links, nil where there is none. It must not be asked to
	// resolve tags.
	Topology(context.Context) (*fabric.Fabric, error)
}

// Analytics answers questions about one signal over one time range. A cell is made of its tags
// where it has any in the range, else of its reflections. The order of rows is free unless
// said otherwise.
type Analytics interface {
	// Cells has one row per cell over the whole range.
	Cells(context.Context, Question) ([]aggregate.CellStats, error)
	// CellWindows has one row per cell and window of Question.Step.
	CellWindows(context.Context, Question) ([]aggregate.CellWindow, error)
	// EachCellWindow calls f with the first n rows of CellWindows as they come, by window, source
	// and destination, and tells whether there are more. A row is f's until it returns; an
	// error of f ends it.
	EachCellWindow(ctx context.Context, q Question, n int, f func(*aggregate.CellWindow) error) (more bool, err error)
	// LocationWindows has one row per location and window of Question.Step, of all cells.
	LocationWindows(context.Context, Question) ([]aggregate.LocationWindow, error)
	// TopLocations has the n locations with the most heavy observations over the whole
	// range, of all cells, the most first.
	TopLocations(ctx context.Context, q Question, n int) ([]aggregate.LocationStats, error)
	// CellLocations has one row per cell and location that its observations name, as resolved, over
	// the whole range.
	CellLocations(context.Context, Question) ([]aggregate.CellLocation, error)
}

// Records answers questions about flows and other rows that are not cells.
type Records interface {
	// Flows has the first Limit flows by heavy observations, the most first.
	Flows(context.Context, FlowQuestion) ([]FlowTotal, error)
	// Findings has the first Limit findings, the most severe and latest first.
	Findings(context.Context, FindingQuestion) ([]FindingRow, error)
	// Missing are the parts of a range that windows of at least one producer are known to be
	// missing of, ascending and apart.
	Missing(ctx context.Context, from, to time.Time) ([]Span, error)
	// CountProducers counts those that wrote rows of a range, and those that should have.
	CountProducers(ctx context.Context, from, to time.Time) (ProducerCounts, error)
}
