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

// ErrForeign is the error for databases with tables that csigscope did not create.
var ErrForeign = errors.New("not a database of csigscope's own")

// Contents sums up a database.
type Contents struct {
	Tables      []TableContents // of partials, finest first, and of records
	First, Last time.Time       // start of the first and last window of all tables; zero without rows
	Bytes       uint64          // on disk, of all tables
	Waiting     uint64          // rows in the outbox for this database
}

// WriteText writes the contents for people to read.
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
	Rows        uint64    // stored: duplicates that are not merged yet count twice
	First, Last time.Time // zero for records
}

// created matches the names of tables and views in statements that create them.
var created = regexp.MustCompile(`^CREATE (?:TABLE IF NOT EXISTS|OR REPLACE VIEW) [A-Za-z0-9_]+\.([A-Za-z0-9_]+)`)

// ownObjects returns the names used by the schema, and by the schema before version 1: views
// first, then tables, and last the record of versions.
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

// object is an existing table or view.
type object struct {
	name  string
	view  bool
	bytes uint64
}

// maxObjects bounds the list of tables read from a database that may not be ours.
const maxObjects = 10_000

func (s *Store) objects(ctx context.Context, conn driver.Conn) ([]object, error) {
	query := fmt.Sprintf("SELECT name, engine LIKE '%%View' AS view, ifNull(total_bytes, 0) AS bytes FROM system.tables WHERE database = '%s' ORDER BY name LIMIT %d",
		s.database, maxObjects)
	var list []object
	err := s.list(ctx, conn, "list tables", query, func(rows driver.Rows) error {
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

// own lists the tables and views of the database on one server. It fails with ErrForeign unless
// all of them are csigscope's: migrated by it, now or before version 1, without a table that is
// not in the schema.
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

// Contents sums up everything that Drop would delete. It fails for the same databases as Drop.
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
	for g := range numResolutionTables {
		t, err := s.countTable(ctx, there, resolutionTableAt(g).table(), "min(window_start), max(window_start)")
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

// add adds a table, unless it does not exist.
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

// countTable counts rows from the server's metadata of parts. The name of the result is empty if
// the table does not exist: a migration was killed before it.
func (s *Store) countTable(ctx context.Context, there []object, name, windows string) (t TableContents, err error) {
	if !slices.ContainsFunc(there, func(o object) bool { return o.name == name }) {
		return t, nil
	}
	t.Name = name
	query := fmt.Sprintf("SELECT count(), %s FROM %s.%s", windows, s.database, name)
	err = s.query(ctx, s.migrator, "count rows", query, func(rows driver.Rows) error {
		return rows.Scan(&t.Rows, &t.First, &t.Last)
	})
	return t, err
}

// Drop deletes the database and all its data permanently, and the rows in the outbox for it,
// which the next store would send again. If the database has any table that csigscope did not
// create, Drop fails with ErrForeign and deletes nothing. The next Drop finishes an interrupted
// one. The database named default is emptied and stays.
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
				continue // an interrupted drop deleted it here, unless it is missing on all servers
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
		// Servers refuse to drop tables above a size limit; the user has already confirmed.
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
