package remote

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/wire"
)

// fleet holds collectors that share their windows, and exporters of each.
type fleet struct {
	*testing.T
	clock     *clock
	file      string            // of tokens
	token     map[string]string // files
	members   []*member
	exporters []*fleetExporter
}

// member is one collector of a fleet, over restarts of its process.
type member struct {
	name    string
	address string // its own, which nothing else uses while it is down
	url     string
	*ledger // its stored rows, which outlive it
	failing atomic.Bool
	live    *table.Memory
	sharing *Sharing
	*collector
	stopSharing func()
	restarted   bool
}

// remembered returns cells without the fields that depend on windows before a restart.
func (m *member) remembered(cells []aggregate.CellStats) []aggregate.CellStats {
	if !m.restarted {
		return cells
	}
	cells = slices.Clone(cells)
	for i := range cells {
		c := &cells[i]
		c.Verdict, c.State, c.JudgedWindows, c.CongestedWindows = aggregate.Verdict{}, 0, 0, 0
	}
	return cells
}

// memberSink is a collector's path of a block: the store, then the live windows.
type memberSink struct {
	*member
	watching aggregate.Sinks
}

// WriteBlock implements Sink.
func (s *memberSink) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	if err := s.ledger.WriteBlock(ctx, b); err != nil {
		return err
	}
	return s.watching.WriteBlock(ctx, b)
}

// WriteProvisional implements aggregate.ProvisionalSink.
func (s *memberSink) WriteProvisional(p *aggregate.Provisional) {
	s.live.WriteProvisional(p)
	s.sharing.WriteProvisional(p)
}

// Sync implements Sink.
func (s *memberSink) Sync(ctx context.Context) error {
	if s.failing.Load() {
		return errSink
	}
	return s.ledger.Sync(ctx)
}

type fleetExporter struct {
	*exporterUnderTest
	name   string
	stream *Stream
}

// newFleet starts collectors with the given number of exporters each; an exporter switches to
// the next collector if its own fails. All collectors trust the peer "evil".
func newFleet(t *testing.T, collectors, exporters int) *fleet {
	t.Helper()
	f := &fleet{T: t, clock: newClock()}
	names := []string{"evil"}
	for i := range collectors {
		m := &member{name: fmt.Sprintf("collector%d", i), address: fmt.Sprintf("127.0.1.%d:0", i+1), ledger: newLedger()}
		f.members = append(f.members, m)
		names = append(names, m.name)
		for j := range exporters {
			names = append(names, fmt.Sprintf("host%d-%d", i, j))
		}
	}
	f.file, f.token = tokens(t, names...)
	listeners := make([]net.Listener, collectors)
	for i, m := range f.members {
		listeners[i] = f.listen(m)
		m.address = listeners[i].Addr().String()
		m.url = "http://" + m.address
	}
	for i, m := range f.members {
		f.start(m, listeners[i])
	}
	for i, m := range f.members {
		for j := range exporters {
			cfg := clientConfig(t, m.url, f.members[(i+1)%collectors].url)
			cfg.FS, cfg.SpoolEvery, cfg.TokenFile, cfg.Logger = lazyDisk{}, 20*time.Millisecond, f.token[fmt.Sprintf("host%d-%d", i, j)], nil
			e := &fleetExporter{exporterUnderTest: startClient(t, cfg), name: fmt.Sprintf("host%d-%d", i, j)}
			e.stream = e.exporterUnderTest.stream(t, "eth0")
			f.exporters = append(f.exporters, e)
		}
	}
	return f
}

func (f *fleet) listen(m *member) net.Listener {
	f.Helper()
	ln, err := net.Listen("tcp", m.address)
	if err != nil {
		f.Fatal(err)
	}
	return ln
}

// start starts or restarts a collector with an empty live view.
func (f *fleet) start(m *member, ln net.Listener) {
	f.Helper()
	peers, urls := []string{"evil"}, []string(nil)
	for _, o := range f.members {
		if o != m {
			peers, urls = append(peers, o.name), append(urls, o.url)
		}
	}
	m.restarted = m.live != nil
	m.live = table.NewMemory(table.MemoryOptions{Epoch: 1, Now: f.clock.now})
	m.sharing, m.stopSharing = startSharing(f, SharingConfig{Peers: urls, TokenFile: f.token[m.name], Now: f.clock.now})
	cfg := testConfig(f)
	cfg.Auth, cfg.Live, cfg.Now, cfg.Logger = edge.Auth{Clients: f.file}, m.live, f.clock.now, nil
	cfg.Permits, cfg.Peers = []Permit{{Name: "host*"}}, peers
	sink := &memberSink{m, aggregate.Sinks{m.live, m.sharing}}
	cfg.Provisional, cfg.LiveProvisional = sink, m.live
	s, err := NewServer(cfg, sink, m.ledger)
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.Serve(ctx, ln); err != nil {
			f.Error(err)
		}
	})
	stop := sync.OnceFunc(func() { cancel(); done.Wait() })
	f.Cleanup(stop)
	m.collector = &collector{s, m.url, stop}
}

