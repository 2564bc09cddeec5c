package query

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode/csig"
)

// FromStore reads from ClickHouse, Metered. The store must outlive the reader. Requests to one
// reader share some of the rows that it reads.
func FromStore(s *store.Store) Reader { return Metered(storeReader{s, &restored{}}, time.Now) }

// storeReader maps the store's errors to those that a client can fix.
type storeReader struct {
	store    *store.Store
	topology *restored
}

// restored is the topology in the last text read, or in one before it.
type restored struct {
	mu     sync.Mutex
	text   string
	fabric *fabric.Fabric // nil if neither the text nor an earlier one has one
}

// Extent implements Catalog.
func (r storeReader) Extent(ctx context.Context) (Extent, error) {
	e, err := r.store.Extent(ctx)
	return e, asked(err)
}

// Signals implements Catalog.
func (r storeReader) Signals(ctx context.Context, q Question) ([]csig.Signal, error) {
	list, err := r.store.Signals(ctx, q)
	return list, asked(err)
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

// Topology implements Wired: it is in the last stored configuration with a fabric file.
func (r storeReader) Topology(ctx context.Context) (*fabric.Fabric, error) {
	text, err := r.store.LatestEpoch(ctx)
	if err != nil {
		return nil, asked(err)
	}
	r.topology.mu.Lock()
	defer r.topology.mu.Unlock()
	if text == r.topology.text {
		return r.topology.fabric, nil
	}
	f := restore(text)
	if f == nil {
		with, err := r.store.LatestEpochWith(ctx, fabric.RestoreLine)
		if err != nil {
			return nil, asked(err)
		}
		f = restore(with)
	}
	r.topology.text, r.topology.fabric = text, f
	return f, nil
}

// restore returns the topology in a text, nil if there is none: another version may write other
// texts.
func restore(text string) *fabric.Fabric {
	if f, err := fabric.Restore(text); err == nil && f.TopologyRevision() != "" {
		return f
	}
	return nil
}

// Peers implements Linker.
func (r storeReader) Peers(ctx context.Context) (map[string]string, error) {
	f, err := r.Topology(ctx)
	if f == nil || err != nil {
		return nil, err
	}
	peers := make(map[string]string)
	for _, port := range f.Ports() {
		peers[port.Name] = port.Peer
	}
	return peers, nil
}

// Cells implements Analytics.
func (r storeReader) Cells(ctx context.Context, q Question) ([]aggregate.CellStats, error) {
	list, err := r.store.Cells(ctx, q)
	return list, asked(err)
}

// CellWindows implements Analytics.
func (r storeReader) CellWindows(ctx context.Context, q Question) ([]aggregate.CellWindow, error) {
	list, err := r.store.CellWindows(ctx, q)
	return list, asked(err)
}

// EachCellWindow implements Analytics.
func (r storeReader) EachCellWindow(ctx context.Context, q Question, n int, f func(*aggregate.CellWindow) error) (more bool, err error) {
	more, err = r.store.EachCellWindow(ctx, q, n, f)
	return more, asked(err)
}

// LocationWindows implements Analytics.
func (r storeReader) LocationWindows(ctx context.Context, q Question) ([]aggregate.LocationWindow, error) {
	list, err := r.store.LocationWindows(ctx, q)
	return list, asked(err)
}

// TopLocations implements Analytics.
func (r storeReader) TopLocations(ctx context.Context, q Question, n int) ([]aggregate.LocationStats, error) {
	list, err := r.store.TopLocations(ctx, q, n)
	return list, asked(err)
}

// CellLocations implements Analytics.
func (r storeReader) CellLocations(ctx context.Context, q Question) ([]aggregate.CellLocation, error) {
	list, err := r.store.CellLocations(ctx, q)
	return list, asked(err)
}

// Flows implements Records.
func (r storeReader) Flows(ctx context.Context, q FlowQuestion) ([]FlowTotal, error) {
	list, err := r.store.Flows(ctx, q)
	return list, asked(err)
}

// Findings implements Records.
func (r storeReader) Findings(ctx context.Context, q FindingQuestion) ([]FindingRow, error) {
	list, err := r.store.Findings(ctx, q)
	return list, asked(err)
}

// Missing implements Records.
func (r storeReader) Missing(ctx context.Context, from, to time.Time, length time.Duration) ([]Span, error) {
	list, err := r.store.Missing(ctx, from, to, length)
	return list, asked(err)
}

// CountProducers implements Records.
func (r storeReader) CountProducers(ctx context.Context, from, to time.Time) (ProducerCounts, error) {
	c, err := r.store.CountProducers(ctx, from, to)
	return c, asked(err)
}

// asked separates errors that the client can fix from failures.
func asked(err error) error {
	switch {
	case errors.Is(err, store.ErrQuestion):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case errors.Is(err, store.ErrTooManyRows), errors.Is(err, store.ErrLimit):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, store.ErrUnreachable), errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrNotReady), errors.Is(err, store.ErrMalformedAnswer):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
