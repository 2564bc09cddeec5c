package remote

import (
	"context"
	"fmt"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/wire"
)

// Tap hands in what the stream's tap took in over a period and found in it, at most
// MaxFindings, under the configuration of the epoch, which must have been described. It goes
// to the collector behind the blocks that were given before, as all records do. The client
// owns t and what was found from then on.
func (s *Stream) Tap(_ context.Context, epoch uint64, t *wire.Tap, found ...*wire.Finding) error {
	if len(found) > MaxFindings {
		return fmt.Errorf("tell of stream %s: %d findings: expected at most %d", s.name, len(found), MaxFindings)
	}
	return s.record(epoch, &wire.Record{What: &wire.Record_Tap{Tap: t}, Findings: found})
}

// Gap tells of a time of which blocks of the stream are missing. The client owns g from
// then on.
func (s *Stream) Gap(_ context.Context, epoch uint64, g *wire.Gap) error {
	return s.record(epoch, &wire.Record{What: &wire.Record_Gap{Gap: g}})
}

// Begin tells that blocks of the stream come again, which had ended or whose process was
// killed.
func (s *Stream) Begin(_ context.Context, epoch uint64) error {
	return s.record(epoch, &wire.Record{What: &wire.Record_Begin{Begin: &wire.Begin{}}})
}

// End tells that no more blocks of the stream come under the configuration of the epoch,
// for now.
func (s *Stream) End(_ context.Context, epoch uint64) error {
	return s.record(epoch, &wire.Record{What: &wire.Record_End{End: &wire.End{}}})
}

func (s *Stream) record(epoch uint64, m *wire.Record) error {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errEnded
	}
	d, err := c.descriptionOf(epoch)
	if err == nil {
		m.Stream, m.Incarnation, m.Epoch, m.Description = s.name, s.incarnation, epoch, d
		err = c.gather(fieldRecords, m)
	}
	if err != nil {
		return fmt.Errorf("tell of stream %s: %w", s.name, err)
	}
	return nil
}

// TapRow is what a tap of an exporter's stream took in, and found.
type TapRow struct {
	Run
	*wire.Tap
	Findings []*wire.Finding
}

// Gap is a time of which blocks of an exporter's stream are missing.
type Gap struct {
	aggregate.Source
	*wire.Gap
}
