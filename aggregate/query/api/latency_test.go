package api_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/recent/recenttest"
	"github.com/csigscope/csigscope/decode/csig"
)

// What is measured here is promised of a machine that does nothing else: make bench-watch prints
// it, and no test depends on it.

// BenchmarkWatchers: how long after a window of 4096 cells has closed the last of 100 watchers
// has read the last byte of it. Readers look for the end of an event alone: they are on the
// same machine here, and what they do with an event is theirs.
func BenchmarkWatchers(b *testing.B) {
	const blocks = "\x00\x00\xff\xff" // deflate's empty block, which parts of a stream end with
	for _, how := range []struct {
		name string
		open opener
	}{
		{"json", counting("", "identity", "\n\n")},
		{"json-gzip", counting("", "gzip", blocks)},
		{"frames", counting("?encoding=frames", "identity", "\n\n")},
		{"calls", calling("json")},
		{"calls-frames", calling("frames")},
	} {
		b.Run(how.name, func(b *testing.B) { benchmarkWatchers(b, how.open) })
	}
}

// opener opens a stream of an API that serves at the address, after what it begins with.
type opener func(b *testing.B, url string) reader

// reader takes events in and does not look at them.
type reader interface {
	event(t testing.TB) (length int)
}

func benchmarkWatchers(b *testing.B, open opener) {
	const cells, watchers, windows = 4096, 100, 15
	s := newServed(b, cells, func(c *api.Config) { c.Watchers = watchers })
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.memory.Run(ctx) })
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	s.window(b, 0)
	url := listen(b, s)
	streams := make([]reader, watchers)
	for i := range streams {
		streams[i] = open(b, url)
	}
	var took []time.Duration
	second, length := 0, 0
	for b.Loop() {
		for range windows {
			second++
			blocks := producersBlocks(second, cells)
			arrived := make([]time.Duration, watchers)
			var readers sync.WaitGroup
			begin := time.Now()
			for _, block := range blocks {
				if err := s.memory.WriteBlock(b.Context(), block); err != nil {
					b.Fatal(err)
				}
			}
			for i, w := range streams {
				readers.Go(func() {
					n := w.event(b)
					arrived[i] = time.Since(begin)
					if i == 0 {
						length = n
					}
				})
			}
			readers.Wait()
			took = append(took, slices.Max(arrived))
		}
	}
	slices.Sort(took)
	milliseconds := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(length)/1e3, "kB/event")
	b.ReportMetric(milliseconds(took[0]), "ms-best")
	b.ReportMetric(milliseconds(took[len(took)/2]), "ms-median")
	b.ReportMetric(milliseconds(took[len(took)-1]), "ms-worst")
}

// producersBlocks are what two producers tell of a window.
func producersBlocks(second, cells int) (list []*aggregate.Block) {
	for producer := range uint64(2) {
		rng := rand.New(rand.NewPCG(producer, uint64(second)))
		list = append(list, recenttest.Block(rng, producer, begin.Add(time.Duration(second)*time.Second), cells, csig.MinABW, csig.MinABWRatio, csig.MaxDelay))
	}
	return list
}

// BenchmarkSnapshotLatency asks for 4096 cells while windows close, also where nobody has asked
// before, so that nothing was prepared.
func BenchmarkSnapshotLatency(b *testing.B) {
	var cold, warm []time.Duration
	for b.Loop() {
		cold, warm = coldLatencies(b, 20), warmLatencies(b, 300)
	}
	b.ReportMetric(0, "ns/op")
	for name, d := range map[string]time.Duration{
		"ms-median": warm[len(warm)/2], "ms-p99": warm[len(warm)*99/100],
		"ms-cold-median": cold[len(cold)/2], "ms-cold-worst": cold[len(cold)-1],
	} {
		b.ReportMetric(d.Seconds()*1e3, name)
	}
}

// coldLatencies are those of the first question after a window has closed, ascending.
func coldLatencies(t testing.TB, windows int) (took []time.Duration) {
	t.Helper()
	s := newServed(t, 4096, nil)
	for i := range windows {
		s.window(t, i)
		begin := time.Now()
		w := s.get(t, "/api/v1/cells")
		took = append(took, time.Since(begin))
		if w.Code != 200 || w.Body.Len() < 1e6 {
			t.Fatalf("status %d, %d bytes", w.Code, w.Body.Len())
		}
	}
	slices.Sort(took)
	return took
}

// warmLatencies are those of questions that several ask again and again, ascending.
func warmLatencies(t testing.TB, requests int) (took []time.Duration) {
	t.Helper()
	s := newServed(t, 4096, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	targets := []string{
		"/api/v1/cells", "/api/v1/cells?state=congested", "/api/v1/cells?src=pod1", "/api/v1/cells?max_room_ratio=0.4",
	}
	s.window(t, 0)
	for _, target := range targets {
		s.get(t, target)
	}
	for i := range requests {
		if i%60 == 59 {
			s.window(t, i)
			time.Sleep(50 * time.Millisecond) // a window has a second; this is what it takes to prepare one
		}
		begin := time.Now()
		w := s.get(t, targets[i%len(targets)])
		took = append(took, time.Since(begin))
		if w.Code != 200 || w.Body.Len() < 1000 {
			t.Fatalf("status %d, %d bytes", w.Code, w.Body.Len())
		}
	}
	slices.Sort(took)
	return took
}
