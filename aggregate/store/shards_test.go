package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// servers are engines of a cluster, by the ports in its configuration. The first one is the
// configured server. They do not replicate: tables that are complete on every server of a real
// cluster have rows on the first one only.
type servers struct {
	clusters [][][]int
	engines  map[int]*chdb.Engine
	dirs     map[int]string
	doors    map[int]*doors
}

// startServers starts an engine for each server of the clusters, thisServer among them.
func startServers(t *testing.T, clusters ...[][]int) *servers {
	t.Helper()
	c := &servers{clusters: clusters, engines: make(map[int]*chdb.Engine), dirs: make(map[int]string), doors: make(map[int]*doors)}
	for _, cluster := range clusters {
		for _, port := range slices.Concat(cluster...) {
			if c.engines[port] == nil {
				c.engines[port], c.doors[port] = c.start(t, port), new(doors)
			}
		}
	}
	return c
}

// start starts the engine of a server over an empty folder.
func (c *servers) start(t *testing.T, port int) *chdb.Engine {
	t.Helper()
	c.dirs[port] = t.TempDir()
	o := chdbtest.Options(t, c.dirs[port])
	o.ConfigFile = clusterConfig(t, port, c.clusters...)
	return startWith(t, o)
}

func (c *servers) options(t *testing.T) Options {
	t.Helper()
	return c.optionsFrom(t, thisServer)
}

// optionsFrom are the options of a store whose configured server is the one at a port.
func (c *servers) optionsFrom(t *testing.T, port int) Options {
	return Options{
		Writer: c.way(port), Cluster: testCluster, unreplicated: true,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		At: func(address string) (*clickhouse.Options, error) {
			port, err := strconv.Atoi(strings.TrimPrefix(address, "127.0.0.1:"))
			return c.way(port), err
		},
	}
}

// way connects to the engine that has a port at the time.
func (c *servers) way(port int) *clickhouse.Options {
	o := c.engines[port].ClickHouseOptions(chdb.RoleWriter)
	o.TransportFunc = func(t *http.Transport) (http.RoundTripper, error) {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			to, err := c.engines[port].ClickHouseOptions(chdb.RoleWriter).TransportFunc(t)
			if err != nil {
				return nil, err
			}
			return to.RoundTrip(r)
		}), nil
	}
	return c.doors[port].through(o)
}

