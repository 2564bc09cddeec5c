package query

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/ingest/edge"
)

// FromStore reads from ClickHouse. The store must outlive the reader.
func FromStore(s *store.Store) Reader { return storeReader{s} }

// storeReader charges the store's rows to the asker, and says which errors the asker can do
// something about.
type storeReader struct{ store *store.Store }

// metered is Metered for a question to the store.
func metered[Q, Row any](ctx context.Context, q Q, read func(context.Context, Q) ([]Row, error)) ([]Row, error) {
	rows, err := Metered(ctx, func() ([]Row, error) { return read(ctx, q) })
	return rows, asked(err)
}

// Extent implements Catalog.
func (r storeReader) Extent(ctx context.Context) (Extent, error) {
	e, err := r.store.Extent(ctx)
	return e, asked(err)
}

// Groups implements Catalog.
func (r storeReader) Groups(ctx context.Context) ([]fabric.Group, error) {
	list, err := r.store.Groups(ctx)
	return list, asked(err)
}

// Locations implements Catalog.
func (r storeReader) Locations(ctx context.Context) ([]fabric.Location, error) {
	list, err := r.store.Locations(ctx)
	return list, asked(err)
}

// Peers implements Linker: the configuration that was stored last names them.
func (r storeReader) Peers(ctx context.Context) (map[string]string, error) {
	text, err := r.store.LatestEpoch(ctx)
	return fabric.Peers(text), asked(err)
}

// Cells implements Analytics.
func (r storeReader) Cells(ctx context.Context, q Question) ([]aggregate.CellStats, error) {
	return metered(ctx, q, r.store.Cells)
}

// CellWindows implements Analytics.
func (r storeReader) CellWindows(ctx context.Context, q Question) ([]aggregate.CellWindow, error) {
	return metered(ctx, q, r.store.CellWindows)
}

// EachCellWindow implements Analytics.
func (r storeReader) EachCellWindow(ctx context.Context, q Question, n int, f func(*aggregate.CellWindow) error) (more bool, err error) {
	budget := edge.BudgetOf(ctx)
	if err := budget.Check(); err != nil {
		return false, err
	}
	rows, begin := 0, time.Now()
	more, err = r.store.EachCellWindow(ctx, q, n, func(c *aggregate.CellWindow) error {
		rows++
		return f(c)
	})
	budget.ChargeTime(time.Since(begin))
	budget.ChargeRows(rows)
	return more, asked(err)
}

// LocationWindows implements Analytics.
func (r storeReader) LocationWindows(ctx context.Context, q Question) ([]aggregate.LocationWindow, error) {
	return metered(ctx, q, r.store.LocationWindows)
}

// TopLocations implements Analytics.
func (r storeReader) TopLocations(ctx context.Context, q Question, n int) ([]aggregate.LocationStats, error) {
	return metered(ctx, q, func(ctx context.Context, q Question) ([]aggregate.LocationStats, error) {
		return r.store.TopLocations(ctx, q, n)
	})
}

// Flows implements Records.
func (r storeReader) Flows(ctx context.Context, q FlowQuestion) ([]FlowTotal, error) {
	return metered(ctx, q, r.store.Flows)
}

// Findings implements Records.
func (r storeReader) Findings(ctx context.Context, q FindingQuestion) ([]FindingRow, error) {
	return metered(ctx, q, r.store.Findings)
}

// Missing implements Records.
func (r storeReader) Missing(ctx context.Context, from, to time.Time) ([]Span, error) {
	list, err := r.store.Missing(ctx, from, to)
	return list, asked(err)
}

// asked tells what the asker can mend from what failed.
func asked(err error) error {
	switch {
	case errors.Is(err, store.ErrQuestion):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case errors.Is(err, store.ErrTooManyRows), errors.Is(err, store.ErrLimit):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, store.ErrUnreachable), errors.Is(err, store.ErrNotReady), errors.Is(err, store.ErrMalformedAnswer):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
