package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/ingest/wire"
)

// rewritten is the description of the tests with other properties for the same names.
func rewritten() Description {
	d := testDescription()
	d.Text = "another configuration"
	d.Groups[0].Level, d.Groups[0].Parent = "pod", "pod9"
	l := &d.Locations[0]
	l.Capacity, l.Device, l.DeviceLoc = 1, "leaf9", fabric.LocationIDOf(fabric.KindSet, "leaf9")
	return d
}

// describing returns a request with a description and a block under it.
func describing(t *testing.T, d Description, seq uint64) *wire.PushRequest {
	m := validRequest(t, seq)
	described := d.toWire()
	m.Descriptions[0] = described
	m.Blocks[0].Description, m.Blocks[0].Epoch = described.GetId(), described.GetEpoch()
	return m
}

// pushAs passes a request to the collector as an exporter of that name.
func pushAs(t *testing.T, s *collector, name string, m *wire.PushRequest) {
	t.Helper()
	e := s.client(name, &s.limits, false)
	defer e.inFlight.Add(-1)
	answer, err := s.take(t.Context(), callOfTest(e), m)
	if err != nil || len(answer.GetOutcomes()) != 1 || answer.GetOutcomes()[0] != wire.Outcome_OUTCOME_STORED {
		t.Fatalf("%s: %v, %v: rows are to be stored whatever their names are", name, answer, err)
	}
}

// holds checks the descriptions of the tests' names.
func holds(t *testing.T, l *ledger, step string, want Description) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if g, p := l.groups[want.Groups[0].ID], l.locations[want.Locations[0].ID]; g != want.Groups[0] || p.Capacity != want.Locations[0].Capacity || p.DeviceLoc != want.Locations[0].DeviceLoc {
		t.Errorf("%s: group %+v, location %+v", step, g, p)
	}
}

// TestNamesArePinned: a name keeps the first exporter's description over restarts of the
// collector. Another description is refused, counted and reported, and accepted once the name
// is unpinned. Rows are stored in any case.
func TestNamesArePinned(t *testing.T) {
	l, log := newLedger(), &logBuffer{}
	cfg := testConfig(t)
	cfg.Logger = log.logger()
	start := func() *collector {
		server, err := NewServer(cfg, l, l)
		if err != nil {
			t.Fatal(err)
		}
		server.reviewEvery = time.Millisecond
		return serveHere(t, server)
	}
	first, other := testDescription(), rewritten()
	s := start()
	pushAs(t, s, "host1", describing(t, first, 1))
	pushAs(t, s, "host2", describing(t, other, 1))
	holds(t, l, "in one process", first)
	s.stop()

	s = start()
	pushAs(t, s, "host2", describing(t, other, 2))
	pushAs(t, s, "host2", describing(t, other, 3))
	holds(t, l, "after a restart", first)
	st := s.Stats()
	if n := st.Total.Refused[ReasonContested]; n != 4 || len(st.Removed) != 1 || st.Removed[0].Refused[ReasonContested] != 4 { // it has no credential
		t.Errorf("%d names are counted, %+v", n, st.Removed)
	}
	l.mu.Lock()
	most := map[uint64]uint64{}
	for _, f := range l.disputes {
		if most[f.GetId()] = max(most[f.GetId()], f.GetCount()); f.GetKind() != finding.ContestedName.String() || f.GetSeverity() != string(finding.ContestedName.Severity()) ||
			!strings.Contains(f.GetEvidence(), `"host2"`) || !strings.Contains(f.GetEvidence(), `"host1"`) || checkFinding(f) != nil {
			t.Errorf("%+v, %v", f, checkFinding(f))
		}
	}
	l.mu.Unlock()
	if len(most) != 2 || most[uint64(first.Groups[0].ID)] != 2 {
		t.Errorf("findings %v, want one of each name with 2 of it", most)
	}
	if text := log.String(); !strings.Contains(text, "reason=contested") || !strings.Contains(text, "leaf1:up1") || !strings.Contains(text, "host1") {
		t.Errorf("log %s", text)
	}

	l.unpin()
	taken := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.groups[other.Groups[0].ID] == other.Groups[0] && l.locations[other.Locations[0].ID].Capacity == 1
	}
	for !taken() { // until the test times out
		time.Sleep(time.Millisecond)
	}
	pushAs(t, s, "host1", describing(t, first, 4))
	holds(t, l, "pinned again", other)
}

