package metrics_test

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/dashboards/metrics"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/edge"
)

// now is the time of the tests' scrapes.
var now = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

func clock() time.Time { return now }

// everything returns one of each collector. All numbers are set, and all are different.
func everything() []prometheus.Collector {
	return []prometheus.Collector{
		metrics.NewBuild("v1.2.3", "go1.26"), metrics.NewTaps(taps), metrics.NewMirrors(mirrors), metrics.NewDecode(decoded), metrics.NewAggregate(counts),
		metrics.NewProducers(clock, producers), metrics.NewBottlenecks(clock, 2, locationName, worst), metrics.NewFabric(fallbacks),
		metrics.NewLive(live), metrics.NewWindows(windows), metrics.NewIngest(ingest), metrics.NewPeers(peers), metrics.NewSpool(spool), metrics.NewStore(status),
		metrics.NewLatency(latency), metrics.NewTrim(trimmed), metrics.NewEngine(func() uint64 { return 901 }), metrics.NewAPI(asked), metrics.NewHTTP(),
	}
}

func taps() []metrics.Tap {
	return []metrics.Tap{
		{
			Name: "eth0", Up: true, Frames: 101, Bytes: 102, Dropped: 103, Freezes: 104, Stripped: 105, SuperFrames: 106, HardwareStamps: 107,
			Restamped: 108, Odd: 114, Unsampled: 115, Malformed: 109, Downs: 110, Ups: 111, Reopens: 112, LastFrame: now.Add(-time.Second), ClockOffset: 113 * time.Millisecond,
		},
		{Name: "eth1"},
	}
}

func windows() metrics.Windows {
	return metrics.Windows{Repeated: 951, Old: 952, Ahead: 953, Crowded: 954, Dropped: 955, Uncovered: 950, Provisional: map[string]uint64{"taken": 958, "late": 959}, End: now.Add(-time.Second), Producers: 956, Expected: 957}
}

func mirrors() []metrics.Mirror {
	return []metrics.Mirror{{
		Name: "spine", Packets: map[string]uint64{"mirror": 151, "mirror_cut": 152}, Excess: 153,
		Sessions: []metrics.MirrorSession{{Name: "spine/192.0.2.1/77", Frames: 154, Lost: 155, SwitchTimes: 156, Unusable: 157}, {Name: "spine/192.0.2.1/78"}},
	}}
}

func decoded() decode.Counters {
	c := decode.Counters{Tags: 231, Orphans: 232, Reflections: 233, EmptyReflections: 234, InvalidReflections: 235, Encrypted: 236, ExcessReflections: 237}
	for i := range c.Reasons {
		c.Reasons[i] = uint64(200 + i)
	}
	return c
}

func counts() aggregate.Counts {
	c := aggregate.Counts{
		In: 301, Stored: 302, Overflow: 303, Late: 304, Untouched: 305, Trimmed: 306, Unknown: 307,
		Blocks: 308, Rows: 309, Deltas: 310, ReflectionEvictions: 311, CacheResets: 312, FlowsForgotten: 313,
	}
	for i := range c.Rejected {
		c.Rejected[i] = uint64(320 + i)
	}
	return c
}

func producers() []metrics.Producer {
	return []metrics.Producer{
		{Name: "eth0", Observed: now.Add(-1500 * time.Millisecond).UnixNano(), StateBytes: 401},
		{Name: "eth1", StateBytes: 402},
		// A second ring of the same tap: the ring that lags more counts.
		{Name: "eth0", Observed: now.Add(-2500 * time.Millisecond).UnixNano(), StateBytes: 403},
	}
}

func locationName(id aggregate.LocationID) string { return fmt.Sprintf("leaf%d:up1", id) }

func worst(_ int64, top int) []table.SignalBottlenecks {
	all := []table.HeavyLocation{{Location: 11, Heavy: 30}, {Location: 12, Heavy: 15}, {Location: 13, Heavy: 5}}
	return []table.SignalBottlenecks{
		{Signal: csig.MinABWRatio, Kind: decode.Tag, Observations: 100, Heavy: 60, Locations: all[:top]},
		{Signal: csig.MaxDelay, Kind: decode.Reflection, Observations: 10},
	}
}

