package journal

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/local"
)

func TestMain(m *testing.M) { chdbtest.Main(m) }

// openStore opens a store over the engine, which may be down, with an outbox in the folder.
func openStore(t *testing.T, engine *chdb.Engine, dir string) *store.Store {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{
		Writer: engine.ClickHouseOptions(chdb.RoleWriter), Migrator: engine.ClickHouseOptions(chdb.RoleMigrator), Reader: engine.ClickHouseOptions(chdb.RoleReader),
		Outbox: &store.Outbox{Dir: dir}, Later: &store.Later{Patience: time.Minute}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// configured returns a network whose file has a rack with its own name.
func configured(t *testing.T, epoch uint64, rack string) Network {
	t.Helper()
	text := fmt.Sprintf("version: 1\nname: %s\ngroups:\n  - {name: %[1]s, level: rack, prefixes: [10.0.%d.0/24]}\ndevices:\n  - {name: leaf-%[1]s, stage: leaf, id: 1, ports: [{name: up1, id: 1, orientation: up, speed: 100Gbps}]}\n", rack, epoch)
	spec, err := fabric.Parse(strings.NewReader(text), rack+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fabric.New(spec, domain)
	if err != nil {
		t.Fatal(err)
	}
	return Network{Epoch: epoch, Text: "configuration of " + rack, Fabric: f}
}

// derived returns a network without topology: it makes groups as addresses arrive.
func derived(t *testing.T, epoch uint64) Network {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	return Network{Epoch: epoch, Text: "no topology", Fabric: fabric.None(domain)}
}

// rowOf returns a row of a window, with a group and a location of the network.
func rowOf(source aggregate.Source, net Network, seq uint64, resolution time.Duration, at time.Time) *aggregate.Block {
	group, none := uint64(net.Fabric.Groups()[0].ID), []uint64{0}
	return &aggregate.Block{
		Source: source, Seq: seq, Resolution: resolution.Nanoseconds(), WindowStart: at.Truncate(resolution).UnixNano(),
		Signal: []uint8{0}, Kind: []uint8{0}, Encoding: []uint8{0}, SrcGroup: []uint64{group}, DstGroup: []uint64{group},
		Location:     []uint64{uint64(net.Fabric.Locations()[0].ID)},
		Observations: []uint64{1}, Bytes: []uint64{100}, Trimmed: []uint64{1}, // has no value
		Samples: none, Unjudged: none, Sum: none, Min: none, Max: none, Untouched: none, Heavy: none, HeavySum: none, Evidence: []uint8{0}, DistEnd: []uint32{0},
	}
}

// TestNamesOutliveProcess: one process is killed while the store is down; the next one reloads
// and ends before the store is back; the third has another configuration and the store. Rows
// under each configuration have names, runs and configurations.
func TestNamesOutliveProcess(t *testing.T) {
	dir, logger := t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil))
	engine, err := chdb.Start(t.Context(), chdbtest.Options(t, filepath.Join(dir, "store")))
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	a, b, c, last := configured(t, 1, "a"), configured(t, 2, "b"), derived(t, 3), configured(t, 4, "d")
	source := func(net Network) aggregate.Source {
		return aggregate.Source{Producer: 1, Incarnation: net.Epoch, Epoch: net.Epoch}
	}
	mark := func(net Network) local.Mark { return local.Mark{Name: "eth0", Source: source(net)} }
	at := time.Now()
	// took makes a round of one tap with rows under a network.
	took := func(db *store.Store, n *Names, net Network) {
		for i, r := range []time.Duration{time.Second, time.Minute} {
			if err := db.WriteBlock(t.Context(), rowOf(source(net), net, uint64(i+1), r, at)); err != nil {
				t.Fatal(err)
			}
		}
		n.Begin(map[aggregate.Source]bool{source(net): true}, []local.Mark{mark(net)})
		if err := db.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.End(t.Context(), []local.Mark{mark(net)})
	}
	run := func(n *Names) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := n.Run(over); err != nil {
			t.Fatal(err)
		}
	}
	closeStore := func(db *store.Store) {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	box := filepath.Join(dir, "outbox")

	db := openStore(t, engine, box)
	n := NewNames(db, nil, logger)
	n.Use(a)
	took(db, n, a)
	killed := filepath.Join(dir, "killed")
	if err := os.CopyFS(killed, os.DirFS(box)); err != nil {
		t.Fatal(err)
	}
	closeStore(db)

	db = openStore(t, engine, killed)
	n = NewNames(db, []local.Mark{mark(a)}, logger)
	n.Use(b)
	took(db, n, b)
	n.Use(c)
	took(db, n, c)
	// The group of an address is made when the address first appears.
	c.Fabric.Group(netip.MustParseAddr("192.0.2.1"))
	run(n)
	closeStore(db)

	db = openStore(t, chdbtest.StartIn(t, filepath.Join(dir, "store")), killed)
	defer closeStore(db)
	n = NewNames(db, nil, logger)
	n.Use(last)
	took(db, n, last)
	run(n)
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.Verify(t.Context(), store.VerifyOptions{Now: time.Now().Add(24 * time.Hour)}, func(f store.Finding) error {
		if !f.Info || f.Table != "gaps" { // the gap after the first process
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
	for _, want := range []string{"a", "b", "d", "192.0.2.0/24"} {
		if !named[want] {
			t.Errorf("group %s has no name: %q", want, slices.Sorted(maps.Keys(named)))
		}
	}
	if text, err := db.LatestEpoch(t.Context(), ""); err != nil || text != last.Text {
		t.Errorf("the latest configuration is %q, %v", text, err)
	}
}

// TestNamesAreWrittenAgain: names in use are rewritten before the store forgets them.
func TestNamesAreWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	db := openStore(t, chdbtest.StartIn(t, filepath.Join(dir, "store")), filepath.Join(dir, "outbox"))
	defer db.Close()
	n := NewNames(db, nil, slog.New(slog.DiscardHandler))
	a := configured(t, 1, "a")
	n.Use(a)
	pinned := func() bool {
		t.Helper()
		if err := db.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		list, err := db.Names(t.Context(), []aggregate.GroupID{a.Fabric.Groups()[0].ID}, []aggregate.LocationID{a.Fabric.Locations()[0].ID})
		if err != nil || len(list) != 2 || list[0].Pinned != list[1].Pinned {
			t.Fatalf("%+v, %v", list, err)
		}
		return list[0].Pinned
	}
	if !pinned() {
		t.Error("the names are not written")
	}
	if _, err := db.Unpin(t.Context(), []string{"a", a.Fabric.Locations()[0].Name}); err != nil || pinned() {
		t.Fatal(err)
	}
	if n.writeAgain(t.Context()); !pinned() {
		t.Error("the names are not written again")
	}
}
