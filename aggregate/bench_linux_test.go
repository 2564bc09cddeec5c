package aggregate_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"golang.org/x/sys/unix"
)

// traffic is a repeating second of observations, whose times advance each time it
// is played.
type traffic struct {
	obs   []decode.Observation
	times []int64
	round int64
}

// next is a batch of at most 256 observations.
func (tr *traffic) next(at int) []decode.Observation {
	batch := tr.obs[at:min(at+256, len(tr.obs))]
	for i := range batch {
		batch[i].TimeNS = tr.times[at+i] + tr.round*int64(time.Second)
	}
	return batch
}

func newTraffic(n int, fill func(r *rand.Rand, i int, o *decode.Observation)) *traffic {
	r := rand.New(rand.NewPCG(1, 2))
	tr := &traffic{obs: make([]decode.Observation, n), times: make([]int64, n)}
	for i := range tr.obs {
		tr.times[i] = benchStart + int64(i)*int64(time.Second)/int64(n)
		o := &tr.obs[i]
		o.Kind, o.Flags, o.Bytes = decode.Tag, decode.HasAddrs, 1500
		o.Tag.Layout = csig.Layout{Format: csig.Compact, Profile: csig.UEC050}
		fill(r, i, o)
	}
	return tr
}

var benchStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

func setAddr(a *[16]byte, group, host uint32) {
	*a = [16]byte{10: 0xff, 11: 0xff, 12: 10}
	binary.BigEndian.PutUint16(a[13:], uint16(group))
	a[15] = byte(host)
}

// fabricTraffic has 64 hosts in 16 racks, a bottleneck of two ports a rack pair and
// two signals: about 1,000 series of 100 and more observations a second.
func fabricTraffic(n int, format csig.Format) *traffic {
	return newTraffic(n, func(r *rand.Rand, i int, o *decode.Observation) {
		src, dst := r.Uint32N(64), r.Uint32N(64)
		setAddr(&o.Src, src/4, src%4)
		setAddr(&o.Dst, dst/4, dst%4)
		o.Tag.Layout.Format = format
		o.Tag.T = uint8(r.Uint32N(2) * 2)
		o.Tag.LM = uint16(1 + src/4*2 + r.Uint32N(2))
		o.Tag.S = uint32(min(max(8+r.NormFloat64()*3, 0), 30))
		if format == csig.Wide {
			o.Tag.S = 3000 + r.Uint32N(2000)
		}
	})
}

// randomTraffic has 20,000 flows whose locator metadata changes with every packet.
func randomTraffic(n int) *traffic {
	flows := make([][2][16]byte, 20000)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range flows {
		setAddr(&flows[i][0], r.Uint32N(1<<16), r.Uint32N(256))
		setAddr(&flows[i][1], r.Uint32N(1<<16), r.Uint32N(256))
	}
	return newTraffic(n, func(r *rand.Rand, i int, o *decode.Observation) {
		f := &flows[r.Uint32N(uint32(len(flows)))]
		o.Src, o.Dst = f[0], f[1]
		o.Tag.LM, o.Tag.S = uint16(r.Uint32N(64)), r.Uint32N(32)
	})
}

type discard struct{ rows int }

func (d *discard) WriteBlock(_ context.Context, b *aggregate.Block) error {
	d.rows += b.Len()
	return nil
}

func benchShard(b testing.TB, sink aggregate.Sink, resolutions ...time.Duration) *aggregate.Shard {
	b.Helper()
	return newShard(b, aggregate.Config{Resolutions: resolutions, FineHeavyOnly: true, Tags: true}, sink)
}

// cpuTime is the processor time of the thread.
func cpuTime(b *testing.B) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// clockCost is what reading the processor time adds to the time between two
// readings, some 300 ns.
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
		resolutions []time.Duration
	}{
		{"fabric/1s+1m", fabricTraffic(1<<18, csig.Compact), []time.Duration{sec, time.Minute}},
		{"fabric/10ms+1s+1m", fabricTraffic(1<<18, csig.Compact), []time.Duration{10 * ms, sec, time.Minute}},
		{"fabric-wide/1s+1m", fabricTraffic(1<<18, csig.Wide), []time.Duration{sec, time.Minute}},
		{"random/1s+1m", randomTraffic(1 << 18), []time.Duration{sec, time.Minute}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var sink discard
			s := benchShard(b, &sink, bench.resolutions...)
			tr := bench.traffic
			tr.round = 0
			ctx := context.Background()
			// Only Add is timed, by the processor time that it takes: making up traffic
			// costs as much.
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
