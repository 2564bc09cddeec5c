package main

import (
	"context"
	"fmt"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/ingest/remote"
)

const (
	// worstSpan is the range that the worst locations are of, up to now.
	worstSpan = time.Minute
	// worstKeys bounds the locations that are followed in a sixth of it.
	worstKeys = 1 << 14
	// worstTop is how many locations of each signal are exported.
	worstTop = 10
)

func newWorst() *table.Worst { return table.NewWorst(time.Second, worstSpan, worstKeys) }

// watchedSink shows what exporters hand in to others before it goes on.
type watchedSink struct {
	remote.Sink
	watching *sinks
}

// WriteBlock implements remote.Sink.
func (s *watchedSink) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	if err := s.watching.WriteBlock(ctx, b); err != nil {
		return err
	}
	return s.Sink.WriteBlock(ctx, b)
}

// placeName is the name of a location under the configuration in use.
func (c *collector) placeName(id aggregate.LocationID) string {
	if l, ok := c.using.Load().fabric.Location(id); ok {
		return l.Name
	}
	return fmt.Sprintf("location %016x", uint64(id))
}
