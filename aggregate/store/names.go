package store

import (
	"context"
	"fmt"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// WriteGroups stores what group ids stand for. Groups that are there already are
// replaced.
func (s *Store) WriteGroups(ctx context.Context, groups []fabric.Group) error {
	return s.insert(ctx, "write groups", "groups (id, name, level, parent, ord)", len(groups), func(to driver.Batch, i int) error {
		g := &groups[i]
		return to.Append(uint64(g.ID), g.Name, g.Level, g.Parent, uint32(max(g.Order, 0)))
	})
}

// WriteLocations stores what location ids stand for, and which coarser locations they
// belong to: the levels of questions. Locations that are there already are replaced.
func (s *Store) WriteLocations(ctx context.Context, locations []fabric.Location) error {
	const columns = "locations (id, name, kind, device, stage, orientation, capacity, candidates, candidate_count, set_id, device_id, stage_id)"
	return s.insert(ctx, "write locations", columns, len(locations), func(to driver.Batch, i int) error {
		l := &locations[i]
		return to.Append(uint64(l.ID), l.Name, l.Kind, l.Device, l.Stage, l.Orientation, l.Capacity,
			l.Candidates, uint32(max(l.CandidateCount, 0)), uint64(l.Set), uint64(l.DeviceLoc), uint64(l.StageLoc))
	})
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

// insert writes n rows to a table of names. Writing them again replaces them, so it
// is repeated while the server is away.
func (s *Store) insert(ctx context.Context, what, into string, n int, row func(to driver.Batch, i int) error) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	if n == 0 {
		return nil
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
	query := fmt.Sprintf("SELECT id, name, level, parent, ord FROM %s.groups FINAL ORDER BY ord, id LIMIT %d", s.database, s.maxRows+1)
	err := s.query(ctx, s.reader, "read groups", query, func(rows driver.Rows) error {
		var id uint64
		var order uint32
		var g fabric.Group
		if err := rows.Scan(&id, &g.Name, &g.Level, &g.Parent, &order); err != nil {
			return err
		}
		g.ID, g.Order = aggregate.GroupID(id), int(order)
		list = append(list, g)
		return nil
	})
	return list, err
}

// Locations are the locations that answers may name, ordered by name.
func (s *Store) Locations(ctx context.Context) ([]fabric.Location, error) {
	var list []fabric.Location
	query := fmt.Sprintf(`SELECT id, name, kind, device, stage, orientation, capacity, candidates, candidate_count, set_id, device_id, stage_id
FROM %s.locations FINAL ORDER BY name, id LIMIT %d`, s.database, s.maxRows+1)
	err := s.query(ctx, s.reader, "read locations", query, func(rows driver.Rows) error {
		var id, set, device, stage uint64
		var candidates uint32
		var l fabric.Location
		if err := rows.Scan(&id, &l.Name, &l.Kind, &l.Device, &l.Stage, &l.Orientation, &l.Capacity,
			&l.Candidates, &candidates, &set, &device, &stage); err != nil {
			return err
		}
		l.ID, l.CandidateCount = aggregate.LocationID(id), int(candidates)
		l.Set, l.DeviceLoc, l.StageLoc = aggregate.LocationID(set), aggregate.LocationID(device), aggregate.LocationID(stage)
		list = append(list, l)
		return nil
	})
	return list, err
}
