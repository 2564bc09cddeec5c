package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/rest/resttest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
)

// event is one event of a stream.
type event struct{ name, id, data string }

// subscription reads events.
type subscription struct {
	lines *bufio.Reader
	beats bool // return heartbeats; otherwise next skips them: a busy machine causes some
}

func (s *subscription) next(t testing.TB) (e event) {
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
		case line == "" && e.name == "heartbeat" && !s.beats:
			e = event{}
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

// decode parses the data of an event into a message.
func decode[T any, P interface {
	*T
	proto.Message
}](t testing.TB, e event, name string) P {
	t.Helper()
	v := P(new(T))
	if e.name != name {
		t.Errorf("event %s, want %s", e.name, name)
		return v
	}
	if err := resttest.Read([]byte(e.data), v); err != nil {
		t.Errorf("decode %s: %v", name, err)
	}
	return v
}

func open(t testing.TB, url string, header ...string) *subscription {
	t.Helper()
	s := newStream(openBody(t, url, header...))
	s.beats = strings.Contains(url, "heartbeat=1s")
	return s
}

func newStream(from io.Reader) *subscription {
	return &subscription{lines: bufio.NewReaderSize(from, 1<<16)}
}

// openBody returns a stream's bytes without decoding.
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
	snapshot := decode[wire.CellsResponse](t, w.next(t), "snapshot")
	synced := w.next(t)
	if decode[wire.Synced](t, synced, "synced"); len(snapshot.Cells) != 3 || synced.id != snapshot.About.Revision {
		t.Errorf("snapshot of %d cells at %s, synced at %s", len(snapshot.Cells), snapshot.About.Revision, synced.id)
	}
	s.window(t, 1)
	e := w.next(t)
	change := decode[wire.WindowEvent](t, e, "window")
	if change.Late || len(change.Cells) != 3 || !change.WindowStart.AsTime().Equal(begin.Add(time.Second)) || e.id != "0000000000000007-2" || change.CompletenessRatio != 1 {
		t.Errorf("window %+v with id %s", change, e.id)
	}
	s.window(t, 0)
	if change = decode[wire.WindowEvent](t, w.next(t), "window"); !change.Late || !change.WindowStart.AsTime().Equal(begin) {
		t.Errorf("late block: %+v", change)
	}
	again := open(t, url, "Last-Event-ID", e.id)
	if got := again.next(t); got.id != "0000000000000007-3" || !decode[wire.WindowEvent](t, got, "window").Late {
		t.Errorf("resumed with %+.200v", got)
	}
	other := open(t, url+"&after=0000000000000001-3")
	if gap := decode[wire.Gap](t, other.next(t), "gap"); gap.Reason != "restarted" {
		t.Errorf("gap %+v", gap)
	}
	if got := other.next(t); got.name != "snapshot" {
		t.Errorf("after a gap %s", got.name)
	}
	beats := open(t, url+"&after=0000000000000007-3&heartbeat=1s")
	if beat := decode[wire.Heartbeat](t, beats.next(t), "heartbeat"); beat.Revision != "0000000000000007-3" || beat.AgeS == nil {
		t.Errorf("heartbeat %+v", beat)
	}
}

