package metrics

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode"
)

// NewBuild exports the program's version.
func NewBuild(version, goVersion string) *Collector {
	c := new(Collector)
	info := c.gauge("build_info", "Always 1: the version of csigscope and of the Go that built it.", "version", "go_version")
	c.read = func(to emit) { to(info, 1, version, goVersion) }
	return c
}

// NewDecode exports the decoders' counters.
func NewDecode(read func() decode.Counters) *Collector {
	c := of(read)
	c.counters("decode_frames_total", "Frames by result of decoding: ok and no-csig are whole frames, hidden ones are encrypted, all others are errors.", "result", func(s *decode.Counters) map[string]uint64 { return named(s.Reasons[:], decode.Reason.String) })
	c.counters("decode_found_total", "Tags and reflections found, orphans included.", "kind", func(s *decode.Counters) map[string]uint64 {
		return map[string]uint64{"tag": s.Tags, "reflection": s.Reflections}
	})
	c.counter("decode_orphans_total", "Tags where no tag belongs, and reflections in ERSPAN and TZSP sessions that the tap does not hold.", func(s *decode.Counters) float64 { return float64(s.Orphans) })
	c.counters("decode_incapable_reflections_total", "Reflections without a value (empty, invalid): the path is not CSIG-capable.", "reason", func(s *decode.Counters) map[string]uint64 {
		return map[string]uint64{"empty": s.EmptyReflections, "invalid": s.InvalidReflections}
	})
	c.counter("decode_encrypted_packets_total", "Packets in ESP or PSP, whose reflections only hosts see.", func(s *decode.Counters) float64 { return float64(s.Encrypted) })
	c.counter("decode_excess_reflections_total", "Reflections dropped because their frame held too many.", func(s *decode.Counters) float64 { return float64(s.ExcessReflections) })
	return c.Collector
}

// NewAggregate exports the outcomes of observations. They add up: in = stored + overflow + dropped
// + observations in open windows.
func NewAggregate(read func() aggregate.Counts) *Collector {
	c := of(read)
	c.counter("observations_total", "Observations given to the aggregation, weighted by sampling.", func(s *aggregate.Counts) float64 { return float64(s.In) })
	c.counter("observations_stored_total", "Observations in rows of closed windows under their own key.", func(s *aggregate.Counts) float64 { return float64(s.Stored) })
	c.counter("observations_overflow_total", "Observations in overflow rows, because the key budget was spent: totals are exact, their cells are not known.", func(s *aggregate.Counts) float64 { return float64(s.Overflow) })
	c.counters("observations_dropped_total", "Observations not aggregated: far behind the latest time of their tap, by default 5 minutes (late), or rejected for a reason.", "reason", func(s *aggregate.Counts) map[string]uint64 {
		return with(named(s.Rejected[:], aggregate.Rejection.String), "late", s.Late)
	})
	c.counters("observations_unlocated_total", "Aggregated observations that enter no mode: replaced by no hop (untouched), trimmed, of a type without a table (unknown_type).", "kind", func(s *aggregate.Counts) map[string]uint64 {
		return map[string]uint64{"untouched": s.Untouched, "trimmed": s.Trimmed, "unknown_type": s.Unknown}
	})
	c.counter("aggregate_rows_total", "Rows written in closed windows, all resolutions.", func(s *aggregate.Counts) float64 { return float64(s.Rows) })
	c.counter("aggregate_windows_closed_total", "Windows written, all resolutions, corrections included.", func(s *aggregate.Counts) float64 { return float64(s.Blocks) })
	c.counter("aggregate_windows_reopened_total", "Windows that late observations opened again.", func(s *aggregate.Counts) float64 { return float64(s.Deltas) })
	c.counter("aggregate_reflection_evictions_total", "Flows forgotten before a repeat of their reflection could come: some repeats count twice.", func(s *aggregate.Counts) float64 { return float64(s.ReflectionEvictions) })
	c.counter("aggregate_flows_forgotten_total", "Flows that windows forgot because their budget of flows was spent: they count in the rows of the others.", func(s *aggregate.Counts) float64 { return float64(s.FlowsForgotten) })
	c.counter("aggregate_cache_resets_total", "Look-up caches emptied because they were full or groups had changed.", func(s *aggregate.Counts) float64 { return float64(s.CacheResets) })
	return c.Collector
}

