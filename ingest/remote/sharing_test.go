package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
	"github.com/csigscope/csigscope/ingest/wire"
)

// sharedBlock returns a numbered block of a producer.
func sharedBlock(t testing.TB, producer, seq uint64, at time.Time, rows int) *aggregate.Block {
	b := testBlock(newRand(t, producer<<32|seq), at, rows)
	b.Producer, b.Incarnation, b.Seq = producer, 7, seq
	return b
}

// seen is a live sink that keeps its blocks.
type seen struct {
	mu     sync.Mutex
	blocks []*aggregate.Block
}

// WriteBlock implements aggregate.Sink.
func (s *seen) WriteBlock(_ context.Context, b *aggregate.Block) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocks = append(s.blocks, b.Clone())
	return nil
}

func (s *seen) list() []*aggregate.Block {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocks
}

// tokens writes a token for each name, and returns the file of all tokens and one file for
// each.
func tokens(t testing.TB, names ...string) (all string, of map[string]string) {
	t.Helper()
	dir, of := t.TempDir(), map[string]string{}
	var lines []string
	for _, n := range names {
		of[n] = filepath.Join(dir, n)
		if err := os.WriteFile(of[n], []byte("secret-of-"+n), 0o600); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, edgetest.TokenLine(n, "", "secret-of-"+n, ""))
	}
	all = filepath.Join(dir, "all")
	edgetest.WriteTokens(t, all, lines...)
	return all, of
}

