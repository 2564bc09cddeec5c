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
// the 1 min windows. Each is logged, and recorded in gaps by producer with the reason
// trimmed. It returns what it deleted, also with an error; ErrDisk when that was not
// enough, and ErrForeign as Drop does. Outboxes forget what the server took: they would
// send it again where it is missing.
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
			if err := s.recordTrimmed(ctx, g, &p); err != nil {
				return dropped, err
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

// recordTrimmed leaves in gaps what a partition held of each producer: before it is
// deleted, so that a failure in between leaves a gap too many and not one too few. Once
// more it replaces itself.
func (s *Store) recordTrimmed(ctx context.Context, g int, p *diskPartition) error {
	at := grainAt(g)
	length := fmt.Sprint(at.Length.Nanoseconds())
	if at.Fine() {
		length = "resolution_ns"
	}
	statement := fmt.Sprintf(`INSERT INTO %[1]s.gaps (producer, incarnation, epoch, resolution_ns, window_from, window_to, rows, observations, reason, id, at)
SELECT producer, incarnation, config_epoch, toUInt64(%[2]s) AS length, min(window_start), fromUnixTimestamp64Nano(toUnixTimestamp64Nano(max(window_start)) + toInt64(length), 'UTC'),
count(), sum(observations), 'trimmed', cityHash64('%[3]s', '%[4]s'), now64(3, 'UTC')
FROM %[1]s.%[3]s FINAL WHERE _partition_id = '%[4]s' GROUP BY producer, incarnation, config_epoch, length`,
		s.database, length, at.table(), p.id)
	return s.describe("record what is trimmed of "+p.Table, s.migrator.Exec(ctx, statement))
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
