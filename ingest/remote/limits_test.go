package remote

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
	"github.com/csigscope/csigscope/ingest/wire"
)

func TestRates(t *testing.T) {
	for name, tc := range map[string]struct {
		limits Limits
		reason Reason
	}{ // by the key of the limit
		"requests": {Limits{RequestRate: 0.5, Burst: 2, ByteRate: 1e9, RowRate: 1e6}, ReasonRequestRate},
		"bytes":    {Limits{ByteRate: 2000, MaxMessage: 2000, Burst: 1, RowRate: 1e6}, ReasonByteRate},
		"rows":     {Limits{RowRate: maxRows, Burst: 1}, ReasonRowRate},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, clock := testConfig(t), newClock()
			cfg.Limits, cfg.Now, cfg.Logger = tc.limits, clock.now, nil
			l := newLedger()
			s := startCollector(t, cfg, l, "")
			var refused error
			for n := range uint64(30) {
				m := validRequest(t, n+1)
				if tc.reason == ReasonRowRate {
					m.Blocks[0].Signal = make([]byte, maxRows/20) // its rows are charged whatever their content
				}
				if _, err := pushTo(t, s, m); err != nil {
					refused = err
				}
			}
			wait, poison := judge(refused)
			if connect.CodeOf(refused) != connect.CodeResourceExhausted || poison || wait < firstPause || s.Stats().Total.Refused[tc.reason] == 0 ||
				!strings.Contains(refused.Error(), "the rate of this exporter ("+name+" in collect.ingest)") {
				t.Errorf("%v, wait %s, %+v, want %s", refused, wait, s.Stats().Total.Refused, tc.reason)
			}
			clock.add(time.Minute)
			if _, err := pushTo(t, s, validRequest(t, 100)); err != nil {
				t.Errorf("a minute later: %v", err)
			}
		})
	}
}

// TestRefusedNamesAreNotKept: names beyond an exporter's rate take no shared memory, however
// often they are sent, and are accepted when the rate allows it again.
func TestRefusedNamesAreNotKept(t *testing.T) {
	cfg, clock := testConfig(t), newClock()
	cfg.Limits, cfg.Now, cfg.Logger = Limits{MaxNames: 3600}, clock.now, nil
	l := newLedger()
	s := startCollector(t, cfg, l, "")
	describe := func(from, n int) error {
		m := &wire.Description{}
		for i := from; i < from+n; i++ {
			l := fabric.Location{Name: "leaf1:" + strconv.Itoa(i), Kind: fabric.KindPort}
			l.ID = fabric.LocationIDOf(l.Kind, l.Name)
			l.Set, l.DeviceLoc, l.StageLoc = l.ID, l.ID, l.ID
			m.Locations = append(m.Locations, locationToWire(&l))
		}
		_, err := pushTo(t, s, &wire.PushRequest{Descriptions: []*wire.Description{m}})
		return err
	}
	if err := describe(0, maxMessageNames); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := describe(maxMessageNames+i, 2); connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%v, want refused", err)
		}
	}
	s.names.mu.Lock()
	kept := len(s.names.names.entries)
	s.names.mu.Unlock()
	if kept != maxMessageNames || s.Stats().Total.Refused[ReasonNames] != 3 {
		t.Errorf("%d names kept, want %d; %+v", kept, maxMessageNames, s.Stats().Total.Refused)
	}
	clock.add(2 * time.Second)
	if err := describe(maxMessageNames, 2); err != nil || len(l.locations) != maxMessageNames+2 {
		t.Errorf("%v, %d locations", err, len(l.locations))
	}
}

// TestTextsAreLimited: the texts of configurations count as names, since the collector writes its own after each.
func TestTextsAreLimited(t *testing.T) {
	cfg, clock := testConfig(t), newClock()
	cfg.Limits, cfg.Now, cfg.Logger = Limits{MaxNames: 3600}, clock.now, nil
	s := startCollector(t, cfg, newLedger(), "")
	describe := func(i int) error {
		m := (&Description{Text: "configuration " + strconv.Itoa(i)}).toWire()
		_, err := pushTo(t, s, &wire.PushRequest{Descriptions: []*wire.Description{m}})
		return err
	}
	for i := range maxMessageNames / textNames {
		if err := describe(i); err != nil {
			t.Fatalf("text %d: %v", i, err)
		}
	}
	if err := describe(-1); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("%v, want refused", err)
	}
	clock.add(textNames * time.Second)
	if err := describe(-1); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}

