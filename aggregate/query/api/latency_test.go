package api_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

// These measurements apply to an otherwise idle machine: make bench-watch prints them. The test
// requires the best of some measurements to be within ten times the goal, which detects gross
// slowdowns on any machine.

// TestWithinTenTimes: a window reaches 100 watchers, and a question is answered, within ten times
// the goal.
func TestWithinTenTimes(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short; the race detector would be measured")
	}
	const soon, answer = 10 * 50 * time.Millisecond, 10 * 5 * time.Millisecond
	took, _ := watcherTimes(t, counting("", "gzip", flushed), 5)
	warm := warmLatencies(t, 50)
	t.Logf("watchers %v; answers %v to %v", took, warm[0], warm[len(warm)/2])
	if took[0] > soon || warm[0] > answer {
		t.Errorf("watchers wait %v at best, want at most %v; an answer takes %v, want at most %v", took[0], soon, warm[0], answer)
	}
}

// flushed is deflate's empty block at the end of each part of a stream.
const flushed = "\x00\x00\xff\xff"

// BenchmarkWatchers measures the time from the close of a window of 4096 cells until the last of
// 100 watchers has read its last byte. Readers only look for the end of an event: they run on the
// same machine here, and decoding is the clients' own cost.
func BenchmarkWatchers(b *testing.B) {
	for _, how := range []struct {
		name string
		open opener
	}{
		{"json", counting("", "identity", "\n\n")},
		{"json-gzip", counting("", "gzip", flushed)},
		{"frames", counting("?encoding=frames", "identity", "\n\n")},
		{"calls", calling("json")},
		{"calls-frames", calling("frames")},
	} {
		b.Run(how.name, func(b *testing.B) { benchmarkWatchers(b, how.open) })
	}
}

// opener opens a stream of an API at the address, and reads its first events.
type opener func(t testing.TB, url string) reader

// reader reads events without decoding them.
type reader interface {
	event(t testing.TB) (length int)
}

func benchmarkWatchers(b *testing.B, open opener) {
	var took []time.Duration
	length := 0
	for b.Loop() {
		took, length = watcherTimes(b, open, 15)
	}
	milliseconds := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(length)/1e3, "kB/event")
	b.ReportMetric(milliseconds(took[0]), "ms-best")
	b.ReportMetric(milliseconds(took[len(took)/2]), "ms-median")
	b.ReportMetric(milliseconds(took[len(took)-1]), "ms-worst")
}

// watcherTimes returns how long windows take to reach all watchers, ascending, and the length of
// an event.
func watcherTimes(t testing.TB, open opener, windows int) (took []time.Duration, length int) {
	t.Helper()
	const cells, watchers = 4096, 100
	s := newServed(t, cells, func(c *api.Config) { c.Watchers = watchers })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.memory.Run(ctx) })
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	s.window(t, 0)
	url := listen(t, s)
	streams := make([]reader, watchers)
	for i := range streams {
		streams[i] = open(t, url)
	}
	for second := range windows {
		blocks := producersBlocks(second+1, cells)
		arrived := make([]time.Duration, watchers)
		var readers sync.WaitGroup
		begin := time.Now()
		for _, block := range blocks {
			if err := s.memory.WriteBlock(t.Context(), block); err != nil {
				t.Fatal(err)
			}
		}
		for i, w := range streams {
			readers.Go(func() {
				n := w.event(t)
				arrived[i] = time.Since(begin)
				if i == 0 {
					length = n
				}
			})
		}
		readers.Wait()
		took = append(took, slices.Max(arrived))
	}
	slices.Sort(took)
	return took, length
}

// producersBlocks are the blocks of two producers for a window.
func producersBlocks(second, cells int) (list []*aggregate.Block) {
	for producer := range uint64(2) {
		rng := rand.New(rand.NewPCG(producer, uint64(second)))
		list = append(list, tabletest.Block(rng, producer, begin.Add(time.Duration(second)*time.Second), cells, csig.MinABW, csig.MinABWRatio, csig.MaxDelay))
	}
	return list
}

// BenchmarkSnapshotLatency asks for 4096 cells while windows close, also as the first question,
// when nothing is prepared.
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

// warmLatencies are those of questions that several clients repeat, ascending.
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
			time.Sleep(50 * time.Millisecond) // a window has a second; this leaves time to prepare one
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

// BenchmarkProvisional measures the time from the end of a window of 4096 cells until the last of
// 100 watchers has read all of it, and from the end of its lateness until it has read that the
// window is final. A producer announces a window at its end and closes it after its lateness of
// 100 ms, by the clock.
func BenchmarkProvisional(b *testing.B) {
	var ended, final []time.Duration
	for b.Loop() {
		ended, final = provisionalTimes(b, 20)
	}
	b.ReportMetric(0, "ns/op")
	for name, took := range map[string][]time.Duration{"provisional": ended, "final": final} {
		b.ReportMetric(took[len(took)/2].Seconds()*1e3, "ms-p50-"+name)
		b.ReportMetric(took[len(took)*99/100].Seconds()*1e3, "ms-p99-"+name)
	}
}

