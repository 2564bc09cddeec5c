package remote

import (
	"log/slog"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/retry"
	"github.com/csigscope/csigscope/ingest/wire"
)

// Counts holds the outcomes of exporters' items: blocks, batches of observations and records. When no
// request is in progress,
//
//	Items == StoredItems + RepeatedItems + UndescribedItems + RetriedItems + RefusedItems
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

// counts are the Counts of one exporter, or of unidentified clients. They are safe for concurrent
// use.
type counts struct {
	mu        sync.Mutex
	counted   Counts // guarded by mu
	throttles [NumReasons]retry.LogThrottle
}

func (c *counts) snapshot() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counted
}

// add changes the counts.
func (c *counts) add(change func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.counted)
}

// count counts an item by its outcome. Counts of observations saturate, because exporters choose
// the numbers.
func (c *Counts) count(it *item) {
	c.Items++
	c.Observed = aggregate.AddSat(c.Observed, it.observed)
	switch it.outcome {
	case wire.Outcome_OUTCOME_STORED:
		c.StoredItems++
		c.StoredRows += it.rows
		c.StoredObservations = aggregate.AddSat(c.StoredObservations, it.observed)
		c.OverflowRows += it.folded
		c.OverflowObservations = aggregate.AddSat(c.OverflowObservations, it.foldedObservations)
		c.StoredFlows += it.flows
		c.OverflowFlows += it.foldedFlows
		c.StoredFindings += it.findings
		c.Rejected += it.rejected
	case wire.Outcome_OUTCOME_REPEAT:
		c.RepeatedItems++
	case wire.Outcome_OUTCOME_UNDESCRIBED:
		c.UndescribedItems++
	case wire.Outcome_OUTCOME_UNSPECIFIED:
		c.RetriedItems++
	default:
		c.RefusedItems++
	}
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

// refuse counts a refusal and logs it at a limited rate.
func (c *counts) refuse(logger *slog.Logger, now time.Time, message string, r Reason, attrs ...slog.Attr) {
	c.refused(r, 1)
	c.throttles[r].Warn(logger, now, message, append([]slog.Attr{slog.String("reason", r.String())}, attrs...)...)
}

// refused counts refusals that are not logged.
func (c *counts) refused(r Reason, n uint64) {
	c.add(func(c *Counts) { c.Refused[r] += n })
}