// Producer is a source of observations, a tap or an exporter.
type Producer struct {
	Name       string
	Observed   int64  // time of the last observation, Unix ns; before the first one, the start; 0 if no more will come
	StateBytes uint64 // memory of its aggregation in bytes
}

// NewProducers exports how far producers lag behind the clock, and their memory.
func NewProducers(now func() time.Time, read func() []Producer) *Collector {
	c := new(Collector)
	named := new(first)
	lag := c.gauge("watermark_lag_seconds", "How far a producer's latest observation is behind the clock, or how long it has run without one; the largest for other. It grows while the link is down, and when senders are silent.", "producer")
	state := c.gauge("aggregate_state_bytes", "Memory that the aggregation of a producer takes.", "producer")
	c.read = func(to emit) {
		type sum struct {
			lag   int64
			begun bool
			bytes uint64
		}
		var all sums[sum]
		at := now().UnixNano()
		for _, p := range read() {
			s := all.at(named.name(p.Name))
			s.bytes += p.StateBytes
			if p.Observed == 0 {
				continue
			}
			if behind := at - p.Observed; !s.begun || behind > s.lag {
				s.lag, s.begun = behind, true
			}
		}
		for _, name := range all.order {
			if s := all.of[name]; s.begun {
				to(lag, seconds(s.lag), name)
			}
			to(state, float64(all.of[name].bytes), name)
		}
	}
	return c
}

// NewFabric exports how often a memory bound made an answer coarser.
func NewFabric(read func() fabric.Counts) *Collector {
	c := of(read)
	c.counters("fabric_fallbacks_total", "Times that a bound on memory made a result coarser: for sets, locators off the path (off_path), paths, evidence for the path of a flow (way) and groups.", "kind", func(s *fabric.Counts) map[string]uint64 {
		return map[string]uint64{"set": s.SetFallbacks, "off_path": s.OffPathFallbacks, "path": s.PathFallbacks, "way": s.Ways.Refused, "group": s.GroupFallbacks}
	})
	c.counter("fabric_groups_forgotten_total", "Idle prefixes of addresses that were forgotten for others, without groups in a fabric file.", func(s *fabric.Counts) float64 { return float64(s.GroupsForgotten) })
	c.counters("fabric_ways_total", "Paths found for flows, by the evidence (hashes: at each look-up; path table, taps in the fabric: once for each pair of attachments), and evidence that was contradicted.", "evidence", func(s *fabric.Counts) map[string]uint64 {
		return with(named(s.Ways.Found[:], func(i int) string { return aggregate.EvidenceNames[i] }), "contradicted", s.Ways.Contradicted)
	})
	return c.Collector
}

// Live counts the commits of a pipeline over taps, and its stalls.
type Live struct {
	Commits, Failed uint64
	LastCommit      time.Time // zero before the first one
	Stalled         uint64    // rings that did not stop for a commit in time
	Full            uint64    // times that a ring waited for room
	Reloads         uint64
}

// NewLive exports commits and reloads.
func NewLive(read func() Live) *Collector {
	c := of(read)
	c.counters("commits_total", "Commits of closed windows to disk, and those that failed.", "result", func(s *Live) map[string]uint64 { return map[string]uint64{"ok": s.Commits, "failed": s.Failed} })
	c.gauge("commit_last_timestamp_seconds", "Time of the last commit of closed windows: after a kill the gap begins there. Absent before the first one.", func(s *Live) float64 { return stamp(s.LastCommit) })
	c.counter("commit_stalls_total", "Times that a ring did not stop for a commit in time, and was left out.", func(s *Live) float64 { return float64(s.Stalled) })
	c.counter("live_backpressure_total", "Times that a ring had to wait because it held too many rows: the kernel may drop frames meanwhile.", func(s *Live) float64 { return float64(s.Full) })
	c.counter("config_reloads_total", "Reloads of the configuration that took effect.", func(s *Live) float64 { return float64(s.Reloads) })
	return c.Collector
}