// block returns an exporter's rows of a window: half of its cells are its own, half are shared
// by all exporters, so that live views add up.
func (f *fleet) block(e *fleetExporter, window, cells int) *aggregate.Block {
	b := testBlock(newRand(f, Producer(e.name, "eth0")+uint64(window)), f.windowStart(window), cells)
	for i := range cells {
		b.DstGroup[i] = uint64(i) + 10
		if i%2 == 0 {
			b.SrcGroup[i] = Producer(e.name, "eth0") &^ 1
		}
	}
	b.Flows = testFlows(b)
	return b
}

func (f *fleet) windowStart(window int) time.Time {
	return f.clock.now().Add(time.Duration(window-20) * time.Second)
}

// write has exporters write a window, and adds it to the oracle once.
func (f *fleet) write(window, cells int, oracle *table.Memory, exporters ...*fleetExporter) {
	f.Helper()
	f.writeAs(window, window, cells, oracle, exporters...)
}

// writeAs is write for a window that is an exporter's nth one.
func (f *fleet) writeAs(n, window, cells int, oracle *table.Memory, exporters ...*fleetExporter) {
	f.Helper()
	for _, e := range exporters {
		b := f.block(e, window, cells)
		if err := e.stream.WriteBlock(f.Context(), b); err != nil {
			f.Fatal(err)
		}
		b.Source = aggregate.Source{Producer: Producer(e.name, "eth0"), Incarnation: e.incarnation, Epoch: b.Epoch}
		b.Seq = uint64(n) + 1
		if err := oracle.WriteBlock(f.Context(), b); err != nil {
			f.Fatal(err)
		}
	}
}

// announce has exporters announce the provisional rows of a window until all live views have
// the same as the oracle.
func (f *fleet) announce(window, cells int, oracle *table.Memory) {
	f.Helper()
	at := f.windowStart(window).Truncate(time.Second)
	for _, e := range f.exporters {
		b := f.block(e, window, cells)
		b.Source = aggregate.Source{Producer: Producer(e.name, "eth0"), Incarnation: e.incarnation, Epoch: b.Epoch}
		oracle.WriteProvisional((*aggregate.Provisional)(b))
	}
	oracle.Publish()
	total := observedIn(windowAt(oracle, at))
	var sent time.Time
	for _, m := range f.members {
		wait(f.T, fmt.Sprintf("%s has provisional rows of window %d", m.name, window), func() bool {
			if got := windowAt(m.live, at); got != nil && (got.Final || got.Durable) {
				f.Errorf("%s: window %d is final %t, durable %t", m.name, window, got.Final, got.Durable)
			}
			if observedIn(windowAt(m.live, at)) == total {
				return true
			}
			if time.Since(sent) < 5*time.Second {
				return false
			}
			sent = time.Now()
			for _, e := range f.exporters { // none of them waits for an answer
				b := f.block(e, window, cells)
				b.Incarnation = e.incarnation
				e.WriteProvisional("eth0", (*aggregate.Provisional)(b))
			}
			return false
		})
	}
}

// waitStored waits until collectors have all blocks of the exporters, and nothing waits for a
// running peer.
func (f *fleet) waitStored(gone *member) {
	f.Helper()
	for _, e := range f.exporters {
		e.flush(f)
	}
	for _, m := range f.members {
		if m == gone {
			continue
		}
		wait(f.T, m.name+" has shared all", func() bool {
			for _, p := range m.sharing.Stats() {
				if p.WaitingBlocks > 0 && (gone == nil || p.URL != gone.url) {
					return false
				}
			}
			return true
		})
	}
}

// awaitSame waits until a member's live view of windows has as many observations as the
// oracle's, and compares the two.
func (f *fleet) awaitSame(m *member, oracle *table.Memory, windows ...int) {
	f.Helper()
	oracle.Publish()
	for _, w := range windows {
		at := f.windowStart(w).Truncate(time.Second)
		want := windowAt(oracle, at)
		total := observedIn(want)
		wait(f.T, fmt.Sprintf("%s has window %d", m.name, w), func() bool { return observedIn(windowAt(m.live, at)) >= total })
		got := windowAt(m.live, at)
		for _, s := range want.Signals() {
			if !reflect.DeepEqual(m.remembered(got.Cells(s)), m.remembered(want.Cells(s))) {
				f.Errorf("%s: window %d, signal %d: %d cells, want %d; of all signals %d observations, want %d",
					m.name, w, s, len(got.Cells(s)), len(want.Cells(s)), observedIn(got), total)
			}
		}
	}
}

