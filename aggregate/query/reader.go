package query

import (
	"context"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode/csig"
)

// Reader is the source of answers. FromStore makes one of a store, and package querytest has one
// for tests; FromWindows answers Analytics from memory. Implementations are safe for concurrent
// use and bound the rows they return, and return errors of this package for problems that the
// client can fix. Servers use a Metered one.
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
	// Extent is the range of stored data.
	Extent = store.Extent
	// FlowTotal is a flow over a range.
	FlowTotal = store.FlowTotal
	// FindingRow is a violation of the protocol or the configuration.
	FindingRow = store.FindingRow
	// Span is a time range.
	Span = store.Span
	// ProducerCounts are the producers of a range.
	ProducerCounts = store.ProducerCounts
)

// Catalog lists the range, groups and locations for questions.
type Catalog interface {
	// Extent returns the stored time range, and its recent resolutions and signals.
	Extent(context.Context) (Extent, error)
	// Signals returns the signals in the question's range, ascending. The question's own signal and
	// cells do not matter.
	Signals(context.Context, Question) ([]csig.Signal, error)
	// Groups returns all described groups.
	Groups(context.Context) ([]fabric.Group, error)
	// Locations returns all described locations, ancestors included.
	Locations(context.Context) ([]fabric.Location, error)
}

// Linker is a Reader that knows the peers of the fabric's ports.
type Linker interface {
	// Peers returns the device or host at the other end of each port, by the port's name.
	Peers(context.Context) (map[string]string, error)
}

// Wired is a Reader or Catalog that knows the topology.
type Wired interface {
	// Topology returns the fabric for paths and links, nil if there is none. Do not use it to
	// resolve tags.
	Topology(context.Context) (*fabric.Fabric, error)
}

// Analytics answers questions about one signal over one time range. A cell is made of its tags if
// it has any in the range, else of its reflections. Rows are in any order unless stated
// otherwise.
type Analytics interface {
	// Cells returns one row per cell over the whole range.
	Cells(context.Context, Question) ([]aggregate.CellStats, error)
	// CellWindows returns one row per cell and window of Question.Step.
	CellWindows(context.Context, Question) ([]aggregate.CellWindow, error)
	// EachCellWindow calls f with the first n rows of CellWindows as they arrive, by window,
	// source and destination, and reports whether there are more. f may use a row until it
	// returns; its first error ends the call.
	EachCellWindow(ctx context.Context, q Question, n int, f func(*aggregate.CellWindow) error) (more bool, err error)
	// LocationWindows returns one row per location and window of Question.Step, over all cells.
	LocationWindows(context.Context, Question) ([]aggregate.LocationWindow, error)
	// TopLocations returns the n locations with the most heavy observations over the whole range
	// and all cells, in descending order.
	TopLocations(ctx context.Context, q Question, n int) ([]aggregate.LocationStats, error)
	// CellLocations returns one row per cell and resolved location that its observations name,
	// over the whole range.
	CellLocations(context.Context, Question) ([]aggregate.CellLocation, error)
}

// Records answers questions about flows and other rows that are not cells.
type Records interface {
	// Flows returns the first Limit flows by heavy observations, in descending order.
	Flows(context.Context, FlowQuestion) ([]FlowTotal, error)
	// Findings returns the first Limit findings, the most severe and latest first.
	Findings(context.Context, FindingQuestion) ([]FindingRow, error)
	// Missing returns the parts of a range in which windows of at least one producer are known to
	// be incomplete, ascending and disjoint. Windows that were deleted by Trim count only if they
	// have the length.
	Missing(ctx context.Context, from, to time.Time, length time.Duration) ([]Span, error)
	// CountProducers counts the producers with rows in a range, and the expected ones.
	CountProducers(ctx context.Context, from, to time.Time) (ProducerCounts, error)
}
