package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
)

// GapRestart is the reason of gaps that a killed process leaves: packets that were
// captured after its last checkpoint, or while nobody was there.
const GapRestart = "restart"

// Gap is a time of which a source has no rows, or not all.
type Gap struct {
	aggregate.Source
	From, To time.Time
	Reason   string
}

// WriteGap records a gap at all resolutions, with counts of 0 since nobody knows them.
// The same gap again replaces itself. With an outbox it is on disk when WriteGap returns
// nil, and comes to the table when the server is there.
func (s *Store) WriteGap(ctx context.Context, g Gap) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	if g.To.Before(g.From) {
		return fmt.Errorf("write gap: from %s to %s: expected a time that does not end before it begins", g.From, g.To)
	}
	key := []byte(g.Reason)
	for _, v := range [...]uint64{g.Producer, g.Incarnation, g.Epoch, uint64(g.From.UnixNano())} {
		key = binary.LittleEndian.AppendUint64(key, v)
	}
	list := []gap{{
		part: part{
			Producer: g.Producer, Incarnation: g.Incarnation, Epoch: g.Epoch,
			From: g.From.UnixNano(), To: g.To.UnixNano(),
		},
		Reason: g.Reason, ID: xxhash.Sum64(key), At: time.Now().UnixNano(),
	}}
	if len(s.deliveries) > 0 {
		d := s.deliveries[0]
		d.start()
		return s.describe("write gap", d.appendGaps(list))
	}
	return s.describe("write gap", s.retry.do(ctx, func(ctx context.Context) error { return s.sendGaps(ctx, list) }))
}
