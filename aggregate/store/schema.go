package store

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// DefaultDatabase is the database that holds the schema unless another is named.
const DefaultDatabase = "csigscope"

// databaseName matches valid names of databases: names are part of statements, which cannot take
// them as parameters.
var databaseName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// resolutionTable is one table of partials.
type resolutionTable struct {
	Suffix    string
	Length    time.Duration // of a window; 0 in the fine table, whose rows have a column for it
	KeyStart  string        // function of window_start
	Partition string
	Retention string
	Windows   string
}

// Fine reports whether rows have windows of any length below 1 s.
func (g resolutionTable) Fine() bool { return g.Length == 0 }

func (g resolutionTable) table() string { return "partials_" + g.Suffix }

// during is the SQL condition for windows that start in a range. Functions of later times than those that
// can be stored overflow.
func (g resolutionTable) during(from, to time.Time) string {
	if _, end := Everything(); to.After(end) {
		to = end
	}
	return fmt.Sprintf("window_start >= '%[1]s' AND window_start < '%[2]s' AND indexHint(%[3]s(window_start) >= %[3]s(toDateTime64('%[1]s', 9, 'UTC')), %[3]s(window_start) <= %[3]s(toDateTime64('%[2]s', 9, 'UTC')))",
		stamp(from), stamp(to), g.KeyStart)
}

const (
	fineTable = iota
	secondTable
	minuteTable
	numResolutionTables
)

// resolutionTableAt returns the table of partials at index i; table 0 has the finest windows.
// Partitions follow windows, never the time of insertion, and are so long that a default retention
// is about ten of them.
func resolutionTableAt(i int) resolutionTable {
	switch i {
	case fineTable:
		return resolutionTable{"fine", 0, "toStartOfMinute", "toStartOfHour(window_start)", "6 HOUR", "windows below 1 s"}
	case secondTable:
		return resolutionTable{"1s", time.Second, "toStartOfMinute", "toYYYYMMDD(window_start)", "14 DAY", "1 s windows"}
	}
	return resolutionTable{"1m", time.Minute, "toStartOfHour", "toYYYYMM(window_start)", "400 DAY", "1 min windows"}
}

// partition is the start of a window's partition, Unix ns.
func partition(g int, windowStart int64) int64 {
	t := time.Unix(0, windowStart).UTC()
	switch g {
	case fineTable:
		return t.Truncate(time.Hour).UnixNano()
	case secondTable:
		return t.Truncate(24 * time.Hour).UnixNano()
	}
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC).UnixNano()
}

// CheckResolution returns an error if no table holds windows of this length.
func CheckResolution(d time.Duration) error {
	_, err := resolutionTableOf(d)
	return err
}

// resolutionTableOf returns the index of the table for windows of a length.
func resolutionTableOf(resolution time.Duration) (int, error) {
	switch {
	case resolution == time.Minute:
		return minuteTable, nil
	case resolution == time.Second:
		return secondTable, nil
	case resolution > 0 && resolution < time.Second:
		return fineTable, nil
	}
	return 0, fmt.Errorf("find table for windows of %s: expected 1 min, 1 s or less than 1 s", resolution)
}

// migration is one step of the schema: tables under a number, or all views.
type migration struct {
	Version    uint32 // 0: the views
	Name       string
	Statements []string
	tables     uint32 // of the views: the version of the tables that they read
}

// sqlData is the data of the migration files, which are templates.
type sqlData struct {
	Database     string
	UnpackCodes  string
	UnpackCounts string
	Tables       []sqlTable
	Sources      []sqlTable // of views: the tables, and rows of 1 min and 1 s together
}

// sqlTable is a table, or what a view reads of it.
type sqlTable struct {
	resolutionTable
	Database   string
	Either     bool // it is read, or a part of it, as rows of 1 min and 1 s together
	Windowed   bool // the view's rows are per window of step_ns
	AllSignals bool
	Judging    bool // only rows that decide states
}

// eitherSuffix ends the names of views that read rows of 1 min and of 1 s.
const eitherSuffix = "either"

// InWindows returns g with Windowed set.
func (g sqlTable) InWindows() sqlTable {
	g.Windowed = true
	return g
}

// OfAllSignals returns g with AllSignals set.
func (g sqlTable) OfAllSignals() sqlTable {
	g.AllSignals = true
	return g
}

// ThatJudge returns g with Judging set.
func (g sqlTable) ThatJudge() sqlTable {
	g.Judging = true
	return g
}

// Both reports whether these are rows of 1 min and 1 s.
func (g sqlTable) Both() bool { return g.Suffix == eitherSuffix }

// Minutes are the rows of 1 min of both.
func (g sqlTable) Minutes() sqlTable { return g.of(minuteTable) }

// Seconds are the rows of 1 s of both.
func (g sqlTable) Seconds() sqlTable { return g.of(secondTable) }

func (g sqlTable) of(i int) sqlTable {
	g.resolutionTable = resolutionTableAt(i)
	return g
}