// Windows counts the losses of the live windows, and describes the newest window.
type Windows struct {
	Repeated, Old, Ahead, Crowded uint64            // blocks not counted
	Dropped                       uint64            // windows dropped early
	Uncovered                     uint64            // cells of blocks whose writers are no longer known
	Untracked                     uint64            // cells of windows without room for a history
	Provisional                   map[string]uint64 // rows of unfinished parts by result, a fixed set
	End                           time.Time         // of the newest window with rows; zero if there is none
	Producers, Expected           int               // recent writers, and expected ones
}

// NewWindows exports the state of the live windows.
func NewWindows(read func() Windows) *Collector {
	c := of(read)
	c.counters("live_blocks_refused_total", "Blocks that the live windows did not count: counted before (repeated), older than all windows (old), too far ahead of the clock (ahead), more blocks than a producer or a window may have (crowded).", "reason", func(s *Windows) map[string]uint64 {
		return map[string]uint64{"repeated": s.Repeated, "old": s.Old, "ahead": s.Ahead, "crowded": s.Crowded}
	})
	c.counter("live_windows_dropped_total", "Live windows forgotten early, past the bound on rows or blocks.", func(s *Windows) float64 { return float64(s.Dropped) })
	c.counter("live_untracked_cells_total", "Cells of live windows whose state comes only from that window, because of the bound on histories.", func(s *Windows) float64 { return float64(s.Untracked) })
	c.counters("live_provisional_total", "Sets of provisional rows of live windows (one for each window and part of a producer, such as a ring), by result: shown (taken), not shown (late, ahead, crowded), or shown and dropped since no final rows came (expired).", "result", func(s *Windows) map[string]uint64 { return s.Provisional })
	c.gauge("live_newest_timestamp_seconds", "End of the newest live window with observations. Absent before the first one.", func(s *Windows) float64 { return stamp(s.End) })
	c.gauge("live_producers", "Producers that wrote rows lately: of the last three live windows, unless collect.max_age says otherwise.", func(s *Windows) float64 { return float64(s.Producers) })
	c.gauge("live_producers_expected", "Producers that should write: of the configuration, of the fabric file, and of the last day, unless forgotten.", func(s *Windows) float64 { return float64(s.Expected) })
	c.counter("live_uncovered_cells_total", "Cells of blocks whose producers the live windows do not remember, past a bound: answers do not name their producers.", func(s *Windows) float64 { return float64(s.Uncovered) })
	return c.Collector
}

// NewEngine exports the embedded engine's restarts.
func NewEngine(restarts func() uint64) *Collector {
	c := new(Collector)
	again := c.counter("engine_restarts_total", "Restarts of the embedded ClickHouse engine.")
	c.read = func(to emit) { to(again, float64(restarts())) }
	return c
}

// NewStore exports the writer's progress and its backlog on disk.
func NewStore(read func() store.WriterStatus) *Collector {
	outbox := func(s *store.WriterStatus, v float64) float64 {
		if s.Outboxes == 0 {
			return math.NaN()
		}
		return v
	}
	c := of(read)
	c.counter("store_rows_total", "Rows that the server has taken.", func(s *store.WriterStatus) float64 { return float64(s.Rows) })
	c.counter("store_batches_total", "Batches that the server has taken.", func(s *store.WriterStatus) float64 { return float64(s.Batches) })
	c.counter("store_retries_total", "Attempts to send again after an error, and batches sent again because the server had lost them.", func(s *store.WriterStatus) float64 { return float64(s.Retries) })
	c.counter("store_throttled_total", "Times that the server had so many parts to merge that it took no rows.", func(s *store.WriterStatus) float64 { return float64(s.Throttled) })
	c.counters("store_rows_lost_total", "Rows given up: to a full or failing disk, to damage, to a server that will never take them, or in memory without an outbox.", "reason", func(s *store.WriterStatus) map[string]uint64 {
		by := make(map[string]uint64, len(s.LostBy))
		for _, l := range s.LostBy {
			by[l.Reason] = l.Rows
		}
		return by
	})
	c.gauge("store_rows_buffered", "Rows in memory, not yet on disk or sent.", func(s *store.WriterStatus) float64 { return float64(s.Buffered) })
	c.gauge("store_up", "1 while the server takes rows, 0 since an attempt failed or the oldest row has waited for more than 2 minutes.", func(s *store.WriterStatus) float64 { return flag(s.Failure == nil && !s.Stalled) })
	c.gauge("store_names_unlisted", "Groups and locations of exporters that lists of names leave out because there are too many; rows show their numbers.", func(s *store.WriterStatus) float64 { return float64(s.UnlistedNames) })
	c.gauge("outbox_bytes", "Bytes of the outbox on disk, rows that the server took and that are kept for a while included.", func(s *store.WriterStatus) float64 { return outbox(s, float64(s.OutboxBytes)) })
	c.gauge("outbox_limit_bytes", "Largest size of the outbox: beyond it flows are dropped first, then the oldest rows of the shortest windows.", func(s *store.WriterStatus) float64 { return outbox(s, float64(s.OutboxLimit)) })
	c.gauge("outbox_rows_waiting", "Rows in the outbox that the server has not taken.", func(s *store.WriterStatus) float64 { return outbox(s, float64(s.Waiting)) })
	c.gauge("outbox_age_seconds", "Age of the oldest waiting row, 0 if none waits.", func(s *store.WriterStatus) float64 { return outbox(s, s.OutboxAge.Seconds()) })
	return c.Collector
}

