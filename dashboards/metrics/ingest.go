package metrics

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Exporter describes one identity that sends partials or observations over the network.
type Exporter struct {
	Name string
	// LastSeen is the time of its last request; zero for a configured exporter that has sent none
	// yet.
	LastSeen time.Time
	// ClockOffset is how far its clock is ahead of the collector's; 0 if unknown.
	ClockOffset time.Duration

	Requests, Bytes          uint64
	Items, Rows              uint64 // stored blocks and batches, and their rows
	Observations             uint64 // in stored items
	Overflowed               uint64 // observations in overflow rows because of its key limit
	Rejected                 uint64 // observations of stored batches that count nowhere, such as repeated reflections
	Flows, FoldedFlows       uint64 // flow rows in stored items; flow rows folded into a rest because of its limit
	Findings                 uint64 // finding rows in stored items
	Contested                uint64 // names that it describes differently from other sources
	Repeated, Undone, Denied uint64 // items already acknowledged, to be sent again, refused
}

// Ingest counts a collector's input from exporters.
type Ingest struct {
	Exporters []Exporter        // that may send
	Removed   []Exporter        // that may send no longer, and the sum of forgotten ones as Other: only their counters matter
	Refused   map[string]uint64 // requests, connections, names, items and findings by reason, a fixed set
	// Names counts the exporters' names in the collector's memory, NamesForgotten those evicted for
	// others.
	Names          int
	NamesForgotten uint64
}

// NewIngest exports the input by exporter, and refusals by reason.
func NewIngest(read func() Ingest) *Collector {
	c := new(Collector)
	named := new(first)
	refused := c.counter("ingest_refused_total", "Requests, connections, names and items refused, and findings of items that were taken. The README of ingest explains the reasons.", "reason")
	exporters := c.gauge("ingest_exporters", "Exporters that may send: configured, or seen.")
	remembered := c.gauge("ingest_names", "Groups and locations that exporters described and that the collector remembers.")
	forgotten := c.counter("ingest_names_forgotten_total", "Names that the collector forgot to make room for others: if an exporter describes one again, that costs a query of the store.")
	last := c.gauge("exporter_last_seen_timestamp_seconds", "Time of the exporter's last request, 0 for a configured one without a request yet; the earliest for other.", "exporter")
	offset := c.gauge("exporter_clock_offset_seconds", "How far the exporter's clock is ahead of the collector's, negative behind, less the delay of its fastest request in some minutes; the largest for other. Absent where it is not known.", "exporter")
	counters := []struct {
		*family
		of func(*Exporter) *uint64
	}{
		{c.counter("exporter_requests_total", "Requests of the exporter.", "exporter"), func(e *Exporter) *uint64 { return &e.Requests }},
		{c.counter("exporter_bytes_total", "Bytes of its requests, as they came over the network.", "exporter"), func(e *Exporter) *uint64 { return &e.Bytes }},
		{c.counter("exporter_items_total", "Items taken from the exporter.", "exporter"), func(e *Exporter) *uint64 { return &e.Items }},
		{c.counter("exporter_rows_total", "Rows taken from the exporter.", "exporter"), func(e *Exporter) *uint64 { return &e.Rows }},
		{c.counter("exporter_observations_total", "Observations in the blocks and batches taken from the exporter: those of blocks once for each length of windows.", "exporter"), func(e *Exporter) *uint64 { return &e.Observations }},
		{c.counter("exporter_overflow_observations_total", "Observations in overflow rows, because the exporter's key limit was spent.", "exporter"), func(e *Exporter) *uint64 { return &e.Overflowed }},
		{c.counter("exporter_rejected_observations_total", "Observations in batches taken from the exporter that count nowhere, such as repeated reflections.", "exporter"), func(e *Exporter) *uint64 { return &e.Rejected }},
		{c.counter("exporter_flows_total", "Rows of flows taken from the exporter.", "exporter"), func(e *Exporter) *uint64 { return &e.Flows }},
		{c.counter("exporter_folded_flows_total", "Rows of flows added up with all others, because the exporter's limit of flows was spent.", "exporter"), func(e *Exporter) *uint64 { return &e.FoldedFlows }},
		{c.counter("exporter_findings_total", "Rows of findings taken from the exporter.", "exporter"), func(e *Exporter) *uint64 { return &e.Findings }},
		{c.counter("exporter_contested_names_total", "Names refused because a fabric file or another exporter describes them otherwise.", "exporter"), func(e *Exporter) *uint64 { return &e.Contested }},
		{c.counter("exporter_repeated_items_total", "Items that had been taken before, and were not counted again.", "exporter"), func(e *Exporter) *uint64 { return &e.Repeated }},
		{c.counter("exporter_retried_items_total", "Items that the exporter was asked to send again.", "exporter"), func(e *Exporter) *uint64 { return &e.Undone }},
		{c.counter("exporter_refused_items_total", "Items refused for good.", "exporter"), func(e *Exporter) *uint64 { return &e.Denied }},
	}
	// Forgotten exporters that had labels of their own do not count among the others.
	var mu sync.Mutex
	var left Exporter            // their counters
	var own map[string]*Exporter // exporters with labels of their own at the last scrape, by name
	c.read = func(to emit) {
		mu.Lock()
		defer mu.Unlock()
		in := read()
		for _, reason := range slices.Sorted(maps.Keys(in.Refused)) {
			to(refused, float64(in.Refused[reason]), reason)
		}
		to(exporters, float64(len(in.Exporters)))
		to(remembered, float64(in.Names))
		to(forgotten, float64(in.NamesForgotten))
		var all, present sums[Exporter]
		before := own
		own = make(map[string]*Exporter)
		for i, e := range slices.Concat(in.Exporters, in.Removed) {
			name := named.name(e.Name)
			if i < len(in.Exporters) {
				present.at(name).worsen(&e)
			}
			sum := all.at(name)
			for _, n := range counters {
				*n.of(sum) += *n.of(&e)
			}
			if name != Other {
				own[e.Name] = &e
			}
		}
		for name, e := range before {
			if now := own[name]; now != nil && now.Requests >= e.Requests { // it is not forgotten, nor back since
				continue
			}
			for _, n := range counters {
				*n.of(&left) += *n.of(e)
			}
		}
		if others := all.of[Other]; others != nil {
			for _, n := range counters {
				*n.of(others) -= min(*n.of(others), *n.of(&left))
			}
		}
		for _, name := range present.order {
			e := present.of[name]
			if e.LastSeen.IsZero() {
				to(last, 0, name)
			} else {
				to(last, seconds(e.LastSeen.UnixNano()), name)
			}
			if e.ClockOffset != 0 {
				to(offset, e.ClockOffset.Seconds(), name)
			}
		}
		for _, name := range all.order {
			e := all.of[name]
			for _, n := range counters {
				to(n.family, float64(*n.of(e)), name)
			}
		}
	}
	return c
}

