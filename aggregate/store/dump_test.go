package store

import (
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

//go:generate go test -count=1 -run ^TestDumpOfThisSchema$ . -write-dump

// A dump is the database of an earlier release: the statements that create its tables and views,
// as the engine prints them, and some rows. There is one for every version of the schema from 1
// on; none is ever changed.
var writeDump = flag.Bool("write-dump", false, "write the dump of this schema, unless there is one")

const dumpFolder = "testdata/schemas"

func dumpFile(version uint32) string {
	return filepath.Join(dumpFolder, fmt.Sprintf("%04d.sql", version))
}

// dumps are the files of all versions, oldest first.
func dumps(t testing.TB) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dumpFolder, "*.sql"))
	if err != nil || len(list) == 0 {
		t.Fatalf("no dumps in %s: %v", dumpFolder, err)
	}
	slices.Sort(list)
	return list
}

// fillTables writes a few rows into every table.
func fillTables(t testing.TB, s *Store) {
	t.Helper()
	ctx, rng := t.Context(), rand.New(rand.NewPCG(1, 2))
	replayed := Run{Source: aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}, Mode: RunReplay, Name: "old \"name\";\n.pcap"}
	live := Run{Source: aggregate.Source{Producer: 1 << 63, Incarnation: 1, Epoch: 3}, Mode: RunLive, Name: "tap"}
	for _, r := range []Run{replayed, live} {
		if err := s.BeginRun(ctx, r); err != nil {
			t.Fatal(err)
		}
		for _, resolution := range []time.Duration{10 * time.Millisecond, time.Second, time.Minute} {
			g := traffic{resolution: resolution, windows: 2, groups: 2, locations: 4, signals: allSignals[:2]}
			write(t, s, blocks(g.rows(rng, r.Source)))
		}
	}
	if err := s.EndRun(ctx, replayed); err != nil {
		t.Fatal(err)
	}
	writeAncestry(t, s)
	if err := s.WriteGroups(ctx, []fabric.Group{{ID: 10, Name: "it's", Level: "rack", Order: 1}, {ID: 11, Name: "rack\t2", Level: "rack", Parent: "pod1", Order: 2}}); err != nil {
		t.Fatal(err)
	}
	lost := lossExtent{Producer: 1 << 63, Incarnation: 1, Epoch: 3, Resolution: 1e9, From: testStart.UnixNano(), To: testStart.Add(time.Second).UnixNano(), Rows: 4, Observations: 50}
	if err := s.sendGaps(ctx, gapsOf([]lossExtent{lost}, string(lostFull), 7, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		s.WriteTaps(ctx, []TapRow{aTap(live.Source, 1, testStart)}),
		writeFlows(ctx, s, []FlowRow{aFlow(live.Source, 1, testStart, 1)}),
		s.WriteFindings(ctx, []FindingRow{aFinding(live.Source, 1, testStart)}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Forget(ctx, live.Name); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteEpoch(ctx, 3, "text:\n- of a configuration;\n"); err != nil {
		t.Fatal(err)
	}
}

// readStrings reads one column of strings.
func readStrings(t testing.TB, s *Store, query string) []string {
	t.Helper()
	var list []string
	err := s.query(t.Context(), s.migrator, "read", query, func(rows driver.Rows) error {
		var text string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		list = append(list, text)
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return list
}

// storedColumns are the columns of a table with stored values.
func storedColumns(t testing.TB, s *Store, table string) []string {
	t.Helper()
	return readStrings(t, s, fmt.Sprintf("SELECT name FROM system.columns WHERE database = '%s' AND table = '%s' AND default_kind NOT IN ('EPHEMERAL', 'ALIAS', 'MATERIALIZED') ORDER BY position", s.database, table))
}

func tablesLike(t testing.TB, s *Store, engine string) []string {
	t.Helper()
	return readStrings(t, s, fmt.Sprintf("SELECT name FROM system.tables WHERE database = '%s' AND engine LIKE '%s' ORDER BY name", s.database, engine))
}

// notExpired replaces the time of storing in dumps, so that a dump's rows outlive their
// retention.
const notExpired = "toDateTime('2100-01-01 00:00:00', 'UTC')"

// dump formats the database as statements.
func dump(t testing.TB, s *Store) string {
	t.Helper()
	var out strings.Builder
	fmt.Fprintf(&out, "-- A database of schema version %d. Never changed: migrations start from it.\nCREATE DATABASE %s;\n", s.newest(), s.database)
	tables := tablesLike(t, s, "%MergeTree")
	for _, name := range append(tables, tablesLike(t, s, "View")...) {
		create := readStrings(t, s, "SHOW CREATE TABLE "+s.database+"."+name)
		fmt.Fprintf(&out, "\n%s;\n", create[0])
	}
	for _, table := range tables {
		columns := storedColumns(t, s, table)
		values := strings.Join(columns, ", ")
		values = strings.ReplaceAll(values, "stored_at", notExpired)
		rows := readStrings(t, s, fmt.Sprintf("SELECT formatRow('Values', %s) AS row FROM %s.%s ORDER BY row", values, s.database, table))
		fmt.Fprintf(&out, "\nINSERT INTO %s.%s (%s) VALUES\n%s;\n", s.database, table, strings.Join(columns, ", "), strings.Join(rows, ",\n"))
	}
	return out.String()
}

// newest is the number of the newest tables; the views come after them.
func (s *Store) newest() uint32 { return s.schema[len(s.schema)-2].Version }

// restore runs the statements of a dump. They contain the database's name, and so do the
// checksums of migrations: a dump cannot be restored under another name.
func restore(t testing.TB, s *Store, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range cutStatements(string(text)) {
		if err := s.migrator.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %.100s: %v", file, statement, err)
		}
	}
}

// TestDumpOfThisSchema requires a dump of every version, and writes a missing one with
// -write-dump.
func TestDumpOfThisSchema(t *testing.T) {
	sequential(t)
	s := openStore(t)
	file := dumpFile(s.newest())
	_, err := os.Stat(file)
	switch {
	case err == nil:
		return
	case !os.IsNotExist(err):
		t.Fatal(err)
	case !*writeDump:
		t.Fatalf("%s is missing: a new migration comes with a dump, which make generate writes", file)
	}
	fillTables(t, s)
	if err := os.MkdirAll(dumpFolder, fs.ModePerm); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(dump(t, s)), 0o644); err != nil {
		t.Fatal(err)
	}
}
