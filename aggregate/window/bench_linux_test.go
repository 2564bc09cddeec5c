package window_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode/csig"
	"golang.org/x/sys/unix"
)

func benchShard(b testing.TB, sink aggregate.Sink, flows int, resolutions ...time.Duration) *window.Shard {
	b.Helper()
	return newShard(b, window.Config{
		Resolutions: resolutions, FineHeavyOnly: true, Tap: window.Tap{Tags: true}, Flows: window.FlowLimits{Top: flows},
	}, sink)
}

// cpuTime returns the processor time of the thread.
func cpuTime(b *testing.B) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// clockCost returns the time that reading the processor time adds between two readings, some 300
// ns.
func clockCost(b *testing.B) time.Duration {
	const n = 1000
	begin := cpuTime(b)
	for range n {
		cpuTime(b)
	}
	return (cpuTime(b) - begin) / n
}

func BenchmarkAdd(b *testing.B) {
	ms, sec := time.Millisecond, time.Second
	for _, bench := range []struct {
		name        string
		traffic     *traffic
		flows       int
		resolutions []time.Duration
	}{
		{"fabric/1s+1m", fabricTraffic(1<<18, csig.Compact), 0, []time.Duration{sec, time.Minute}},
		{"fabric/1s+1m+flows", fabricTraffic(1<<18, csig.Compact), 100, []time.Duration{sec, time.Minute}},
		{"fabric/10ms+1s+1m", fabricTraffic(1<<18, csig.Compact), 0, []time.Duration{10 * ms, sec, time.Minute}},
		{"fabric-wide/1s+1m", fabricTraffic(1<<18, csig.Wide), 0, []time.Duration{sec, time.Minute}},
		{"random/1s+1m", randomTraffic(1 << 18), 0, []time.Duration{sec, time.Minute}},
		{"random/1s+1m+flows", randomTraffic(1 << 18), 100, []time.Duration{sec, time.Minute}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var sink discard
			s := benchShard(b, &sink, bench.flows, bench.resolutions...)
			tr := bench.traffic
			tr.round = 0
			ctx := context.Background()
			// Only Add is timed, by its processor time: generating traffic costs as much.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var spent time.Duration
			play := func(n int) {
				for at := 0; n > 0; n -= 256 {
					batch := tr.next(at)
					begin := cpuTime(b)
					err := s.Add(ctx, batch)
					spent += cpuTime(b) - begin
					if err != nil {
						b.Fatal(err)
					}
					if at += 256; at >= len(tr.obs) {
						at = 0
						tr.round++
					}
				}
			}
			play(8 * len(tr.obs))
			before := sink.rows
			spent = 0
			b.ReportAllocs()
			b.ResetTimer()
			play(b.N)
			spent -= clockCost(b) * time.Duration(b.N/256)
			b.ReportMetric(float64(spent)/float64(b.N), "ns/op")
			b.ReportMetric(float64(sink.rows-before)/float64(b.N), "rows/op")
		})
	}
}