func windowAt(m *table.Memory, at time.Time) *table.Window {
	m.Publish()
	for _, w := range m.State().Windows {
		if w.Start.Equal(at) {
			return w
		}
	}
	return nil
}

func observedIn(w *table.Window) (n uint64) {
	if w == nil {
		return 0
	}
	for _, s := range w.Signals() {
		for _, c := range w.Cells(s) {
			n += c.Observations
		}
	}
	return n
}

// TestFleet: every collector's live windows are those of all exporters, each counted once, even
// if a collector is killed with unconfirmed blocks and restarted, and one peer is hostile. Only
// the collector that received rows stores them.
func TestFleet(t *testing.T) {
	collectors, exporters, cells := 10, 50, 20
	if testing.Short() {
		collectors, exporters = 3, 5
	}
	f := newFleet(t, collectors, exporters)
	oracle := table.NewMemory(table.MemoryOptions{Epoch: 1, Now: f.clock.now})
	evil := f.attack()
	f.write(0, cells, oracle, f.exporters...)
	f.write(1, cells, oracle, f.exporters...)
	f.waitStored(nil)
	for _, m := range f.members {
		f.awaitSame(m, oracle, 0, 1)
	}

	// One collector fails to make blocks durable that its live view and its peers already have:
	// its exporters send the same blocks to the next one. Then it is stopped.
	victim, its := f.members[1], f.exporters[exporters:2*exporters]
	victim.failing.Store(true)
	f.write(2, cells, oracle, its...)
	for _, e := range its {
		e.flush(t)
	}
	victim.stop()
	victim.stopSharing()
	f.write(2, cells, oracle, f.exporters[:exporters]...)
	f.write(2, cells, oracle, f.exporters[2*exporters:]...)
	f.write(3, cells, oracle, f.exporters...)
	f.waitStored(victim)
	for _, m := range f.members {
		if m != victim {
			f.awaitSame(m, oracle, 2, 3)
		}
	}

	// It restarts with an empty live view, and gets the windows that arrived while it was down.
	victim.failing.Store(false)
	f.start(victim, f.listen(victim))
	f.write(4, cells, oracle, f.exporters...)
	f.waitStored(nil)
	for _, m := range f.members {
		f.awaitSame(m, oracle, 3, 4)
	}

	// All collectors have the provisional rows of a window that has just ended before its
	// blocks.
	f.announce(18, cells, oracle)
	f.awaitSame(f.members[0], oracle, 18)
	f.writeAs(5, 18, cells, oracle, f.exporters...)
	f.waitStored(nil)
	for _, m := range f.members {
		f.awaitSame(m, oracle, 18)
		wait(t, m.name+" has a final window", func() bool {
			w := windowAt(m.live, f.windowStart(18).Truncate(time.Second))
			return w != nil && w.Final
		})
	}
	f.checkAttack(evil())
	for _, m := range f.members {
		if m != victim {
			f.awaitSame(m, oracle, 0, 1, 2, 3, 4)
		}
	}
	for _, e := range f.exporters {
		e.flush(t)
		if s := e.Stats(); len(s.Refused)+len(s.Lost) != 0 {
			t.Errorf("%s: %+v", e.name, s)
		}
	}
	f.checkStored(exporters)
}

// checkStored: each collector stored its exporters' blocks, and none from peers.
func (f *fleet) checkStored(exporters int) {
	f.Helper()
	for i, m := range f.members {
		producers := map[uint64]bool{}
		for _, at := range []int{i, (i + len(f.members) - 1) % len(f.members)} { // its own, and those of the previous one
			for _, e := range f.exporters[at*exporters : (at+1)*exporters] {
				producers[Producer(e.name, "eth0")] = true
			}
		}
		for p := range m.totals() {
			if !producers[p] {
				f.Errorf("%s stored rows of a producer that it knows from peers alone", m.name)
			}
		}
		if m.wrong != nil || m.changed {
			f.Errorf("%s: %v, changed %t", m.name, m.wrong, m.changed)
		}
		for _, p := range m.sharing.Stats() {
			if len(p.Dropped) > 0 {
				f.Errorf("%s: %+v", m.name, p)
			}
		}
	}
}

