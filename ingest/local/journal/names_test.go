package journal

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
	"github.com/csigscope/csigscope/ingest/local"
)

func TestMain(m *testing.M) { chdbtest.Main(m) }

// openStore is a store over the engine, that tries as long to write while that is away.
func openStore(t *testing.T, engine *chdb.Engine, retry time.Duration) *store.Store {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{
		Writer: engine.ClickHouseOptions(chdb.RoleWriter), Migrator: engine.ClickHouseOptions(chdb.RoleMigrator),
		Reader: engine.ClickHouseOptions(chdb.RoleReader), RetryFor: retry, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() }) // its engine may be gone
	return db
}

// rowOf is a row of a window, of a group and a location of the network.
func rowOf(source aggregate.Source, net Network, seq uint64, resolution time.Duration, at time.Time) *aggregate.Block {
	d := describe(net, 0)
	group, none := uint64(d.Groups[0].ID), []uint64{0}
	return &aggregate.Block{
		Source: source, Seq: seq, Resolution: resolution.Nanoseconds(), WindowStart: at.Truncate(resolution).UnixNano(),
		Signal: []uint8{0}, Kind: []uint8{0}, Encoding: []uint8{0}, SrcGroup: []uint64{group}, DstGroup: []uint64{group},
		Location:     []uint64{uint64(d.Locations[0].ID)},
		Observations: []uint64{1}, Bytes: []uint64{100}, Trimmed: []uint64{1}, // has no value
		Sum: none, Min: none, Max: none, Untouched: none, Heavy: none, HeavySum: none, DistEnd: []uint32{0},
	}
}

// TestNamesOutliveProcess: one process is killed before the store has its names, the next
// one reloads and ends while the store is away, the third one has another configuration and
// the store. Rows under each configuration have names, runs and configurations.
func TestNamesOutliveProcess(t *testing.T) {
	dir, logger := t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil))
	engine, err := chdb.Start(t.Context(), chdbtest.Options(t, filepath.Join(dir, "store")))
	if err != nil {
		t.Fatal(err)
	}
	away := openStore(t, engine, time.Nanosecond)
	if err := away.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	a, b, c, last := configured(t, 1, "a"), configured(t, 2, "b"), configured(t, 3, "c"), configured(t, 4, "d")
	begin := func(db *store.Store, net Network) (n *Names, end func()) {
		file := place(t, dir, logger)
		n = NewNames(db, nil, logger)
		n.KeepIn(file)
		n.Use(net)
		return n, func() { file.Close() }
	}
	source := func(net Network) aggregate.Source {
		return aggregate.Source{Producer: 1, Incarnation: net.Epoch, Epoch: net.Epoch}
	}
	// took is a checkpoint of one tap, whose rows are under a network.
	took := func(n *Names, net Network) {
		n.see(map[aggregate.Source]bool{source(net): true}, []local.Mark{{Name: "eth0", Source: source(net)}})
	}

	_, killed := begin(away, a)
	killed()

	n, end := begin(away, b)
	took(n, b)
	n.Use(c)
	took(n, c)
	// The group of an address is made when that comes.
	if err := c.Fabric.RestoreMet([]byte(`{"version": 1, "prefixes": ["192.0.2.0/24"]}`)); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Run(over); err != nil {
		t.Fatal(err)
	}
	end()

	db := openStore(t, chdbtest.StartIn(t, filepath.Join(dir, "store")), time.Minute)
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	for _, net := range []Network{b, c} { // are what the outbox has of them
		for i, r := range []time.Duration{time.Second, time.Minute} {
			if err := db.WriteBlock(t.Context(), rowOf(source(net), net, uint64(i+1), r, at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, end = begin(db, last); n.kept.empty() {
		t.Fatal("nothing waits for the store")
	}
	took(n, last)
	over, cancel = context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(over) }()
	for !n.kept.empty() {
		time.Sleep(10 * time.Millisecond) // until the test's own time is up
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	end()

	if err := db.Verify(t.Context(), store.VerifyOptions{Now: time.Now()}, func(f store.Finding) error {
		if !f.Info || f.Table != "gaps" { // what nobody took in after the second process
			t.Errorf("%+v", f)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	groups, err := db.Groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, g := range groups {
		named[g.Name] = true
	}
	for _, want := range []string{"a", "b", "c", "d", "192.0.2.0/24"} {
		if !named[want] {
			t.Errorf("group %s has no name: %q", want, slices.Sorted(maps.Keys(named)))
		}
	}
	if text, err := db.LatestEpoch(t.Context()); err != nil || text != last.Text {
		t.Errorf("the latest configuration is %q, %v", text, err)
	}
}
