package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/model"
)

// event is what a stream sent.
type event struct{ name, id, data string }

// stream reads events.
type stream struct{ lines *bufio.Reader }

func (s *stream) next(t testing.TB) (e event) {
	t.Helper()
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			t.Errorf("read event after %+.100v: %v", e, err)
			return e
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && e.name != "":
			return e
		case name == "event":
			e.name = value
		case name == "id":
			e.id = value
		case name == "data":
			e.data = value
		}
	}
}

func decode[T any](t testing.TB, e event, name string) T {
	t.Helper()
	var v T
	if e.name != name {
		t.Errorf("event %s, want %s", e.name, name)
		return v
	}
	if err := json.Unmarshal([]byte(e.data), &v); err != nil {
		t.Errorf("decode %s: %v", name, err)
	}
	return v
}

func open(t testing.TB, url string, header ...string) *stream {
	t.Helper()
	return newStream(openBody(t, url, header...))
}

func newStream(from io.Reader) *stream { return &stream{bufio.NewReaderSize(from, 1<<16)} }

// openBody is a stream as it travels.
func openBody(t testing.TB, url string, header ...string) io.Reader {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d of type %s", response.StatusCode, response.Header.Get("Content-Type"))
	}
	return response.Body
}

func listen(t testing.TB, s *served) string {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server.URL
}

// TestWatch follows a stream from its snapshot on, and resumes it.
func TestWatch(t *testing.T) {
	s := newServed(t, 9, nil)
	url := listen(t, s) + "/api/v1/watch?signal=max_delay&src=rack1"
	s.window(t, 0)
	w := open(t, url)
	snapshot := decode[model.Cells](t, w.next(t), model.EventSnapshot)
	synced := w.next(t)
	if decode[model.Synced](t, synced, model.EventSynced); len(snapshot.Values) != 3 || synced.id != snapshot.Revision {
		t.Errorf("snapshot of %d cells at %s, synced at %s", len(snapshot.Values), snapshot.Revision, synced.id)
	}
	s.window(t, 1)
	e := w.next(t)
	change := decode[model.WindowEvent](t, e, model.EventWindow)
	if change.Late || len(change.Values) != 3 || !change.Start.Equal(begin.Add(time.Second)) || e.id != "0000000000000007-2" || change.Completeness != 1 {
		t.Errorf("window %+v with id %s", change, e.id)
	}
	s.window(t, 0)
	if change = decode[model.WindowEvent](t, w.next(t), model.EventWindow); !change.Late || !change.Start.Equal(begin) {
		t.Errorf("late block: %+v", change)
	}
	again := open(t, url, "Last-Event-ID", e.id)
	if got := again.next(t); got.name != model.EventWindow || got.id != "0000000000000007-3" {
		t.Errorf("resumed with %+.200v", got)
	}
	other := open(t, url+"&after=0000000000000001-3")
	if gap := decode[model.Gap](t, other.next(t), model.EventGap); gap.Reason != "restarted" {
		t.Errorf("gap %+v", gap)
	}
	if got := other.next(t); got.name != model.EventSnapshot {
		t.Errorf("after a gap %s", got.name)
	}
	beats := open(t, url+"&after=0000000000000007-3&heartbeat=1s")
	if beat := decode[model.Heartbeat](t, beats.next(t), model.EventHeartbeat); beat.Revision != "0000000000000007-3" || beat.AgeSeconds == nil {
		t.Errorf("heartbeat %+v", beat)
	}
}

// TestSlowWatcher: who does not read is told so later, and holds up nobody.
func TestSlowWatcher(t *testing.T) {
	s := newServed(t, 1024, func(c *api.Config) { c.MaxLag = 3 })
	server := httptest.NewUnstartedServer(s)
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(1 << 14)
		}
		return ctx
	}
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	s.window(t, 0)
	address := server.Listener.Addr().String()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(1 << 14); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /api/v1/watch HTTP/1.0\r\nHost: %s\r\n\r\n", address)
	lines := bufio.NewReaderSize(conn, 1<<12)
	if status, err := lines.ReadString('\n'); err != nil || !strings.Contains(status, "200") {
		t.Fatalf("status %q, %v", status, err)
	}
	var took []time.Duration
	for second := 1; second < 14; second++ {
		begin := time.Now()
		s.window(t, second) // as the aggregator does it, and what Run does behind
		took = append(took, time.Since(begin))
	}
	t.Logf("windows closed within %s beside a watcher that does not read", slices.Max(took))
	// From some window on each would wait for the watcher; a busy machine delays one now and then.
	if last := slices.Min(took[len(took)-5:]); last > 2*time.Second {
		t.Errorf("closing a window took %s", last)
	}
	slow := &stream{lines}
	for range 8 {
		e := slow.next(t)
		if e.name != model.EventLagging {
			continue
		}
		if gap := decode[model.Gap](t, e, model.EventLagging); gap.Missed < 4 {
			t.Errorf("lagging %+v", gap)
		}
		snapshot := decode[model.Cells](t, slow.next(t), model.EventSnapshot)
		if snapshot.Revision != "0000000000000007-14" || len(snapshot.Values) != 1024 {
			t.Errorf("snapshot of %d cells at %s", len(snapshot.Values), snapshot.Revision)
		}
		return
	}
	t.Error("a slow watcher was not told")
}

// TestWatchersApart: watchers of different cells are told of their own, and those of the same
// cells the same, also where names look alike when they are written side by side.
func TestWatchersApart(t *testing.T) {
	s := newServed(t, 25, nil)
	url := listen(t, s) + "/api/v1/watch?"
	s.window(t, 0)
	questions := []string{"", "src=rack1", "src=rack1&src=rack2", "dst=rack1&dst=rack2", "src=rack1&signal=max_delay", "src=rack1&level=device", "src=rack1"}
	var streams []*stream
	for _, q := range questions {
		w := open(t, url+q)
		w.next(t)
		w.next(t)
		streams = append(streams, w)
	}
	s.window(t, 1)
	events := make([]event, len(streams))
	for i, w := range streams {
		events[i] = w.next(t)
		change := decode[model.WindowEvent](t, events[i], model.EventWindow)
		want := s.get(t, "/api/v1/cells?"+questions[i])
		if page := read[model.Cells](t, want); page.Signal != change.Signal || len(page.Values) != len(change.Values) {
			t.Errorf("%q: %d cells of %s, want %d of %s", questions[i], len(change.Values), change.Signal, len(page.Values), page.Signal)
		}
	}
	for i := range events {
		for j := range i {
			if same := events[i] == events[j]; same != (questions[i] == questions[j]) {
				t.Errorf("%q and %q are told the same: %v", questions[i], questions[j], same)
			}
		}
	}
}