// TestWatchAge: snapshots of one revision, and window events in a silence, have the age of the newest
// observations, as answers do.
func TestWatchAge(t *testing.T) {
	var after atomic.Int64 // ns since begin
	clock := func() time.Time { return begin.Add(time.Duration(after.Load())) }
	after.Store(int64(1500 * time.Millisecond))
	s := newServed(t, 9, func(c *api.Config) {
		c.Memory, c.Now = table.NewMemory(table.MemoryOptions{Epoch: 7, Log: 16, Now: clock}), clock
	})
	s.window(t, 0)
	for _, encoding := range []string{"json", "frames"} {
		var w *subscription
		for range 2 {
			after.Add(int64(5 * time.Second))
			w = open(t, listen(t, s)+"/api/v1/watch?signal=max_delay&encoding="+encoding)
			if a := decode[wire.CellsResponse](t, w.next(t), "snapshot").About; !a.GetAsOf().AsTime().Equal(clock()) || a.GetAgeS() != clock().Sub(begin).Seconds()-1 {
				t.Errorf("%s: snapshot %s", encoding, a)
			}
		}
		w.next(t) // synced
		after.Add(int64(10 * time.Second))
		s.memory.Publish()
		e := decode[wire.WindowEvent](t, w.next(t), "window")
		if want := read[wire.HealthResponse](t, s.get(t, "/api/v1/health")).GetAgeS(); e.PresentProducers != 0 || e.GetAgeS() != want || want != clock().Sub(begin).Seconds()-1 {
			t.Errorf("%s: window until %s without rows has the age %g, want %g", encoding, e.WindowEnd.AsTime(), e.GetAgeS(), want)
		}
	}
}

// TestWatchSetBack: once the clock was set back, a watch begins again, and the next windows are not
// late.
func TestWatchSetBack(t *testing.T) {
	now := begin.Add(time.Hour)
	s := newServed(t, 4, func(c *api.Config) {
		c.Memory = table.NewMemory(table.MemoryOptions{Epoch: 7, Log: 16, Now: func() time.Time { return now }})
	})
	s.window(t, 3599)
	events := open(t, listen(t, s)+"/api/v1/watch")
	decode[wire.CellsResponse](t, events.next(t), "snapshot")
	decode[wire.Synced](t, events.next(t), "synced")
	now = begin.Add(10 * time.Second)
	s.memory.Publish()
	if gap := decode[wire.Gap](t, events.next(t), "gap"); gap.Reason != "restarted" {
		t.Errorf("%v", gap)
	}
	if all := decode[wire.CellsResponse](t, events.next(t), "snapshot"); len(all.Cells) > 0 || all.About.Windows != 0 {
		t.Errorf("windows of the future: %v", all)
	}
	decode[wire.Synced](t, events.next(t), "synced")
	s.window(t, 9)
	if w := decode[wire.WindowEvent](t, events.next(t), "window"); w.Late || !w.WindowStart.AsTime().Equal(begin.Add(9*time.Second)) {
		t.Errorf("window of %s, late %t", w.WindowStart.AsTime(), w.Late)
	}
}

