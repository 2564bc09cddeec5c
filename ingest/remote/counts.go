package remote

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/ingest/retry"
)

// Counts is what became of what exporters handed in. Blocks and batches of observations
// are items. Once nothing is on the way,
//
//	Items == StoredItems + RepeatedItems + UndescribedItems + RetriedItems + the sum of RefusedItems
//	Observed == StoredObservations + what repeated, undescribed, retried and refused items held
//
// and StoredObservations holds OverflowObservations.
type Counts struct {
	Requests, Bytes uint64 // as they came over the network
	Items, Observed uint64 // items that came, and the observations in them

	StoredItems, StoredRows, StoredObservations uint64
	// OverflowRows were folded into overflow rows, with OverflowObservations in them.
	OverflowRows, OverflowObservations uint64
	// StoredFlows are rows of flows of StoredItems; OverflowFlows were folded into rests.
	StoredFlows, OverflowFlows uint64
	StoredFindings             uint64 // with StoredItems
	RepeatedItems              uint64 // answered, and not counted again
	UndescribedItems           uint64 // to be sent again with their description
	RetriedItems               uint64 // to be sent again, since the store did not take them in time
	// Provisional are provisional rows that live views were given, in parts of producers, of
	// ProvisionalRows. They are no items.
	Provisional, ProvisionalRows uint64

	Refused      [NumReasons]uint64 // requests, connections, names, items and findings of stored ones, by reason
	RefusedItems uint64             // of Refused, the items
	// Rejected is how many observations of stored batches the aggregation rejected.
	Rejected uint64
}

// counts are Counts of one exporter, or of what is no exporter's.
type counts struct {
	requests, bytes, items, observed                          atomic.Uint64
	provisional, provisionalRows                              atomic.Uint64
	stored, storedRows, storedObservations                    atomic.Uint64
	overflowRows, overflowObservations                        atomic.Uint64
	storedFlows, overflowFlows, storedFindings                atomic.Uint64
	repeated, undescribed, retried, refusedItems, rejectedObs atomic.Uint64
	refused                                                   [NumReasons]atomic.Uint64
	throttles                                                 [NumReasons]retry.LogThrottle
}

func (c *counts) snapshot() Counts {
	out := Counts{
		Requests: c.requests.Load(), Bytes: c.bytes.Load(), Items: c.items.Load(), Observed: c.observed.Load(),
		StoredItems: c.stored.Load(), StoredRows: c.storedRows.Load(), StoredObservations: c.storedObservations.Load(),
		StoredFindings: c.storedFindings.Load(), OverflowRows: c.overflowRows.Load(), OverflowObservations: c.overflowObservations.Load(),
		StoredFlows: c.storedFlows.Load(), OverflowFlows: c.overflowFlows.Load(),
		RepeatedItems: c.repeated.Load(), UndescribedItems: c.undescribed.Load(), RetriedItems: c.retried.Load(),
		RefusedItems: c.refusedItems.Load(), Rejected: c.rejectedObs.Load(),
		Provisional: c.provisional.Load(), ProvisionalRows: c.provisionalRows.Load(),
	}
	for i := range c.refused {
		out.Refused[i] = c.refused[i].Load()
	}
	return out
}

// Merge adds what another exporter's counts hold.
func (c *Counts) Merge(o *Counts) {
	c.Requests += o.Requests
	c.Bytes += o.Bytes
	c.Items += o.Items
	c.Observed = addSat(c.Observed, o.Observed)
	c.StoredItems += o.StoredItems
	c.StoredRows += o.StoredRows
	c.StoredObservations = addSat(c.StoredObservations, o.StoredObservations)
	c.OverflowRows += o.OverflowRows
	c.OverflowObservations = addSat(c.OverflowObservations, o.OverflowObservations)
	c.StoredFlows += o.StoredFlows
	c.OverflowFlows += o.OverflowFlows
	c.StoredFindings += o.StoredFindings
	c.RepeatedItems += o.RepeatedItems
	c.UndescribedItems += o.UndescribedItems
	c.RetriedItems += o.RetriedItems
	c.RefusedItems += o.RefusedItems
	c.Rejected += o.Rejected
	c.Provisional += o.Provisional
	c.ProvisionalRows += o.ProvisionalRows
	for i, n := range o.Refused {
		c.Refused[i] += n
	}
}

// countUp adds to a counter of observations, of which exporters say how many there are. It
// stops at the largest integer.
func countUp(c *atomic.Uint64, n uint64) {
	for {
		before := c.Load()
		if c.CompareAndSwap(before, addSat(before, n)) {
			return
		}
	}
}

// refuse counts and, now and then, logs.
func (c *counts) refuse(logger *slog.Logger, now time.Time, r Reason, attrs ...slog.Attr) {
	c.refused[r].Add(1)
	c.throttles[r].Warn(logger, now, "refused", append([]slog.Attr{slog.String("reason", r.String())}, attrs...)...)
}
