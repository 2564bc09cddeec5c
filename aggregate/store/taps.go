package store

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
)

// TapRow sums up the traffic of one tap over a period: a piece of a capture file, or some seconds
// of a live tap. Rows of the same tap add up.
type TapRow struct {
	aggregate.Source
	Seq uint64 // distinguishes the periods and interfaces of a producer

	Name       string  // of the tap; of a session MIRROR/SWITCH/SESSION
	Place      string  // receiver, sender or mid
	Interface  string  // as in the capture; empty if unknown
	Link       string  // link type
	Timestamps string  // source of the times: file, software, hardware or switch
	TickNS     float64 // resolution of the times, ns
	From, To   int64   // earliest and latest packet, Unix ns; both 0 without times

	Packets, Bytes uint64            // Bytes on the wire
	Frames         map[string]uint64 // packets by result of decoding

	// Weighted observations. Tags + Reflections = Observations = Stored + Overflow + Late + the
	// sum of Rejected. Untouched and Trimmed are parts of Stored + Overflow.
	Tags, Reflections                    uint64
	Observations, Stored, Overflow, Late uint64
	Rejected                             map[string]uint64 // by reason
	Untouched, Trimmed                   uint64

	KernelDrops, Freezes uint64 // packets dropped by the kernel; times its ring was full
	SuperFrames          uint64 // packets that receive offload merged from several
	Lost                 uint64 // packets missing in the numbers of a mirror session
	SkewNS               int64  // of the clock; 0 if unknown
}

var tapTable = recordTable[TapRow]{
	what: "taps", class: tapsClass,
	into: "taps (producer, incarnation, epoch, seq, name, place, interface, link, timestamps, tick_ns, time_from, time_to, packets, bytes, frames, " +
		"tags, reflections, observations, stored, overflow, late, rejected, untouched, trimmed, kernel_drops, freezes, super_frames, lost, skew_ns)",
	check: func(r *TapRow) error {
		r.Name, r.Interface = bounded(r.Name, maxRecordName), bounded(r.Interface, maxRecordName)
		return checkTimes(r.From, r.To)
	},
	append: func(to driver.Batch, r *TapRow) error {
		return to.Append(r.Producer, r.Incarnation, r.Epoch, r.Seq, r.Name, r.Place, r.Interface, r.Link, r.Timestamps, r.TickNS,
			utcTime(r.From), utcTime(r.To), r.Packets, r.Bytes, r.Frames, r.Tags, r.Reflections, r.Observations, r.Stored, r.Overflow, r.Late,
			r.Rejected, r.Untouched, r.Trimmed, r.KernelDrops, r.Freezes, r.SuperFrames, r.Lost, r.SkewNS)
	},
	part:      func(r *TapRow) lossExtent { return recordPart(r.Source, r.From, r.To) },
	partition: func(r *TapRow) batchKey { return monthly(r.From) },
}

// WriteTaps stores rows of taps and replaces rows with the same identity. With an outbox it
// returns when they are on disk.
func (s *Store) WriteTaps(ctx context.Context, rows []TapRow) error {
	return writeRecords(ctx, s, &tapTable, rows)
}

// TapTotal is the sum of a tap over a range. Its Source and Seq are not set.
type TapTotal struct {
	TapRow
	Runs uint64 // captures and live runs of the tap
}

// Taps returns one row for each tap with packets in a range, ordered by name. Captures that were
// replayed more than once count once.
func (s *Store) Taps(ctx context.Context, from, to time.Time) ([]TapTotal, error) {
	if err := checkRange(from, to); err != nil {
		return nil, fmt.Errorf("read taps: %w", err)
	}
	query := fmt.Sprintf(`SELECT name, place, interface, link, timestamps, tick_ns, first, last, runs, %s, %s, %s, %s, %s, skew_ns
FROM %s ORDER BY name, place, interface LIMIT %d`, saturated("packets, bytes"), saturatedMap("frames"),
		saturated("tags, reflections, observations, stored, overflow, late"), saturatedMap("rejected"),
		saturated("untouched, trimmed, kernel_drops, freezes, super_frames, lost"), s.recordView("tap_totals", from, to), s.maxRows+1)
	return queryRows(ctx, s, "read taps", query, func(rows driver.Rows) (r TapTotal, err error) {
		var first, last time.Time
		err = rows.Scan(&r.Name, &r.Place, &r.Interface, &r.Link, &r.Timestamps, &r.TickNS, &first, &last, &r.Runs, &r.Packets, &r.Bytes, &r.Frames,
			&r.Tags, &r.Reflections, &r.Observations, &r.Stored, &r.Overflow, &r.Late, &r.Rejected, &r.Untouched, &r.Trimmed,
			&r.KernelDrops, &r.Freezes, &r.SuperFrames, &r.Lost, &r.SkewNS)
		r.From, r.To = first.UnixNano(), last.UnixNano()
		return r, err
	})
}