func (c *servers) conn(t *testing.T, port int) driver.Conn {
	t.Helper()
	conn, err := clickhouse.Open(c.way(port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// on queries one server, even behind a shut door.
func (c *servers) on(t *testing.T, port int, query string) (list []string) {
	t.Helper()
	conn, err := clickhouse.Open(c.engines[port].ClickHouseOptions(chdb.RoleReader))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rows, err := conn.Query(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		list = append(list, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return list
}

func openCluster(t *testing.T, o Options) *Store {
	t.Helper()
	s := open(t, o)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// manyRows are windows of producers, each with flows.
func manyRows(producers, incarnation uint64) (rows []row, flows []FlowRow) {
	g := traffic{resolution: time.Second, windows: 3, groups: 2, locations: 4, signals: allSignals[:2]}
	rng := rand.New(rand.NewPCG(producers, incarnation))
	for producer := range producers {
		source := aggregate.Source{Producer: producer + 1, Incarnation: incarnation, Epoch: 3}
		rows = append(rows, g.rows(rng, source)...)
		flows = append(flows, aFlow(source, 1, testStart, 7))
	}
	return rows, flows
}

// TestShards: the rows of each incarnation go to one shard, partials and flows alike, to
// whichever replica answers; a batch that failed at one shard is sent again, and counts once.
func TestShards(t *testing.T) {
	sequential(t)
	const one, two = 19001, 19002
	c := startServers(t, [][]int{{thisServer}, {one, two}})
	o := c.options(t)
	o.retryFor = time.Millisecond
	s := openCluster(t, o)

	rows, flows := manyRows(20, 1)
	b := new(batch)
	b.reset(batchKey{table: secondTable, partition: partition(secondTable, testStart.UnixNano())}, time.Time{})
	for _, block := range blocks(rows) {
		b.add(block, 0, block.Len())
	}
	to := &server{Store: s}
	c.doors[one].shut.Store(true)
	c.doors[two].shut.Store(true)
	if err := to.sendBatch(t.Context(), b, "token"); !connectionLost(err) {
		t.Errorf("with a shard away: %v, want a lost connection", err)
	}
	c.doors[two].shut.Store(false)
	for range 2 {
		if err := errors.Join(to.sendBatch(t.Context(), b, "token"), s.sendRecords(t.Context(), flowTable.insertion(flows))); err != nil {
			t.Fatal(err)
		}
	}
	const table, all = "SELECT toString((producer, count())) FROM csigscope.%s GROUP BY producer ORDER BY producer", "SELECT toString((producer, shard)) FROM csigscope.shards ORDER BY producer"
	partials := map[int][]string{}
	for _, port := range []int{thisServer, one, two} {
		partials[port] = c.on(t, port, fmt.Sprintf(table, "partials_1s_local"))
	}
	if n := len(partials[thisServer]) + len(partials[two]); n != 20 || len(partials[one]) != 0 || len(partials[thisServer]) < 4 || len(partials[two]) < 4 {
		t.Errorf("producers on the shards' servers: %d, %d and %d, want 20 on the first and the last", len(partials[thisServer]), len(partials[one]), len(partials[two]))
	}
	want := map[uint64]int{}
	for _, r := range rows {
		want[r.source.Producer]++
	}
	for _, got := range slices.Concat(partials[thisServer], partials[two]) {
		var producer uint64
		var n int
		if _, err := fmt.Sscanf(got, "(%d,%d)", &producer, &n); err != nil || want[producer] != n {
			t.Errorf("producer and rows %s, want %d", got, want[producer])
		}
	}
	for port, number := range map[int]int{thisServer: 1, two: 2} {
		producers := c.on(t, port, "SELECT toString(producer) FROM csigscope.partials_1s_local GROUP BY producer ORDER BY producer")
		if got := c.on(t, port, "SELECT toString(producer) FROM csigscope.flows_local GROUP BY producer ORDER BY producer"); !slices.Equal(got, producers) {
			t.Errorf("flows of producers %q on shard %d, want those of %q", got, number, producers)
		}
		pinned := c.on(t, thisServer, fmt.Sprintf("SELECT toString(producer) FROM csigscope.shards WHERE shard = %d ORDER BY producer", number))
		if !slices.Equal(pinned, producers) {
			t.Errorf("shard %d is recorded for producers %q, and has rows of %q", number, pinned, producers)
		}
	}
	found, err := s.present(t.Context(), secondTable, []rowSample{b.probe(0), b.probe(b.rows() - 1)})
	if err != nil || len(found) != 2 {
		t.Errorf("%d rows are present, %v, want 2", len(found), err)
	}
}

// TestPinsHold: collectors that know different shards pin new incarnations at once, and agree.
func TestPinsHold(t *testing.T) {
	sequential(t)
	c := startServers(t, [][]int{{thisServer}, {19001}}, [][]int{{thisServer}, {19001}, {19002}})
	few := openCluster(t, c.options(t))
	o := c.options(t)
	o.Cluster += "2"
	more := open(t, o)
	var list []identity
	for i := range uint64(60) {
		list = append(list, identity{1 + i, 9})
	}
	back := slices.Clone(list)
	slices.Reverse(back)
	stores, orders, pinned, failed := []*Store{few, more}, [][]identity{list, back}, make([]map[identity]uint32, 2), make([]error, 2)
	var both sync.WaitGroup
	for i, s := range stores {
		both.Go(func() { pinned[i], failed[i] = s.pinned(t.Context(), orders[i]) })
	}
	both.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(pinned[0], pinned[1]) || len(pinned[0]) != len(list) {
		t.Errorf("two collectors disagree: %v, %v", pinned[0], pinned[1])
	}
	if n := c.on(t, thisServer, "SELECT toString((count(), uniqExact(producer))) FROM csigscope.shards"); n[0] != "(60,60)" {
		t.Errorf("%s rows and producers are pinned, want 60 of each", n[0])
	}
	// A later shard gets only new incarnations.
	again, err := more.pinned(t.Context(), list)
	if err != nil || !maps.Equal(again, pinned[0]) {
		t.Errorf("with another shard: %v, %v, want %v", again, err, pinned[0])
	}
	for i := range list {
		list[i].incarnation++
	}
	later, err := more.pinned(t.Context(), list)
	if err != nil || !slices.Contains(slices.Collect(maps.Values(later)), 3) {
		t.Errorf("new incarnations are on shards %v, %v, want some on the new one", later, err)
	}
	again, err = few.pinned(t.Context(), list)
	if err != nil || !maps.Equal(again, later) {
		t.Errorf("a collector that does not know the new shard: %v, %v, want %v", again, err, later)
	}
	rows, _ := manyRows(60, 10)
	if err := errors.Join(few.WriteBlock(t.Context(), blockOf(rows[:1])), few.Flush(t.Context())); later[identity{1, 10}] == 3 && !errors.Is(err, ErrCluster) {
		t.Errorf("rows of a shard that is not there: %v, want ErrCluster", err)
	}
}

// TestRendezvous: a new shard takes its part of the identities, and moves no others.
func TestRendezvous(t *testing.T) {
	three := []shard{{number: 1}, {number: 2}, {number: 3}}
	got := map[uint32]int{}
	for i := range uint64(3000) {
		id := identity{i, i % 7}
		before, after := rendezvous(id, three[:2]), rendezvous(id, three)
		if before != after && after != 3 {
			t.Fatalf("%v moves from shard %d to %d", id, before, after)
		}
		got[after]++
	}
	for number, n := range got {
		if n < 900 || n > 1100 {
			t.Errorf("shard %d has %d of 3000", number, n)
		}
	}
}

// TestReplicas: a call that fails at one server goes to the next, which is then the first.
func TestReplicas(t *testing.T) {
	busy, readOnly := &clickhouse.Exception{Code: codeTooManyParts}, &clickhouse.Exception{Code: codeTableReadOnly}
	conns := []*fixedConn{{err: readOnly}, {}, {err: busy}}
	r := newReplicas([]driver.Conn{conns[0], conns[1], conns[2]})
	if err := r.Exec(t.Context(), ""); err != nil {
		t.Error(err)
	}
	if err := r.Exec(t.Context(), ""); err != nil || conns[0].asked != 1 || conns[1].asked != 2 {
		t.Errorf("%v; the servers were asked %d and %d times, want 1 and 2", err, conns[0].asked, conns[1].asked)
	}
	conns[1].err = os.ErrDeadlineExceeded
	if err := r.Exec(t.Context(), ""); !errors.Is(err, busy) {
		t.Errorf("%v, want the last server's error", err)
	}
	conns[2].err = readOnly
	if err := r.Exec(t.Context(), ""); !errors.Is(err, os.ErrDeadlineExceeded) || conns[0].asked != 2 {
		t.Errorf("%v, want an error once all were asked", err)
	}
}

// fixedConn always gives one answer.
type fixedConn struct {
	driver.Conn
	err   error
	asked int
}

func (c *fixedConn) Exec(context.Context, string, ...any) error {
	c.asked++
	return c.err
}

// TestClusterQuestions asks everything with one engine as both of two shards, so that each row
// counts twice: no query exceeds the limits of one server, sums are double, and verification
// finds rows on a second shard.
func TestClusterQuestions(t *testing.T) {
	sequential(t)
	c := startServers(t, [][]int{{thisServer}, {thisServer}})
	s := openCluster(t, c.options(t))
	fillTables(t, s)
	extent, err := s.Extent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	q := testQuestion()
	q.Step = q.Resolution
	cells, err := s.Cells(t.Context(), q)
	if err != nil || len(cells) == 0 || extent.Empty() {
		t.Fatalf("%d cells, %+v, %v", len(cells), extent, err)
	}
	for _, view := range []string{
		q.view(DefaultDatabase, "cells", false, judgedBy(aggregate.DefaultThresholds())), q.view(DefaultDatabase, "cell_windows", true, judgedBy(aggregate.DefaultThresholds())),
		q.view(DefaultDatabase, "location_windows", true), q.view(DefaultDatabase, "top_locations", false), q.totals(DefaultDatabase),
		q.call(DefaultDatabase, "coverage_windows", q.spanArgs(), q.stepArgs()), q.call(DefaultDatabase, "coverage_cells", q.signalArgs(), q.spanArgs()),
		q.call(DefaultDatabase, "group_windows", q.signalArgs(), q.spanArgs(), q.stepArgs(), "group = 'a'"),
		q.call(DefaultDatabase, "group_rhythm", q.signalArgs(), q.spanArgs(), q.stepArgs(), "group = 'a'"),
		s.recordView("tap_totals", q.From, q.To), s.recordView("finding_totals", q.From, q.To), s.flowView(&FlowQuestion{Signal: q.Signal, From: q.From, To: q.To, Resolution: q.Resolution}),
	} {
		_ = readStrings(t, s, "SELECT toString(count()) FROM "+view)
	}
	killed := aggregate.Source{Producer: 1 << 40}
	if err := s.BeginRun(t.Context(), Run{Source: killed, Mode: RunLive}); err != nil {
		t.Fatal(err)
	}
	write(t, s, blocks([]row{delayRow(killed, 1, testStart, time.Second, 1)}))
	if open, _, err := s.openMinutes(t.Context(), q.From, q.To, "1"); err != nil || len(open) != 1 {
		t.Errorf("seconds of a killed process without a minute: %v, %v", open, err)
	}
	q.Resolution, q.To = 0, q.From.Add(2*time.Hour)
	if both, err := s.Cells(t.Context(), q); err != nil || len(both) == 0 {
		t.Errorf("rows of 1 min and 1 s: %d cells, %v", len(both), err)
	}
	found := map[string]bool{}
	err = s.Verify(t.Context(), VerifyOptions{Now: time.Now()}, func(f Finding) error {
		found[f.Check+" in "+f.Table] = true
		return nil
	})
	for _, table := range []string{"partials_fine", "partials_1s", "partials_1m"} {
		if !found["rows on another shard than their run in "+table] || err != nil {
			t.Errorf("verification: %v, %v, want rows of %s on another shard", found, err, table)
		}
	}
}

// TestLostShard is the drill in the README: one of two shards is backed up, takes more rows, and
// is lost with its disk while rows keep arriving. The outbox supplies the waiting rows and those
// missing in the backup, the backup all others. Verification finds nothing on either shard.
func TestLostShard(t *testing.T) {
	sequential(t)
	const lost = 19001
	c := startServers(t, [][]int{{thisServer}, {lost}})
	o := c.options(t)
	s := openCluster(t, o)
	writeAncestry(t, s)
	want := uint64(0)
	live := func(incarnation uint64) {
		t.Helper()
		g := traffic{resolution: 50 * time.Second, windows: 3, groups: 2, locations: 9, signals: allSignals[:3]}
		rng := rand.New(rand.NewPCG(incarnation, 5))
		var runs []Run
		for producer := range uint64(8) {
			run := Run{Source: aggregate.Source{Producer: 1 + producer, Incarnation: incarnation, Epoch: 3}, Mode: RunLive, Name: "tap"}
			runs = append(runs, run)
			if err := s.BeginRun(t.Context(), run); err != nil {
				t.Fatal(err)
			}
			seconds := folded(g.rows(rng, run.Source), time.Second)
			for _, rows := range [][]row{seconds, folded(seconds, time.Minute)} {
				for _, b := range blocks(rows) {
					if err := s.WriteBlock(t.Context(), b); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, r := range seconds {
				want += r.observations
			}
		}
		if err := s.EndRuns(t.Context(), runs); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		s.WriteEpoch(t.Context(), 3, "text"),
		s.WriteGroups(t.Context(), []fabric.Group{{ID: 10, Name: "a"}, {ID: 11, Name: "b"}}),
	)
	if err != nil {
		t.Fatal(err)
	}
	live(1)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(t.TempDir(), "backup")
	if err := c.engines[lost].Backup(t.Context(), DefaultDatabase, backup); err != nil {
		t.Fatal(err)
	}
	o.Outbox = &Outbox{Dir: t.TempDir()}
	s = openCluster(t, o)
	live(2)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	held := c.on(t, lost, "SELECT toString((count(), sum(observations))) FROM csigscope.partials_1s_local FINAL")

	c.doors[lost].shut.Store(true)
	if err := c.engines[lost].Close(); err != nil {
		t.Fatal(err)
	}
	live(3)
	for s.WriterStats().Retries == 0 { // a failed send reveals the loss
		time.Sleep(time.Millisecond)
	}
	c.engines[lost] = c.start(t, lost)
	c.doors[lost].shut.Store(false)
	if err := errors.Join(s.Migrate(t.Context()), s.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	if n := c.on(t, lost, "SELECT toString(incarnation) FROM csigscope.partials_1s_local GROUP BY incarnation ORDER BY incarnation"); !slices.Equal(n, []string{"2", "3"}) {
		t.Errorf("before the backup the shard has incarnations %q, want those of the outbox", n)
	}
	// Rows of the backup and of the outbox replace each other.
	c.restoreShard(t, lost, backup)
	if got := c.on(t, lost, "SELECT toString((count(), sum(observations))) FROM csigscope.partials_1s_local FINAL WHERE incarnation < 3"); !slices.Equal(got, held) {
		t.Errorf("rows and observations of the shard: %s, want %s", got, held)
	}
	got := uint64(0)
	c.replicate(t, s, lost)
	for _, port := range []int{thisServer, lost} {
		from := open(t, c.optionsFrom(t, port))
		n := readStrings(t, from, "SELECT toString(sum(observations)) FROM csigscope.partials_1s FINAL")
		of, err := strconv.ParseUint(n[0], 10, 64)
		if err != nil || of == 0 {
			t.Errorf("server %d has %s observations", port, n[0])
		}
		got += of
		found := faults(t, from)
		delete(found, twice) // a batch for both shards was sent again to both
		if len(found) > 0 {
			t.Errorf("server %d: %v", port, found)
		}
	}
	if got != want {
		t.Errorf("both shards have %d observations, want %d", got, want)
	}
}

// restoreShard restores the split tables of a backup, beside newer rows.
func (c *servers) restoreShard(t *testing.T, port int, backup string) {
	t.Helper()
	if err := os.CopyFS(filepath.Join(c.dirs[port], "backups", "drill"), os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	const statement = "RESTORE TABLE csigscope.partials_fine_local, TABLE csigscope.partials_1s_local, TABLE csigscope.partials_1m_local, TABLE csigscope.flows_local FROM File('drill') SETTINGS allow_non_empty_tables = true"
	if err := c.conn(t, port).Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// replicate copies the tables that are complete on each server to one that lacks them, as
// ZooKeeper would, and lets each server query only the shards that it can reach: engines do not
// listen for each other.
func (c *servers) replicate(t *testing.T, s *Store, to int) {
	t.Helper()
	from := c.conn(t, thisServer)
	for _, name := range c.on(t, thisServer, "SELECT name FROM system.tables WHERE database = 'csigscope' AND engine LIKE '%MergeTree' AND name NOT LIKE '%_local' AND name != 'schema_versions'") {
		rows, err := from.QueryFormat(t.Context(), "JSONEachRow", "SELECT * FROM csigscope."+name)
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(c.conn(t, to).InsertFormat(t.Context(), "JSONEachRow", "INSERT INTO csigscope."+name, rows), rows.Close())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, table := range []string{"partials_fine", "partials_1s", "partials_1m", "flows"} {
		for _, port := range []int{thisServer, to} {
			if err := c.conn(t, port).Exec(t.Context(), "CREATE OR REPLACE TABLE "+s.layout.distributed(table)+" SETTINGS skip_unavailable_shards = 1"); err != nil {
				t.Fatal(err)
			}
		}
	}
}
