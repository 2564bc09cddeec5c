package remote

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// Environment variables of the load and kill tests.
const (
	loadVariable = "CSIGSCOPE_TEST_INGEST_LOAD" // duration, with 500 exporters
	seedVariable = "CSIGSCOPE_TEST_INGEST_SEED" // seed of the kills, to repeat a run
)

// TestKills kills processes of exporters and the collector, which has the real store, while
// they work. In the end the tables contain all blocks that an exporter's spool had accepted,
// complete and once, and otherwise only blocks that were in progress at a kill.
func TestKills(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: what kills processes has nothing for the race detector")
	}
	const kills, every = 20, 4 // each fourth kill is followed by one of the collector
	exporters, each, pause := 30, 3, 150*time.Millisecond
	like := exportersErrand{Dir: t.TempDir(), Cells: 10, Every: 20 * time.Millisecond, Confirm: true}
	if os.Getenv(loadVariable) != "" {
		exporters, each, pause = 500, 10, 3*time.Second
		like.Cells, like.Every = 200, time.Second
	}
	seed := uint64(1)
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d", seed)
	ca, dir := edgetest.NewAuthority(t), t.TempDir()
	_, reader := startEngine(t, dir)
	server := newCollectorErrand(t, dir)
	server.TLS, like.URL = ca.Server(), "https://"+server.Address
	collector := startProcess(t, errand{Collector: server}, nil)
	s := newSpread(t, ca, exporters, each, like)
	s.start()
	rng, died := newRand(t, seed), 0
	for n := range kills {
		time.Sleep(pause/2 + time.Duration(rng.Int64N(int64(pause))))
		victim := s.hosts[rng.IntN(len(s.hosts))]
		victim.kill()
		if n%every == every-1 {
			died++
			collector.kill()
			time.Sleep(time.Duration(rng.Int64N(int64(pause))))
			collector = startProcess(t, errand{Collector: server}, nil)
		}
		victim.start(t)
	}
	time.Sleep(pause)
	for _, h := range s.hosts {
		h.finish()
	}
	for _, h := range s.hosts {
		h.await(3 * time.Minute)
	}
	collector.finish()
	collector.await(3 * time.Minute)
	blocks, doubtful := checkKills(t, reader, s, like.Cells)
	checkStoredFlows(t, reader, blocks)
	t.Logf("%d kills of exporters' processes with %d exporters each, of %d, and %d of the collector: %d blocks accepted by spools are stored once, and %d of those killed at; seed %d",
		kills, each, exporters, died, blocks, doubtful, seed)
	if blocks < 10*exporters {
		t.Errorf("%d blocks: next to none", blocks)
	}
}

// startEngine starts an engine with the schema in a folder, and a reader of it.
func startEngine(t testing.TB, dir string) (*chdb.Engine, driver.Conn) {
	t.Helper()
	engine, err := chdb.Start(t.Context(), chdbtest.Options(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := openStore(t.Context(), engine, t.TempDir(), slog.New(slog.DiscardHandler))
	if err == nil {
		err = s.Migrate(t.Context())
	}
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	reader, err := clickhouse.Open(engine.ClickHouseOptions(chdb.RoleReader))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	})
	return engine, reader
}

// checkKills compares the tables with the blocks that spools had accepted. It counts accepted
// blocks, and stored ones whose acceptance is unknown.
func checkKills(t *testing.T, reader driver.Conn, s *spread, cells int) (accepted, doubtful int) {
	t.Helper()
	stored := storedBlocks(t, reader)
	for _, h := range s.hosts {
		for i, name := range h.errand.Names {
			producer := Producer(name, "eth0")
			one := totalsOf(loadBlock(name, cells))
			times := map[int]int{}
			for _, b := range stored[producer] {
				times[b.number]++
				want := storedBlock{b.number, uint64(cells), one.observations, one.observations*1500 + uint64(b.number*cells), one.sum, one.heavySum}
				if b != want {
					t.Fatalf("%s: stored %+v, want %+v", name, b, want)
				}
			}
			for n := range h.confirmed[i] {
				if times[n] != 1 {
					t.Errorf("%s: block %d is stored %d times, want once", name, n, times[n])
				}
			}
			for n, count := range times {
				if !h.confirmed[i][n] {
					doubtful++
					if !h.doubtful[i][n] || count > 1 {
						t.Errorf("%s: block %d is stored %d times, and was not accepted", name, n, count)
					}
				}
			}
			accepted += len(h.confirmed[i])
			delete(stored, producer)
		}
	}
	if len(stored) > 0 {
		t.Errorf("%d producers that nobody knows", len(stored))
	}
	return accepted, doubtful
}

// storedBlock is a block in the tables: its number, rows, and sums.
type storedBlock struct {
	number                                   int
	rows, observations, bytes, sum, heavySum uint64
}

// storedBlocks returns the blocks in the tables, by producer.
func storedBlocks(t *testing.T, reader driver.Conn) map[uint64][]storedBlock {
	t.Helper()
	query := fmt.Sprintf(`SELECT producer, toUInt64(maxIf(src_group, src_group >= %[1]d) - %[1]d), count(), sum(observations), sum(bytes), sum(sum), sum(heavy_sum)
		FROM csigscope.partials_1s FINAL GROUP BY producer, incarnation, seq`, blockMark)
	rows, err := reader.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	stored := map[uint64][]storedBlock{}
	for rows.Next() {
		var producer, number uint64
		var b storedBlock
		if err := rows.Scan(&producer, &number, &b.rows, &b.observations, &b.bytes, &b.sum, &b.heavySum); err != nil {
			t.Fatal(err)
		}
		b.number = int(number)
		stored[producer] = append(stored[producer], b)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return stored
}

// checkStoredFlows checks that the flows of each block in the tables add up to its rows, in at
// least the given number of blocks.
func checkStoredFlows(t *testing.T, reader driver.Conn, blocks int) {
	t.Helper()
	const key, sums = "producer, incarnation, seq, window_start, signal, source_kind", "observations, bytes, sum, heavy, heavy_sum"
	query := fmt.Sprintf(`SELECT countIf(of_flows != of_rows), uniqExactIf((producer, incarnation, seq), named > 0) FROM (
		SELECT %[1]s, sumIf(is_flow, named) AS named,
			(sumIf(observations, is_flow), sumIf(bytes, is_flow), sumIf(sum, is_flow), sumIf(heavy, is_flow), sumIf(heavy_sum, is_flow)) AS of_flows,
			(sumIf(observations, NOT is_flow), sumIf(bytes, NOT is_flow), sumIf(sum, NOT is_flow), sumIf(heavy, NOT is_flow), sumIf(heavy_sum, NOT is_flow)) AS of_rows
		FROM (
			SELECT true AS is_flow, src != toIPv6('::') OR dst != toIPv6('::') AS named, %[1]s, %[2]s FROM csigscope.flows FINAL WHERE resolution_ns = 1000000000
			UNION ALL
			SELECT false, false, %[1]s, %[2]s FROM csigscope.partials_1s FINAL
		) GROUP BY %[1]s)`, key, sums)
	var differ, with uint64
	if err := reader.QueryRow(t.Context(), query).Scan(&differ, &with); err != nil {
		t.Fatal(err)
	}
	if differ > 0 || with < uint64(blocks) {
		t.Errorf("flows of %d blocks differ from their rows, %d blocks have flows, want all of %d", differ, with, blocks)
	}
}
