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
	// topSpan is the range of time, up to now, of the top bottlenecks.
	topSpan = time.Minute
	// topRows bounds the locations that are followed in it.
	topRows = 6 << 14
	// topCount is how many locations of each signal are exported.
	topCount = 10
)

func newTopBottlenecks() *table.TopBottlenecks {
	return table.NewTopBottlenecks(time.Second, topSpan, topRows)
}

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
