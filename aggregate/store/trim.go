package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// ErrDisk is the error of a database that stays above its disk budget.
var ErrDisk = errors.New("above the disk budget with nothing left to delete: raise it, or keep 1 min rows for less long")

// Dropped is a partition that was deleted to make room.
type Dropped struct {
	Table, Partition string // the partition as the server prints it: the start of its windows
	Rows, Bytes      uint64
}

// Trim deletes partitions until the database takes at most so many bytes on disk, of all
// its tables: the fine windows first, then those of 1 s with the flows of their day, then
// month by month the flows of 1 min windows and what was said of taps and findings; in each
// the oldest first, and never the 1 min windows. Each is logged, and recorded in gaps by
// producer, with the reason trimmed or, of records, one of their table's own. Gaps stay, as
// do names, runs and configurations. It returns what it deleted, also with an error; ErrDisk
// when that was not enough, and ErrForeign as Drop does. Outboxes forget what the server
// took: they would send it again where it is missing.
func (s *Store) Trim(ctx context.Context, budget uint64) ([]Dropped, error) {
	there, err := s.own(ctx)
	if err != nil {
		return nil, err
	}
	used := uint64(0)
	for _, o := range there {
		used += o.bytes
	}
	if used <= budget {
		return nil, nil
	}
	for _, d := range s.deliveries {
		d.trim(0)
	}
	partitions, err := s.partitions(ctx)
	if err != nil {
		return nil, err
	}
	var dropped []Dropped
	for i := range partitions {
		p := &partitions[i]
		// What is of the same time goes together.
		if used <= budget && (i == 0 || !p.together(&partitions[i-1])) {
			break
		}
		if err := s.recordTrimmed(ctx, p); err != nil {
			return dropped, err
		}
		if err := s.dropPartition(ctx, p); err != nil {
			return dropped, err
		}
		dropped = append(dropped, p.Dropped)
		used -= min(used, p.Bytes)
	}
	if used > budget {
		return dropped, fmt.Errorf("trim database %s at %s: %d bytes of %d: %w", s.database, s.host, used, budget, ErrDisk)
	}
	return dropped, nil
}

// recordTrimmed leaves in gaps what a partition held of each producer: before it is
// deleted, so that a failure in between leaves a gap too many and not one too few. Once
// more it replaces itself.
func (s *Store) recordTrimmed(ctx context.Context, p *diskPartition) error {
	statement := fmt.Sprintf(`INSERT INTO %[1]s.gaps (producer, incarnation, epoch, resolution_ns, window_from, window_to, rows, observations, reason, id, at)
SELECT producer, incarnation, %[2]s AS run, toUInt64(%[3]s) AS length, min(%[4]s), max(%[5]s), count(), %[6]s, '%[7]s', cityHash64('%[8]s', '%[9]s'), now64(3, 'UTC')
FROM %[1]s.%[8]s FINAL WHERE _partition_id = '%[9]s' GROUP BY producer, incarnation, run, length`,
		s.database, p.of.epoch, p.of.length, p.of.from, p.of.to, p.of.observations, p.of.reason, p.Table, p.id)
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