func fallbacks() fabric.Counts {
	return fabric.Counts{SetFallbacks: 451, OffPathFallbacks: 452, PathFallbacks: 453, GroupFallbacks: 454, GroupsForgotten: 455, Ways: fabric.WayCounts{Found: [...]uint64{456, 457, 458}, Contradicted: 459, Refused: 460}}
}

func live() metrics.Live {
	return metrics.Live{Commits: 501, Failed: 502, LastCommit: now.Add(-2 * time.Second), Stalled: 503, Full: 504, Reloads: 505}
}

func ingest() metrics.Ingest {
	return metrics.Ingest{
		Exporters: []metrics.Exporter{
			{
				Name: "host1", LastSeen: now.Add(-time.Minute), ClockOffset: 600 * time.Millisecond, Requests: 601, Bytes: 602, Items: 603,
				Rows: 604, Observations: 605, Overflowed: 606, Repeated: 607, Undone: 608, Denied: 609, Flows: 610, FoldedFlows: 611, Findings: 612, Contested: 613,
			},
			{Name: "host2"},
		},
		Refused: map[string]uint64{"unknown_token": 651, "byte_rate": 652}, Names: 653, NamesForgotten: 654,
	}
}

func peers() metrics.Peers {
	return metrics.Peers{
		Sent: []metrics.SentPeer{
			{Name: "https://collector2.example:4319", Up: true, Blocks: 661, Rows: 662, Bytes: 663, Waiting: 664, Dropped: map[string]uint64{"full": 665, "old": 666}, Provisional: map[string]uint64{"sent": 667, "away": 668}},
			{Name: "https://collector3.example:4319"},
		},
		Received: []metrics.ReceivedPeer{{Name: "collector2", LastSeen: now.Add(-time.Second), Blocks: 667, Rows: 668, Refused: map[string]uint64{"future": 669}}},
	}
}

func spool() metrics.Spool {
	return metrics.Spool{
		Connected: true, Bytes: 701, Limit: 702, Waiting: 703, Age: 704 * time.Second, Sent: 705, Retries: 706,
		Lost: map[string]uint64{"full": 707, "refused": 708}, Provisional: map[string]uint64{"sent": 709, "busy": 710},
	}
}

func status() store.WriterStatus {
	return store.WriterStatus{
		WriterStats: store.WriterStats{Rows: 801, Batches: 802, Retries: 803, Buffered: 804, Waiting: 805},
		LostBy:      []store.LostRows{{Reason: "full", Rows: 806}, {Reason: "disk", Rows: 807}},
		Outboxes:    1, OutboxBytes: 808, OutboxLimit: 809, OutboxAge: 810 * time.Millisecond, UnlistedNames: 811,
	}
}

func latency() store.Latency {
	return store.Latency{
		Bounds: []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}, Counts: []uint64{1, 0, 7, 2}, Sum: 20500 * time.Millisecond,
	}
}

func asked() metrics.API {
	return metrics.API{
		Stats: edge.Stats{
			Endpoints: []edge.EndpointStats{
				{Name: "/api/v1/cells", Codes: map[int]uint64{200: 911, 429: 912}, Took: []uint64{900, 20, 0, 0, 0, 0, 0, 0, 0, 0, 3}, Total: 913 * time.Millisecond},
				{Name: "other", Codes: map[int]uint64{404: 914}, Took: make([]uint64, 11)},
			},
			Refused: map[string]uint64{"requests": 915, "unauthenticated": 916}, Rows: 917, StoreTime: 918 * time.Millisecond,
			Running: 919, Clients: 920, Forgotten: 921,
		},
		Watchers: 922, Lagging: 923,
	}
}

func trimmed() store.TrimStats {
	return store.TrimStats{Passes: 870, Failures: 8, Partitions: 851, Rows: 852, Bytes: 853}
}
