package query

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/edge"
)

// Maximum ages of the data behind most answers, after which it is read again.
const (
	extentFresh = time.Second
	namesFresh  = 500 * time.Millisecond
	peersFresh  = 5 * time.Second
)

// Metered makes a reader's reads part of the budget of the request in the context: it checks the
// budget before, and charges the time and the rows. Results of a Catalog
// without a question, a Linker and a Wired are read once for all requests within 0.5 to 5 s, and
// charged to the first of them; a client that has used up its budget gets the last result read. Errors
// may be of type *edge.LimitError. now is the clock for the age of results.
func Metered(r Reader, now func() time.Time) Reader {
	return &meteredReader{
		r: r, now: now, extent: newLatest[Extent](), groups: newLatest[[]fabric.Group](), locations: newLatest[[]fabric.Location](), peers: newLatest[map[string]string](),
		topology: newLatest[*fabric.Fabric](),
	}
}

type meteredReader struct {
	r   Reader
	now func() time.Time

	extent    latest[Extent]
	groups    latest[[]fabric.Group]
	locations latest[[]fabric.Location]
	peers     latest[map[string]string]
	topology  latest[*fabric.Fabric]
}

// latest is the last result read. It is safe for concurrent use.
type latest[T any] struct {
	value   atomic.Pointer[read[T]]
	reading chan struct{} // holds one while a reading runs
}

type read[T any] struct {
	value T
	at    time.Time
}

func newLatest[T any]() latest[T] { return latest[T]{reading: make(chan struct{}, 1)} }

// get returns a result read within an age, or reads it. While one request reads it, others get
// the previous result.
func (l *latest[T]) get(ctx context.Context, now func() time.Time, age time.Duration, from func(context.Context) (T, error)) (v T, err error) {
	last := l.value.Load()
	if last != nil && now().Sub(last.at) < age {
		return last.value, nil
	}
	select {
	case l.reading <- struct{}{}:
	default:
		if last != nil {
			return last.value, nil
		}
		select {
		case l.reading <- struct{}{}:
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
	defer func() { <-l.reading }()
	if last = l.value.Load(); last != nil && now().Sub(last.at) < age {
		return last.value, nil
	}
	at := now()
	if v, err = meter(ctx, from, func(T) int { return 0 }); err == nil {
		l.value.Store(&read[T]{v, at})
		return v, nil
	}
	if _, limited := errors.AsType[*edge.LimitError](err); limited && last != nil {
		return last.value, nil
	}
	return v, err
}

// meter reads on the budget of a request; count is the number of rows to charge for. Errors of a
// store become those of this package.
func meter[T any](ctx context.Context, from func(context.Context) (T, error), count func(T) int) (v T, err error) {
	budget := edge.BudgetOf(ctx)
	if err := budget.Check(); err != nil {
		return v, err
	}
	begin := time.Now()
	v, err = from(ctx)
	budget.ChargeTime(time.Since(begin))
	budget.ChargeRows(count(v))
	return v, asked(err)
}

// rows is meter for the rows that answer a question.
func rows[Q, Row any](ctx context.Context, q Q, from func(context.Context, Q) ([]Row, error)) ([]Row, error) {
	return meter(ctx, func(ctx context.Context) ([]Row, error) { return from(ctx, q) }, func(list []Row) int { return len(list) })
}

// Extent implements Catalog.
func (m *meteredReader) Extent(ctx context.Context) (Extent, error) {
	return m.extent.get(ctx, m.now, extentFresh, m.r.Extent)
}

// Signals implements Catalog.
func (m *meteredReader) Signals(ctx context.Context, q Question) ([]csig.Signal, error) {
	return rows(ctx, q, m.r.Signals)
}

// Groups implements Catalog. The list is shared: callers must not modify it.
func (m *meteredReader) Groups(ctx context.Context) ([]fabric.Group, error) {
	return m.groups.get(ctx, m.now, namesFresh, m.r.Groups)
}

// Locations implements Catalog. The list is shared: callers must not modify it.
func (m *meteredReader) Locations(ctx context.Context) ([]fabric.Location, error) {
	return m.locations.get(ctx, m.now, namesFresh, m.r.Locations)
}

// Peers implements Linker; there are none if the reader is no Linker.
func (m *meteredReader) Peers(ctx context.Context) (map[string]string, error) {
	if l, ok := m.r.(Linker); ok {
		return m.peers.get(ctx, m.now, peersFresh, l.Peers)
	}
	return nil, nil
}

// Topology implements Wired; there is none if the reader is not Wired.
func (m *meteredReader) Topology(ctx context.Context) (*fabric.Fabric, error) {
	if w, ok := m.r.(Wired); ok {
		return m.topology.get(ctx, m.now, peersFresh, w.Topology)
	}
	return nil, nil
}

// Cells implements Analytics.
func (m *meteredReader) Cells(ctx context.Context, q Question) ([]aggregate.CellStats, error) {
	return rows(ctx, q, m.r.Cells)
}

// CellWindows implements Analytics.
func (m *meteredReader) CellWindows(ctx context.Context, q Question) ([]aggregate.CellWindow, error) {
	return rows(ctx, q, m.r.CellWindows)
}

// EachCellWindow implements Analytics.
func (m *meteredReader) EachCellWindow(ctx context.Context, q Question, n int, f func(*aggregate.CellWindow) error) (more bool, err error) {
	told := 0
	return meter(ctx, func(ctx context.Context) (bool, error) {
		return m.r.EachCellWindow(ctx, q, n, func(c *aggregate.CellWindow) error {
			told++
			return f(c)
		})
	}, func(bool) int { return told })
}

// LocationWindows implements Analytics.
func (m *meteredReader) LocationWindows(ctx context.Context, q Question) ([]aggregate.LocationWindow, error) {
	return rows(ctx, q, m.r.LocationWindows)
}

// TopLocations implements Analytics.
func (m *meteredReader) TopLocations(ctx context.Context, q Question, n int) ([]aggregate.LocationStats, error) {
	return rows(ctx, q, func(ctx context.Context, q Question) ([]aggregate.LocationStats, error) {
		return m.r.TopLocations(ctx, q, n)
	})
}

// CellLocations implements Analytics.
func (m *meteredReader) CellLocations(ctx context.Context, q Question) ([]aggregate.CellLocation, error) {
	return rows(ctx, q, m.r.CellLocations)
}

// Flows implements Records.
func (m *meteredReader) Flows(ctx context.Context, q FlowQuestion) ([]FlowTotal, error) {
	return rows(ctx, q, m.r.Flows)
}

// Findings implements Records.
func (m *meteredReader) Findings(ctx context.Context, q FindingQuestion) ([]FindingRow, error) {
	return rows(ctx, q, m.r.Findings)
}

// Missing implements Records.
func (m *meteredReader) Missing(ctx context.Context, from, to time.Time, length time.Duration) ([]Span, error) {
	return meter(ctx, func(ctx context.Context) ([]Span, error) { return m.r.Missing(ctx, from, to, length) }, func([]Span) int { return 0 })
}

// CountProducers implements Records.
func (m *meteredReader) CountProducers(ctx context.Context, from, to time.Time) (ProducerCounts, error) {
	return meter(ctx, func(ctx context.Context) (ProducerCounts, error) { return m.r.CountProducers(ctx, from, to) }, func(ProducerCounts) int { return 0 })
}
