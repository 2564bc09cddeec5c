package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/wire"
)

// Stream is a sink for the blocks of one tap, or of one core of it. Several shards may share
// one: it numbers blocks in order of arrival and ignores their Source.Producer,
// Source.Incarnation and Seq.
type Stream struct {
	client *Client
	streamKey

	// Guarded by the client's mu.
	blocks  uint64                 // number of the last block
	windows map[int64]*sentWindows // by resolution, ns
}

type streamKey struct {
	name        string
	incarnation uint64
}

// windowRows are numbers of rows in a window.
type windowRows struct{ rows, flows uint64 }

func (r windowRows) plus(o windowRows) windowRows {
	return windowRows{r.rows + o.rows, r.flows + o.flows}
}

// minus subtracts and stops at zero.
func (r windowRows) minus(o windowRows) windowRows {
	return windowRows{r.rows - min(r.rows, o.rows), r.flows - min(r.flows, o.flows)}
}

// A block is cut into parts that fit into a message.
const (
	partRows = 2048
	partDist = 1 << 15
	// partFlows is the maximum number of flow rows of a block, which are all in its last part.
	// Further ones are folded.
	partFlows = 1 << 12
	// minWindows is the minimum number of windows counted per stream and resolution, and half
	// of the maximum.
	minWindows = 4096
)

// errUndescribed is the error for blocks whose configuration was not described.
var errUndescribed = errors.New("no description of the block's epoch: call Describe before")

// errEnded is the error for calls after Close.
var errEnded = errors.New("exporter is closed")

// CheckStream validates the name of a stream.
func CheckStream(name string) error {
	if name == "" || len(name) > maxStreamBytes {
		return fmt.Errorf("stream %.64q: %d bytes: expected 1 to %d", name, len(name), maxStreamBytes)
	}
	if err := edge.CheckName(name); err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	return nil
}

// StreamOf returns the stream of this name and incarnation, not 0, and adds it if it is new.
// CheckStream says which names are valid. Only one process may write blocks of an incarnation;
// others may report its gaps.
func (c *Client) StreamOf(name string, incarnation uint64) (*Stream, error) {
	if incarnation == 0 {
		return nil, errors.New("stream: expected an incarnation")
	}
	if err := CheckStream(name); err != nil {
		return nil, err
	}
	k := streamKey{name, incarnation}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[k]
	if s == nil {
		s = &Stream{client: c, streamKey: k, windows: map[int64]*sentWindows{}}
		c.streams[k] = s
	}
	return s, nil
}

// Forget removes a stream that is not written to any more.
func (s *Stream) Forget() {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	delete(s.client.streams, s.streamKey)
}

// WriteBlock implements aggregate.Sink: it copies the block and gathers it for the spool. The
// block's epoch must have been described. Losses by a full or failing disk are counted in the
// client's Stats and are no error.
func (s *Stream) WriteBlock(_ context.Context, b *aggregate.Block) error {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errEnded
	}
	d, err := c.descriptionOf(b.Epoch)
	if err != nil {
		return fmt.Errorf("write block of stream %s: %w", s.name, err)
	}
	parts := uint32(0)
	for from := 0; from < b.Len(); {
		to := cut(b, from)
		parts++
		if err := s.writePart(b, from, to, parts, d); err != nil {
			return fmt.Errorf("write block of stream %s: %w", s.name, err)
		}
		from = to
	}
	return nil
}

// cut returns the end of the part that begins at a row.
func cut(b *aggregate.Block, from int) int {
	to := from + 1
	for to < b.Len() && to-from < partRows && b.DistEnd[to]-distStart(b, from) <= partDist {
		to++
	}
	return to
}

// writePart writes the rows [from, to) as part number n of the block, and the block's flows
// with the last part.
func (s *Stream) writePart(b *aggregate.Block, from, to int, n uint32, description uint64) error {
	c := s.client
	m, wrote := toWire(b, from, to), windowRows{rows: uint64(to - from)}
	m.Stream, m.Incarnation, m.Seq, m.Description = s.name, s.incarnation, s.blocks+1, description
	if to == b.Len() && len(b.Flows) > 0 {
		flows, folded := foldFlows(b.Flows, partFlows)
		m.Flows, wrote.flows = flowsToWire(flows), uint64(len(flows))
		m.Flows.Blocks = n
		c.stats.FoldedFlows += uint64(folded)
	}
	windows := s.windows[b.Resolution]
	if windows == nil {
		windows = &sentWindows{floor: math.MinInt64}
		s.windows[b.Resolution] = windows
	}
	before := windows.add(b.WindowStart, wrote)
	if m.RowsBefore = before.rows; m.Flows != nil {
		m.Flows.RowsBefore = before.flows
	}
	if err := c.gather(fieldBlocks, m); err != nil {
		return err
	}
	s.blocks++
	for _, n := range b.Observations[from:to] {
		c.stats.Observations = aggregate.AddSat(c.stats.Observations, n)
	}
	return nil
}

// Tap sends the input of the stream's tap over a period and its findings, at most MaxFindings,
// under the configuration of the epoch, which must have been described. Like all records, it
// reaches the collector after the blocks that were written before it. The client takes
// ownership of t and found.
func (s *Stream) Tap(_ context.Context, epoch uint64, t *wire.Tap, found ...*wire.Finding) error {
	if len(found) > MaxFindings {
		return fmt.Errorf("send records of stream %s: %d findings: expected at most %d", s.name, len(found), MaxFindings)
	}
	return s.record(epoch, &wire.Record{What: &wire.Record_Tap{Tap: t}, Findings: found})
}

// Gap reports an interval in which blocks of the stream are missing. The client takes ownership
// of g.
func (s *Stream) Gap(_ context.Context, epoch uint64, g *wire.Gap) error {
	return s.record(epoch, &wire.Record{What: &wire.Record_Gap{Gap: g}})
}

// End reports that no more blocks of the stream follow under the configuration of the epoch,
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
		return fmt.Errorf("send records of stream %s: %w", s.name, err)
	}
	return nil
}

// sentWindows counts the rows that a stream wrote of each window of a resolution. The collector
// verifies the counts, so they are never too low; the count of a long-past window may be too
// high.
type sentWindows struct {
	list  []sentWindow // sorted by start
	floor int64        // start of the last window removed from list
	most  windowRows   // upper bound of the rows of each window up to floor
}

type sentWindow struct {
	start int64
	windowRows
}

// add counts rows of a window, and returns the earlier count.
func (w *sentWindows) add(start int64, more windowRows) (before windowRows) {
	if start <= w.floor {
		before = w.most
		w.most = before.plus(more)
		return before
	}
	i, there := slices.BinarySearchFunc(w.list, start, func(s sentWindow, start int64) int { return cmp.Compare(s.start, start) })
	if !there {
		w.list = slices.Insert(w.list, i, sentWindow{start: start})
	}
	before = w.list[i].windowRows
	w.list[i].windowRows = before.plus(more)
	if len(w.list) < 2*minWindows {
		return before
	}
	for _, s := range w.list[:minWindows] {
		w.floor, w.most = s.start, windowRows{max(w.most.rows, s.rows), max(w.most.flows, s.flows)}
	}
	w.list = slices.Delete(w.list, 0, minWindows)
	return before
}
