package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// maxProbes bounds the rows that one question asks for.
const maxProbes = 300

// present gives those of up to maxProbes rows that the server has.
func (s *Store) present(ctx context.Context, g int, probes []probe) (map[probe]bool, error) {
	found := make(map[probe]bool, len(probes))
	if len(probes) == 0 {
		return found, nil
	}
	at := grainAt(g)
	const columns = "signal, source_kind, src_group, dst_group, window_start, location, encoding, config_epoch, producer, incarnation, seq"
	var list strings.Builder
	for i := range probes {
		p := &probes[i]
		window := fmt.Sprintf("fromUnixTimestamp64Nano(toInt64(%d), 'UTC')", p.Window)
		if i > 0 {
			list.WriteString(", ")
		}
		fmt.Fprintf(&list, "(%s(%s), %d, %d, %d, %d, %s, %d, %d, %d, %d, %d, %d)", at.KeyStart, window,
			p.Signal, p.Kind, p.SrcGroup, p.DstGroup, window, p.Location, p.Encoding, p.Epoch, p.Producer, p.Incarnation, p.Seq)
	}
	query := fmt.Sprintf("SELECT DISTINCT %s FROM %s.%s WHERE (%s(window_start), %[1]s) IN (%[5]s) LIMIT %[6]d",
		columns, s.database, at.table(), at.KeyStart, list.String(), maxProbes)
	err := s.query(ctx, s.reader, "check rows", query, func(rows driver.Rows) error {
		var p probe
		var window time.Time
		if err := rows.Scan(&p.Signal, &p.Kind, &p.SrcGroup, &p.DstGroup, &window, &p.Location, &p.Encoding, &p.Epoch, &p.Producer, &p.Incarnation, &p.Seq); err != nil {
			return err
		}
		p.Window = window.UnixNano()
		found[p] = true
		return nil
	})
	return found, err
}
