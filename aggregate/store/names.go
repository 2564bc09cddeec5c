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

// WriteGroups stores what group ids stand for, as a fabric file says. Groups that are there
// already are replaced, whoever described them.
func (s *Store) WriteGroups(ctx context.Context, groups []fabric.Group) error {
	return s.insert(ctx, "write groups", "groups ("+groupColumns+")", len(groups), func(to driver.Batch, i int) error {
		return to.Append(groupRow(&groups[i])...)
	})
}

// WriteLocations stores what location ids stand for, and which coarser locations they
// belong to: the levels of questions. Locations that are there already are replaced.
func (s *Store) WriteLocations(ctx context.Context, locations []fabric.Location) error {
	return s.insert(ctx, "write locations", "locations ("+locationColumns+")", len(locations), func(to driver.Batch, i int) error {
		return to.Append(locationRow(&locations[i])...)
	})
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

// PinNames stores groups and locations as exporters described them. Whoever writes them has
// seen by Names that no other description is pinned.
func (s *Store) PinNames(ctx context.Context, list []fabric.Name) error {
	var groups, locations []fabric.Name
	for _, n := range list {
		if n.Group != nil {
			groups = append(groups, n)
		} else {
			locations = append(locations, n)
		}
	}
	err := s.insert(ctx, "write groups", "groups ("+groupColumns+", "+pinColumns+")", len(groups), func(to driver.Batch, i int) error {
		return to.Append(append(groupRow(groups[i].Group), groups[i].Exporter, groups[i].Pinned)...)
	})
	if err != nil {
		return err
	}
	return s.insert(ctx, "write locations", "locations ("+locationColumns+", "+pinColumns+")", len(locations), func(to driver.Batch, i int) error {
		return to.Append(append(locationRow(locations[i].Location), locations[i].Exporter, locations[i].Pinned)...)
	})
}

// namesAtOnce is how many ids fit into a query.
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
	return s.insert(ctx, "write epoch", "epochs (epoch, text)", 1, func(to driver.Batch, _ int) error {
		return to.Append(epoch, text)
	})
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

// insert writes n rows to a table of names, once the server is ready. Writing them again
// replaces them, so it is repeated while the server is away.
func (s *Store) insert(ctx context.Context, what, into string, n int, row func(to driver.Batch, i int) error) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	if n == 0 {
		return nil
	}
	if err := s.server.wait(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	err := s.retry.do(ctx, func(ctx context.Context) error {
		to, err := s.names.PrepareBatch(ctx, "INSERT INTO "+s.database+"."+into)
		if err != nil {
			return err
		}
		defer to.Close()
		for i := range n {
			if err := row(to, i); err != nil {
				return err
			}
		}
		return to.Send()
	})
	return s.describe(what, err)
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