// TestBuffered: running requests of all exporters hold a bounded number of bytes.
func TestBuffered(t *testing.T) {
	cfg := testConfig(t)
	cfg.Logger, cfg.Limits = nil, Limits{MaxMessage: 1 << 16, MaxBuffered: 1 << 17}
	s := startCollector(t, cfg, newLedger(), "")
	s.buffered.Add(1 << 17)
	if _, err := pushTo(t, s, validRequest(t, 1)); connect.CodeOf(err) != connect.CodeResourceExhausted || s.Stats().Total.Refused[ReasonBuffered] != 1 {
		t.Errorf("%v, %+v, want refused", err, s.Stats().Total.Refused)
	}
	s.buffered.Add(-1 << 17)
	if _, err := pushTo(t, s, validRequest(t, 1)); err != nil || s.buffered.Load() != 0 {
		t.Errorf("%v, %d bytes under way", err, s.buffered.Load())
	}
}

// TestBuffersAreHeld: a request holds all memory of its body, also of a buffer that an earlier one left.
func TestBuffersAreHeld(t *testing.T) {
	const message = 1 << 16
	for _, tc := range []struct{ earlier, most, length int }{
		{message, 100, 100},
		{message, message/2 - bodyRoom, message/2 - bodyRoom}, // in use again
		{100, message, message},
		{message, message, 100}, // of unknown length
		{message, message, 0},
		{message, message, message},
	} {
		cfg := testConfig(t)
		cfg.Limits = Limits{MaxMessage: message, MaxInFlight: 2}
		s, err := NewServer(cfg, newLedger(), newLedger())
		if err != nil {
			t.Fatal(err)
		}
		c := &call{exporter: newExporter("tester", &s.limits)}
		s.reuse(bytes.NewBuffer(make([]byte, 0, tc.earlier)))
		if _, ok := s.hold(c, requestBytes+int64(tc.most)); !ok {
			t.Fatal("no room")
		}
		body := s.buffer(c, tc.most)
		size := body.Cap()
		if _, err := body.ReadFrom(bytes.NewReader(make([]byte, tc.length))); err != nil || body.Cap() != size || heldBy(body) > c.bytes {
			t.Errorf("%+v: %v, a buffer of %d bytes, first %d, %d held", tc, err, body.Cap(), size, c.bytes)
		}
		if body = s.fit(c, body); body.Len() != tc.length || body.Cap() > 2*(tc.length+bodyRoom) || heldBy(body) != c.bytes || s.buffered.Load() != c.bytes {
			t.Errorf("%+v: %d bytes in a buffer of %d, %d held", tc, body.Len(), body.Cap(), c.bytes)
		}
	}
}

// TestInFlight: an exporter whose requests hold too many bytes is held back, and others are not.
func TestInFlight(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens")
	edgetest.WriteTokens(t, file, edgetest.TokenLine("flood", "", "a", ""), edgetest.TokenLine("calm", "", "b", ""))
	cfg := testConfig(t)
	const message = requestBytes
	cfg.Auth, cfg.Logger, cfg.Limits = edge.Auth{Clients: file}, nil, Limits{MaxInFlight: 2, MaxMessage: message}
	l := newLedger()
	l.wait = make(chan struct{})
	s := startCollector(t, cfg, l, "")
	push := func(secret string, seq uint64) error {
		r := connect.NewRequest(validRequest(t, seq))
		r.Header().Set("Authorization", "Bearer "+secret)
		_, err := wire.NewIngestServiceClient(http.DefaultClient, s.url).Push(t.Context(), r)
		return err
	}
	defer http.DefaultClient.CloseIdleConnections()
	errs := make(chan error, 11)
	for n := range uint64(10) {
		go func() { errs <- push("a", n+1) }()
	}
	for range 7 { // three of them wait for the disk, and hold most of the bytes of two messages
		if err := <-errs; connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%v, want resource exhausted", err)
		}
	}
	go func() { errs <- push("b", 1) }()
	wait(t, "all that are not refused are written", func() bool { return l.taken() == 4 })
	close(l.wait)
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := s.Stats().Total.Refused[ReasonInFlight]; n != 7 {
		t.Errorf("%d refused, want 7", n)
	}
}

