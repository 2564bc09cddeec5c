package remote

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/wire"
)

// early is a sink that keeps provisional rows.
type early struct {
	mu   sync.Mutex
	rows []*aggregate.Block
}

func (e *early) WriteProvisional(p *aggregate.Provisional) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rows = append(e.rows, (*aggregate.Block)(p).Clone())
}

func (e *early) list() []*aggregate.Block {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rows
}

// earlyBlock returns a test block as a tap's ring announces it.
func earlyBlock(t testing.TB, seed uint64, rows int) *aggregate.Provisional {
	b := testBlock(newRand(t, seed), time.Now().Add(-time.Second), rows)
	b.Producer, b.Incarnation, b.Seq = 99, 7, 3<<aggregate.PartShift
	return (*aggregate.Provisional)(b)
}

// TestProvisional: an exporter's provisional rows go only to the live sink, under its identity;
// a peer gets the rows of shared parts. They are dropped until their description is known.
func TestProvisional(t *testing.T) {
	file, of := tokens(t, "host1", "collector1")
	cfg, l, own, shared := testConfig(t), newLedger(), &early{}, &early{}
	cfg.Auth, cfg.Live, cfg.Logger = edge.Auth{Clients: file}, &seen{}, nil
	cfg.Permits, cfg.Peers, cfg.Provisional, cfg.LiveProvisional = []Permit{{Name: "host*"}}, []string{"collector1"}, own, shared
	s := startCollector(t, cfg, l, "")
	client := clientConfig(t, s.url)
	client.TokenFile = of["host1"]
	c := startClient(t, client)

	p := earlyBlock(t, 1, 5)
	want := (*aggregate.Block)(p).Clone()
	c.WriteProvisional("eth0/3", p)
	wait(t, "rows without a description are dropped", func() bool { return s.Stats().Total.Refused[ReasonProvisional] == 1 })
	if err := c.stream(t, "eth0/3").WriteBlock(t.Context(), testBlock(newRand(t, 2), time.Now(), 2)); err != nil {
		t.Fatal(err)
	}
	c.flush(t)
	stored := l.totals()[Producer("host1", "eth0/3")]
	c.WriteProvisional("eth0/3", p)
	wait(t, "rows are given to the sink", func() bool { return len(own.list()) == 1 })
	unknown := earlyBlock(t, 1, 1)
	unknown.Epoch++
	c.WriteProvisional("eth0/3", unknown)
	got := own.list()[0]
	if got.Source != (aggregate.Source{Producer: Producer("host1", "eth0/3"), Incarnation: 7, Epoch: want.Epoch}) || got.Seq != 0 ||
		got.WindowStart != want.WindowStart || got.Resolution != want.Resolution || totalsOf(got) != totalsOf(want) {
		t.Errorf("%+v, want the rows of %+v", got, want)
	}
	wait(t, "rows are counted once they are answered", func() bool { return c.Stats().Provisional.Sent == 2 })
	if st := c.Stats().Provisional; st.Dropped[dropNames] != 1 || len(st.Dropped) != 1 {
		t.Errorf("exporter: %+v", st)
	}

	sharing, stop := startSharing(t, SharingConfig{Peers: []string{s.url}, TokenFile: of["collector1"]})
	sharing.WriteProvisional(p)
	wait(t, "a peer's rows are given to the sink", func() bool { return len(shared.list()) == 1 })
	stop()
	if got := shared.list()[0]; got.Source != want.Source || got.Part() != 3 || got.Seq != want.Seq || totalsOf(got) != totalsOf(want) {
		t.Errorf("%+v, want the rows of %+v", got, want)
	}
	st := s.Stats()
	if e, p := st.Exporters[0], st.Peers[0]; e.Provisional != 1 || e.ProvisionalRows != 5 || p.Provisional != 1 || p.StoredItems != 0 {
		t.Errorf("collector: %+v and %+v", e, p)
	}
	checkConservation(t, st.Total)
	if got := l.totals()[Producer("host1", "eth0/3")]; got != stored || len(l.totals()) != 1 || len(own.list()) != 1 {
		t.Errorf("stored %+v of %d producers, want %+v of one", got, len(l.totals()), stored)
	}
}