// TestDisputeOfSeveralRuns: an exporter describes a name again in other streams and after a restart. The
// collector's finding counts each refusal once, since its rows replace each other.
func TestDisputeOfSeveralRuns(t *testing.T) {
	l := newLedger()
	s := startCollector(t, testConfig(t), l, "")
	pushAs(t, s, "host1", describing(t, testDescription(), 1))
	for _, of := range []streamKey{{"eth0", 7}, {"eth1", 7}, {"eth0", 8}} {
		m := describing(t, rewritten(), 1)
		m.Blocks[0].Stream, m.Blocks[0].Incarnation = of.name, of.incarnation
		pushAs(t, s, "host2", m)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	total := map[uint64]uint64{}
	for _, f := range l.disputes {
		total[f.GetId()] += f.GetCount()
	}
	if len(total) != 2 || total[uint64(testDescription().Groups[0].ID)] != 3 {
		t.Errorf("findings %v, want one of each name with 3 of it", total)
	}
}

// TestOwnNamesHold: exporters cannot change names of the collector's fabric file, and neither
// can another collector of the same store.
func TestOwnNamesHold(t *testing.T) {
	l := newLedger()
	cfg := testConfig(t)
	cfg.Logger = nil
	s := startCollector(t, cfg, l, "")
	s.HoldNames(testDescription())
	m := validRequest(t, 1)
	m.Descriptions = nil
	if _, err := pushTo(t, s, m); err != nil || len(l.rows) != 5 {
		t.Fatalf("%v: a description of the collector's own is asked for", err)
	}
	other := rewritten()
	fresh := fabric.Location{ID: fabric.PortLocationID("leaf9", "up9"), Name: "leaf9:up9", Kind: fabric.KindPort, Capacity: 25e6}
	fresh.Set, fresh.DeviceLoc, fresh.StageLoc = fresh.ID, fresh.ID, fresh.ID
	other.Locations = append(other.Locations, fresh)
	pushAs(t, s, "host1", describing(t, other, 1))
	if len(l.locations) != 1 || l.locations[fresh.ID].Capacity != 25e6 || len(l.groups) != 0 || s.Stats().Total.Refused[ReasonContested] != 2 {
		t.Errorf("locations %v, groups %v, %+v", l.locations, l.groups, s.Stats().Total.Refused)
	}
	file := testDescription()
	l.pins[nameKey{false, uint64(file.Groups[0].ID)}] = fabric.Name{Group: &file.Groups[0], Pinned: true}
	s.HoldNames(Description{Text: "a file without names"})
	pushAs(t, s, "host1", describing(t, other, 2))
	if len(l.groups) != 0 || l.locations[other.Locations[0].ID].Capacity != 1 {
		t.Errorf("groups %v: what a file says is replaced; locations %v: what none says is not taken", l.groups, l.locations)
	}
}

// lastText is a directory that remembers the text that was written last.
type lastText struct {
	*ledger
	text string
}

func (d *lastText) WriteEpoch(ctx context.Context, epoch uint64, text string) error {
	d.text = text
	return d.ledger.WriteEpoch(ctx, epoch, text)
}

// TestOwnTextIsLast: an exporter has another fabric file than the collector. The store has both texts, and
// readers take the topology from the collector's.
func TestOwnTextIsLast(t *testing.T) {
	d := &lastText{ledger: newLedger()}
	cfg := testConfig(t)
	cfg.Logger = nil
	server, err := NewServer(cfg, d.ledger, d)
	if err != nil {
		t.Fatal(err)
	}
	s, other, own := serveHere(t, server), rewritten(), Description{Text: "the collector's configuration"}
	pushAs(t, s, "host1", describing(t, other, 1))
	if d.text != other.Text {
		t.Errorf("without a fabric file %q is last, want the exporter's text", d.text)
	}
	s.HoldNames(own)
	other.Text = "an earlier configuration"
	pushAs(t, s, "host1", describing(t, other, 2))
	if d.text != own.Text || d.epochs[other.Epoch()] != other.Text {
		t.Errorf("%q is last, want the collector's text; the exporter's is %q", d.text, d.epochs[other.Epoch()])
	}
}

// TestTwoFirstExporters: the directory decides between exporters that connect at the same time,
// and gets each description once.
func TestTwoFirstExporters(t *testing.T) {
	l := newLedger()
	var refused []fabric.Name
	l.contested = func(one, _ fabric.Name) { refused = append(refused, one) }
	r := newRegistry(l, nil)
	for range 2 {
		var list []announcement
		for i, d := range []Description{testDescription(), rewritten(), testDescription()} {
			a, _ := r.news(d.toWire(), fmt.Sprint("host", i))
			list = append(list, a)
		}
		if err := r.announce(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	holds(t, l, "together", testDescription())
	if len(refused) != 2 || refused[0].Exporter != "host1" || refused[1].Exporter != "host1" {
		t.Errorf("refused %+v, want both names of host1, once", refused)
	}
}

// TestConflictFoundLater: two collectors of one store accept different descriptions of a name.
// When the store refuses one of them later, that collector disputes it and refuses it from then
// on.
func TestConflictFoundLater(t *testing.T) {
	l := newLedger()
	s := startCollector(t, testConfig(t), l, "")
	first, other := testDescription(), rewritten()
	pushAs(t, s, "host2", describing(t, other, 1))
	held := namesOf(first.toWire(), "host1")[0]
	l.contested(namesOf(other.toWire(), "host2")[0], held)
	if n := s.Stats().Total.Refused[ReasonContested]; n != 1 {
		t.Errorf("%d names are contested, want the group", n)
	}
	pushAs(t, s, "host2", describing(t, other, 2))
	if n := s.Stats().Total.Refused[ReasonContested]; n != 2 {
		t.Errorf("%d names are contested, want the group once more", n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.disputes) != 1 {
		t.Errorf("findings %v", l.disputes)
	}
	for _, f := range l.disputes {
		if f.GetCount() != 2 || !strings.Contains(f.GetEvidence(), `"host1"`) {
			t.Errorf("%v", f)
		}
	}
}

// TestNamesWaitForTheDisk: names that the directory does not accept are passed to it again when
// their exporter retries, and rows are not accepted before.
func TestNamesWaitForTheDisk(t *testing.T) {
	l := newLedger()
	s := startCollector(t, testConfig(t), l, "")
	l.mu.Lock()
	l.fails = errors.New("disk full")
	l.mu.Unlock()
	e := s.client("host1", &s.limits, false)
	defer e.inFlight.Add(-1)
	for range 2 {
		answer, err := s.take(t.Context(), callOfTest(e), describing(t, testDescription(), 1))
		if err == nil {
			t.Errorf("answered %v, want an error: the exporter comes again", answer)
		}
	}
	l.mu.Lock()
	l.fails = nil
	clear(l.pins)
	clear(l.groups)
	l.mu.Unlock()
	pushAs(t, s, "host1", describing(t, testDescription(), 1))
	holds(t, l, "after all", testDescription())
}

// manyNames describes the groups [from, to) of an exporter.
func manyNames(exporter string, from, to int) *wire.Description {
	m := &wire.Description{}
	for i := from; i < to; i++ {
		name := fmt.Sprint(exporter, "-", i)
		m.Groups = append(m.Groups, &wire.Group{Id: uint64(fabric.GroupIDOf(name)), Name: name})
	}
	return m
}

// countingDirectory counts the names passed to it, and keeps none.
type countingDirectory struct {
	*ledger
	given int
}

func (d *countingDirectory) PinNames(_ context.Context, list []fabric.Name) error {
	d.given += len(list)
	return nil
}

// TestMillionNames: an exporter that describes a million names (fewer with -short) uses the
// memory of its share only, while other exporters' names are accepted and cached.
func TestMillionNames(t *testing.T) {
	names := 1_000_000
	if testing.Short() {
		names = maxExporterNames + maxMessageNames
	}
	to := &countingDirectory{ledger: newLedger()}
	r := newRegistry(to, nil)
	describe := func(m *wire.Description, exporter string) (given int) {
		t.Helper()
		before := to.given
		a, refused := r.news(m, exporter)
		if err := r.announce(t.Context(), []announcement{a}); err != nil || len(refused) > 0 {
			t.Fatalf("%v, %d names of %s are refused", err, len(refused), exporter)
		}
		return to.given - before
	}
	before := memory()
	for from := 0; from < names; from += maxMessageNames {
		n := min(maxMessageNames, names-from)
		if given := describe(manyNames("greedy", from, from+n), "greedy"); given != n {
			t.Fatalf("%d of %d names are given to the directory", given, n)
		}
		if from == 0 {
			describe(manyNames("calm", 0, 1000), "calm")
		}
	}
	after := memory()
	t.Logf("%d names of one exporter: %d are remembered, heap %d MiB before and %d after", names, r.names.owners["greedy"].n, before, after)
	if n := r.names.owners["greedy"].n; n != maxExporterNames || after > before+32 {
		t.Errorf("%d names are remembered, heap grew from %d to %d MiB", n, before, after)
	}
	if n := describe(manyNames("calm", 0, 1000), "calm"); n != 0 {
		t.Errorf("%d of the other exporter's names were forgotten", n)
	}
	if n := describe(manyNames("calm", 1000, 2000), "calm"); n != 1000 {
		t.Errorf("%d of the other exporter's new names are given to the directory", n)
	}
	if n := describe(manyNames("greedy", 0, 10), "greedy"); n != 10 {
		t.Errorf("%d forgotten names are given to the directory again, want 10", n)
	}
	runtime.KeepAlive(r)
}

// TestForgottenNamesAreArbitrated: after the registry has evicted a name, the directory refuses
// a different description, and not the first exporter's.
func TestForgottenNamesAreArbitrated(t *testing.T) {
	l := newLedger()
	s := startCollector(t, testConfig(t), l, "")
	first, other := testDescription(), rewritten()
	pushAs(t, s, "host1", describing(t, first, 1))
	forget := func() {
		s.names.mu.Lock()
		defer s.names.mu.Unlock()
		for k := range s.names.names.entries {
			s.names.names.remove(k)
		}
	}
	refusedOf := func(name string) uint64 {
		e := s.client(name, &s.limits, false)
		defer e.inFlight.Add(-1)
		return e.counts.snapshot().Refused[ReasonContested]
	}
	for n := range uint64(3) {
		forget()
		pushAs(t, s, "host2", describing(t, other, n+1))
		pushAs(t, s, "host1", describing(t, first, n+2))
		holds(t, l, "forgotten", first)
		if one, two := refusedOf("host1"), refusedOf("host2"); one != 0 || two != 2*(n+1) {
			t.Errorf("%d names of host1 and %d of host2 are contested, want 0 and %d", one, two, 2*(n+1))
		}
	}
	// Until the directory decides, neither is refused, and each is passed to it once.
	forget()
	l.mu.Lock()
	clear(l.pins)
	decide := l.contested
	l.contested = func(fabric.Name, fabric.Name) {}
	l.mu.Unlock()
	for n := range uint64(2) {
		pushAs(t, s, "host2", describing(t, other, 10+n))
		pushAs(t, s, "host1", describing(t, first, 10+n))
	}
	if one, two := refusedOf("host1"), refusedOf("host2"); one != 0 || two != 6 {
		t.Errorf("%d names of host1 and %d of host2 are contested before the directory has decided", one, two)
	}
	decide(namesOf(other.toWire(), "host2")[0], namesOf(first.toWire(), "host1")[0])
	pushAs(t, s, "host2", describing(t, other, 20))
	pushAs(t, s, "host1", describing(t, first, 20))
	if one, two := refusedOf("host1"), refusedOf("host2"); one != 0 || two != 8 {
		t.Errorf("%d names of host1 and %d of host2 are contested, want the group of host2 twice more", one, two)
	}
}

// TestDisputesOfOneExporterLeaveRoom: an exporter that contests names without end evicts only
// its own disputes.
func TestDisputesOfOneExporterLeaveRoom(t *testing.T) {
	l := newLedger()
	s := startCollector(t, testConfig(t), l, "")
	first, other := testDescription(), rewritten()
	pushAs(t, s, "host2", describing(t, other, 1))
	s.contested(namesOf(other.toWire(), "host2")[0], namesOf(first.toWire(), "host1")[0])
	greedy := s.client("greedy", &s.limits, false)
	defer greedy.inFlight.Add(-1)
	var refused []refusal
	for _, n := range namesOf(manyNames("greedy", 0, 2*maxDisputes), "greedy") {
		refused = append(refused, refusal{Name: n, holder: "host1"})
	}
	s.dispute(greedy, refused)
	of := aggregate.Source{Producer: 1}
	if list, _ := s.names.disputed("host2", of); len(list) != 1 {
		t.Errorf("%d disputes of the other exporter are remembered, want 1", len(list))
	}
	if n := s.names.disputes.owners["greedy"].n; n != maxExporterDisputes {
		t.Errorf("%d disputes are remembered, want %d", n, maxExporterDisputes)
	}
}

// TestDescriptionsAreChecked: ids must match names.
func TestDescriptionsAreChecked(t *testing.T) {
	s := startCollector(t, testConfig(t), newLedger(), "")
	for name, change := range map[string]func(*Description){
		"group":    func(d *Description) { d.Groups[0].ID++ },
		"newline":  func(d *Description) { d.Locations[0].Name = "a\nb" },
		"location": func(d *Description) { d.Locations[0].ID++ },
		"squatted": func(d *Description) { d.Locations[0].Name = "leaf2:up1" },
		"kind":     func(d *Description) { d.Locations[0].Kind = fabric.KindSet },
		"device":   func(d *Description) { d.Locations[0].DeviceLoc = fabric.PortLocationID("leaf2", "up1") },
		"set":      func(d *Description) { d.Locations[0].Set = aggregate.LocationID(5) },
	} {
		bad := testDescription()
		change(&bad)
		request := validRequest(t, 1)
		request.Descriptions[0] = bad.toWire()
		if _, err := pushTo(t, s, request); err == nil {
			t.Errorf("%s: %+v is taken", name, bad)
		}
	}
}

// serveHere serves on any address until the test ends.
func serveHere(t *testing.T, s *Server) *collector {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(ctx, ln); err != nil {
			t.Error(err)
		}
	}()
	stop := func() { cancel(); <-done }
	t.Cleanup(stop)
	return &collector{Server: s, stop: stop}
}