// TestManyWaitForDisk: many hosts may share a credential. Requests that wait for the disk leave the exporter's only turn to
// others, and hold few bytes.
func TestManyWaitForDisk(t *testing.T) {
	cfg := testConfig(t)
	cfg.Logger, cfg.Limits = nil, Limits{MaxInFlight: 1}
	l := newLedger()
	l.wait = make(chan struct{})
	s := startCollector(t, cfg, l, "")
	const hosts = 100
	errs := make(chan error, hosts)
	for n := range uint64(hosts) {
		m := validRequest(t, n+1)
		go func() {
			_, err := pushTo(t, s, m)
			errs <- err
		}()
	}
	wait(t, "all are written", func() bool { return l.taken() == hosts })
	e := s.client("tester", &s.limits, false)
	wait(t, "all wait", func() bool { return len(e.working) == 0 })
	if n := e.held.Load(); n != hosts*(requestBytes+itemBytes+keptBytes) || s.buffered.Load() != n {
		t.Errorf("they hold %d bytes, of %d in all, want %d", n, s.buffered.Load(), hosts*(requestBytes+itemBytes+keptBytes))
	}
	close(l.wait)
	for range hosts {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	wait(t, "nothing is held", func() bool { return e.held.Load() == 0 && s.buffered.Load() == 0 })
	if st := s.Stats().Total; st.StoredItems != hosts || st.Refused != (Counts{}).Refused {
		t.Errorf("%+v, want %d stored and none refused", st, hosts)
	}
}

func TestStreamsAndExporters(t *testing.T) {
	cfg := testConfig(t)
	cfg.Logger, cfg.Limits = nil, Limits{MaxStreams: 3, MaxExporters: 2}
	s := startCollector(t, cfg, newLedger(), "")
	for i := range 5 {
		m := validRequest(t, 1)
		m.Blocks[0].Stream = fmt.Sprint("eth", i)
		want := wire.Outcome_OUTCOME_STORED
		if i >= 3 {
			want = wire.Outcome_OUTCOME_STREAMS
		}
		if got := outcomeOf(t, s, m); got != want {
			t.Errorf("stream %d: %s, want %s", i, got, want)
		}
	}
	s.mu.Lock()
	if len(s.owners) != 3 {
		t.Errorf("%d producers are remembered, want those of the streams that were taken", len(s.owners))
	}
	s.mu.Unlock()
	// Idle exporters make room; busy ones do not.
	a := s.client("a", &s.limits, false)
	if a == nil || s.client("b", &s.limits, false) == nil || s.client("c", &s.limits, false) != nil {
		t.Error("expected room for one beside the one that is at work")
	}
	a.inFlight.Add(-1)
	if s.client("c", &s.limits, false) == nil {
		t.Error("expected the silent one to give way")
	}
	if st := s.Stats(); st.Forgotten != 2 || st.Total.StoredItems != 3 || st.Gone.StoredItems != 3 || len(st.Exporters)+len(st.Removed) != 2 {
		t.Errorf("%+v, want the counts of those that were forgotten kept", st)
	}
}

// TestManyDescriptions: hosts that share a credential know different groups. The collector remembers the description of each
// stream.
func TestManyDescriptions(t *testing.T) {
	cfg := testConfig(t)
	const hosts = maxKnown + minDescribed + 1
	cfg.Logger, cfg.Limits = nil, Limits{MaxStreams: hosts, RequestRate: 1e6}
	s := startCollector(t, cfg, newLedger(), "")
	for round := range uint64(2) {
		for i := range hosts {
			d := testDescription()
			name := fmt.Sprintf("10.0.%d.0/24", i)
			d.Groups = append(d.Groups, fabric.Group{ID: fabric.GroupIDOf(name), Name: name})
			m := validRequest(t, round+1)
			m.Descriptions = nil
			if round == 0 {
				m.Descriptions = append(m.Descriptions, d.toWire())
			}
			m.Blocks[0].Stream, m.Blocks[0].Description = fmt.Sprint("host", i), d.toWire().GetId()
			if got := outcomeOf(t, s, m); got != wire.Outcome_OUTCOME_STORED {
				t.Errorf("round %d, host %d: %s", round, i, got)
			}
		}
	}
}

// TestStreamsGiveWay: at the limit, a new stream takes the place of one that has ended or is silent, and of no other. A
// late block of that one is the same rows again.
func TestStreamsGiveWay(t *testing.T) {
	cfg, clock, l := testConfig(t), newClock(), newLedger()
	cfg.Logger, cfg.Now, cfg.Limits = nil, clock.now, Limits{MaxStreams: 2}
	s := startCollector(t, cfg, l, "")
	const stored, refused = wire.Outcome_OUTCOME_STORED, wire.Outcome_OUTCOME_STREAMS
	for i, step := range []struct {
		after       time.Duration
		stream      string
		seq         uint64
		end, future bool
		want        wire.Outcome
	}{
		{stream: "eth0", seq: 1, want: stored},
		{stream: "eth9", seq: 1, future: true, want: wire.Outcome_OUTCOME_FUTURE}, // takes no place
		{stream: "eth1", seq: 1, want: stored},
		{stream: "eth2", seq: 1, want: refused},
		{stream: "eth0", end: true, want: stored},
		{stream: "eth2", seq: 1, want: stored},
		{stream: "eth0", seq: 1, want: refused},
		{stream: "eth1", end: true, want: stored},
		{stream: "eth1", seq: 2, want: stored}, // under another configuration
		{stream: "eth0", seq: 1, want: refused},
		{after: streamSilence - time.Second, stream: "eth2", seq: 2, want: stored},
		{stream: "eth0", seq: 1, want: refused},
		{after: time.Second, stream: "eth0", seq: 1, want: stored}, // instead of eth1
		{stream: "eth0", seq: 1, want: wire.Outcome_OUTCOME_REPEAT},
		{stream: "eth2", seq: 1, want: wire.Outcome_OUTCOME_REPEAT},
		{stream: "eth1", seq: 2, want: refused},
	} {
		clock.add(step.after)
		m := validRequest(t, step.seq)
		b := m.GetBlocks()[0]
		b.Stream = step.stream
		if step.future {
			b.WindowStartNs += int64(time.Hour)
		}
		if step.end {
			m.Blocks, m.Records = nil, []*wire.Record{{
				Stream: b.GetStream(), Incarnation: b.GetIncarnation(), Epoch: b.GetEpoch(), Description: b.GetDescription(),
				What: &wire.Record_End{End: &wire.End{}},
			}}
		}
		if got := outcomeOf(t, s, m); got != step.want {
			t.Errorf("step %d, %+v: %s", i, step, got)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.owners) != 2 || len(s.exporters["tester"].streams) != 2 || l.changed || l.wrong != nil {
		t.Errorf("%d producers and %d streams are remembered, want 2; %v", len(s.owners), len(s.exporters["tester"].streams), l.wrong)
	}
}

// TestBusyStreamsStay: a stream with an item at work gives way to no other.
func TestBusyStreamsStay(t *testing.T) {
	e, now := newExporter("host1", &Limits{MaxStreams: 1}), time.Now()
	busy := &item{at: blockID{producer: 1, incarnation: 1, seq: 1}}
	for _, step := range []struct {
		at       blockID
		finished bool
		gone     int
		ok       bool
	}{
		{at: busy.at, ok: true},
		{at: blockID{2, 1, 1}},
		{at: blockID{2, 1, 1}, finished: true, gone: 1, ok: true},
	} {
		if step.finished {
			e.finish(busy, true)
		}
		if o, gone := e.enter(step.at, now); len(gone) != step.gone || (o != wire.Outcome_OUTCOME_STREAMS) != step.ok {
			t.Errorf("%+v: %d gave way, %s", step, len(gone), o)
		}
		now = now.Add(streamSilence)
	}
	if e.unannounced(busy.at, 1) { // a record of it may still be at work
		t.Error("a stream that gave way is announced")
	}
}

// TestRandomKeys: one exporter sends only new keys. The rows of others are correct, its totals
// too, and memory is bounded. CSIGSCOPE_TEST_INGEST_KEYS=10000000 sets the number of keys.
func TestRandomKeys(t *testing.T) {
	keys := 200_000
	if text := os.Getenv("CSIGSCOPE_TEST_INGEST_KEYS"); text != "" {
		var err error
		if keys, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens")
	edgetest.WriteTokens(t, file, edgetest.TokenLine("flood", "", "flood", ""), edgetest.TokenLine("calm", "", "calm", ""))
	cfg := testConfig(t)
	const window = 5000
	cfg.Auth, cfg.Limits = edge.Auth{Clients: file}, Limits{MaxWindowRows: window, RowRate: 1e9, ByteRate: 1e12, RequestRate: 1e9}
	l := &sums{ledger: newLedger(), totals: map[uint64]values{}, rows: map[uint64]int{}}
	s := startCollector(t, cfg, l, "")
	clients := map[string]*exporterUnderTest{}
	for _, name := range []string{"flood", "calm"} {
		client := clientConfig(t, s.url)
		client.TokenFile, client.Exporter, client.FS = filepath.Join(dir, name), name, lazyDisk{}
		if err := os.WriteFile(client.TokenFile, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		clients[name] = startClient(t, client)
	}
	start := time.Now().Truncate(time.Second)
	want := map[string]values{}
	hand := func(name string, at time.Time, rows int) {
		b := testBlock(newRand(t, uint64(rows)+uint64(at.UnixNano())), at, rows)
		sum := want[name]
		sum.add(totalsOf(b))
		want[name] = sum
		if err := clients[name].stream(t, "eth0").WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	before := memory()
	const perWindow = 20 * window
	windows := max(1, keys/perWindow)
	most := before
	for n := range windows {
		at := start.Add(time.Duration(n-windows) * time.Second)
		hand("flood", at, perWindow)
		hand("calm", at, 100)
		clients["flood"].flush(t)
		most = max(most, liveHeap())
	}
	for _, c := range clients {
		c.flush(t)
	}
	for name, w := range want {
		if got := l.totals[Producer(name, "eth0")]; got != w {
			t.Errorf("%s: %+v, want %+v", name, got, w)
		}
	}
	if n := l.rows[Producer("calm", "eth0")]; n != windows*100 {
		t.Errorf("calm exporter has %d rows, want %d", n, windows*100)
	}
	// The parts beyond the limit are 3 overflow rows each.
	if n := l.rows[Producer("flood", "eth0")]; n > windows*(window+3*(perWindow/partRows+2)) {
		t.Errorf("%d rows of %d windows, want at most %d a window and overflow", n, windows, window)
	}
	st := s.Stats()
	for _, e := range st.Exporters {
		checkConservation(t, e.Counts)
		if e.Name == "flood" && int(e.OverflowRows) != windows*(perWindow-window) {
			t.Errorf("%d rows folded, want %d", e.OverflowRows, windows*(perWindow-window))
		}
		if e.Name == "calm" && e.OverflowRows != 0 {
			t.Errorf("%d rows of the calm exporter folded", e.OverflowRows)
		}
	}
	after := memory()
	t.Logf("%d keys, %d rows stored; heap %d MiB before, at most %d, %d after",
		windows*perWindow, l.rows[Producer("flood", "eth0")], before, most, after)
	if max(most, after) > before+64 {
		t.Errorf("heap grew from %d to %d MiB, %d after", before, most, after)
	}
}

// sums is a sink that keeps only totals, so that its memory is negligible.
type sums struct {
	*ledger
	mu     sync.Mutex
	totals map[uint64]values // by producer
	rows   map[uint64]int
}

// WriteBlock implements Sink.
func (s *sums) WriteBlock(_ context.Context, b *aggregate.Block) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.totals[b.Producer]
	t.add(totalsOf(b))
	s.totals[b.Producer] = t
	s.rows[b.Producer] += b.Len()
	return nil
}

func TestLimitsAreChecked(t *testing.T) {
	for _, l := range []Limits{
		{MaxMessage: math.MaxInt32}, {RowRate: 1}, {ByteRate: 1}, {Burst: -1}, {MaxStreams: -1}, {MaxAge: -1},
	} {
		if _, err := l.withDefaults(); err == nil {
			t.Errorf("%+v is taken", l)
		}
	}
	if _, err := (Limits{}).withDefaults(); err != nil {
		t.Error(err)
	}
}

// memory returns the live heap after a garbage collection, in MiB.
func memory() uint64 {
	runtime.GC()
	return liveHeap()
}

// liveHeap returns the live heap as of the last garbage collection, in MiB.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64() >> 20
}

// TestReasonsDocumented: the README explains each reason.
func TestReasonsDocumented(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for r := range NumReasons {
		if !strings.Contains(string(text), "`"+r.String()+"`") {
			t.Errorf("README.md has no %s", r)
		}
	}
}
