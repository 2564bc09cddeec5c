package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
)

// Reasons of gaps of packets that nobody took in: no row of what was taken in is missing.
const (
	// GapRestart is the reason of gaps between two processes: packets that were captured
	// after the last round of one, or while nobody was there.
	GapRestart = "restart"
	// GapDrops is the reason of packets that the kernel had no room for. All others of
	// the time are there.
	GapDrops = "drops"
	// GapMirror is the reason of packets missing in the numbers of a mirror session. All
	// others of the time are there.
	GapMirror = "mirror"
)

// neverTaken are these reasons, as SQL has them.
const neverTaken = "('" + GapRestart + "', '" + GapDrops + "', '" + GapMirror + "')"

// GapOpen is the reason of gaps of windows that were open when a process was killed. Some
// of what they hold may be stored: in finer windows that had closed, and in parts of other
// rings.
const GapOpen = "open"

// Gap is a time of which a source has no rows, or not all.
type Gap struct {
	aggregate.Source
	From, To time.Time
	Reason   string

	// Of which windows; 0 is all of them.
	Resolution time.Duration
	// How many rows and observations are missing, 0 where nobody knows. Each packet that
	// was dropped counts as an observation.
	Rows, Observations uint64
	ID                 uint64 // tells gaps of one source, reason, resolution and beginning apart
}

// WriteGap is WriteGaps for one.
func (s *Store) WriteGap(ctx context.Context, g Gap) error { return s.WriteGaps(ctx, []Gap{g}) }

// WriteGaps records gaps. The same gap again replaces itself. With an outbox they are on
// disk when WriteGaps returns nil, and come to the table when the server is there.
func (s *Store) WriteGaps(ctx context.Context, list []Gap) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	var rows []gap
	for i := range list {
		g := &list[i]
		if g.To.Before(g.From) {
			return fmt.Errorf("write gap: from %s to %s: expected a time that does not end before it begins", g.From, g.To)
		}
		rows = append(rows, g.row(time.Now()))
	}
	if len(s.deliveries) > 0 {
		d := s.deliveries[0]
		d.start()
		return s.describe("write gap", d.appendGaps(rows))
	}
	return s.describe("write gap", s.retry.do(ctx, func(ctx context.Context) error { return s.sendGaps(ctx, rows) }))
}

func (g *Gap) row(at time.Time) gap {
	key := []byte(g.Reason)
	for _, v := range [...]uint64{g.Producer, g.Incarnation, g.Epoch, uint64(g.From.UnixNano()), uint64(g.Resolution), g.ID} {
		key = binary.LittleEndian.AppendUint64(key, v)
	}
	return gap{
		part: part{
			Producer: g.Producer, Incarnation: g.Incarnation, Epoch: g.Epoch, Resolution: int64(g.Resolution),
			From: g.From.UnixNano(), To: g.To.UnixNano(), Rows: g.Rows, Observations: g.Observations,
		},
		Reason: g.Reason, ID: xxhash.Sum64(key), At: at.UnixNano(),
	}
}
