package remote

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/ingest/wire"
)

// TestOutage: items exported while no collector runs wait on disk over restarts of the
// exporter, and are counted once afterwards.
func TestOutage(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	client := clientConfig(t, "http://"+address)
	client.Logger = nil
	var blocks []*aggregate.Block
	for life := range 3 {
		c := startClient(t, client)
		for i := range 10 {
			b := testBlock(newRand(t, uint64(100*life+i)), time.Now(), 50)
			blocks = append(blocks, b)
			if err := c.stream(t, "eth0").WriteBlock(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		c.stop()
		if s := c.Stats(); s.Waiting != uint64(10*life+10) {
			t.Errorf("life %d: %+v", life, s)
		}
	}
	l := newLedger()
	startCollector(t, testConfig(t), l, address)
	c := startClient(t, client)
	c.flush(t)
	if got, want := l.totals()[Producer("tester", "eth0")], totalsOf(blocks...); got != want || l.changed {
		t.Errorf("%+v, want %+v", got, want)
	}
	if len(l.runs) != 3 {
		t.Errorf("%d lives, want 3", len(l.runs))
	}
}

// TestRawCodecCopies: the library pools encoded requests and writes others into them, and the
// sender reuses its body, so the two must not share memory.
func TestRawCodecCopies(t *testing.T) {
	const text = "a request"
	body := []byte(text)
	alone, err := rawCodec{}.Marshal(&rawRequest{body})
	if err != nil {
		t.Fatal(err)
	}
	appended, err := rawCodec{}.MarshalAppend(make([]byte, 0, 64), &rawRequest{body})
	if err != nil {
		t.Fatal(err)
	}
	clear(body)
	if string(alone) != text || string(appended) != text {
		t.Errorf("%q and %q, want %q", alone, appended, text)
	}
	if _, err := (rawCodec{}).Marshal(body); err == nil {
		t.Error("a foreign type was encoded")
	}
}

// TestBalancer: requests go to three collectors in turn, and some answers are lost. Everything
// is counted once, although no collector knows the others.
func TestBalancer(t *testing.T) {
	l := newLedger()
	var backends []*httputil.ReverseProxy
	for range 3 {
		cfg := testConfig(t)
		cfg.Logger = nil
		u, err := url.Parse(startCollector(t, cfg, l, "").url)
		if err != nil {
			t.Fatal(err)
		}
		backends = append(backends, httputil.NewSingleHostReverseProxy(u))
	}
	rng := newRand(t, 1)
	var mu sync.Mutex
	balancer := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		backend, lost := backends[rng.IntN(3)], rng.IntN(4) == 0
		mu.Unlock()
		if lost {
			backend.ServeHTTP(&lostAnswer{http.Header{}}, r)
			http.Error(w, "lost", http.StatusBadGateway)
			return
		}
		backend.ServeHTTP(w, r)
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = balancer.Serve(ln) }()
	defer balancer.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	client := clientConfig(t, "http://"+ln.Addr().String())
	client.Logger = nil
	c := startClient(t, client)
	var blocks []*aggregate.Block
	for i := range 30 {
		b := testBlock(newRand(t, uint64(i)), time.Now(), 30)
		blocks = append(blocks, b)
		if err := c.stream(t, "eth0").WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		c.flush(t)
	}
	if got, want := l.totals()[Producer("tester", "eth0")], totalsOf(blocks...); got != want || l.changed {
		t.Errorf("%+v, want %+v", got, want)
	}
	if c.Stats().Failures == 0 || l.blocks <= len(blocks) {
		t.Errorf("%d failures, %d blocks written: the test shows nothing", c.Stats().Failures, l.blocks)
	}
	c.stop()
}

type lostAnswer struct{ header http.Header }

func (l *lostAnswer) Header() http.Header         { return l.header }
func (l *lostAnswer) Write(p []byte) (int, error) { return len(p), nil }
func (l *lostAnswer) WriteHeader(int)             {}

// TestFailover: the next collector takes over, and the log says so.
func TestFailover(t *testing.T) {
	l := newLedger()
	first := startCollector(t, testConfig(t), l, "")
	second := startCollector(t, testConfig(t), l, "")
	client, log := clientConfig(t, first.url, second.url), &logBuffer{}
	client.Logger = log.logger()
	c := startClient(t, client)
	hand := func(n uint64) {
		if err := c.stream(t, "eth0").WriteBlock(t.Context(), testBlock(newRand(t, n), time.Now(), 10)); err != nil {
			t.Fatal(err)
		}
		c.flush(t)
	}
	hand(1)
	first.stop()
	hand(2)
	if s := c.Stats(); s.Collector != second.url || s.Stored != 2 {
		t.Errorf("%+v, want two stored, at %s in the end", s, second.url)
	}
	c.stop()
	if text, want := log.String(), fmt.Sprintf("\"sending to another collector\" collector=%s instead_of=%s", second.url, first.url); !strings.Contains(text, want) || strings.Contains(text, "answers again") {
		t.Errorf("%s\nwant %s", text, want)
	}
}

// TestLastCollectorIsLogged: the last line about collectors names the one that windows go to, even if
// the failure before it was not logged, or collectors take turns.
func TestLastCollectorIsLogged(t *testing.T) {
	cfg, log, now := clientConfig(t, "http://127.0.0.1:1", "http://127.0.0.1:2"), &logBuffer{}, time.Unix(1e9, 0)
	cfg.Logger, cfg.Now = log.logger(), func() time.Time { return now }
	c, err := OpenClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	logged := 0
	for i, step := range []struct {
		after  time.Duration
		fails  bool
		logged string // of a push that succeeds
	}{
		{0, false, ""},
		{0, true, "collector=http://127.0.0.1:2 instead_of=http://127.0.0.1:1"},
		{30 * time.Second, true, "collector=http://127.0.0.1:1 instead_of=http://127.0.0.1:2"},
		{time.Second, true, ""},
		{time.Second, false, ""},
		{sayEvery, false, "collector=http://127.0.0.1:2 instead_of=http://127.0.0.1:1"},
		{time.Hour, false, ""},
	} {
		now = now.Add(step.after)
		if step.fails {
			c.fail(errSink)
		}
		before := log.String()
		c.recovered()
		text := strings.TrimPrefix(log.String(), before)
		if !strings.Contains(text, step.logged) || (text == "") != (step.logged == "") {
			t.Errorf("step %d: %q, want %q", i, text, step.logged)
		}
		logged += strings.Count(text, "\n")
	}
	if logged != 3 {
		t.Errorf("%d lines, want 3", logged)
	}
}

// TestSinkFails: only durable items are acknowledged.
func TestSinkFails(t *testing.T) {
	l := newLedger()
	cfg := testConfig(t)
	cfg.Logger = nil
	s := startCollector(t, cfg, l, "")
	l.fails = errSink
	client := clientConfig(t, s.url)
	client.Logger = nil
	c := startClient(t, client)
	b := testBlock(newRand(t, 1), time.Now(), 10)
	if err := c.stream(t, "eth0").WriteBlock(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for c.Stats().Failures < 2 {
		time.Sleep(time.Millisecond)
	}
	if c.Stats().Stored != 0 || len(l.rows) != 0 || s.Stats().Total.Refused[ReasonSink] == 0 {
		t.Errorf("%+v", c.Stats())
	}
	l.mu.Lock()
	l.fails = nil
	l.mu.Unlock()
	c.flush(t)
	if got := l.totals()[Producer("tester", "eth0")]; got != totalsOf(b) {
		t.Errorf("%+v, want %+v", got, totalsOf(b))
	}
	checkConservation(t, s.Stats().Total)
}

// TestSpoolIsBounded: the oldest blocks are dropped and counted.
func TestSpoolIsBounded(t *testing.T) {
	client := clientConfig(t, "http://127.0.0.1:1")
	log := &logBuffer{}
	client.Logger, client.MaxBytes, client.FS = log.logger(), 4*recordBytes, lazyDisk{}
	c := startClient(t, client)
	const items = 3000
	for i := range items {
		if err := c.stream(t, "eth0").WriteBlock(t.Context(), testBlock(newRand(t, uint64(i)), time.Now(), 10)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := c.Stats()
	// Each drop reports a gap for lost blocks, and one for lost gaps.
	gaps := 2 * uint64(strings.Count(log.String(), "dropped its oldest windows"))
	if s.Items <= items || s.Items > items+gaps || s.Lost[lostFull] == 0 || s.Lost[lostFull]+s.Waiting != s.Items || s.SpoolBytes > client.MaxBytes {
		t.Errorf("%+v, want %d items waiting or lost beside up to %d gaps, and at most %d bytes", s, items, gaps, client.MaxBytes)
	}
	c.stop()
	size := int64(0)
	names, _ := filepath.Glob(filepath.Join(client.Dir, "*.seg"))
	for _, n := range names {
		if info, err := os.Stat(n); err == nil {
			size += info.Size()
		}
	}
	if size > client.MaxBytes {
		t.Errorf("%d bytes on disk, want at most %d", size, client.MaxBytes)
	}
}

// TestDamagedSpool: damaged records are counted, and the others are sent.
func TestDamagedSpool(t *testing.T) {
	client := clientConfig(t, "http://127.0.0.1:1")
	client.Logger = nil
	c := startClient(t, client)
	for i := range 10 {
		if err := c.stream(t, "eth0").WriteBlock(t.Context(), testBlock(newRand(t, uint64(i)), time.Now(), 10)); err != nil {
			t.Fatal(err)
		}
		if err := c.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c.stop()
	names, _ := filepath.Glob(filepath.Join(client.Dir, "*.seg"))
	data, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(names[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	l := newLedger()
	s := startCollector(t, testConfig(t), l, "")
	client.Collectors = []string{s.url}
	again := startClient(t, client)
	again.flush(t)
	if st := again.Stats(); st.Lost["damaged"] != 1 || st.Stored != 9+1 {
		t.Errorf("%+v, want 9 and a gap stored, and one lost", st)
	}
	for _, g := range l.gaps {
		if g.GetReason() != "exporter_damaged" || g.GetRows() != 10 || g.GetObservations() == 0 || g.GetResolutionNs() != 1e9 {
			t.Errorf("gap %v, want the block", g)
		}
	}
}

// TestDescriptions: the spool has blocks of several configurations from before a restart, one
// of which has lost its description.
func TestDescriptions(t *testing.T) {
	client := clientConfig(t, "http://127.0.0.1:1")
	client.Logger = nil
	c := startClient(t, client)
	large := Description{Text: strings.Repeat("large ", 1000)}
	for i := range 20000 {
		name := strings.Repeat("n", i%200) + string(rune('a'+i%26)) + time.Duration(i).String()
		large.Groups = append(large.Groups, fabric.Group{ID: fabric.GroupIDOf(name), Name: name, Level: "host"})
	}
	lost := Description{Text: "lost"}
	for _, d := range []Description{large, lost} {
		if err := c.Describe(d); err != nil {
			t.Fatal(err)
		}
	}
	for i, d := range []Description{testDescription(), large, lost} {
		b := testBlock(newRand(t, uint64(i)), time.Now(), 10)
		b.Epoch = d.Epoch()
		if err := c.stream(t, "eth0").WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	unknown := testBlock(newRand(t, 9), time.Now(), 10)
	unknown.Epoch = 12
	if err := c.stream(t, "eth0").WriteBlock(t.Context(), unknown); err == nil {
		t.Error("a block of an epoch that nobody described is taken")
	}
	c.stop()
	if err := os.Remove(c.descriptionFile(lost.toWire().GetId())); err != nil {
		t.Fatal(err)
	}
	l := newLedger()
	cfg := testConfig(t)
	cfg.Logger = nil
	s := startCollector(t, cfg, l, "")
	client.Collectors = []string{s.url}
	again := startClient(t, client)
	again.flush(t)
	if st := again.Stats(); st.Stored != 2+1 || st.Lost[lostUndescribed] != 1 || st.DescribeParts < 3 {
		t.Errorf("%+v, want 2 and a gap stored, 1 lost, a description in parts", st)
	}
	for _, g := range l.gaps {
		if g.GetReason() != "exporter_undescribed" || g.GetRows() != 10 {
			t.Errorf("gap %v, want the lost block", g)
		}
	}
	if len(l.groups) != 1+len(large.Groups) || len(l.epochs) != 2 {
		t.Errorf("%d groups, %d epochs", len(l.groups), len(l.epochs))
	}
}

// TestQuietOutage: an outage is logged at its start, then at most once a minute with the number
// of suppressed pushes, and at its end.
func TestQuietOutage(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	log, at := &logBuffer{}, newClock()
	client := clientConfig(t, "http://"+address)
	client.Logger, client.Now = log.logger(), at.now
	c := startClient(t, client)
	if err := c.stream(t, "eth0").WriteBlock(t.Context(), testBlock(newRand(t, 1), time.Now(), 10)); err != nil {
		t.Fatal(err)
	}
	said := func(text string) int { return strings.Count(log.String(), text) }
	wait(t, "some pushes fail", func() bool { return c.Stats().Failures >= 3 })
	if said("cannot send windows") != 1 || said("left_out") != 0 {
		t.Errorf("in the first minute:\n%s", log)
	}
	at.add(quietFor)
	wait(t, "it is said again", func() bool { return said("cannot send windows") == 2 })
	if said("left_out=") != 1 {
		t.Errorf("a minute later:\n%s", log)
	}
	startCollector(t, testConfig(t), newLedger(), address)
	c.flush(t)
	wait(t, "its end is said", func() bool { return said("collector answers again") == 1 })
	c.stop()
	if said("cannot send windows") != 2 || said("answers again") != 1 {
		t.Errorf("in the end:\n%s", log)
	}
}

// TestRefusedStream: the log of an exporter names the stream that a collector refuses.
func TestRefusedStream(t *testing.T) {
	log := &logBuffer{}
	cfg := clientConfig(t, "http://127.0.0.1:1")
	cfg.Logger = log.logger()
	c, err := OpenClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	items := &wire.PushRequest{
		Blocks: []*wire.Block{{Stream: "eth0/0"}, {Stream: "eth0/1"}}, Records: []*wire.Record{{Stream: "eth0/2"}},
	}
	stored := wire.Outcome_OUTCOME_STORED
	c.count(items, []wire.Outcome{stored, wire.Outcome_OUTCOME_STREAMS, stored})
	c.count(items, []wire.Outcome{stored, stored, wire.Outcome_OUTCOME_PAST})
	for _, want := range []string{"stream=eth0/1 reason=streams so_far=1", "stream=eth0/2 reason=past so_far=1"} {
		if text := log.String(); !strings.Contains(text, want) {
			t.Errorf("log %s, want %s", text, want)
		}
	}
}