// unpack is an expression that converts a packed column to an array of integers. Servers since
// 25.8 do it in one step, six times as fast as element by element.
func unpack(v version, column string, bits int) string {
	if !v.before(version{25, 8}) {
		return fmt.Sprintf("reinterpret(%s, 'Array(UInt%d)')", column, bits)
	}
	width := bits / 8
	return fmt.Sprintf("arrayMap(i -> reinterpretAsUInt%d(substring(%s, toUInt64(i * %d + 1), %d)), range(toUInt64(intDiv(length(%s), %d))))",
		bits, column, width, width, column, width)
}

// migrations renders the schema of a database on servers of a version, in the order of
// application: tables by their numbers, then the views, which read the newest tables.
func migrations(l layout, server version) ([]migration, error) {
	if !databaseName.MatchString(l.database) {
		return nil, fmt.Errorf("name database %q: expected letters, digits and _, at most 64", l.database)
	}
	data := sqlData{
		Database:     l.database,
		UnpackCodes:  unpack(server, "dist_codes", 16),
		UnpackCounts: unpack(server, "dist_counts", 64),
	}
	for i := range numResolutionTables {
		data.Tables = append(data.Tables, sqlTable{resolutionTable: resolutionTableAt(i), Database: l.database})
	}
	data.Sources = append(slices.Clip(data.Tables), sqlTable{resolutionTable: resolutionTable{Suffix: eitherSuffix, Length: time.Minute}, Database: l.database, Either: true})
	files, err := template.ParseFS(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("parse migrations: %w", err)
	}
	names, err := fs.Glob(migrationFiles, "migrations/[0-9]*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	list := make([]migration, 0, len(names)+1)
	for _, path := range append(names, "migrations/views.sql") {
		m, err := render(files, strings.TrimPrefix(path, "migrations/"), data, l)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	list[len(list)-1].tables = list[len(list)-2].Version
	return list, nil
}

func render(files *template.Template, file string, data sqlData, l layout) (migration, error) {
	name, version := strings.TrimSuffix(file, ".sql"), uint64(0)
	if number, rest, ok := strings.Cut(name, "_"); ok {
		var err error
		if version, err = strconv.ParseUint(number, 10, 32); err != nil || version == 0 {
			return migration{}, fmt.Errorf("read migration %s: expected a name like 0001_tables.sql", file)
		}
		name = rest
	}
	var text strings.Builder
	if err := files.ExecuteTemplate(&text, file, data); err != nil {
		return migration{}, fmt.Errorf("render migration %s: %w", file, err)
	}
	m := migration{Version: uint32(version), Name: name}
	for _, statement := range cutStatements(text.String()) {
		list, err := l.translate(statement)
		if err != nil {
			return migration{}, fmt.Errorf("render migration %s: %w", file, err)
		}
		m.Statements = append(m.Statements, list...)
	}
	return m, nil
}

// cutStatements cuts a file into statements, each ended by a semicolon at the end of a line,
// without comment lines.
func cutStatements(text string) []string {
	var statements []string
	var current []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		if line == "" || strings.HasPrefix(strings.TrimSpace(line), "--") {
			continue
		}
		body, end := strings.CutSuffix(line, ";")
		current = append(current, body)
		if end {
			statements = append(statements, strings.Join(current, "\n"))
			current = nil
		}
	}
	if len(current) > 0 {
		statements = append(statements, strings.Join(current, "\n"))
	}
	return statements
}

// Statements returns the whole schema for a database on a current server, in order. Running the
// statements again changes nothing.
func Statements(database string) ([]string, error) { return statements(layout{database: database}) }

func statements(l layout) ([]string, error) {
	list, err := migrations(l, currentServer)
	if err != nil {
		return nil, err
	}
	statements := l.bookkeeping()
	for _, m := range list {
		statements = append(statements, m.Statements...)
	}
	return statements, nil
}

// ErrOldServer is the error for servers that are too old for the schema.
var ErrOldServer = errors.New("server too old")

// version is a server's version, which decides the features to use.
type version struct{ major, minor int }

// The oldest server that supports the views, and one that supports every optional feature in use.
var (
	oldestServer  = version{24, 8}
	currentServer = version{26, 7}
)

func (v version) before(o version) bool {
	return v.major < o.major || v.major == o.major && v.minor < o.minor
}

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

// parseVersion parses the answer to SELECT version(), such as "26.7.2.1", and refuses servers
// that are too old.
func parseVersion(s string) (version, error) {
	parts := strings.SplitN(s, ".", 3)
	if len(parts) < 2 {
		return version{}, fmt.Errorf("read server version %q: expected MAJOR.MINOR", s)
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return version{}, fmt.Errorf("read server version %q: %w", s, err)
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return version{}, fmt.Errorf("read server version %q: %w", s, err)
	}
	v := version{major, minor}
	if v.before(oldestServer) {
		return v, fmt.Errorf("use server %s: %w: need ClickHouse %s or later, or --store embedded", s, ErrOldServer, oldestServer)
	}
	return v, nil
}