// attack has a peer send all kinds of hostile requests to all collectors until end is called,
// which returns the number of requests.
func (f *fleet) attack() (end func() int) {
	ctx, cancel := context.WithCancel(f.Context())
	var attacking sync.WaitGroup
	requests := 0
	attacking.Go(func() {
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		for n := uint64(0); ctx.Err() == nil; n++ {
			for _, m := range f.members {
				f.attackOnce(ctx, client, m.url, n)
				requests++
			}
			time.Sleep(20 * time.Millisecond) // leave most of the CPU to the others
		}
	})
	stop := sync.OnceFunc(func() { cancel(); attacking.Wait() })
	f.Cleanup(stop)
	return func() int { stop(); return requests }
}

func (f *fleet) attackOnce(ctx context.Context, client *http.Client, url string, n uint64) {
	ingest := wire.NewIngestServiceClient(client, url)
	m := sharedMessage(f, n+1, f.windowStart(0))
	b := m.Blocks[0]
	provisional := sharedMessage(f, n+1, f.windowStart(18)).Blocks[0]
	m.Provisional = append(m.Provisional, &wire.Provisional{Producer: provisional.Producer, Block: provisional.Block})
	switch p := m.Provisional[0]; n % 3 {
	case 0:
		p.Producer = 0
	case 1:
		p.Block.ResolutionNs *= 60
	case 2:
		p.Block.Heavy[0] = p.Block.Observations[0] + 1
	}
	switch n % 7 {
	case 0:
		b.Block.WindowStartNs += int64(time.Hour)
	case 1:
		b.Producer = 0
	case 2:
		b.Block.Signal = make([]byte, maxRows)
	case 3:
		b.Block.ResolutionNs *= 60
	case 4:
		b.Block.Observations[0] = 1 << 63
	case 5: // rows for the store
		r := connect.NewRequest(validRequest(f, n+1))
		r.Header().Set("Authorization", "Bearer secret-of-evil")
		_, _ = ingest.Push(ctx, r)
		return
	case 6: // not a message
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+wire.IngestServiceShareProcedure, bytes.NewReader(bytes.Repeat([]byte{0xff}, 1<<10)))
		if err != nil {
			f.Error(err)
			return
		}
		r.Header.Set("Content-Type", "application/proto")
		r.Header.Set("Authorization", "Bearer secret-of-evil")
		if answer, err := client.Do(r); err == nil {
			answer.Body.Close()
		}
		return
	}
	r := connect.NewRequest(m)
	r.Header().Set("Authorization", "Bearer secret-of-evil")
	_, _ = ingest.Share(ctx, r)
}

// checkAttack: nothing of a hostile peer was accepted, and each reason was counted.
func (f *fleet) checkAttack(requests int) {
	f.Helper()
	if requests < 7*len(f.members) {
		f.Fatalf("%d requests: next to none", requests)
	}
	for _, m := range f.members {
		for _, p := range m.Stats().Peers {
			if p.Name != "evil" {
				continue
			}
			if p.StoredItems+p.Provisional != 0 {
				f.Errorf("%s took %d blocks and %d provisional rows of a hostile peer", m.name, p.StoredItems, p.Provisional)
			}
			checkConservation(f, p.Counts)
		}
		for p := range m.totals() {
			if p == Producer("evil", "eth0") {
				f.Errorf("%s stored rows of a hostile peer", m.name)
			}
		}
	}
}

// TestFleetFailover: blocks that reached the fleet through a collector without confirmation are
// sent to another collector, and nothing is counted twice, neither there nor at any peer.
func TestFleetFailover(t *testing.T) {
	const cells = 20
	f := newFleet(t, 3, 1)
	oracle := table.NewMemory(table.MemoryOptions{Epoch: 1, Now: f.clock.now})
	f.members[0].failing.Store(true)
	for w := range 5 {
		f.write(w, cells, oracle, f.exporters[0])
		f.exporters[0].flush(t) // to the second collector
	}
	for _, m := range f.members {
		wait(t, "the first one's peers have its blocks", func() bool { return m.sharing.Stats()[0].WaitingBlocks == 0 })
	}
	for _, m := range f.members {
		f.awaitSame(m, oracle, 0, 1, 2, 3, 4)
	}
	// A peer that sends other rows under the identity of an existing block changes nothing.
	forged := sharedMessage(t, 1, f.windowStart(0))
	forged.Blocks[0].Producer, forged.Blocks[0].Block.Incarnation = Producer("host0-0", "eth0"), f.exporters[0].incarnation
	for _, m := range f.members {
		if answer, err := share(t, m.collector, "secret-of-evil", forged); err != nil || answer.GetOutcomes()[0] != wire.Outcome_OUTCOME_STORED {
			t.Errorf("%v, %v", answer, err)
		}
		f.awaitSame(m, oracle, 0)
	}
	if n := f.members[1].totals(); len(n) != 1 {
		t.Errorf("%d producers stored at the second collector, want 1", len(n))
	}
}
