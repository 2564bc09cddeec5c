package handover

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/remote"
)

func TestMain(m *testing.M) { chdbtest.Main(m) }

// collecting serves exporters without a credential under a name, until it is stopped.
func collecting(t *testing.T, db *store.Store, exporter string) (url string, stop func()) {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := remote.NewServer(remote.ServerConfig{Auth: edge.Auth{Anonymous: edge.Peer{Name: exporter}}, Logger: logger}, db, Directory{db})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	return "http://" + ln.Addr().String(), func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// exports sends one row under a description.
func exports(t *testing.T, url string, d remote.Description) {
	t.Helper()
	c, err := remote.OpenClient(remote.ClientConfig{Collectors: []string{url}, Dir: t.TempDir(), SpoolEvery: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Describe(d); err != nil {
		t.Fatal(err)
	}
	s, err := c.StreamOf("eth0", uint64(time.Now().UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	group, zero := []uint64{uint64(d.Groups[0].ID)}, []uint64{0}
	b := &aggregate.Block{
		Source: aggregate.Source{Epoch: d.Epoch()}, Resolution: 1e9, WindowStart: time.Now().Add(-5 * time.Second).Truncate(time.Second).UnixNano(),
		Signal: []uint8{0}, Kind: []uint8{1}, Encoding: []uint8{0}, SrcGroup: group, DstGroup: group, Location: []uint64{uint64(d.Locations[0].ID)},
		Observations: []uint64{1}, Bytes: []uint64{100}, Trimmed: []uint64{1}, Samples: zero, Unjudged: zero, Sum: zero, Min: zero, Max: zero, Untouched: zero, Heavy: zero, HeavySum: zero, Evidence: []uint8{0}, DistEnd: []uint32{0},
	}
	if err := s.WriteBlock(ctx, b); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// describe returns a description of a port and a rack.
func describe(capacity uint64, parent string) remote.Description {
	l := fabric.Location{ID: fabric.PortLocationID("leaf1", "up1"), Name: "leaf1:up1", Kind: fabric.KindPort, Capacity: capacity, Candidates: []string{"leaf1:up1"}, CandidateCount: 1}
	l.Set, l.DeviceLoc, l.StageLoc = l.ID, l.ID, l.ID
	return remote.Description{
		Text: "configuration of " + parent, Locations: []fabric.Location{l},
		Groups: []fabric.Group{{ID: fabric.GroupIDOf("rack1"), Name: "rack1", Level: "rack", Parent: parent}},
	}
}

// TestConflictOfCollectors: two collectors of one store accept their exporters' descriptions,
// each on its own disk. The one that reaches the store later finds the conflict there and
// reports it with its exporter's next items.
func TestConflictOfCollectors(t *testing.T) {
	engine := chdbtest.StartIn(t, t.TempDir())
	var dbs [2]*store.Store
	var urls [2]string
	for i, exporter := range []string{"host1", "host2"} {
		db, err := store.Open(t.Context(), store.Options{
			Writer: engine.ClickHouseOptions(chdb.RoleWriter), Migrator: engine.ClickHouseOptions(chdb.RoleMigrator), Reader: engine.ClickHouseOptions(chdb.RoleReader),
			Outbox: &store.Outbox{Dir: t.TempDir()}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		url, stop := collecting(t, db, exporter)
		defer stop()
		dbs[i], urls[i] = db, url
	}
	for range 2 {
		for i, d := range []remote.Description{describe(400e6, "pod1"), describe(1, "pod2")} {
			exports(t, urls[i], d)
			if err := dbs[i].Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	groups, err := dbs[0].Groups(t.Context())
	locations, failed := dbs[0].Locations(t.Context())
	if err != nil || failed != nil || len(groups) != 1 || groups[0].Parent != "pod1" || len(locations) != 1 || locations[0].Capacity != 400e6 {
		t.Errorf("%+v, %v, %+v, %v: want them as the first exporter said", groups, err, locations, failed)
	}
	now := time.Now()
	found, err := dbs[0].Findings(t.Context(), store.FindingQuestion{From: now.Add(-time.Hour), To: now.Add(time.Hour), Limit: 10})
	if err != nil || len(found) != 2 {
		t.Fatalf("findings %+v, %v, want one of the group and one of the port", found, err)
	}
	for _, f := range found {
		if f.Kind != finding.ContestedName.String() || !strings.Contains(f.Evidence, `exporter "host2" says`) || !strings.Contains(f.Evidence, `"host1", which came first`) {
			t.Errorf("%+v", f)
		}
	}
}

// TestPinsOutliveCollector: in the store, names keep the first exporter's description over a
// restart of the collector, everybody can see the finding, and a running collector notices when
// the names are unpinned.
func TestPinsOutliveCollector(t *testing.T) {
	engine := chdbtest.StartIn(t, t.TempDir())
	db, err := store.Open(t.Context(), store.Options{
		Writer: engine.ClickHouseOptions(chdb.RoleWriter), Migrator: engine.ClickHouseOptions(chdb.RoleMigrator),
		Reader: engine.ClickHouseOptions(chdb.RoleReader), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	meaning := func() (uint64, string) {
		groups, err := db.Groups(t.Context())
		locations, failed := db.Locations(t.Context())
		if err != nil || failed != nil || len(groups) != 1 || len(locations) != 1 {
			t.Fatalf("%v, %v, %v, %v", groups, err, locations, failed)
		}
		return locations[0].Capacity, groups[0].Parent
	}
	url, stop := collecting(t, db, "host1")
	exports(t, url, describe(400e6, "pod1"))
	stop()
	url, stop = collecting(t, db, "host2")
	defer stop()
	exports(t, url, describe(1, "pod2"))
	if capacity, parent := meaning(); capacity != 400e6 || parent != "pod1" {
		t.Errorf("%d kbit/s, parent %q: the second exporter changed what the first one said", capacity, parent)
	}
	now := time.Now()
	found, err := db.Findings(t.Context(), store.FindingQuestion{From: now.Add(-time.Hour), To: now.Add(time.Hour), Limit: 10})
	if err != nil || len(found) != 2 {
		t.Fatalf("findings %+v, %v", found, err)
	}
	for _, f := range found {
		if f.Kind != finding.ContestedName.String() || !strings.Contains(f.Evidence, `"host1"`) || !strings.Contains(f.Evidence, `"host2"`) {
			t.Errorf("%+v", f)
		}
	}
	if err := db.Verify(t.Context(), store.VerifyOptions{Now: now}, func(f store.Finding) error {
		if !f.Info {
			t.Errorf("%+v", f)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if list, err := db.Unpin(t.Context(), []string{"rack1", "leaf1:up1"}); err != nil || len(list) != 2 {
		t.Fatalf("unpinned %+v, %v", list, err)
	}
	for capacity, parent := meaning(); capacity != 1 || parent != "pod2"; capacity, parent = meaning() {
		time.Sleep(10 * time.Millisecond) // until the test times out
	}
}
