package query

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode/csig"
)

// FromStore reads from ClickHouse. The store must outlive the reader.
func FromStore(s *store.Store) Reader { return storeReader{s} }

type storeReader struct{ store *store.Store }

// Extent implements Catalog.
func (r storeReader) Extent(ctx context.Context) (Extent, error) {
	e, err := r.store.Extent(ctx)
	return Extent{First: e.First, Last: e.Last, Signals: e.Signals, Resolutions: e.Resolutions, Observations: e.Observations}, asked(err)
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

func (q Question) storeQuery() store.Query {
	return store.Query{
		Signal: q.Signal, From: q.From, To: q.To, Resolution: q.Resolution, Step: q.Step,
		Level: q.Level, Src: q.Src, Dst: q.Dst,
	}
}

// Cells implements Analytics.
func (r storeReader) Cells(ctx context.Context, q Question) ([]CellRow, error) {
	cells, err := Metered(ctx, func() ([]store.CellRow, error) { return r.store.Cells(ctx, q.storeQuery()) })
	rows := make([]CellRow, len(cells))
	for i := range cells {
		rows[i] = newCellRow(q.Signal, &cells[i])
	}
	return rows, asked(err)
}

// CellWindows implements Analytics.
func (r storeReader) CellWindows(ctx context.Context, q Question) ([]CellRow, error) {
	cells, err := Metered(ctx, func() ([]store.CellWindowRow, error) { return r.store.CellWindows(ctx, q.storeQuery()) })
	rows := make([]CellRow, len(cells))
	for i := range cells {
		rows[i] = newCellRow(q.Signal, &cells[i].CellRow)
		rows[i].Window = cells[i].Window.UnixNano()
	}
	return rows, asked(err)
}

// EachCellWindow implements Analytics.
func (r storeReader) EachCellWindow(ctx context.Context, q Question, n int, f func(*CellRow) error) (more bool, err error) {
	asker := AskerOf(ctx)
	if err := asker.Ask(); err != nil {
		return false, err
	}
	told, begin := 0, time.Now()
	more, err = r.store.EachCellWindow(ctx, q.storeQuery(), n, func(c *store.CellWindowRow) error {
		told++
		row := newCellRow(q.Signal, &c.CellRow)
		row.Window = c.Window.UnixNano()
		return f(&row)
	})
	asker.Spent(time.Since(begin))
	asker.Told(told)
	return more, asked(err)
}

// LocationWindows implements Analytics.
func (r storeReader) LocationWindows(ctx context.Context, q Question) ([]LocationCount, error) {
	windows, err := Metered(ctx, func() ([]store.LocationWindowRow, error) { return r.store.LocationWindows(ctx, q.storeQuery()) })
	rows := make([]LocationCount, len(windows))
	for i, w := range windows {
		rows[i] = LocationCount{Window: w.Window.UnixNano(), Location: w.Location, Observations: w.Observations, Heavy: w.Heavy}
	}
	return rows, asked(err)
}

// TopLocations implements Analytics.
func (r storeReader) TopLocations(ctx context.Context, q Question, n int) ([]LocationTotal, error) {
	locations, err := Metered(ctx, func() ([]store.LocationRow, error) { return r.store.TopLocations(ctx, q.storeQuery(), n) })
	rows := make([]LocationTotal, len(locations))
	for i, l := range locations {
		rows[i] = LocationTotal{l.Location, l.Observations, l.Heavy, math.NaN(), l.Cells}
		if l.Heavy > 0 {
			rows[i].HeavyMean = float64(l.HeavySum) / float64(l.Heavy) * q.Signal.Unit().PerStored()
		}
	}
	return rows, asked(err)
}

func newCellRow(s csig.Signal, c *store.CellRow) CellRow {
	row := CellRow{
		Src: c.Src, Dst: c.Dst, Kind: c.Kind, Observations: c.Observations,
		Mean: c.Mean, Min: math.NaN(), Max: math.NaN(),
		Untouched: c.Untouched, Trimmed: c.Trimmed, Heavy: c.Heavy,
		Mode: c.Mode, ModeCount: c.ModeCount, RunnerUp: c.RunnerUp, RunnerUpCount: c.RunnerUpCount,
	}
	if c.Measured > 0 {
		row.Min, row.Max = s.Unit().FromStored(c.Min), s.Unit().FromStored(c.Max)
	}
	return row
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