// worsen takes the worse values of two exporters with the same label.
func (e *Exporter) worsen(o *Exporter) {
	if e.Name == "" { // first use
		e.Name, e.LastSeen, e.ClockOffset = o.Name, o.LastSeen, o.ClockOffset
		return
	}
	if o.LastSeen.Before(e.LastSeen) {
		e.LastSeen = o.LastSeen
	}
	if o.ClockOffset.Abs() > e.ClockOffset.Abs() {
		e.ClockOffset = o.ClockOffset
	}
}

// Peers counts the windows that the collectors of a fleet share.
type Peers struct {
	Sent     []SentPeer
	Received []ReceivedPeer
}

// SentPeer is a collector that receives this one's windows.
type SentPeer struct {
	Name         string // the peer's URL
	Up           bool   // the last request succeeded
	Blocks, Rows uint64
	Bytes        uint64            // uncompressed
	Waiting      int               // bytes
	Dropped      map[string]uint64 // blocks by reason, a fixed set
	Provisional  map[string]uint64 // provisional rows of parts by result, a fixed set
}

// ReceivedPeer is a collector that sends its windows to this one.
type ReceivedPeer struct {
	Name         string // the peer's name here
	LastSeen     time.Time
	Blocks, Rows uint64
	Refused      map[string]uint64 // requests and blocks by reason, a fixed set
}

