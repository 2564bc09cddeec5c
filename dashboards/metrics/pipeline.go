package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
)

// NewBuild exports which program runs.
func NewBuild(version, goVersion string) *Collector {
	c := new(Collector)
	info := c.gauge("build_info", "Always 1: the version of csigscope and of the Go that built it.", "version", "go_version")
	c.read = func(to emit) { to(info, 1, version, goVersion) }
	return c
}

// NewDecode exports what decoders have seen.
func NewDecode(read func() decode.Counters) *Collector {
	c := new(Collector)
	frames := c.counter("decode_frames_total", "Frames by how the walk through them ended: ok and no-csig are whole frames, hidden ones are encrypted, all others are errors.", "result")
	found := c.counter("decode_found_total", "Tags and reflections found, orphans included.", "kind")
	orphans := c.counter("decode_orphans_total", "Tags in a place where no tag belongs, and reflections in mirror sessions that the tap does not hold.")
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

// NewAggregate exports what became of observations. They add up: in = stored + overflow
// + dropped + those in windows that are still open.
func NewAggregate(read func() aggregate.Counts) *Collector {
	c := new(Collector)
	in := c.counter("observations_total", "Observations given to the aggregation, weighted by sampling.")
	stored := c.counter("observations_stored_total", "Observations in rows of closed windows under their own key.")
	overflow := c.counter("observations_overflow_total", "Observations in overflow rows, because the key budget was spent: totals are exact, their cells are not known.")
	dropped := c.counter("observations_dropped_total", "Observations not aggregated: older than the horizon (late), or rejected for a reason.", "reason")
	unlocated := c.counter("observations_unlocated_total", "Aggregated observations that enter no mode: replaced by no hop (untouched), trimmed, of a type without a table (unknown_type).", "kind")
	rows := c.counter("aggregate_rows_total", "Rows written in closed windows, all resolutions.")
	windows := c.counter("aggregate_windows_closed_total", "Windows written, all resolutions, corrections included.")
	reopened := c.counter("aggregate_windows_reopened_total", "Windows that late observations opened again.")
	evictions := c.counter("aggregate_reflection_evictions_total", "Flows forgotten before their reflection could repeat: some repetitions count twice.")
	forgotten := c.counter("aggregate_flows_forgotten_total", "Flows that windows forgot because their budget of flows was spent: they are part of all others.")
	resets := c.counter("aggregate_cache_resets_total", "Look-up caches emptied because they were full.")
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

// A Producer is one that observations come from, a tap or an exporter.
type Producer struct {
	Name       string
	Watermark  int64  // latest accepted time, Unix ns; 0 before the first observation
	StateBytes uint64 // memory of its aggregation
}

// NewProducers exports how far producers are behind the clock, and what they take.
func NewProducers(now func() time.Time, read func() []Producer) *Collector {
	c := new(Collector)
	named := new(first)
	lag := c.gauge("watermark_lag_seconds", "How far a producer's latest accepted time is behind the clock; the largest for other. Absent before its first observation.", "producer")
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
			if p.Watermark == 0 {
				continue
			}
			if behind := at - p.Watermark; !s.begun || behind > s.lag {
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

// NewFabric exports how often a bound on memory made an answer coarser.
func NewFabric(read func() fabric.Counts) *Collector {
	c := new(Collector)
	fallbacks := c.counter("fabric_fallbacks_total", "Sets, contradictions, paths and groups that became coarser at a bound on memory.", "kind")
	forgotten := c.counter("fabric_groups_forgotten_total", "Idle prefixes of addresses that were forgotten for others, without groups in a fabric file.")
	c.read = func(to emit) {
		n := read()
		to(forgotten, float64(n.GroupsForgotten))
		by := map[string]uint64{"set": n.SetFallbacks, "off_path": n.OffPathFallbacks, "path": n.PathFallbacks, "group": n.GroupFallbacks}
		for _, kind := range slices.Sorted(maps.Keys(by)) {
			to(fallbacks, float64(by[kind]), kind)
		}
	}
	return c
}
