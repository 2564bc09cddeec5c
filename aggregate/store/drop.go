package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// ErrForeign is the error of databases that hold what csigscope did not make.
var ErrForeign = errors.New("not a database of csigscope's own")

// Contents is what a database holds.
type Contents struct {
	Tables      []TableContents // of partials, finest first, and of records
	First, Last time.Time       // start of the first and of the last window, in any of them; zero without rows
	Bytes       uint64          // on disk, of all tables
	Waiting     uint64          // rows that wait in the outbox for the database
}

// WriteText writes for people what is in the database.
func (c *Contents) WriteText(w io.Writer) {
	for _, t := range c.Tables {
		fmt.Fprintf(w, "  %-14s %d rows\n", t.Name, t.Rows)
	}
	if c.Waiting > 0 {
		fmt.Fprintf(w, "  %-14s %d rows\n", "outbox", c.Waiting)
	}
	if c.First.IsZero() {
		fmt.Fprintln(w, "  nothing is stored")
		return
	}
	fmt.Fprintf(w, "  windows from %s to %s, %.1f MB on disk\n", c.First.UTC().Format(time.RFC3339), c.Last.UTC().Format(time.RFC3339), float64(c.Bytes)/1e6)
}

// TableContents is one table of partials or records.
type TableContents struct {
	Name        string
	Rows, Bytes uint64    // rows as stored: those written again may count twice
	First, Last time.Time // zero for records
}

// created finds the tables and views that statements make.
var created = regexp.MustCompile(`^CREATE (?:TABLE IF NOT EXISTS|OR REPLACE VIEW) [A-Za-z0-9_]+\.([A-Za-z0-9_]+)`)

// ownObjects are the names that the schema uses: those of views, then those of tables, and
// last the record of versions. They are those of databases from before version 1 too.
func (s *Store) ownObjects() []string {
	var views, tables []string
	for _, m := range s.schema {
		for _, s := range m.Statements {
			name := created.FindStringSubmatch(s)
			switch {
			case name == nil:
			case strings.HasPrefix(s, "CREATE OR REPLACE VIEW"):
				views = append(views, name[1])
			default:
				tables = append(tables, name[1])
			}
		}
	}
	if s.layout.clustered() {
		tables = append(tables, shardsTable)
	}
	return slices.Concat(views, tables, []string{versionsTable, earlierTable})
}

// object is a table or view that is there.
type object struct {
	name  string
	view  bool
	bytes uint64
}

// maxObjects bounds what is read of a database that may not be ours.
const maxObjects = 10_000

func (s *Store) objects(ctx context.Context, conn driver.Conn) ([]object, error) {
	query := fmt.Sprintf("SELECT name, engine LIKE '%%View' AS view, ifNull(total_bytes, 0) AS bytes FROM system.tables WHERE database = '%s' ORDER BY name LIMIT %d",
		s.database, maxObjects)
	var list []object
	err := s.query(ctx, conn, "list tables", query, func(rows driver.Rows) error {
		var o object
		var view uint8
		if err := rows.Scan(&o.name, &view, &o.bytes); err != nil {
			return err
		}
		o.view = view != 0
		list = append(list, o)
		return nil
	})
	return list, err
}

// own lists the tables and views of the database on one server, and fails with ErrForeign unless all of
// them are csigscope's: migrated by it, now or before version 1, without a table that the
// schema does not know.
func (s *Store) own(ctx context.Context, conn driver.Conn) ([]object, error) {
	there, err := s.objects(ctx, conn)
	if err != nil {
		return nil, err
	}
	if len(there) == 0 {
		return nil, fmt.Errorf("read schema at %s, database %s: %w", s.host, s.database, ErrNoSchema)
	}
	foreign := func(why string) error {
		return fmt.Errorf("database %s at %s: %w: %s", s.database, s.host, ErrForeign, why)
	}
	if !slices.ContainsFunc(there, func(o object) bool { return o.name == versionsTable || o.name == earlierTable }) {
		return nil, foreign("it has no table " + versionsTable)
	}
	if _, err := s.statusOf(ctx, conn); err != nil && !errors.Is(err, ErrEarlierSchema) {
		return nil, err
	}
	known := s.ownObjects()
	for _, o := range there {
		if !slices.Contains(known, o.name) {
			return nil, foreign("the schema has no table " + o.name)
		}
	}
	return there, nil
}