// NewPeers exports the windows sent to each configured peer and received from each peer.
func NewPeers(read func() Peers) *Collector {
	c := new(Collector)
	up := c.gauge("peer_up", "0 if the peer did not answer the last request, else 1. A refusal of windows is an answer, one of the credential is not.", "peer")
	blocks := c.counter("peer_sent_blocks_total", "Blocks of closed windows that the peer took.", "peer")
	rows := c.counter("peer_sent_rows_total", "Rows in the blocks that the peer took.", "peer")
	size := c.counter("peer_sent_bytes_total", "Bytes of the requests that the peer answered, before compression.", "peer")
	waiting := c.gauge("peer_waiting_bytes", "Bytes of blocks that wait for the peer.", "peer")
	dropped := c.counter("peer_dropped_blocks_total", "Blocks that the peer never got: the store has them, the live windows of the peer lack them.", "peer", "reason")
	provisional := c.counter("peer_provisional_total", "Sets of provisional rows for the peer (one for each window and part of a producer, such as a ring), by result: sent, or the reason for a drop.", "peer", "result")
	last := c.gauge("peer_last_seen_timestamp_seconds", "Time of the last request of a peer that shares its windows with this collector.", "peer")
	came := c.counter("peer_received_blocks_total", "Blocks of closed windows that came from the peer.", "peer")
	cameRows := c.counter("peer_received_rows_total", "Rows in the blocks that came from the peer.", "peer")
	refused := c.counter("peer_refused_total", "Requests and blocks of the peer that were refused.", "peer", "reason")
	c.read = func(to emit) {
		p := read()
		for _, s := range p.Sent {
			to(up, flag(s.Up), s.Name)
			to(blocks, float64(s.Blocks), s.Name)
			to(rows, float64(s.Rows), s.Name)
			to(size, float64(s.Bytes), s.Name)
			to(waiting, float64(s.Waiting), s.Name)
			for _, reason := range slices.Sorted(maps.Keys(s.Dropped)) {
				to(dropped, float64(s.Dropped[reason]), s.Name, reason)
			}
			for _, result := range slices.Sorted(maps.Keys(s.Provisional)) {
				to(provisional, float64(s.Provisional[result]), s.Name, result)
			}
		}
		for _, r := range p.Received {
			to(last, seconds(r.LastSeen.UnixNano()), r.Name)
			to(came, float64(r.Blocks), r.Name)
			to(cameRows, float64(r.Rows), r.Name)
			for _, reason := range slices.Sorted(maps.Keys(r.Refused)) {
				to(refused, float64(r.Refused[reason]), r.Name, reason)
			}
		}
	}
	return c
}

// Spool describes an exporter's queue on disk for its collector.
type Spool struct {
	Connected    bool // the last request succeeded
	Bytes, Limit int64
	Waiting      uint64 // items
	Age          time.Duration
	Sent         uint64 // items acknowledged by the collector
	Retries      uint64
	Lost         map[string]uint64 // items by reason, a fixed set
	Provisional  map[string]uint64 // provisional rows of parts by result, a fixed set
}

// NewSpool exports the state of an exporter's spool.
func NewSpool(read func() Spool) *Collector {
	c := of(read)
	c.gauge("spool_collector_up", "1 if the last request to the collector succeeded, else 0.", func(s *Spool) float64 { return flag(s.Connected) })
	c.gauge("spool_bytes", "Bytes of the spool on disk.", func(s *Spool) float64 { return float64(s.Bytes) })
	c.gauge("spool_limit_bytes", "Largest size of the spool.", func(s *Spool) float64 { return float64(s.Limit) })
	c.gauge("spool_items_waiting", "Items that the collector has not acknowledged.", func(s *Spool) float64 { return float64(s.Waiting) })
	c.gauge("spool_age_seconds", "Age of the oldest waiting item, 0 if none waits.", func(s *Spool) float64 { return s.Age.Seconds() })
	c.counter("spool_items_total", "Items that the collector has acknowledged.", func(s *Spool) float64 { return float64(s.Sent) })
	c.counter("spool_retries_total", "Requests to the collector that failed: they are repeated.", func(s *Spool) float64 { return float64(s.Retries) })
	c.counters("spool_items_lost_total", "Items given up.", "reason", func(s *Spool) map[string]uint64 { return s.Lost })
	c.counters("spool_provisional_total", "Sets of provisional rows beside the spool (one for each window and part of a producer, such as a ring), by result: sent, or the reason for a drop.", "result", func(s *Spool) map[string]uint64 { return s.Provisional })
	return c.Collector
}