// TestDurable: a window is announced before it is on disk. An event without cells, and answers of
// the same revision, report when it is.
func TestDurable(t *testing.T) {
	s := newServed(t, 9, nil)
	url := listen(t, s) + "/api/v1/watch?signal=max_delay"
	durable := func() []bool {
		cells, timeline := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?windows=2")), read[wire.TimelineResponse](t, s.get(t, "/api/v1/timeline"))
		list := []bool{cells.About.Durable, timeline.About.Durable}
		for _, m := range timeline.Timeline {
			list = append(list, m.Durable)
		}
		return list
	}
	s.window(t, 0)
	w := open(t, url)
	if snapshot := decode[wire.CellsResponse](t, w.next(t), "snapshot"); snapshot.About.Durable {
		t.Error("a snapshot is durable before a Sync")
	}
	w.next(t)
	syncing, release, synced := make(chan bool), make(chan bool), make(chan error)
	go func() {
		synced <- s.memory.Sync(t.Context(), func(context.Context) error {
			syncing <- true
			<-release
			return nil
		})
	}()
	<-syncing
	s.window(t, 1)
	if change := decode[wire.WindowEvent](t, w.next(t), "window"); change.Durable {
		t.Error("a window is durable before a Sync")
	}
	if got := durable(); !slices.Equal(got, []bool{false, false, false, false}) {
		t.Errorf("while the log is slow: durable %v", got)
	}
	close(release)
	if err := <-synced; err != nil {
		t.Fatal(err)
	}
	e := w.next(t)
	if told := decode[wire.Durable](t, e, "durable"); e.id != "" || len(told.WindowStarts) != 1 || !told.WindowStarts[0].AsTime().Equal(begin) {
		t.Errorf("told %s with id %q", e.data, e.id)
	}
	if got := durable(); !slices.Equal(got, []bool{false, false, true, false}) {
		t.Errorf("after the log has the first window: durable %v", got)
	}
	if err := s.memory.Sync(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if told := decode[wire.Durable](t, w.next(t), "durable"); len(told.WindowStarts) != 1 || !told.WindowStarts[0].AsTime().Equal(begin.Add(time.Second)) {
		t.Errorf("told %+v", told)
	}
	if got := durable(); !slices.Equal(got, []bool{true, true, true, true}) {
		t.Errorf("after the log has both: durable %v", got)
	}
	if snapshot := decode[wire.CellsResponse](t, open(t, url).next(t), "snapshot"); !snapshot.About.Durable || snapshot.About.Revision != "0000000000000007-2" {
		t.Errorf("a later snapshot of %s is durable: %v", snapshot.About.Revision, snapshot.About.Durable)
	}
	resumed := open(t, url, "Last-Event-ID", "0000000000000007-1")
	if change := decode[wire.WindowEvent](t, resumed.next(t), "window"); change.Durable {
		t.Error("a revision is announced again in another way")
	}
	if told := decode[wire.Durable](t, resumed.next(t), "durable"); len(told.WindowStarts) != 2 {
		t.Errorf("after it resumed: told %+v", told)
	}
}

// TestSlowWatcher: a watcher that does not read is notified later, and delays no other.
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
		s.window(t, second) // as the aggregator does, and Run after it
		took = append(took, time.Since(begin))
	}
	t.Logf("windows closed within %s beside a watcher that does not read", slices.Max(took))
	// If windows waited for the watcher, all would after some time; a busy machine delays only
	// some.
	if last := slices.Min(took[len(took)-5:]); last > 2*time.Second {
		t.Errorf("closing a window took %s", last)
	}
	slow := &subscription{lines: lines}
	for range 8 {
		e := slow.next(t)
		if e.name != "lagging" {
			continue
		}
		if gap := decode[wire.Gap](t, e, "lagging"); gap.MissedRevisions < 4 {
			t.Errorf("lagging %+v", gap)
		}
		snapshot := decode[wire.CellsResponse](t, slow.next(t), "snapshot")
		if snapshot.About.Revision != "0000000000000007-14" || len(snapshot.Cells) != 1024 {
			t.Errorf("snapshot of %d cells at %s", len(snapshot.Cells), snapshot.About.Revision)
		}
		return
	}
	t.Error("a slow watcher was not told")
}

// TestWatchersApart: watchers of different cells get their own events, and those of the same
// cells the same ones, even if names look alike when concatenated.
func TestWatchersApart(t *testing.T) {
	s := newServed(t, 25, nil)
	url := listen(t, s) + "/api/v1/watch?"
	s.window(t, 0)
	questions := []string{"", "src=rack1", "src=rack1&src=rack2", "dst=rack1&dst=rack2", "src=rack1&signal=max_delay", "src=rack1&level=device", "src=rack1"}
	var streams []*subscription
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
		change := decode[wire.WindowEvent](t, events[i], "window")
		want := s.get(t, "/api/v1/cells?"+questions[i])
		if page := read[wire.CellsResponse](t, want); page.About.Signal != change.Signal || len(page.Cells) != len(change.Cells) {
			t.Errorf("%q: %d cells of %s, want %d of %s", questions[i], len(change.Cells), change.Signal, len(page.Cells), page.About.Signal)
		}
	}
	for i := range events {
		for j := range i {
			if same := events[i] == events[j]; same != (questions[i] == questions[j]) {
				t.Errorf("%q and %q have the same events: %v", questions[i], questions[j], same)
			}
		}
	}
}
