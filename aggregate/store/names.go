package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// The tables of names, and their columns.
const (
	groupNames      = "groups"
	locationNames   = "locations"
	groupColumns    = "id, name, level, parent, ord"
	locationColumns = "id, name, kind, device, stage, orientation, capacity, candidates, candidate_count, set_id, device_id, stage_id, peer, far_end_id"
	pinColumns      = "exporter, pinned"
)

// nameRecord is a record of the names behind ids in rows, and of started runs.
type nameRecord struct {
	Epochs    []epochText       `json:",omitempty"`
	Groups    []fabric.Group    `json:",omitempty"`
	Locations []fabric.Location `json:",omitempty"`
	Runs      []Run             `json:",omitempty"`
	Pins      []fabric.Name     `json:",omitempty"`
}

// epochText is the text of an epoch, of any bytes.
type epochText struct {
	Epoch uint64
	Text  []byte
}

// namesTarget is a destination of names.
type namesTarget interface {
	sendRecords(ctx context.Context, in insertion) error
	pinNames(ctx context.Context, list []fabric.Name) error
}

// send writes names once; writing them again replaces them.
func (r *nameRecord) send(ctx context.Context, to namesTarget) error {
	for _, in := range []insertion{
		epochTable.insertion(r.Epochs), groupTable.insertion(r.Groups), locationTable.insertion(r.Locations), runTable("started").insertion(r.Runs),
	} {
		if in.rows == 0 {
			continue
		}
		if err := to.sendRecords(ctx, in); err != nil {
			return err
		}
	}
	if len(r.Pins) == 0 {
		return nil
	}
	return to.pinNames(ctx, r.Pins)
}

// writeNames stores a list of one kind. With an outbox the names are on disk when writeNames
// returns, and are sent before all rows; without one it waits for the server.
func writeNames[T any](ctx context.Context, s *Store, what string, list []T, add func(*nameRecord, []T)) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	for part := range slices.Chunk(list, namesAtOnce) {
		var r nameRecord
		add(&r, part)
		var err error
		if len(s.deliveries) > 0 {
			err = s.deliveries[0].takeJSON(namesClass, &r)
		} else {
			err = s.retry.do(ctx, func(ctx context.Context) error { return r.send(ctx, s) })
		}
		if err != nil {
			return s.describe(what, err)
		}
	}
	return nil
}

// WriteGroups stores the meaning of group ids from a fabric file. It replaces groups that exist,
// whoever described them. Like all writers of names it returns when they are on disk if there is
// an outbox.
func (s *Store) WriteGroups(ctx context.Context, groups []fabric.Group) error {
	return writeNames(ctx, s, "write groups", groups, func(r *nameRecord, part []fabric.Group) { r.Groups = part })
}

var groupTable = recordTable[fabric.Group]{
	into:   "groups (" + groupColumns + ")",
	append: func(to driver.Batch, g *fabric.Group) error { return to.Append(groupRow(g)...) },
}

// WriteLocations stores the meaning of location ids, and their coarser locations, which are the
// levels of questions. It replaces locations that exist.
func (s *Store) WriteLocations(ctx context.Context, locations []fabric.Location) error {
	return writeNames(ctx, s, "write locations", locations, func(r *nameRecord, part []fabric.Location) { r.Locations = part })
}

var locationTable = recordTable[fabric.Location]{
	into:   "locations (" + locationColumns + ")",
	append: func(to driver.Batch, l *fabric.Location) error { return to.Append(locationRow(l)...) },
}

func groupRow(g *fabric.Group) []any {
	return []any{uint64(g.ID), g.Name, g.Level, g.Parent, uint32(max(g.Order, 0))}
}

func locationRow(l *fabric.Location) []any {
	return []any{
		uint64(l.ID), l.Name, l.Kind, l.Device, l.Stage, l.Orientation, l.Capacity,
		l.Candidates, uint32(max(l.CandidateCount, 0)), uint64(l.Set), uint64(l.DeviceLoc), uint64(l.StageLoc), l.Peer, uint64(l.FarEnd),
	}
}

