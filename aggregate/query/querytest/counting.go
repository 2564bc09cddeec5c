package querytest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/decode/csig"
)

// Counting counts the calls of another reader. It is safe for concurrent use.
type Counting struct {
	Reader *Memory
	n      atomic.Int64
}

// Count is the number of calls.
func (c *Counting) Count() int { return int(c.n.Load()) }

func (c *Counting) counted() *Memory {
	c.n.Add(1)
	return c.Reader
}

// Extent implements query.Catalog.
func (c *Counting) Extent(ctx context.Context) (query.Extent, error) { return c.counted().Extent(ctx) }

// Signals implements query.Catalog.
func (c *Counting) Signals(ctx context.Context, q query.Question) ([]csig.Signal, error) {
	return c.counted().Signals(ctx, q)
}

// Groups implements query.Catalog.
func (c *Counting) Groups(ctx context.Context) ([]fabric.Group, error) {
	return c.counted().Groups(ctx)
}

// Locations implements query.Catalog.
func (c *Counting) Locations(ctx context.Context) ([]fabric.Location, error) {
	return c.counted().Locations(ctx)
}

// Peers implements query.Linker.
func (c *Counting) Peers(ctx context.Context) (map[string]string, error) {
	return c.counted().Peers(ctx)
}

// Cells implements query.Analytics.
func (c *Counting) Cells(ctx context.Context, q query.Question) ([]aggregate.CellStats, error) {
	return c.counted().Cells(ctx, q)
}

// CellWindows implements query.Analytics.
func (c *Counting) CellWindows(ctx context.Context, q query.Question) ([]aggregate.CellWindow, error) {
	return c.counted().CellWindows(ctx, q)
}

// EachCellWindow implements query.Analytics.
func (c *Counting) EachCellWindow(ctx context.Context, q query.Question, n int, f func(*aggregate.CellWindow) error) (bool, error) {
	return c.counted().EachCellWindow(ctx, q, n, f)
}

// LocationWindows implements query.Analytics.
func (c *Counting) LocationWindows(ctx context.Context, q query.Question) ([]aggregate.LocationWindow, error) {
	return c.counted().LocationWindows(ctx, q)
}

// TopLocations implements query.Analytics.
func (c *Counting) TopLocations(ctx context.Context, q query.Question, n int) ([]aggregate.LocationStats, error) {
	return c.counted().TopLocations(ctx, q, n)
}

// CellLocations implements query.Analytics.
func (c *Counting) CellLocations(ctx context.Context, q query.Question) ([]aggregate.CellLocation, error) {
	return c.counted().CellLocations(ctx, q)
}

// Flows implements query.Records.
func (c *Counting) Flows(ctx context.Context, q query.FlowQuestion) ([]query.FlowTotal, error) {
	return c.counted().Flows(ctx, q)
}

// Findings implements query.Records.
func (c *Counting) Findings(ctx context.Context, q query.FindingQuestion) ([]query.FindingRow, error) {
	return c.counted().Findings(ctx, q)
}

// Missing implements query.Records.
func (c *Counting) Missing(ctx context.Context, from, to time.Time, length time.Duration) ([]query.Span, error) {
	return c.counted().Missing(ctx, from, to, length)
}

// CountProducers implements query.Records.
func (c *Counting) CountProducers(ctx context.Context, from, to time.Time) (query.ProducerCounts, error) {
	return c.counted().CountProducers(ctx, from, to)
}