// provisionalTimes returns how long after the end of windows, and after their lateness, all
// watchers have the provisional and the final event of each, ascending.
func provisionalTimes(b *testing.B, windows int) (ended, final []time.Duration) {
	b.Helper()
	const cells, watchers, lateness = 4096, 100, 100 * time.Millisecond
	s := newServed(b, cells, func(c *api.Config) {
		c.Watchers, c.Now, c.Memory = watchers, time.Now, table.NewMemory(table.MemoryOptions{Lateness: lateness})
	})
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.memory.Run(ctx) })
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	second := int(time.Since(begin) / time.Second)
	s.writeBlock(b, producersBlocks(second-1, cells)[0])
	url := listen(b, s)
	streams := make([]reader, watchers)
	for i := range streams {
		streams[i] = counting("", "gzip", flushed)(b, url)
	}
	read := func(since time.Time) time.Duration {
		arrived := make([]time.Duration, watchers)
		var readers sync.WaitGroup
		for i, w := range streams {
			readers.Go(func() {
				w.event(b)
				arrived[i] = time.Since(since)
			})
		}
		readers.Wait()
		return slices.Max(arrived)
	}
	for second++; len(ended) < windows; second += 2 { // gives a loaded machine time to read
		block := producersBlocks(second, cells)[0]
		end := begin.Add(time.Duration(second+1) * time.Second)
		time.Sleep(time.Until(end))
		s.memory.WriteProvisional((*aggregate.Provisional)(block))
		ended = append(ended, read(end))
		time.Sleep(time.Until(end.Add(lateness)))
		s.writeBlock(b, block)
		final = append(final, read(end.Add(lateness)))
	}
	slices.Sort(ended)
	slices.Sort(final)
	return ended, final
}

// BenchmarkProvisionalFine measures the time from the end of a window of 100 ms with heavy
// observations in 256 cells until the last of 100 watchers has read all of it.
func BenchmarkProvisionalFine(b *testing.B) {
	var took []time.Duration
	for b.Loop() {
		took = fineTimes(b, 50)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(took[len(took)/2].Seconds()*1e3, "ms-p50")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1e3, "ms-p99")
}

// fineTimes returns how long after their end all watchers have windows of 100 ms, ascending.
// Every second window has rows.
func fineTimes(b *testing.B, windows int) (took []time.Duration) {
	b.Helper()
	const cells, watchers = 256, 100
	var fine *table.Memory
	s := newServed(b, cells, func(c *api.Config) {
		c.Watchers, c.Now, c.Memory = watchers, time.Now, table.NewMemory(table.MemoryOptions{})
		fine = table.NewFineMemory(c.Memory, fineLength, 2*fineLength, 1<<20)
		c.Fine = fine
	})
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.memory.Run(ctx) })
	running.Go(func() { _ = fine.Run(ctx) })
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	s.writeBlock(b, producersBlocks(int(time.Since(begin)/time.Second)-1, cells)[0])
	url := listen(b, s)
	streams := make([]*subscription, watchers)
	for i := range streams {
		streams[i] = open(b, url+"/api/v1/watch?signal=max_delay&heartbeat=60s&resolution=100ms")
		for streams[i].next(b).name != "synced" {
		}
	}
	for range windows {
		end := time.Now().Truncate(fineLength).Add(2 * fineLength)
		block := tabletest.Block(rand.New(rand.NewPCG(1, uint64(end.Unix()))), 0, end.Add(-fineLength), cells, csig.MaxDelay)
		block.Resolution = int64(fineLength)
		wanted := fmt.Sprintf(`"window_start":%q`, end.Add(-fineLength).UTC().Format(time.RFC3339Nano))
		time.Sleep(time.Until(end))
		fine.WriteProvisional((*aggregate.Provisional)(block))
		arrived := make([]time.Duration, watchers)
		var readers sync.WaitGroup
		for i, w := range streams {
			readers.Go(func() {
				for e := w.next(b); !strings.Contains(e.data, wanted) && e.name != ""; e = w.next(b) {
				}
				arrived[i] = time.Since(end)
			})
		}
		readers.Wait()
		took = append(took, slices.Max(arrived))
	}
	slices.Sort(took)
	return took
}

// BenchmarkFreshness measures the time from the last block of a window, in memory, to the event
// with all of it, at a watcher behind a socket. Earlier blocks of 16 cells arrive over 50 ms.
func BenchmarkFreshness(b *testing.B) {
	for _, producers := range []int{1, 10, 500} {
		b.Run(fmt.Sprintf("producers=%d", producers), func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				took = freshness(b, producers, 200)
			}
			b.ReportMetric(0, "ns/op")
			for name, d := range map[string]time.Duration{"ms-p50": took[len(took)/2], "ms-p99": took[len(took)*99/100]} {
				b.ReportMetric(d.Seconds()*1e3, name)
			}
		})
	}
}

// freshness returns how long windows take to reach a watcher after their last block, ascending.
func freshness(b *testing.B, producers, windows int) (took []time.Duration) {
	b.Helper()
	s := newServed(b, 16, nil)
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.memory.Run(ctx) })
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	w := open(b, listen(b, s)+"/api/v1/watch?signal=max_delay&heartbeat=60s")
	for w.next(b).name != "synced" {
	}
	for second := range windows {
		start := begin.Add(time.Duration(second) * time.Second)
		var last time.Time
		for producer := range producers {
			block := tabletest.Block(rand.New(rand.NewPCG(uint64(producer), uint64(second))), uint64(producer), start, 16, csig.MaxDelay)
			if producer%10 == 9 {
				time.Sleep(50 * time.Millisecond * 10 / time.Duration(producers))
			}
			last = time.Now()
			s.writeBlock(b, block)
		}
		for {
			e := decode[wire.WindowEvent](b, w.next(b), "window")
			if e.WindowStart.AsTime().Equal(start) && e.CompletenessRatio == 1 {
				break
			}
		}
		if second > 0 { // the first window cannot be timed
			took = append(took, time.Since(last))
		}
	}
	slices.Sort(took)
	return took
}
