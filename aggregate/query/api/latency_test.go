package api_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/recent/recenttest"
	"github.com/csigscope/csigscope/decode/csig"
)

// What is measured is promised of a machine that does nothing else. The one that runs tests
// may be busy, and the race detector (-short) measures itself: where a test fails, the best
// that was measured is some times what is promised.

// TestManyWatchers: a closed window of 4096 cells reaches 100 watchers within 50 ms, and one
// too many is told.
func TestManyWatchers(t *testing.T) {
	for _, encoding := range []string{"frames", "json"} {
		t.Run(encoding, func(t *testing.T) { manyWatchers(t, encoding) })
	}
}

func manyWatchers(t *testing.T, encoding string) {
	const cells, watchers, windows, limit = 4096, 100, 7, 50 * time.Millisecond
	s := newServed(t, cells, func(c *api.Config) { c.Watchers = watchers })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.memory.Run(ctx) })
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	s.window(t, 0)
	url := listen(t, s) + "/api/v1/watch?encoding=" + encoding
	streams := make([]*counted, watchers)
	for i := range streams {
		streams[i] = openCounted(t, url)
		for range 3 { // the beginning, the snapshot, and synced
			streams[i].event(t)
		}
	}
	if w := s.get(t, "/api/v1/watch"); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("watcher %d: %d %s", watchers+1, w.Code, w.Body)
	}
	var took []time.Duration
	bytes := 0
	for second := 1; second <= windows; second++ {
		blocks := producersBlocks(second, cells)
		arrived := make([]time.Duration, watchers)
		var readers sync.WaitGroup
		begin := time.Now()
		for _, b := range blocks {
			if err := s.memory.WriteBlock(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		for i, w := range streams {
			readers.Go(func() {
				if n := w.event(t); i == 0 {
					bytes = n
				}
				arrived[i] = time.Since(begin)
			})
		}
		readers.Wait()
		took = append(took, slices.Max(arrived))
	}
	if least := cells * 20; bytes < least {
		t.Errorf("an event of %d bytes, want %d at least", bytes, least)
	}
	slices.Sort(took)
	t.Logf("a closed window of %d cells (%d kB) reached the last of %d watchers in %s at best, %s (median), %s (worst of %d)",
		cells, bytes/1000, watchers, took[0], took[windows/2], took[windows-1], windows)
	if !testing.Short() && encoding == "frames" && took[0] > 4*limit {
		t.Errorf("%s at best, want %s", took[0], limit)
	}
}

// producersBlocks are what two producers tell of a window.
func producersBlocks(second, cells int) (list []*aggregate.Block) {
	for producer := range uint64(2) {
		rng := rand.New(rand.NewPCG(producer, uint64(second)))
		list = append(list, recenttest.Block(rng, producer, begin.Add(time.Duration(second)*time.Second), cells, csig.MinABW, csig.MinABWRatio, csig.MaxDelay))
	}
	return list
}

// counted is a stream whose events are taken in and not looked at.
type counted struct {
	body   io.Reader
	buffer []byte
	held   int // bytes of the buffer that are of the next event
}

func openCounted(t *testing.T, url string) *counted {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return &counted{body: response.Body, buffer: make([]byte, 64<<10)}
}

// event reads to the end of an event, and gives its length.
func (c *counted) event(t *testing.T) (length int) {
	t.Helper()
	for {
		if end := bytes.Index(c.buffer[:c.held], []byte("\n\n")); end >= 0 {
			end += 2
			c.held = copy(c.buffer, c.buffer[end:c.held])
			return length + end
		}
		if c.held > 1 { // the last byte may be half of an end
			length += c.held - 1
			c.held = copy(c.buffer, c.buffer[c.held-1:c.held])
		}
		n, err := c.body.Read(c.buffer[c.held:])
		c.held += n
		if err != nil {
			t.Errorf("read event: %v", err)
			return length
		}
	}
}

// TestSnapshotLatency asks for 4096 cells while windows close: within 5 ms, also where nobody
// has asked before, so that nothing was prepared.
func TestSnapshotLatency(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector measures itself")
	}
	const limit = 5 * time.Millisecond
	cold, warm := coldLatencies(t, 20), warmLatencies(t, 300)
	at := func(list []time.Duration, share float64) time.Duration { return list[int(float64(len(list)-1)*share)] }
	t.Logf("snapshot of 4096 cells: %s median, %s at the 99th percentile; asked for the first time %s at best, %s median, %s at most",
		at(warm, 0.5), at(warm, 0.99), cold[0], at(cold, 0.5), at(cold, 1))
	if at(warm, 0.5) > limit || at(warm, 0.99) > 20*limit || cold[0] > limit {
		t.Errorf("want at most %s", limit)
	}
}

// coldLatencies are those of the first question after a window has closed, ascending.
func coldLatencies(t *testing.T, windows int) (took []time.Duration) {
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
func warmLatencies(t *testing.T, requests int) (took []time.Duration) {
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
