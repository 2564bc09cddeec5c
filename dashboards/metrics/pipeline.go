package metrics

import (
	"maps"
	"slices"
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
	c := new(Collector)
	frames := c.counter("decode_frames_total", "Frames by result of decoding: ok and no-csig are whole frames, hidden ones are encrypted, all others are errors.", "result")
	found := c.counter("decode_found_total", "Tags and reflections found, orphans included.", "kind")
	orphans := c.counter("decode_orphans_total", "Tags where no tag belongs, and reflections in ERSPAN and TZSP sessions that the tap does not hold.")
	incapable := c.counter("decode_incapable_reflections_total", "Reflections without a value (empty, invalid): the path is not CSIG-capable.", "reason")
	encrypted := c.counter("decode_encrypted_packets_total", "Packets in ESP or PSP, whose reflections only hosts see.")
	excess := c.counter("decode_excess_reflections_total", "Reflections dropped because their frame held too many.")
	c.read = func(to emit) {
		n := read()
		for reason, count := range n.Reasons {
			to(frames, float64(count), decode.Reason(reason).String())
		}
		to(found, float64(n.Tags), "tag")
		to(found, float64(n.Reflections), "reflection")
		to(orphans, float64(n.Orphans))
		to(incapable, float64(n.EmptyReflections), "empty")
		to(incapable, float64(n.InvalidReflections), "invalid")
		to(encrypted, float64(n.Encrypted))
		to(excess, float64(n.ExcessReflections))
	}
	return c
}

