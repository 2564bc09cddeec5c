package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// ErrDisk is the error of a database that stays above its disk budget.
var ErrDisk = errors.New("above the disk budget with nothing left to delete: raise it, or keep 1 min rows for less long")

// Dropped is a partition that was deleted to make room.
type Dropped struct {
	Table, Partition string // the partition as the server prints it: the start of its windows
	Rows, Bytes      uint64
}

// diskPartition is all active parts of one partition.
type diskPartition struct {
	Dropped
	id string
}

// Trim deletes partitions until the database takes at most so many bytes on disk: the
// fine windows first and then those of 1 s, in each the oldest windows first, and never
// the 1 min windows. Each is logged. It returns what it deleted, also with an error;
// ErrDisk when that was not enough, and ErrForeign as Drop does. Outboxes forget what
// the server took: they would send it again where it is missing.
func (s *Store) Trim(ctx context.Context, budget uint64) ([]Dropped, error) {
	_, there, err := s.own(ctx)
	if err != nil {
		return nil, err
	}
	used := uint64(0)
	for _, o := range there {
		used += o.bytes
	}
	if used > budget {
		for _, d := range s.deliveries {
			d.trim(0)
		}
	}
	var dropped []Dropped
	for _, g := range []int{fineGrain, secondGrain} {
		if used <= budget {
			break
		}
		partitions, err := s.partitions(ctx, g)
		if err != nil {
			return dropped, err
		}
		for _, p := range partitions {
			if used <= budget {
				break
			}
			if err := s.dropPartition(ctx, &p); err != nil {
				return dropped, err
			}
			dropped = append(dropped, p.Dropped)
			used -= min(used, p.Bytes)
		}
	}
	if used > budget {
		return dropped, fmt.Errorf("trim database %s at %s: %d bytes of %d: %w", s.database, s.host, used, budget, ErrDisk)
	}
	return dropped, nil
}

// partitions of a table with what they hold, oldest windows first: they print as times.
func (s *Store) partitions(ctx context.Context, g int) ([]diskPartition, error) {
	query := fmt.Sprintf(`SELECT partition, partition_id, sum(rows), sum(bytes_on_disk) FROM system.parts
WHERE database = '%s' AND table = '%s' AND active GROUP BY partition, partition_id ORDER BY partition LIMIT %d`, s.database, grainAt(g).table(), maxVerifyRows)
	var list []diskPartition
	err := s.query(ctx, s.migrator, "list partitions", query, func(rows driver.Rows) error {
		p := diskPartition{Dropped: Dropped{Table: grainAt(g).table()}}
		if err := rows.Scan(&p.Partition, &p.id, &p.Rows, &p.Bytes); err != nil {
			return err
		}
		list = append(list, p)
		return nil
	})
	return list, err
}

func (s *Store) dropPartition(ctx context.Context, p *diskPartition) error {
	// Servers hold back what is larger than a limit.
	statement := fmt.Sprintf("ALTER TABLE %s.%s DROP PARTITION ID '%s' SETTINGS max_partition_size_to_drop = 0", s.database, p.Table, p.id)
	if err := s.migrator.Exec(ctx, statement); err != nil {
		return s.describe("trim "+p.Table, err)
	}
	s.logger.Warn("partition deleted: disk budget", slog.String("table", p.Table), slog.String("partition", p.Partition),
		slog.Uint64("rows", p.Rows), slog.Uint64("bytes", p.Bytes))
	return nil
}
