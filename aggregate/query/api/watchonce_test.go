package api_test

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/csigscope/csigscope/aggregate/query/api"
)

// written is a writer that records its writes.
type written struct {
	header  http.Header
	flushed func()

	mu     sync.Mutex
	writes [][]byte
}

func (w *written) Header() http.Header { return w.header }
func (w *written) WriteHeader(int)     {}
func (w *written) Flush()              { w.flushed() }

// Write implements io.Writer.
func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = append(w.writes, b)
	return len(b), nil
}

// TestEventsAreMadeOnce: watchers of the same cells in the same encoding get the same bytes, of
// which there is one copy, in one write.
func TestEventsAreMadeOnce(t *testing.T) {
	const watchers, windows = 20, 3
	for name, how := range map[string]struct{ parameters, accept string }{
		"json": {"", ""}, "gzip": {"", "gzip"}, "frames": {"&encoding=frames", "gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServed(t, 64, nil)
			s.window(t, 0)
			ctx, end := context.WithCancel(t.Context())
			var running, told sync.WaitGroup
			told.Add(3 * watchers) // the start, the snapshot, and synced
			list := make([]*written, watchers)
			for i := range list {
				list[i] = &written{header: http.Header{}, flushed: func() { told.Done() }}
				r := httptest.NewRequestWithContext(ctx, "GET", "/api/v1/watch?heartbeat=60s"+how.parameters, nil)
				r.Header.Set("Accept-Encoding", how.accept)
				running.Go(func() { s.ServeHTTP(list[i], r) })
			}
			told.Wait()
			for second := range windows {
				told.Add(watchers)
				s.window(t, 1+second)
				told.Wait()
			}
			if name == "gzip" {
				told.Add(watchers) // the end of the stream
			}
			end()
			running.Wait()
			first := list[0].writes
			for i, w := range list {
				want := 3 + windows
				if name == "gzip" {
					want++
				}
				if len(w.writes) != want {
					t.Fatalf("watcher %d was sent %d events in %d writes", i, 3+windows, len(w.writes))
				}
				for _, n := range []int{1, 3, 4, 5} { // each watcher has its own synced
					if &w.writes[n][0] != &first[n][0] {
						t.Errorf("event %d was made for watcher %d again", n, i)
					}
				}
			}
		})
	}
}

// TestWatchPacked: clients with and without gzip get the same data, at once, and the stream ends
// correctly.
func TestWatchPacked(t *testing.T) {
	s := newServed(t, 256, nil)
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer end()
	s.window(t, 0)
	url := listen(t, s) + "/api/v1/watch?heartbeat=60s"
	plain, unpacked := open(t, url, "Accept-Encoding", "identity"), open(t, url) // Go's client asks for gzip, and unpacks
	packed, err := gzip.NewReader(openBody(t, url, "Accept-Encoding", "gzip"))
	if err != nil {
		t.Fatal(err)
	}
	raw := newStream(packed)
	for second, name := range []string{"snapshot", "synced", "window", "window", "window"} {
		if second > 1 {
			s.window(t, second-1)
		}
		want := plain.next(t)
		if want.name != name || len(want.data) < 10 {
			t.Fatalf("event %d is %+.100v", second, want)
		}
		if unpacked.next(t) != want || raw.next(t) != want {
			t.Errorf("%s of a packed stream is another one", name)
		}
	}
	end()
	if rest, err := io.ReadAll(raw.lines); err != nil || len(rest) > 0 {
		t.Errorf("after the last event %d bytes, %v", len(rest), err)
	}
	w := s.get(t, "/api/v1/health", "Accept-Encoding", "gzip")
	if w.Header().Get("Content-Encoding") != "" {
		t.Error("an answer that is not packed says it is")
	}
}

// TestOneTooMany: a watcher beyond the limit is refused with Retry-After.
func TestOneTooMany(t *testing.T) {
	s := newServed(t, 9, func(c *api.Config) { c.Watchers = 2 })
	s.window(t, 0)
	url := listen(t, s) + "/api/v1/watch?heartbeat=60s"
	for range 2 {
		open(t, url).next(t)
	}
	if w := s.get(t, "/api/v1/watch"); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("the third of two watchers: %d %s", w.Code, w.Body)
	}
}