// NewAggregate exports the outcomes of observations. They add up: in = stored + overflow + dropped
// + observations in open windows.
func NewAggregate(read func() aggregate.Counts) *Collector {
	c := new(Collector)
	in := c.counter("observations_total", "Observations given to the aggregation, weighted by sampling.")
	stored := c.counter("observations_stored_total", "Observations in rows of closed windows under their own key.")
	overflow := c.counter("observations_overflow_total", "Observations in overflow rows, because the key budget was spent: totals are exact, their cells are not known.")
	dropped := c.counter("observations_dropped_total", "Observations not aggregated: far behind the latest time of their tap, by default 5 minutes (late), or rejected for a reason.", "reason")
	unlocated := c.counter("observations_unlocated_total", "Aggregated observations that enter no mode: replaced by no hop (untouched), trimmed, of a type without a table (unknown_type).", "kind")
	rows := c.counter("aggregate_rows_total", "Rows written in closed windows, all resolutions.")
	windows := c.counter("aggregate_windows_closed_total", "Windows written, all resolutions, corrections included.")
	reopened := c.counter("aggregate_windows_reopened_total", "Windows that late observations opened again.")
	evictions := c.counter("aggregate_reflection_evictions_total", "Flows forgotten before a repeat of their reflection could come: some repeats count twice.")
	forgotten := c.counter("aggregate_flows_forgotten_total", "Flows that windows forgot because their budget of flows was spent: they count in the rows of the others.")
	resets := c.counter("aggregate_cache_resets_total", "Look-up caches emptied because they were full or groups had changed.")
	c.read = func(to emit) {
		n := read()
		to(in, float64(n.In))
		to(stored, float64(n.Stored))
		to(overflow, float64(n.Overflow))
		to(dropped, float64(n.Late), "late")
		for reason, count := range n.Rejected {
			to(dropped, float64(count), aggregate.Rejection(reason).String())
		}
		to(unlocated, float64(n.Untouched), "untouched")
		to(unlocated, float64(n.Trimmed), "trimmed")
		to(unlocated, float64(n.Unknown), "unknown_type")
		to(rows, float64(n.Rows))
		to(windows, float64(n.Blocks))
		to(reopened, float64(n.Deltas))
		to(evictions, float64(n.ReflectionEvictions))
		to(forgotten, float64(n.FlowsForgotten))
		to(resets, float64(n.CacheResets))
	}
	return c
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
	c := new(Collector)
	fallbacks := c.counter("fabric_fallbacks_total", "Sets, contradictions, paths and groups that became coarser at a bound on memory.", "kind")
	forgotten := c.counter("fabric_groups_forgotten_total", "Idle prefixes of addresses that were forgotten for others, without groups in a fabric file.")
	ways := c.counter("fabric_ways_total", "Flows looked up whose path is known by a path table, taps in the fabric or hashes, and evidence that was contradicted.", "evidence")
	c.read = func(to emit) {
		n := read()
		for i, name := range aggregate.EvidenceNames {
			to(ways, float64(n.Ways.Found[i]), name)
		}
		to(ways, float64(n.Ways.Contradicted), "contradicted")
		to(forgotten, float64(n.GroupsForgotten))
		by := map[string]uint64{"set": n.SetFallbacks, "off_path": n.OffPathFallbacks, "path": n.PathFallbacks, "way": n.Ways.Refused, "group": n.GroupFallbacks}
		for _, kind := range slices.Sorted(maps.Keys(by)) {
			to(fallbacks, float64(by[kind]), kind)
		}
	}
	return c
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
	c := new(Collector)
	made := c.counter("commits_total", "Commits of closed windows to disk, and those that failed.", "result")
	last := c.gauge("commit_last_timestamp_seconds", "Time of the last commit of closed windows: after a kill the gap begins there. Absent before the first one.")
	stalled := c.counter("commit_stalls_total", "Times that a ring did not stop for a commit in time, and was left out.")
	full := c.counter("live_backpressure_total", "Times that a ring had to wait because it held too many rows: the kernel may drop frames meanwhile.")
	reloads := c.counter("config_reloads_total", "Reloads of the configuration that took effect.")
	c.read = func(to emit) {
		l := read()
		to(made, float64(l.Commits), "ok")
		to(made, float64(l.Failed), "failed")
		if !l.LastCommit.IsZero() {
			to(last, seconds(l.LastCommit.UnixNano()))
		}
		to(stalled, float64(l.Stalled))
		to(full, float64(l.Full))
		to(reloads, float64(l.Reloads))
	}
	return c
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
	c := new(Collector)
	refused := c.counter("live_blocks_refused_total", "Blocks that the live windows did not count: counted before (repeated), older than all windows (old), too far ahead of the clock (ahead), more blocks than a producer or a window may have (crowded).", "reason")
	dropped := c.counter("live_windows_dropped_total", "Live windows forgotten early, past the bound on rows or blocks.")
	untracked := c.counter("live_untracked_cells_total", "Cells of live windows whose state comes only from that window, because of the bound on histories.")
	provisional := c.counter("live_provisional_total", "Provisional rows of live windows, in parts of producers, by result: shown (taken), not shown (late, ahead, crowded), or shown and dropped since no final rows came (expired).", "result")
	end := c.gauge("live_newest_timestamp_seconds", "End of the newest live window with observations. Absent before the first one.")
	wrote := c.gauge("live_producers", "Producers that wrote rows lately: of the last three live windows, unless collect.max_age says otherwise.")
	expected := c.gauge("live_producers_expected", "Producers that should write: of the configuration, of the fabric file, and of the last day, unless forgotten.")
	uncovered := c.counter("live_uncovered_cells_total", "Cells of blocks whose producers the live windows do not remember, past a bound: answers do not name their producers.")
	c.read = func(to emit) {
		w := read()
		to(refused, float64(w.Repeated), "repeated")
		to(refused, float64(w.Old), "old")
		to(refused, float64(w.Ahead), "ahead")
		to(refused, float64(w.Crowded), "crowded")
		to(dropped, float64(w.Dropped))
		to(uncovered, float64(w.Uncovered))
		to(untracked, float64(w.Untracked))
		for _, result := range slices.Sorted(maps.Keys(w.Provisional)) {
			to(provisional, float64(w.Provisional[result]), result)
		}
		if !w.End.IsZero() {
			to(end, seconds(w.End.UnixNano()))
		}
		to(wrote, float64(w.Producers))
		to(expected, float64(w.Expected))
	}
	return c
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
	c := new(Collector)
	rows := c.counter("store_rows_total", "Rows that the server has taken.")
	batches := c.counter("store_batches_total", "Batches that the server has taken.")
	retries := c.counter("store_retries_total", "Retries, and batches that the server had lost.")
	throttled := c.counter("store_throttled_total", "Times that the server had so many parts to merge that it took no rows.")
	lost := c.counter("store_rows_lost_total", "Rows given up: to a full or failing disk, to damage, to a server that will never take them, or in memory without an outbox.", "reason")
	buffered := c.gauge("store_rows_buffered", "Rows in memory, not yet on disk or sent.")
	up := c.gauge("store_up", "1 while the server takes rows, 0 since an attempt failed or the oldest row has waited for more than 2 minutes.")
	unlisted := c.gauge("store_names_unlisted", "Groups and locations of exporters that lists of names leave out because there are too many; rows show their numbers.")
	size := c.gauge("outbox_bytes", "Bytes of the outbox on disk, rows that the server took and that are kept for a while included.")
	limit := c.gauge("outbox_limit_bytes", "Largest size of the outbox: beyond it flows are dropped first, then the oldest rows of the shortest windows.")
	waiting := c.gauge("outbox_rows_waiting", "Rows in the outbox that the server has not taken.")
	age := c.gauge("outbox_age_seconds", "Age of the oldest waiting row, 0 if none waits.")
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
		to(up, flag(s.Failure == nil && !s.Stalled))
		to(unlisted, float64(s.UnlistedNames))
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

// NewTrim exports deletions that keep the store within its disk budget.
func NewTrim(read func() store.TrimStats) *Collector {
	c := new(Collector)
	passes := c.counter("store_trim_passes_total", "Checks of the disk budget, by result: failed if a check failed or could not make enough room.", "result")
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