// TestProvisionalHostile: invalid rows, and rows under another exporter's identity, are refused
// and counted, and an exporter beyond its share leaves the room of others.
func TestProvisionalHostile(t *testing.T) {
	file, _ := tokens(t, "evil", "host1")
	cfg, l := testConfig(t), newLedger()
	live := table.NewMemory(table.MemoryOptions{MaxRows: 1 << 20})
	cfg.Auth, cfg.Logger, cfg.Permits, cfg.Provisional = edge.Auth{Clients: file}, nil, []Permit{{Name: "*"}}, live
	s := startCollector(t, cfg, l, "")
	for _, name := range []string{"evil", "host1"} {
		if _, err := pushWith(t, s, name, validRequest(t, 1)); err != nil {
			t.Fatal(err)
		}
	}
	push := func(name string, n uint64, change func(*wire.Provisional)) {
		t.Helper()
		m := provisionalToWire(earlyBlock(t, n, 3))
		m.Block.Stream, m.Block.Incarnation, m.Block.Description = "eth0", 7, validRequest(t, 1).GetDescriptions()[0].GetId()
		change(m)
		answer, err := pushWith(t, s, name, &wire.PushRequest{Provisional: []*wire.Provisional{m}})
		if err != nil || len(answer.GetOutcomes()) != 0 {
			t.Errorf("rows have an outcome or an error: %v, %v", answer, err)
		}
	}
	for reason, change := range map[Reason]func(*wire.Provisional){
		ReasonInvalid:     func(m *wire.Provisional) { m.Block.ResolutionNs = int64(time.Minute) },
		ReasonImpossible:  func(m *wire.Provisional) { m.Block.Bytes[0] = 1 << 63 },
		ReasonFuture:      func(m *wire.Provisional) { m.Block.WindowStartNs += int64(time.Hour) },
		ReasonPast:        func(m *wire.Provisional) { m.Block.WindowStartNs -= int64(24 * 30 * time.Hour) },
		ReasonProvisional: func(m *wire.Provisional) { m.Block.Description++ },
	} {
		before := s.Stats().Total.Refused[reason]
		push("evil", 1, change)
		if got := s.Stats().Total.Refused[reason]; got != before+1 {
			t.Errorf("%s: %d refused, want one more than %d", reason, got, before)
		}
	}
	push("evil", 1, func(m *wire.Provisional) { m.Block = nil })
	push("evil", 1, func(m *wire.Provisional) { m.Producer = Producer("host1", "eth0") }) // counts as its own anyway
	if n := s.Stats().Total.Provisional; n != 1 {
		t.Errorf("rows of %d parts were taken, want 1", n)
	}
	for i := range 200 { // more streams than an exporter may have
		push("evil", 1, func(m *wire.Provisional) { m.Block.Stream = string(rune('A'+i%26)) + string(rune('a'+i/26)) })
	}
	if st := s.Stats().Total; st.Refused[ReasonStreams] == 0 || st.Provisional > 64 {
		t.Errorf("%d streams beyond the limit refused, %d taken", st.Refused[ReasonStreams], st.Provisional)
	}
	large := provisionalToWire(earlyBlock(t, 1, 3000))
	for i := range uint64(20) {
		push("evil", 1, func(m *wire.Provisional) {
			large.Block.Stream, large.Block.Description, large.Block.Incarnation = m.Block.Stream, m.Block.Description, i+8
			m.Block = large.Block
		})
	}
	if n := s.Stats().Exporters[0].ProvisionalRows; n > 1<<16 {
		t.Errorf("%d rows were taken at once of an exporter", n)
	}
	before := s.Stats().Exporters[1].Provisional
	push("host1", 2, func(*wire.Provisional) {})
	live.Publish()
	if got := s.Stats().Exporters[1]; got.Name != "host1" || got.Provisional != before+1 {
		t.Errorf("%+v: the other exporter has no room", got)
	}
	if c := live.Counts().Provisional; c.Crowded != 0 || c.Taken == 0 {
		t.Errorf("live view: %+v", c)
	}
}

// TestProvisionalAway: nothing waits for provisional rows. Only the latest rows of a part wait
// for the link, and rows that an absent collector does not accept are dropped.
func TestProvisionalAway(t *testing.T) {
	c := startClient(t, clientConfig(t, "http://127.0.0.1:1"))
	c.WriteProvisional("eth0/0", earlyBlock(t, 1, 5))
	wait(t, "rows are dropped", func() bool { return c.Stats().Provisional.Dropped[dropAway] == 1 })
	c.stop()

	s := newProvisionalSender(defaultMaxMessage, nil)
	add := func(part, rows int) {
		m := provisionalToWire(earlyBlock(t, uint64(part), rows))
		s.add(encodeProvisional(part, fieldProvisional, m))
	}
	add(1, 3)
	add(2, 3)
	add(1, 4)
	if body, n := s.take(); n != 2 || len(body) == 0 || s.bytes != 0 || s.stats().Dropped[dropBusy] != 1 {
		t.Errorf("%d parts in %d bytes, %d bytes left, %+v", n, len(body), s.bytes, s.stats())
	}
	add(1, 1<<16+1)
	for part := range 2 * maxItems {
		add(part, 1)
	}
	st := s.stats()
	if st.Dropped[dropLarge] != 1 || st.Dropped[dropBusy] != 1+maxItems || len(s.waiting) != maxItems {
		t.Errorf("%d parts wait, %+v", len(s.waiting), st)
	}
}

