package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// Columns of the tables of names.
const (
	groupColumns    = "id, name, level, parent, ord"
	locationColumns = "id, name, kind, device, stage, orientation, capacity, candidates, candidate_count, set_id, device_id, stage_id"
	pinColumns      = "exporter, pinned"
)

// nameRecord is a record of the meaning of numbers in rows, and of runs that begin.
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

// namesTarget takes names.
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

// writeNames stores a list of one kind. With an outbox it is on disk when writeNames returns,
// and is sent before all rows; without one it waits for the server.
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

// WriteGroups stores what group ids stand for, as a fabric file says. Groups that are there
// already are replaced, whoever described them. With an outbox it returns when they are on
// disk, as all that writes names does.
func (s *Store) WriteGroups(ctx context.Context, groups []fabric.Group) error {
	return writeNames(ctx, s, "write groups", groups, func(r *nameRecord, part []fabric.Group) { r.Groups = part })
}

var groupTable = recordTable[fabric.Group]{
	into:   "groups (" + groupColumns + ")",
	append: func(to driver.Batch, g *fabric.Group) error { return to.Append(groupRow(g)...) },
}

// WriteLocations stores what location ids stand for, and which coarser locations they
// belong to: the levels of questions. Locations that are there already are replaced.
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
		l.Candidates, uint32(max(l.CandidateCount, 0)), uint64(l.Set), uint64(l.DeviceLoc), uint64(l.StageLoc),
	}
}

// PinNames stores groups and locations as exporters described them, but for those of which
// another description is pinned: see NotifyContested.
func (s *Store) PinNames(ctx context.Context, list []fabric.Name) error {
	return writeNames(ctx, s, "write names", list, func(r *nameRecord, part []fabric.Name) { r.Pins = part })
}

// NotifyContested has f called for each name that PinNames was given and that is not stored,
// since another description of it holds. Several goroutines may call it.
func (s *Store) NotifyContested(f func(refused, held fabric.Name)) { s.contested.Store(&f) }

// pinNames stores those names that nobody holds, and reports the others. Of two processes
// that do so at once, the later one wins.
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
	pinnedGroups, pinnedLocations := map[aggregate.GroupID]*fabric.Name{}, map[aggregate.LocationID]*fabric.Name{}
	for i := range stored {
		switch n := &stored[i]; {
		case !n.Pinned:
		case n.Group != nil:
			pinnedGroups[n.Group.ID] = n
		default:
			pinnedLocations[n.Location.ID] = n
		}
	}
	var freeGroups, freeLocations []fabric.Name
	var refused, held []fabric.Name
	for _, n := range list {
		free, holder := &freeGroups, (*fabric.Name)(nil)
		if n.Group != nil {
			holder = pinnedGroups[n.Group.ID]
		} else {
			free, holder = &freeLocations, pinnedLocations[n.Location.ID]
		}
		switch {
		case holder == nil:
			*free = append(*free, n)
		case !holder.Means(&n):
			refused, held = append(refused, n), append(held, *holder)
		}
	}
	for _, in := range []insertion{pinnedGroupTable.insertion(freeGroups), pinnedLocationTable.insertion(freeLocations)} {
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

// namesAtOnce is how many names fit into a record, and how many ids into a query.
const namesAtOnce = 4096

// Names are those of these groups and locations that are stored, in no order.
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

// UnpinnedName is a group or location whose next description is taken.
type UnpinnedName struct {
	Kind, Name, Exporter string // Kind is "group", or the location's kind
	At                   time.Time
}

// Unpin has the next description of groups and locations with these names taken, whoever gives
// it; without names, of all that exporters have described. It returns those that were pinned.
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
		if err := s.describe("unpin "+t.name, s.names.Exec(ctx, statement)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// WriteEpoch stores the configuration that rows of an epoch were made under; epoch is
// a hash of text.
func (s *Store) WriteEpoch(ctx context.Context, epoch uint64, text string) error {
	list := []epochText{{epoch, []byte(text)}}
	return writeNames(ctx, s, "write epoch", list, func(r *nameRecord, part []epochText) { r.Epochs = part })
}

var epochTable = recordTable[epochText]{
	into:   "epochs (epoch, text)",
	append: func(to driver.Batch, e *epochText) error { return to.Append(e.Epoch, e.Text) },
}

// longestEpoch bounds the text of an epoch that is read back.
const longestEpoch = 16 << 20

// LatestEpoch is the text of the epoch that was written last, empty where there is none, or
// where it is longer than 16 MiB.
func (s *Store) LatestEpoch(ctx context.Context) (text string, err error) {
	query := fmt.Sprintf("SELECT if(length(text) <= %d, text, '') FROM %s.epochs ORDER BY at DESC, epoch LIMIT 1", longestEpoch, s.database)
	err = s.query(ctx, s.reader, "read epoch", query, func(rows driver.Rows) error { return rows.Scan(&text) })
	return text, err
}

// Groups are the groups that cells may name, in the order of the axes. Those that no
// fabric file named, and that nobody wrote, are not among them.
func (s *Store) Groups(ctx context.Context) ([]fabric.Group, error) {
	var list []fabric.Group
	query := fmt.Sprintf("SELECT %s FROM %s.groups FINAL ORDER BY ord, name, id LIMIT %d", groupColumns, s.database, s.maxRows+1)
	err := s.query(ctx, s.reader, "read groups", query, func(rows driver.Rows) error {
		g, err := scanGroup(rows)
		list = append(list, g)
		return err
	})
	return list, err
}

func scanGroup(rows driver.Rows, more ...any) (g fabric.Group, err error) {
	var id uint64
	var order uint32
	err = rows.Scan(append([]any{&id, &g.Name, &g.Level, &g.Parent, &order}, more...)...)
	g.ID, g.Order = aggregate.GroupID(id), int(order)
	return g, err
}

// Locations are the locations that answers may name, ordered by name.
func (s *Store) Locations(ctx context.Context) ([]fabric.Location, error) {
	var list []fabric.Location
	query := fmt.Sprintf("SELECT %s FROM %s.locations FINAL ORDER BY name, id LIMIT %d", locationColumns, s.database, s.maxRows+1)
	err := s.query(ctx, s.reader, "read locations", query, func(rows driver.Rows) error {
		l, err := scanLocation(rows)
		list = append(list, l)
		return err
	})
	return list, err
}

func scanLocation(rows driver.Rows, more ...any) (l fabric.Location, err error) {
	var id, set, device, stage uint64
	var candidates uint32
	err = rows.Scan(append([]any{
		&id, &l.Name, &l.Kind, &l.Device, &l.Stage, &l.Orientation, &l.Capacity,
		&l.Candidates, &candidates, &set, &device, &stage,
	}, more...)...)
	l.ID, l.CandidateCount = aggregate.LocationID(id), int(candidates)
	l.Set, l.DeviceLoc, l.StageLoc = aggregate.LocationID(set), aggregate.LocationID(device), aggregate.LocationID(stage)
	return l, err
}
