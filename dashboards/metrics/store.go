package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/csigscope/csigscope/aggregate/store"
)

// NewStore exports how rows get to the server, and what waits on disk for it.
func NewStore(read func() store.WriterStatus) *Collector {
	c := new(Collector)
	rows := c.counter("store_rows_total", "Rows that the server has taken.")
	batches := c.counter("store_batches_total", "Batches that the server has taken.")
	retries := c.counter("store_retries_total", "Attempts after a first one, and batches that the server had lost.")
	throttled := c.counter("store_throttled_total", "Times that the server had so many parts to merge that it took no rows.")
	lost := c.counter("store_rows_lost_total", "Rows given up: to a full or failing disk, to damage, to a server that will never take them, or in memory without an outbox.", "reason")
	buffered := c.gauge("store_rows_buffered", "Rows in memory, not yet on disk or sent.")
	up := c.gauge("store_up", "1 while the server takes rows, 0 since an attempt failed.")
	size := c.gauge("outbox_bytes", "Bytes of the outbox on disk, rows that the server took and that are kept for a while included.")
	limit := c.gauge("outbox_limit_bytes", "Largest size of the outbox: beyond it the oldest, finest rows are dropped.")
	waiting := c.gauge("outbox_rows_waiting", "Rows in the outbox that the server has not taken.")
	age := c.gauge("outbox_age_seconds", "How long the oldest row that waits has waited, 0 when nothing waits.")
	c.read = func(to emit) {
		s := read()
		to(rows, float64(s.Rows))
		to(batches, float64(s.Batches))
		to(retries, float64(s.Retries))
		to(throttled, float64(s.Throttled))
		for _, l := range s.LostBy {
			to(lost, float64(l.Rows), l.Reason)
		}
		to(buffered, float64(s.Buffered))
		to(up, flag(s.Failure == nil))
		if s.Outboxes == 0 {
			return
		}
		to(size, float64(s.OutboxBytes))
		to(limit, float64(s.OutboxLimit))
		to(waiting, float64(s.Waiting))
		to(age, s.OutboxAge.Seconds())
	}
	return c
}

// NewTrim exports what was deleted to keep the store within its disk budget.
func NewTrim(read func() store.TrimStats) *Collector {
	c := new(Collector)
	passes := c.counter("store_trim_passes_total", "Times that the store was held against its disk budget, and those of them that failed or could not make enough room.", "result")
	partitions := c.counter("store_trimmed_partitions_total", "Partitions deleted for the disk budget.")
	rows := c.counter("store_trimmed_rows_total", "Rows in deleted partitions.")
	bytes := c.counter("store_trimmed_bytes_total", "Bytes of deleted partitions.")
	c.read = func(to emit) {
		t := read()
		to(passes, float64(t.Passes-min(t.Failures, t.Passes)), "ok")
		to(passes, float64(t.Failures), "failed")
		to(partitions, float64(t.Partitions))
		to(rows, float64(t.Rows))
		to(bytes, float64(t.Bytes))
	}
	return c
}

// Latency exports how long windows took from their end until the server had
// acknowledged them, which is when questions see them.
type Latency struct {
	c      Collector
	family *family
	read   func() store.Latency
}

// NewLatency exports a histogram that the store keeps.
func NewLatency(read func() store.Latency) *Latency {
	l := &Latency{read: read}
	l.family = l.c.add(Histogram, "window_queryable_seconds", "Time from the end of a 1 s window until the server had acknowledged its rows and questions saw them; for each batch and producer, of the oldest window in it.", nil)
	return l
}

// Families are what the collector exports.
func (l *Latency) Families() []Family { return l.c.Families() }

// Describe implements prometheus.Collector.
func (l *Latency) Describe(to chan<- *prometheus.Desc) { l.c.Describe(to) }

// Collect implements prometheus.Collector.
func (l *Latency) Collect(to chan<- prometheus.Metric) {
	h := l.read()
	to <- constHistogram(l.family, h.Bounds, h.Counts, h.Sum)
}