// PinNames stores groups and locations as described by exporters, except those with another
// pinned description: see NotifyContested.
func (s *Store) PinNames(ctx context.Context, list []fabric.Name) error {
	return writeNames(ctx, s, "write names", list, func(r *nameRecord, part []fabric.Name) { r.Pins = part })
}

// NotifyContested sets f to be called for each name given to PinNames that is not stored, since
// another description of it is pinned. Several goroutines may call f at once.
func (s *Store) NotifyContested(f func(refused, held fabric.Name)) { s.contested.Store(&f) }

// nameID is the identity of a name.
type nameID struct {
	table string
	id    uint64
}

func idOf(n *fabric.Name) nameID {
	if n.Group != nil {
		return nameID{groupNames, uint64(n.Group.ID)}
	}
	return nameID{locationNames, uint64(n.Location.ID)}
}

// pinNames stores the names that are free, and reports the others. Of two processes that do so at
// once, the later one wins.
func (s *Store) pinNames(ctx context.Context, list []fabric.Name) error {
	var groups []aggregate.GroupID
	var locations []aggregate.LocationID
	for i := range list {
		if g := list[i].Group; g != nil {
			groups = append(groups, g.ID)
		} else {
			locations = append(locations, list[i].Location.ID)
		}
	}
	stored, err := s.Names(ctx, groups, locations)
	if err != nil {
		return err
	}
	pinned := make(map[nameID]*fabric.Name)
	for i := range stored {
		if stored[i].Pinned {
			pinned[idOf(&stored[i])] = &stored[i]
		}
	}
	free := make(map[string][]fabric.Name) // by table
	var refused, held []fabric.Name
	for i := range list {
		n, id := &list[i], idOf(&list[i])
		holder := pinned[id]
		switch {
		case holder == nil: // the first one in the list wins
			pinned[id] = n
			free[id.table] = append(free[id.table], *n)
		case !holder.Means(n):
			refused, held = append(refused, *n), append(held, *holder)
		}
	}
	used := make(map[string][]uint64) // by table
	for id := range pinned {
		used[id.table] = append(used[id.table], id.id)
	}
	// A repeated description shows that the name is in use.
	for _, table := range []string{groupNames, locationNames} {
		if len(stored) == 0 || len(used[table]) == 0 {
			continue
		}
		if err := s.renew(ctx, table, "id IN ("+idList(used[table])+")"); err != nil {
			return err
		}
	}
	for _, in := range []insertion{pinnedGroupTable.insertion(free[groupNames]), pinnedLocationTable.insertion(free[locationNames])} {
		if in.rows == 0 {
			continue
		}
		if err := s.sendRecords(ctx, in); err != nil {
			return err
		}
	}
	if f := s.contested.Load(); f != nil {
		for i := range refused {
			(*f)(refused[i], held[i])
		}
	}
	return nil
}

var pinnedGroupTable = recordTable[fabric.Name]{
	into: "groups (" + groupColumns + ", " + pinColumns + ")",
	append: func(to driver.Batch, n *fabric.Name) error {
		return to.Append(append(groupRow(n.Group), n.Exporter, n.Pinned)...)
	},
}

var pinnedLocationTable = recordTable[fabric.Name]{
	into: "locations (" + locationColumns + ", " + pinColumns + ")",
	append: func(to driver.Batch, n *fabric.Name) error {
		return to.Append(append(locationRow(n.Location), n.Exporter, n.Pinned)...)
	},
}

// namesAtOnce is the maximum number of names in a record, and of ids in a query.
const namesAtOnce = 4096