// startSharing runs a Sharing until it is stopped or the test ends.
func startSharing(t testing.TB, cfg SharingConfig) (s *Sharing, stop func()) {
	t.Helper()
	s, err := NewSharing(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(stop)
	return s, stop
}

// TestShared: a peer gets the 1 s windows of a collector in its live view only, with rows and
// identity; the last ones arrive when the collector ends.
func TestShared(t *testing.T) {
	ca := edgetest.NewAuthority(t)
	cfg, l, live := testConfig(t), newLedger(), &seen{}
	cfg.Auth, cfg.Live = edge.Auth{TLS: ca.Server()}, live
	cfg.Permits, cfg.Peers = everybody, []string{"collector1"}
	s := startCollector(t, cfg, l, "")
	sharing, stop := startSharing(t, SharingConfig{Peers: []string{s.url + "/"}, TLS: ca.Issue("collector1", time.Now().Add(time.Hour))})

	now := time.Now()
	minute := sharedBlock(t, 5, 3, now, 4)
	minute.Resolution, minute.WindowStart = int64(time.Minute), now.Truncate(time.Minute).UnixNano()
	want := []*aggregate.Block{sharedBlock(t, 5, 1, now, 4), sharedBlock(t, 6, 1, now, 1), sharedBlock(t, 5, 4, now, 2)}
	for _, b := range []*aggregate.Block{want[0], want[1], minute} {
		if err := sharing.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, "two blocks arrive", func() bool { return len(live.list()) == 2 })
	if err := sharing.WriteBlock(t.Context(), want[2]); err != nil {
		t.Fatal(err)
	}
	stop()
	got := live.list()
	if len(got) != len(want) {
		t.Fatalf("%d blocks, want %d: those of 1 s", len(got), len(want))
	}
	for i, b := range got {
		w := want[i]
		if b.Source != w.Source || b.Seq != w.Seq || b.WindowStart != w.WindowStart || b.Resolution != w.Resolution || totalsOf(b) != totalsOf(w) || b.Len() != w.Len() || len(b.Flows) != 0 {
			t.Errorf("block %d: %+v, want %+v", i, b, w)
		}
		for r := range b.Len() {
			if keyOf(b, r) != keyOf(w, r) || valuesOf(b, r) != valuesOf(w, r) {
				t.Errorf("block %d: row %d differs", i, r)
			}
		}
	}
	if len(l.written)+len(l.rows)+len(l.runs) != 0 {
		t.Errorf("stored: %d rows, %d runs", len(l.written)+len(l.rows), len(l.runs))
	}
	if st := sharing.Stats()[0]; st.Sent != 3 || st.Rows != 7 || st.Away || st.WaitingBlocks+st.WaitingBytes != 0 || len(st.Dropped) != 0 {
		t.Errorf("sender: %+v", st)
	}
	if st := s.Stats(); len(st.Peers) != 1 || st.Peers[0].Name != "collector1" || st.Peers[0].StoredItems != 3 || st.Peers[0].StoredRows != 7 || len(st.Exporters) != 0 || st.Total != (Counts{}) {
		t.Errorf("receiver: %+v", st)
	}
}

// TestSharedParts: a block that is too large for a message arrives in distinct parts without
// loss; one that fits has its own number, as if it came from its exporter.
func TestSharedParts(t *testing.T) {
	for _, rows := range []int{1, partRows + 1, 40_000} {
		b := sharedBlock(t, 5, 9, time.Now(), rows)
		whole := len(encodeShared(b)) == 1
		if whole != (rows <= partRows+1) {
			t.Errorf("%d rows: in one part %t", rows, whole)
		}
		var got []*aggregate.Block
		numbers := map[uint64]bool{}
		for _, p := range encodeShared(b) {
			m := &wire.ShareRequest{}
			if err := unmarshal(p.body, m); err != nil || len(m.GetBlocks()) != 1 || len(p.body) > defaultMaxMessage {
				t.Fatalf("%d bytes, %v", len(p.body), err)
			}
			one := m.GetBlocks()[0]
			part, err := fromWire(one.GetBlock())
			if err != nil || part.Len() != p.rows || p.end != b.WindowStart+b.Resolution {
				t.Fatalf("%+v, %v", p, err)
			}
			got = append(got, part)
			seq := partSeq(one.GetBlock().GetSeq(), one.GetPart())
			if numbers[seq] = true; seq>>aggregate.PartShift != b.Part() {
				t.Errorf("%d rows: part %d of the producer, want %d", rows, seq>>aggregate.PartShift, b.Part())
			}
		}
		if totalsOf(got...) != totalsOf(b) || len(numbers) != len(got) || !numbers[9] {
			t.Errorf("%d rows: %d parts with %d numbers, %+v, want %+v", rows, len(got), len(numbers), totalsOf(got...), totalsOf(b))
		}
	}
}

// share sends a request as a client with a token.
func share(t testing.TB, s *collector, token string, m *wire.ShareRequest) (*wire.ShareResponse, error) {
	t.Helper()
	r := connect.NewRequest(m)
	r.Header().Set("Authorization", "Bearer "+token)
	defer http.DefaultClient.CloseIdleConnections()
	answer, err := wire.NewIngestServiceClient(http.DefaultClient, s.url).Share(t.Context(), r)
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

// sharedMessage returns a request with one block that a collector accepts.
func sharedMessage(t testing.TB, seq uint64, at time.Time) *wire.ShareRequest {
	m := &wire.ShareRequest{}
	if err := unmarshal(encodePart(sharedBlock(t, 5, seq, at, 3), 0, 3, 0).body, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRoles: an exporter cannot share, a peer cannot export, other clients can do neither, and
// all refusals are counted.
func TestRoles(t *testing.T) {
	file, _ := tokens(t, "host1", "collector1", "other")
	cfg, l, live := testConfig(t), newLedger(), &seen{}
	cfg.Auth, cfg.Live, cfg.Logger = edge.Auth{Clients: file}, live, nil
	cfg.Permits, cfg.Peers = []Permit{{Name: "host*"}, {Name: "coll*"}}, []string{"collector1"}
	s := startCollector(t, cfg, l, "")
	push := func(name string) error {
		r := connect.NewRequest(validRequest(t, 1))
		r.Header().Set("Authorization", "Bearer secret-of-"+name)
		defer http.DefaultClient.CloseIdleConnections()
		_, err := wire.NewIngestServiceClient(http.DefaultClient, s.url).Push(t.Context(), r)
		return err
	}
	for _, tc := range []struct {
		name        string
		push, share connect.Code // 0: accepted
	}{
		{"host1", 0, connect.CodePermissionDenied},
		{"collector1", connect.CodePermissionDenied, 0},
		{"other", connect.CodeUnauthenticated, connect.CodeUnauthenticated},
		{"nobody", connect.CodeUnauthenticated, connect.CodeUnauthenticated},
	} {
		_, shared := share(t, s, "secret-of-"+tc.name, sharedMessage(t, 1, time.Now()))
		for what, got := range map[string]error{"push": push(tc.name), "share": shared} {
			want := map[string]connect.Code{"push": tc.push, "share": tc.share}[what]
			if (got == nil) != (want == 0) || got != nil && connect.CodeOf(got) != want {
				t.Errorf("%s: %s: %v, want %s", tc.name, what, got, want)
			}
		}
	}
	st := s.Stats()
	if len(st.Exporters) != 1 || st.Exporters[0].Refused[ReasonRole] != 1 || len(st.Peers) != 1 || st.Peers[0].Refused[ReasonRole] != 1 {
		t.Errorf("%+v", st)
	}
	if l.taken() != 1 || len(live.list()) != 1 {
		t.Errorf("%d blocks stored, %d seen; want one of each", l.taken(), len(live.list()))
	}
	// A peer removed from the list is refused.
	if err := s.Use(Admission{Permits: []Permit{{Name: "host*"}}}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := share(t, s, "secret-of-collector1", sharedMessage(t, 2, time.Now())); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a peer that is off the list: %v", err)
	}
}

// TestSharedRefused: invalid blocks are refused one by one.
func TestSharedRefused(t *testing.T) {
	clock := newClock()
	file, _ := tokens(t, "collector1")
	cfg, live := testConfig(t), &seen{}
	cfg.Auth, cfg.Peers, cfg.Live, cfg.Now, cfg.Logger = edge.Auth{Clients: file}, []string{"collector1"}, live, clock.now, nil
	s := startCollector(t, cfg, newLedger(), "")
	for name, tc := range map[string]struct {
		change func(*wire.SharedBlock)
		want   wire.Outcome
	}{
		"good":        {func(*wire.SharedBlock) {}, wire.Outcome_OUTCOME_STORED},
		"no block":    {func(b *wire.SharedBlock) { b.Block = nil }, wire.Outcome_OUTCOME_INVALID},
		"no producer": {func(b *wire.SharedBlock) { b.Producer = 0 }, wire.Outcome_OUTCOME_INVALID},
		"no life":     {func(b *wire.SharedBlock) { b.Block.Incarnation = 0 }, wire.Outcome_OUTCOME_INVALID},
		"no number":   {func(b *wire.SharedBlock) { b.Block.Seq = 0 }, wire.Outcome_OUTCOME_INVALID},
		"no rows":     {func(b *wire.SharedBlock) { b.Block = &wire.Block{Incarnation: 1, Seq: 1, ResolutionNs: 1e9} }, wire.Outcome_OUTCOME_INVALID},
		"a minute": {func(b *wire.SharedBlock) {
			b.Block.ResolutionNs, b.Block.WindowStartNs = int64(time.Minute), clock.now().Truncate(time.Minute).UnixNano()
		}, wire.Outcome_OUTCOME_INVALID},
		"ahead":        {func(b *wire.SharedBlock) { b.Block.WindowStartNs += int64(time.Hour) }, wire.Outcome_OUTCOME_FUTURE},
		"long ago":     {func(b *wire.SharedBlock) { b.Block.WindowStartNs -= int64(30 * 24 * time.Hour) }, wire.Outcome_OUTCOME_PAST},
		"no multiple":  {func(b *wire.SharedBlock) { b.Block.WindowStartNs++ }, wire.Outcome_OUTCOME_INVALID},
		"short column": {func(b *wire.SharedBlock) { b.Block.Sum = b.Block.Sum[1:] }, wire.Outcome_OUTCOME_INVALID},
		"twice": {func(b *wire.SharedBlock) {
			b.Block.SrcGroup[0], b.Block.DstGroup[0], b.Block.Location[0], b.Block.Signal[0] = keyColumns(b.Block, 1)
		}, wire.Outcome_OUTCOME_INVALID},
		"too many bytes": {func(b *wire.SharedBlock) { b.Block.Bytes[0] = 1 << 63 }, wire.Outcome_OUTCOME_IMPOSSIBLE},
	} {
		m := sharedMessage(t, 1, clock.now())
		tc.change(m.Blocks[0])
		m.Blocks = append(m.Blocks, sharedMessage(t, 2, clock.now()).Blocks...)
		before := len(live.list())
		answer, err := share(t, s, "secret-of-collector1", m)
		if err != nil || len(answer.GetOutcomes()) != 2 || answer.GetOutcomes()[0] != tc.want || answer.GetOutcomes()[1] != wire.Outcome_OUTCOME_STORED {
			t.Errorf("%s: %v, %v, want %s beside a good one", name, answer, err, tc.want)
		}
		if n := len(live.list()) - before; (n == 2) != (tc.want == wire.Outcome_OUTCOME_STORED) {
			t.Errorf("%s: %d blocks seen", name, n)
		}
	}
	checkConservation(t, s.Stats().Peers[0].Counts)
	// Without a live view, shared blocks are refused as unsupported.
	cfg.Live = nil
	blind := startCollector(t, cfg, newLedger(), "")
	if answer, err := share(t, blind, "secret-of-collector1", sharedMessage(t, 1, clock.now())); err != nil || answer.GetOutcomes()[0] != wire.Outcome_OUTCOME_UNSUPPORTED {
		t.Errorf("no live view: %v, %v", answer, err)
	}
	// A flood hits the peer's rates, and no more rows than a request's are decoded at once.
	flood := &wire.ShareRequest{Blocks: []*wire.SharedBlock{{Producer: 1, Block: &wire.Block{Signal: make([]byte, maxRows+1)}}}}
	if _, err := share(t, s, "secret-of-collector1", flood); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("too many rows: %v", err)
	}
	flood.Blocks[0].Block.Signal = make([]byte, maxRows)
	refused := error(nil)
	for range 1 + 10*peerExporters*50_000/maxRows {
		if _, err := share(t, s, "secret-of-collector1", flood); err != nil {
			refused = err
		}
	}
	if wait, _ := judge(refused); connect.CodeOf(refused) != connect.CodeResourceExhausted || wait == 0 || s.Stats().Peers[0].Refused[ReasonRowRate] == 0 {
		t.Errorf("a flood: %v", refused)
	}
}

// keyColumns returns the key columns in which test blocks differ.
func keyColumns(b *wire.Block, i int) (src, dst, location uint64, signal byte) {
	return b.SrcGroup[i], b.DstGroup[i], b.Location[i], b.Signal[i]
}

// TestSharedWaits: blocks that a peer does not accept are bounded by bytes and by age, the
// oldest are dropped first, and each drop is counted.
func TestSharedWaits(t *testing.T) {
	clock := newClock()
	size := len(encodeShared(sharedBlock(t, 5, 1, clock.now(), 3))[0].body) + 20
	s, err := NewSharing(SharingConfig{Peers: []string{"http://127.0.0.1:1", "http://127.0.0.1:2"}, MaxWaiting: 10 * size, Now: clock.now})
	if err != nil {
		t.Fatal(err)
	}
	write := func(from, to uint64) {
		for n := from; n < to; n++ {
			if err := s.WriteBlock(t.Context(), sharedBlock(t, 5, n, clock.now(), 3)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(1, 6)
	clock.add(sharedFor + 2*time.Second)
	write(6, 30)
	st := s.Stats()
	if len(st) != 2 || st[0].WaitingBytes > 10*size || st[0].WaitingBlocks < 9 || st[0].Dropped[dropFull]+uint64(st[0].WaitingBlocks) != 29 {
		t.Fatalf("%+v", st)
	}
	l := s.links[0]
	if batch := l.take(nil); len(batch) != st[0].WaitingBlocks || seqOf(t, batch[len(batch)-1]) != 29 || seqOf(t, batch[0]) != 30-uint64(len(batch)) {
		t.Errorf("%d blocks, want the last %d", len(batch), st[0].WaitingBlocks)
	}
	if st := s.Stats()[0]; st.WaitingBlocks+st.WaitingBytes != 0 {
		t.Errorf("%+v, want nothing waiting", st)
	}
	write(40, 42)
	clock.add(sharedFor + 2*time.Second)
	write(42, 43)
	if batch := l.take(nil); len(batch) != 1 || seqOf(t, batch[0]) != 42 || l.snapshot().Dropped[dropOld] != 2 || l.snapshot().WaitingBytes != 0 {
		t.Errorf("%d blocks, %+v, want the one that is not old", len(batch), l.snapshot())
	}
	// A batch that could not be sent ages too.
	write(43, 44)
	batch := l.take(nil)
	clock.add(sharedFor + 2*time.Second)
	if left := l.withoutOld(batch); len(left) != 0 || l.snapshot().Dropped[dropOld] != 3 {
		t.Errorf("%d blocks left, %+v", len(left), l.snapshot())
	}
}

func seqOf(t testing.TB, p sharedPart) uint64 {
	t.Helper()
	m := &wire.ShareRequest{}
	if err := unmarshal(p.body, m); err != nil {
		t.Fatal(err)
	}
	return m.GetBlocks()[0].GetBlock().GetSeq()
}

// TestSharedBatches: a request holds no more than a peer accepts.
func TestSharedBatches(t *testing.T) {
	s, err := NewSharing(SharingConfig{Peers: []string{"http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	small := sharedBlock(t, 5, 1, time.Now(), 1)
	for range maxItems + 10 {
		_ = s.WriteBlock(t.Context(), small)
	}
	if n := len(s.links[0].take(nil)); n != maxItems {
		t.Errorf("%d blocks in a request, want %d", n, maxItems)
	}
	s.links[0].take(nil)
	large := sharedBlock(t, 5, 2, time.Now(), 1500)
	for range 30 {
		_ = s.WriteBlock(t.Context(), large)
	}
	sent := 0
	for sent < 30 {
		batch := s.links[0].take(nil)
		size, rows := 0, 0
		for _, p := range batch {
			size, rows = size+len(p.body), rows+p.rows
		}
		if size > shareBytes || rows > maxRows || len(batch) == 0 {
			t.Fatalf("%d blocks with %d rows and %d bytes", len(batch), rows, size)
		}
		sent += len(batch)
	}
}

// TestPeersChecked: mistakes in the configuration are found when it is read.
func TestPeersChecked(t *testing.T) {
	auth := &edge.Auth{Clients: "file"}
	for _, tc := range []struct {
		a    Admission
		auth *edge.Auth
		want string
	}{
		{Admission{Peers: []string{"a", "b"}}, auth, ""},
		{Admission{Peers: []string{"a"}, Permits: []Permit{{Name: "*"}}}, auth, ""},
		{Admission{Peers: []string{"a"}, Permits: []Permit{{Name: "a"}}}, auth, "among the exporters"},
		{Admission{Peers: []string{"a", "a"}}, auth, "twice"},
		{Admission{Peers: []string{"\x01"}}, auth, "printable"},
		{Admission{Peers: make([]string, maxPeers+1)}, auth, "at most"},
		{Admission{Peers: []string{"a"}}, &edge.Auth{Anonymous: edge.Peer{Name: "a"}}, "without a credential"},
	} {
		if err := tc.a.Check(tc.auth); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.a, err, tc.want)
		}
	}
	for _, tc := range []struct {
		c    SharingConfig
		want string
	}{
		{SharingConfig{Peers: []string{"https://a:1", "https://b:1"}}, ""},
		{SharingConfig{Peers: []string{"https://a:1", "https://a:1"}}, "twice"},
		{SharingConfig{Peers: []string{"http://a.example:1"}}, "https"},
		{SharingConfig{Peers: make([]string, maxPeers+1)}, "at most"},
		{SharingConfig{TLS: edge.TLSFiles{Cert: "only"}}, "tls"},
	} {
		if err := tc.c.Check(); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.c, err, tc.want)
		}
	}
}

// refusingPeer is a transport without a network to a peer that refuses requests by a function.
type refusingPeer func(*wire.ShareRequest) error

// RoundTrip implements http.RoundTripper.
func (p refusingPeer) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	connect.NewUnaryHandler(wire.IngestServiceShareProcedure, func(_ context.Context, r *connect.Request[wire.ShareRequest]) (*connect.Response[wire.ShareResponse], error) {
		if err := p(r.Msg); err != nil {
			return nil, err
		}
		m := &wire.ShareResponse{}
		for range r.Msg.GetBlocks() {
			m.Outcomes = append(m.Outcomes, wire.Outcome_OUTCOME_STORED)
		}
		return connect.NewResponse(m), nil
	}).ServeHTTP(answer, r)
	return answer.Result(), nil
}

// TestPeerRefuses: a peer that refuses a message for good loses only the block that it refuses, which is
// logged once a minute. A peer that refuses is up, as is one that asks to wait.
func TestPeerRefuses(t *testing.T) {
	clock, log := newClock(), &logBuffer{}
	s, err := NewSharing(SharingConfig{Peers: []string{"http://127.0.0.1:1"}, Now: clock.now, Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	l, refusal := s.links[0], error(nil)
	l.call = connect.NewClient[rawRequest, wire.ShareResponse](&http.Client{Transport: refusingPeer(func(m *wire.ShareRequest) error {
		if slices.ContainsFunc(m.GetBlocks(), func(b *wire.SharedBlock) bool { return b.GetProducer() == 13 }) {
			return refusal
		}
		return nil
	})}, l.url, clientOptions(true)...)
	batch := func() (parts []sharedPart) {
		for producer := range uint64(20) {
			parts = append(parts, encodeShared(sharedBlock(t, producer+1, 1, clock.now(), 3))...)
		}
		return parts
	}
	refusal = connect.NewError(connect.CodeInvalidArgument, errors.New("not of this protocol"))
	for range 3 {
		if !l.deliver(t.Context(), t.Context(), batch()) {
			t.Error("it gave up")
		}
	}
	if st := l.snapshot(); st.Sent != 3*19 || st.Dropped[dropRefused] != 3 || st.Away || strings.Count(log.String(), "the peer refused windows") != 1 {
		t.Errorf("%+v, want 19 of 20 blocks sent each time\n%s", st, log)
	}
	later := connect.NewError(connect.CodeResourceExhausted, errors.New("too many rows"))
	later.Meta().Set(retryAfter, "1000")
	for _, tc := range []struct {
		err  error
		away bool
	}{
		{connect.NewError(connect.CodeUnavailable, errors.New("not now")), true},
		{later, false},
		{connect.NewError(connect.CodeUnauthenticated, errors.New("no such token")), true},
		{refusal, false},
	} {
		refusal = tc.err
		if err := l.send(t.Context(), batch()); connect.CodeOf(err) != connect.CodeOf(tc.err) || l.snapshot().Away != tc.away {
			t.Errorf("%v: %v, away %t, want %t", tc.err, err, l.snapshot().Away, tc.away)
		}
	}
}

// FuzzShare sends arbitrary bytes to a collector as a peer: the accepted blocks are consistent.
func FuzzShare(f *testing.F) {
	start := time.Unix(1.8e9, 0)
	for _, rows := range []int{1, 5, 100} {
		f.Add(encodeShared(sharedBlock(f, 5, uint64(rows), start, rows))[0].body)
	}
	l, live := newLedger(), &seen{}
	s, err := NewServer(ServerConfig{
		Auth: edge.Auth{Anonymous: edge.Peer{Name: "tester"}}, Live: live, Now: func() time.Time { return start },
		Admission: Admission{Limits: Limits{RowRate: 1e12}},
	}, l, l)
	if err != nil {
		f.Fatal(err)
	}
	e := s.client("collector1", &s.limits, true)
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &wire.ShareRequest{}
		if unmarshal(data, m) != nil {
			return
		}
		n := len(m.GetBlocks())
		answer, err := s.takeShared(t.Context(), &call{exporter: e}, m)
		if err != nil || len(answer.GetOutcomes()) != n {
			t.Fatalf("%v, %v", answer, err)
		}
		for _, b := range live.blocks {
			if err := b.Check(); err != nil || b.Producer == 0 || b.Resolution != int64(time.Second) {
				t.Errorf("%v: %+v", err, b)
			}
		}
		live.blocks = nil
		checkConservation(t, e.counts.snapshot())
	})
}

// BenchmarkEncodeShared measures the cost for the sender's pipeline, for any number of peers;
// BenchmarkTakeShared that for a receiver, without the live view's own work.
func BenchmarkEncodeShared(b *testing.B) {
	for _, rows := range []int{20, 200, 2000} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			block, size := sharedBlock(b, 5, 1, time.Now(), rows), 0
			b.ReportAllocs()
			for b.Loop() {
				size = len(encodeShared(block)[0].body)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows), "ns/row")
			b.ReportMetric(float64(size)/float64(rows), "bytes/row")
		})
	}
}

type discard struct{}

// WriteBlock implements aggregate.Sink.
func (discard) WriteBlock(context.Context, *aggregate.Block) error { return nil }

func BenchmarkTakeShared(b *testing.B) {
	for _, rows := range []int{20, 200, 2000} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			l := newLedger()
			s, err := NewServer(ServerConfig{
				Auth: edge.Auth{Anonymous: edge.Peer{Name: "tester"}}, Live: discard{}, Admission: Admission{Limits: Limits{RowRate: 1e12}},
			}, l, l)
			if err != nil {
				b.Fatal(err)
			}
			e := s.client("collector1", &s.limits, true)
			body := encodeShared(sharedBlock(b, 5, 1, time.Now(), rows))[0].body
			b.ReportAllocs()
			for b.Loop() {
				m := &wire.ShareRequest{}
				if err := unmarshal(body, m); err != nil {
					b.Fatal(err)
				}
				if answer, err := s.takeShared(b.Context(), &call{exporter: e}, m); err != nil || answer.GetOutcomes()[0] != wire.Outcome_OUTCOME_STORED {
					b.Fatal(answer, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows), "ns/row")
		})
	}
}