// TestProvisionalFits: a full queue and the exporter's name fit into a message.
func TestProvisionalFits(t *testing.T) {
	cfg := clientConfig(t, "http://127.0.0.1:1")
	cfg.Exporter = "host1"
	c, err := OpenClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	const part = 8 << 10
	for i := range 2 * defaultMaxMessage / part {
		c.provisional.add(provisionalPart{part: i, body: make([]byte, part)})
	}
	rows, n := c.provisional.take()
	if size := len(c.appendExporter(nil)) + len(rows); size > defaultMaxMessage || size < defaultMaxMessage-2*part {
		t.Errorf("%d parts make a message of %d bytes, expected at most %d, and almost that", n, size, defaultMaxMessage)
	}
}

// pushWith sends a request to a collector with the token of a name.
func pushWith(t testing.TB, s *collector, name string, m *wire.PushRequest) (*wire.PushResponse, error) {
	t.Helper()
	r := connect.NewRequest(m)
	r.Header().Set("Authorization", "Bearer secret-of-"+name)
	defer http.DefaultClient.CloseIdleConnections()
	answer, err := wire.NewIngestServiceClient(http.DefaultClient, s.url).Push(t.Context(), r)
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

// fineBlock returns a test block of a 100 ms window, as a tap's ring announces it.
func fineBlock(t testing.TB, seed uint64, rows int) *aggregate.Provisional {
	p := earlyBlock(t, seed, rows)
	p.Resolution = int64(100 * time.Millisecond)
	return p
}

// TestProvisionalFine: rows of windows below 1 s are sent in addition to those of 1 s, never
// instead of them, and reach live views. Peers neither send nor accept them.
func TestProvisionalFine(t *testing.T) {
	file, _ := tokens(t, "host1", "collector1")
	cfg, own, shared := testConfig(t), &early{}, &early{}
	cfg.Auth, cfg.Live, cfg.Logger = edge.Auth{Clients: file}, &seen{}, nil
	cfg.Permits, cfg.Peers, cfg.Provisional, cfg.LiveProvisional = []Permit{{Name: "host*"}}, []string{"collector1"}, own, shared
	s := startCollector(t, cfg, newLedger(), "")
	if _, err := pushWith(t, s, "host1", validRequest(t, 1)); err != nil {
		t.Fatal(err)
	}
	var list []*wire.Provisional
	for _, p := range []*aggregate.Provisional{fineBlock(t, 1, 4), earlyBlock(t, 2, 5)} {
		m := provisionalToWire(p)
		m.Block.Stream, m.Block.Incarnation, m.Block.Description = "eth0", 7, validRequest(t, 1).GetDescriptions()[0].GetId()
		list = append(list, m)
	}
	if _, err := pushWith(t, s, "host1", &wire.PushRequest{Provisional: list}); err != nil {
		t.Fatal(err)
	}
	if got := own.list(); len(got) != 2 || got[0].Resolution != int64(100*time.Millisecond) || got[0].Len() != 4 || got[1].Len() != 5 {
		t.Errorf("rows of %d windows were given to the sink", len(got))
	}

	r := connect.NewRequest(&wire.ShareRequest{Provisional: list[:1]})
	r.Header().Set("Authorization", "Bearer secret-of-collector1")
	defer http.DefaultClient.CloseIdleConnections()
	if _, err := wire.NewIngestServiceClient(http.DefaultClient, s.url).Share(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().Peers[0].Refused[ReasonInvalid]; n != 1 || len(shared.list()) != 0 {
		t.Errorf("%d parts of a peer are refused, %d are taken", n, len(shared.list()))
	}
	sharing, err := NewSharing(SharingConfig{Peers: []string{"http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := OpenClient(clientConfig(t, "http://127.0.0.1:1")) // does not run: its rows wait
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Describe(testDescription()); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*aggregate.Provisional{fineBlock(t, 1, 4), earlyBlock(t, 2, 5)} {
		sharing.WriteProvisional(p)
		client.WriteProvisional("eth0/3", p)
	}
	if n, waiting := len(sharing.links[0].provisional.waiting), len(client.provisional.waiting); n != 1 || waiting != 2 {
		t.Errorf("%d parts wait for a peer, want those of 1 s, and %d for a collector", n, waiting)
	}
}