// Names returns the stored names of these groups and locations, in no order.
func (s *Store) Names(ctx context.Context, groups []aggregate.GroupID, locations []aggregate.LocationID) (list []fabric.Name, err error) {
	for ids := range slices.Chunk(groups, namesAtOnce) {
		query := fmt.Sprintf("SELECT %s, %s FROM %s.groups FINAL WHERE id IN (%s)", groupColumns, pinColumns, s.database, idList(ids))
		err := s.query(ctx, s.reader, "read groups", query, func(rows driver.Rows) error {
			var n fabric.Name
			g, err := scanGroup(rows, &n.Exporter, &n.Pinned)
			n.Group = &g
			list = append(list, n)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for ids := range slices.Chunk(locations, namesAtOnce) {
		query := fmt.Sprintf("SELECT %s, %s FROM %s.locations FINAL WHERE id IN (%s)", locationColumns, pinColumns, s.database, idList(ids))
		err := s.query(ctx, s.reader, "read locations", query, func(rows driver.Rows) error {
			var n fabric.Name
			l, err := scanLocation(rows, &n.Exporter, &n.Pinned)
			n.Location = &l
			list = append(list, n)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

func idList[ID ~uint64](ids []ID) string {
	var b []byte
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(id), 10)
	}
	return string(b)
}

// UnpinnedName is a group or location that accepts its next description.
type UnpinnedName struct {
	Kind, Name, Exporter string // Kind is "group", or the location's kind
	At                   time.Time
}

// Unpin makes groups and locations with these names accept their next description, whoever gives
// it; without names, all that exporters have described. It returns those that were pinned.
func (s *Store) Unpin(ctx context.Context, names []string) (list []UnpinnedName, err error) {
	if s.writer == nil {
		return nil, ErrReadOnly
	}
	where := "pinned AND exporter != ''"
	if len(names) > 0 {
		quoted := make([]string, len(names))
		for i, name := range names {
			quoted[i] = fmt.Sprintf("unhex('%x')", name)
		}
		where = "pinned AND name IN (" + strings.Join(quoted, ", ") + ")"
	}
	for _, t := range []struct{ name, kind, columns string }{{"groups", "'group'", groupColumns}, {"locations", "toString(kind)", locationColumns}} {
		query := fmt.Sprintf("SELECT %s, name, exporter, at FROM %s.%s FINAL WHERE %s ORDER BY name, id", t.kind, s.database, t.name, where)
		err := s.query(ctx, s.reader, "read "+t.name, query, func(rows driver.Rows) error {
			var u UnpinnedName
			err := rows.Scan(&u.Kind, &u.Name, &u.Exporter, &u.At)
			list = append(list, u)
			return err
		})
		if err != nil {
			return nil, err
		}
		statement := fmt.Sprintf("INSERT INTO %[1]s.%[2]s (%[3]s, %[4]s) SELECT %[3]s, exporter, false FROM %[1]s.%[2]s FINAL WHERE %[5]s",
			s.database, t.name, t.columns, pinColumns, where)
		if err := s.describe("unpin "+t.name, s.names.Exec(s.inserting(ctx, nil), statement)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// WriteEpoch stores the configuration behind the rows of an epoch; epoch is a hash of text.
func (s *Store) WriteEpoch(ctx context.Context, epoch uint64, text string) error {
	list := []epochText{{epoch, []byte(text)}}
	return writeNames(ctx, s, "write epoch", list, func(r *nameRecord, part []epochText) { r.Epochs = part })
}

var epochTable = recordTable[epochText]{
	into:   "epochs (epoch, text)",
	append: func(to driver.Batch, e *epochText) error { return to.Append(e.Epoch, e.Text) },
}

// longestEpoch bounds the text of an epoch when it is read, in bytes. The text of the largest fabric
// file is shorter.
const longestEpoch = 64 << 20

// LatestEpoch returns the text of the last written epoch, of those with a line that begins with the
// prefix; "" for all. It is empty if there is none or if the text is longer than 64 MiB.
func (s *Store) LatestEpoch(ctx context.Context, prefix string) (text string, err error) {
	where := ""
	if prefix != "" {
		where = fmt.Sprintf("WHERE position(concat('\n', text), %s) > 0", literal("\n"+prefix))
	}
	query := fmt.Sprintf("SELECT if(length(text) <= %d, text, '') FROM %s.epochs %s ORDER BY at DESC, epoch LIMIT 1", longestEpoch, s.database, where)
	err = s.query(ctx, s.reader, "read epoch", query, func(rows driver.Rows) error { return rows.Scan(&text) })
	return text, err
}

// Bounds of lists: names described by exporters only, in total and of each exporter. An API
// server holds them in memory, at about 500 bytes each, and lists all locations in one answer.
const (
	maxListedGroups, maxListedGroupsOf       = 1 << 18, 1 << 16
	maxListedLocations, maxListedLocationsOf = 1 << 16, 1 << 14
)

// listed is the condition for names in a list: all of fabric files, and up to a bound of each
// exporter. Of an exporter's names, those used in the last two days come first, and among them
// those that it described first: new names do not displace older ones that are in use.
func (s *Store) listed(table string, of, all int) string {
	return fmt.Sprintf(`(exporter = '' OR id IN (SELECT id FROM (
SELECT id, row_number() OVER (PARTITION BY exporter ORDER BY used < now('UTC') - INTERVAL 2 DAY, at, id) AS place FROM %s.%s FINAL WHERE exporter != '')
WHERE place <= %d ORDER BY place, id LIMIT %d))`, s.database, table, of, all)
}

// noteUnlisted counts the names of a table that a list left out, and logs them from time to time.
func (s *Store) noteUnlisted(ctx context.Context, table string, n uint64) error {
	s.unlisted[table].Store(n)
	if n == 0 {
		return nil
	}
	query := fmt.Sprintf("SELECT exporter, count() AS names FROM %s.%s FINAL WHERE exporter != '' GROUP BY exporter ORDER BY names DESC, exporter LIMIT 1", s.database, table)
	return s.query(ctx, s.reader, "count names", query, func(rows driver.Rows) error {
		var exporter string
		var names uint64
		err := rows.Scan(&exporter, &names)
		s.unlistedLog.Warn(s.logger, time.Now(), "names of exporters are not listed: there are too many", slog.String("table", table), slog.Uint64("names", n),
			slog.String("most_are_of", exporter), slog.Uint64("its_names", names))
		return err
	})
}

// described lists the described names of a table, and counts those that it leaves out.
func described[T any](ctx context.Context, s *Store, table, columns, order string, of, all int, scan func(driver.Rows, ...any) (T, error)) ([]T, error) {
	var total uint64
	query := fmt.Sprintf("SELECT %s, (SELECT count() FROM %[2]s.%[3]s FINAL) FROM %[2]s.%[3]s FINAL WHERE %[4]s ORDER BY %[5]s LIMIT %[6]d",
		columns, s.database, table, s.listed(table, of, all), order, s.maxRows+1)
	list, err := queryRows(ctx, s, "read "+table, query, func(rows driver.Rows) (T, error) { return scan(rows, &total) })
	if err != nil {
		return nil, err
	}
	return list, s.noteUnlisted(ctx, table, max(total, uint64(len(list)))-uint64(len(list)))
}

// Groups returns the described groups in the order of the axes: all of fabric files, and of
// exporters at most 65,536 each and 262,144 in total. WriterStatus and the log count the others.
// Groups without a description in the database are left out.
func (s *Store) Groups(ctx context.Context) ([]fabric.Group, error) {
	return described(ctx, s, groupNames, groupColumns, "ord, name, id", maxListedGroupsOf, maxListedGroups, scanGroup)
}

func scanGroup(rows driver.Rows, more ...any) (g fabric.Group, err error) {
	var id uint64
	var order uint32
	err = rows.Scan(append([]any{&id, &g.Name, &g.Level, &g.Parent, &order}, more...)...)
	g.ID, g.Order = aggregate.GroupID(id), int(order)
	return g, err
}

// Locations returns the described locations, ordered by name: all of fabric files, and of
// exporters at most 16,384 each and 65,536 in total.
func (s *Store) Locations(ctx context.Context) ([]fabric.Location, error) {
	return described(ctx, s, locationNames, locationColumns, "name, id", maxListedLocationsOf, maxListedLocations, scanLocation)
}

func scanLocation(rows driver.Rows, more ...any) (l fabric.Location, err error) {
	var id, set, device, stage, farEnd uint64
	var candidates uint32
	err = rows.Scan(append([]any{
		&id, &l.Name, &l.Kind, &l.Device, &l.Stage, &l.Orientation, &l.Capacity,
		&l.Candidates, &candidates, &set, &device, &stage, &l.Peer, &farEnd,
	}, more...)...)
	l.ID, l.CandidateCount = aggregate.LocationID(id), int(candidates)
	l.Set, l.DeviceLoc, l.StageLoc = aggregate.LocationID(set), aggregate.LocationID(device), aggregate.LocationID(stage)
	l.FarEnd = aggregate.LocationID(farEnd)
	return l, err
}

const (
	// renewEvery is how often RunRenewNames renews the names in use.
	renewEvery = 24 * time.Hour
	// renewAfter is the minimum age of a recorded use before it is updated.
	renewAfter = 20 * time.Hour
	// renewOf and renewWindows select the rows whose names are in use, by the time of writing and
	// by window. A replay of older windows writes its names itself.
	renewOf, renewWindows = 3 * 24 * time.Hour, 30 * 24 * time.Hour
)

// RunRenewNames records the groups and locations used by rows, so that the server deletes only
// names that no row needs: at once and then daily, once the server is ready and until ctx ends. A
// failed pass is logged and repeated by the next. Several stores may run it on one database.
func (s *Store) RunRenewNames(ctx context.Context) error {
	return s.every(ctx, renewEvery, s.renewNames, func(err error) {
		s.logger.Warn("cannot record the last use of names", slog.String("error", oneLine(err)))
	})
}

// renewNames records that the names in recent rows are in use, with their coarser locations and
// their parents: each pass reaches one more level of parents.
func (s *Store) renewNames(ctx context.Context) error {
	if s.names == nil {
		return ErrReadOnly
	}
	rows := fmt.Sprintf("%s.partials_1m WHERE window_start >= now('UTC') - INTERVAL %d SECOND AND stored_at >= now('UTC') - INTERVAL %d SECOND",
		s.database, int(renewWindows.Seconds()), int(renewOf.Seconds()))
	recent := fmt.Sprintf("used >= now('UTC') - INTERVAL %d SECOND", int(renewOf.Seconds()))
	return errors.Join(
		s.renew(ctx, groupNames, fmt.Sprintf(`(id IN (SELECT arrayJoin([src_group, dst_group]) FROM %s)
OR name IN (SELECT parent FROM %s.groups FINAL WHERE parent != '' AND %s))`, rows, s.database, recent)),
		s.renew(ctx, locationNames, fmt.Sprintf(`(id IN (SELECT location FROM %[1]s) OR id IN (SELECT location FROM %[2]s.findings WHERE stored_at >= now('UTC') - INTERVAL %[3]d SECOND)
OR id IN (SELECT arrayJoin([set_id, device_id, stage_id, far_end_id]) FROM %[2]s.locations FINAL WHERE %[4]s))`, rows, s.database, int(renewOf.Seconds()), recent)),
	)
}

// renew records that the names selected by a condition are in use, unless that was recorded in
// the last day. The version of a row stays the same: the row replaces earlier writes, but not
// writes at the same time.
func (s *Store) renew(ctx context.Context, table, where string) error {
	columns := groupColumns
	if table == locationNames {
		columns = locationColumns
	}
	statement := fmt.Sprintf("INSERT INTO %[1]s.%[2]s (%[3]s, %[4]s, at, used) SELECT %[3]s, %[4]s, at, now('UTC') FROM %[1]s.%[2]s FINAL WHERE used < now('UTC') - INTERVAL %[5]d SECOND AND %[6]s",
		s.database, table, columns, pinColumns, int(renewAfter.Seconds()), where)
	return s.describe("renew "+table, s.names.Exec(ctx, statement))
}
