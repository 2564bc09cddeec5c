package api_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

// sink discards an answer and counts its bytes.
type sink struct {
	header  http.Header
	bytes   atomic.Int64
	flushed func()
}

func (s *sink) Header() http.Header { return s.header }
func (s *sink) WriteHeader(int)     {}
func (s *sink) Flush()              { s.flushed() }

// Write implements io.Writer.
func (s *sink) Write(b []byte) (int, error) {
	s.bytes.Add(int64(len(b)))
	return len(b), nil
}

// cpu is the CPU time of the process so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkWatch sends a closed window to watchers of the same cells. cpu-ns/window is the total
// CPU time, including the publishing of the window, which is all of it for watchers=0.
func BenchmarkWatch(b *testing.B) {
	for _, cells := range []int{256, 4096} {
		for _, watchers := range []int{0, 1, 100} {
			b.Run(fmt.Sprintf("cells=%d/watchers=%d", cells, watchers), func(b *testing.B) { benchmarkWatch(b, "watch", cells, watchers) })
		}
	}
}

// BenchmarkChanges sends changes to watchers when nearly all cells change in each window.
func BenchmarkChanges(b *testing.B) {
	for _, watchers := range []int{0, 1, 100} {
		b.Run(fmt.Sprintf("cells=4096/watchers=%d", watchers), func(b *testing.B) { benchmarkWatch(b, "changes", 4096, watchers) })
	}
}

func benchmarkWatch(b *testing.B, stream string, cells, watchers int) {
	s := newServed(b, cells, func(c *api.Config) { c.Watchers = watchers })
	s.window(b, 0)
	var told sync.WaitGroup
	told.Add(3 * watchers) // the start, the snapshot, and synced
	ctx, end := context.WithCancel(b.Context())
	var running sync.WaitGroup
	for range watchers {
		w := &sink{header: http.Header{}, flushed: func() { told.Done() }}
		running.Go(func() {
			s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/api/v1/"+stream+"?heartbeat=60s", nil))
		})
	}
	told.Wait()
	blocks := make([]*aggregate.Block, 16)
	for i := range blocks {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		blocks[i] = tabletest.Block(rng, 1, begin.Add(time.Duration(i)*time.Second), cells, csig.MinABWRatio)
	}
	var used time.Duration
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		block := blocks[n%len(blocks)]
		block.WindowStart = begin.Add(time.Duration(n+1) * time.Second).UnixNano()
		if err := s.memory.WriteBlock(b.Context(), block); err != nil {
			b.Fatal(err)
		}
		told.Add(watchers)
		before := cpu()
		s.memory.Publish()
		told.Wait()
		used += cpu() - before
	}
	b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/window")
	end()
	running.Wait()
}

// BenchmarkSnapshot answers the same question repeatedly, as for several controllers.
func BenchmarkSnapshot(b *testing.B) {
	s := newServed(b, 4096, nil)
	s.window(b, 0)
	for _, target := range []string{"/api/v1/cells", "/api/v1/cells?src=pod1"} {
		b.Run(target, func(b *testing.B) {
			w := &sink{header: http.Header{}}
			r := httptest.NewRequest("GET", target, nil)
			b.ReportAllocs()
			for b.Loop() {
				s.ServeHTTP(w, r)
			}
			if w.bytes.Load() < 1000*int64(b.N) {
				b.Errorf("%d bytes in %d answers", w.bytes.Load(), b.N)
			}
		})
	}
}
