package remote

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/retry"
)

// Counts holds the outcomes of exporters' items: blocks and batches of observations. When no
// request is in progress,
//
//	Items == StoredItems + RepeatedItems + UndescribedItems + RetriedItems + the sum of RefusedItems
//	Observed == StoredObservations + the observations in repeated, undescribed, retried and refused items
//
// and StoredObservations includes OverflowObservations.
type Counts struct {
	Requests, Bytes uint64 // as received from the network
	Items, Observed uint64 // received items, and the observations in them

	StoredItems, StoredRows, StoredObservations uint64
	// OverflowRows were folded into overflow rows, and contained OverflowObservations.
	OverflowRows, OverflowObservations uint64
	// StoredFlows are the flow rows of StoredItems; OverflowFlows were folded into rests.
	StoredFlows, OverflowFlows uint64
	StoredFindings             uint64 // with StoredItems
	RepeatedItems              uint64 // acknowledged but not counted again
	UndescribedItems           uint64 // to be sent again after their description
	RetriedItems               uint64 // to be sent again, because the store did not accept them in time
	// Provisional counts provisional rows passed to live views, in parts of producers with
	// ProvisionalRows rows. They are not items.
	Provisional, ProvisionalRows uint64

	Refused      [NumReasons]uint64 // requests, connections, names, items and findings in stored items, by reason
	RefusedItems uint64             // the items in Refused
	// Rejected is the number of observations in stored batches that aggregation rejected.
	Rejected uint64
}

// counts are the Counts of one exporter, or of unidentified clients.
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

// Merge adds the counts of another exporter.
func (c *Counts) Merge(o *Counts) {
	c.Requests += o.Requests
	c.Bytes += o.Bytes
	c.Items += o.Items
	c.Observed = aggregate.AddSat(c.Observed, o.Observed)
	c.StoredItems += o.StoredItems
	c.StoredRows += o.StoredRows
	c.StoredObservations = aggregate.AddSat(c.StoredObservations, o.StoredObservations)
	c.OverflowRows += o.OverflowRows
	c.OverflowObservations = aggregate.AddSat(c.OverflowObservations, o.OverflowObservations)
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

// countUp adds to a counter of observations. It saturates, because exporters choose the
// numbers.
func countUp(c *atomic.Uint64, n uint64) {
	for {
		before := c.Load()
		if c.CompareAndSwap(before, aggregate.AddSat(before, n)) {
			return
		}
	}
}

// refuse counts a refusal and logs it at a limited rate.
func (c *counts) refuse(logger *slog.Logger, now time.Time, message string, r Reason, attrs ...slog.Attr) {
	c.refused[r].Add(1)
	c.throttles[r].Warn(logger, now, message, append([]slog.Attr{slog.String("reason", r.String())}, attrs...)...)
}