// NewTrim exports deletions that keep the store within its disk budget.
func NewTrim(read func() store.TrimStats) *Collector {
	c := of(read)
	c.counters("store_trim_passes_total", "Checks of the disk budget, by result: failed if a check failed or could not make enough room.", "result", func(s *store.TrimStats) map[string]uint64 {
		return map[string]uint64{"ok": s.Passes - min(s.Failures, s.Passes), "failed": s.Failures}
	})
	c.counter("store_trimmed_partitions_total", "Partitions deleted for the disk budget.", func(s *store.TrimStats) float64 { return float64(s.Partitions) })
	c.counter("store_trimmed_rows_total", "Rows in deleted partitions.", func(s *store.TrimStats) float64 { return float64(s.Rows) })
	c.counter("store_trimmed_bytes_total", "Bytes of deleted partitions.", func(s *store.TrimStats) float64 { return float64(s.Bytes) })
	return c.Collector
}

// Latency exports the time from the end of a window until the server acknowledged it, when queries
// see it.
type Latency struct {
	c      Collector
	family *family
	read   func() store.Latency
}

// NewLatency exports the store's latency histogram.
func NewLatency(read func() store.Latency) *Latency {
	l := &Latency{read: read}
	l.family = l.c.add(Histogram, "window_queryable_seconds", "Time from the end of a 1 s window until the server acknowledged its rows, so that queries see them; one value per batch and producer, of the oldest window in it.", nil)
	return l
}

// Families returns the exported families.
func (l *Latency) Families() []Family { return l.c.Families() }

// Describe implements prometheus.Collector.
func (l *Latency) Describe(to chan<- *prometheus.Desc) { l.c.Describe(to) }

// Collect implements prometheus.Collector.
func (l *Latency) Collect(to chan<- prometheus.Metric) {
	h := l.read()
	to <- constHistogram(l.family, h.Bounds, h.Counts, h.Sum)
}

// NewBottlenecks exports at most top of the worst locations of each signal, with their share of all
// heavy observations. locationName returns a location's name.
//
// A location that is no longer among the worst has no number, so alerts on it end.
func NewBottlenecks(now func() time.Time, top int, locationName func(aggregate.LocationID) string, read func(now int64, top int) []table.SignalBottlenecks) *Collector {
	c := new(Collector)
	heavy := c.gauge("heavy_ratio", "Share of a signal's observations of the last minute that were heavy.", "signal", "source")
	share := c.gauge("bottleneck_heavy_ratio", "Share of a signal's heavy observations of the last minute that name the location as the bottleneck; the worst locations alone.", "signal", "source", "location")
	c.read = func(to emit) {
		for _, s := range read(now().UnixNano(), top) {
			if s.Observations == 0 {
				continue
			}
			signal, kind := s.Signal.String(), s.Kind.String()
			to(heavy, float64(s.Heavy)/float64(s.Observations), signal, kind)
			for _, l := range s.Locations {
				to(share, float64(l.Heavy)/float64(s.Heavy), signal, kind, locationName(l.Location))
			}
		}
	}
	return c
}