// Contents tells what Drop would delete, and fails as Drop does.
func (s *Store) Contents(ctx context.Context) (Contents, error) {
	there, err := s.own(ctx, s.migrator)
	if err != nil {
		return Contents{}, err
	}
	var c Contents
	bytes := make(map[string]uint64)
	for _, sh := range s.shards(s.migrator) {
		objects, err := s.objects(ctx, sh.conn)
		if err != nil {
			return Contents{}, err
		}
		for _, o := range objects {
			c.Bytes += o.bytes
			bytes[strings.TrimSuffix(o.name, localSuffix)] += o.bytes
		}
	}
	for i := range there {
		there[i].bytes = bytes[there[i].name]
	}
	for g := range numGrains {
		t, err := s.countTable(ctx, there, grainAt(g).table(), "min(window_start), max(window_start)")
		if err != nil {
			return Contents{}, err
		}
		c.add(t)
	}
	for _, name := range recordTables() {
		t, err := s.countTable(ctx, there, name, "toDateTime64(0, 9, 'UTC'), toDateTime64(0, 9, 'UTC')")
		if err != nil {
			return Contents{}, err
		}
		t.First, t.Last = time.Time{}, time.Time{}
		c.add(t)
	}
	for _, d := range s.deliveries {
		c.Waiting += d.log.Stats().Waiting.Weight
	}
	return c, nil
}

// add takes a table that is there.
func (c *Contents) add(t TableContents) {
	if t.Name == "" {
		return
	}
	c.Tables = append(c.Tables, t)
	if t.Rows == 0 || t.First.IsZero() {
		return
	}
	if c.First.IsZero() || t.First.Before(c.First) {
		c.First = t.First
	}
	c.Last = later(c.Last, t.Last)
}

// countTable is answered from what the server knows of parts. It has no name for a table
// that is not there: a migration was killed before it.
func (s *Store) countTable(ctx context.Context, there []object, name, windows string) (t TableContents, err error) {
	at := slices.IndexFunc(there, func(o object) bool { return o.name == name })
	if at < 0 {
		return t, nil
	}
	t.Name, t.Bytes = name, there[at].bytes
	query := fmt.Sprintf("SELECT count(), %s FROM %s.%s", windows, s.database, name)
	err = s.query(ctx, s.migrator, "count rows", query, func(rows driver.Rows) error {
		return rows.Scan(&t.Rows, &t.First, &t.Last)
	})
	return t, err
}

// Drop deletes the database and all that it holds, for good. It fails with ErrForeign
// where there is anything that csigscope did not make, and deletes nothing then. A drop
// that was interrupted is finished by the next. The database named default stays, empty.
// What the outbox holds for it goes too, or the next store would send it again.
//
// On a cluster all servers must answer.
func (s *Store) Drop(ctx context.Context) error {
	var servers []driver.Conn
	for _, sh := range s.shards(s.migrator) {
		for _, m := range sh.members {
			servers = append(servers, m.conn)
		}
	}
	if s.fleet == nil {
		servers = append(servers, s.migrator)
	}
	dropped := 0
	for _, conn := range servers {
		_, err := s.own(ctx, conn)
		if errors.Is(err, ErrNoSchema) {
			if dropped++; dropped < len(servers) {
				continue // by a drop that was interrupted, unless it is so on all servers
			}
		}
		if err != nil {
			return err
		}
	}
	for _, d := range s.deliveries {
		if err := d.log.Clear(); err != nil {
			return err
		}
	}
	for _, conn := range servers {
		if err := s.dropOn(ctx, conn); err != nil {
			return err
		}
	}
	return nil
}

// dropOn deletes the database of one server.
func (s *Store) dropOn(ctx context.Context, conn driver.Conn) error {
	there, err := s.objects(ctx, conn)
	if err != nil {
		return err
	}
	for _, name := range s.ownObjects() {
		at := slices.IndexFunc(there, func(o object) bool { return o.name == name })
		if at < 0 {
			continue
		}
		kind, limit := "TABLE", " SETTINGS max_table_size_to_drop = 0"
		if there[at].view {
			kind, limit = "VIEW", ""
		}
		// Servers hold back what is larger than a limit; the user was asked already.
		statement := fmt.Sprintf("DROP %s IF EXISTS %s.%s SYNC%s", kind, s.database, name, limit)
		if err := conn.Exec(ctx, statement); err != nil {
			return s.describe("drop "+name, err)
		}
	}
	if s.database == "default" {
		return nil
	}
	return s.describe("drop database "+s.database, conn.Exec(ctx, "DROP DATABASE IF EXISTS "+s.database+" SYNC"))
}
