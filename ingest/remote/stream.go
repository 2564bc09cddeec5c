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
)

// Stream is a series of blocks of one tap, or of one core of it: its Sink. Several
// shards may share one, since it numbers blocks in the order in which they come: what
// Source.Producer, Source.Incarnation and Seq hold is passed over.
type Stream struct {
	client *Client
	streamKey

	// Guarded by the client's mu.
	blocks  uint64                 // number of the last one
	windows map[int64]*sentWindows // by resolution, ns
}

type streamKey struct {
	name        string
	incarnation uint64
}

// windowRows are numbers of rows of a window.
type windowRows struct{ rows, flows uint64 }

func (r windowRows) plus(o windowRows) windowRows {
	return windowRows{r.rows + o.rows, r.flows + o.flows}
}

// minus is not below zero.
func (r windowRows) minus(o windowRows) windowRows {
	return windowRows{r.rows - min(r.rows, o.rows), r.flows - min(r.flows, o.flows)}
}

// A block is cut into parts that fit into a message.
const (
	partRows = 2048
	partDist = 1 << 15
	// partFlows are rows of flows of a block, which all go with its last part. Further ones
	// are folded.
	partFlows = 1 << 12
	// maxWindows is how many windows of a stream and resolution are counted at least, and half as
	// many as are counted at most.
	maxWindows = 4096
)

// errUndescribed is the error of blocks under a configuration that nobody described.
var errUndescribed = errors.New("no description of the block's epoch: call Describe before")

// errEnded is the error of what comes after Close.
var errEnded = errors.New("exporter is closed")

// Stream makes a stream, or finds that of the name: 1 to 64 printable bytes. Its blocks
// are those of this process.
func (c *Client) Stream(name string) (*Stream, error) { return c.StreamOf(name, c.life) }

// StreamOf is Stream with the incarnation of its blocks, not 0. Blocks of an incarnation come
// from one process alone; others may tell what is missing of it.
func (c *Client) StreamOf(name string, incarnation uint64) (*Stream, error) {
	if incarnation == 0 {
		return nil, errors.New("stream: expected an incarnation")
	}
	if err := edge.CheckName(name); err != nil || len(name) > maxStreamBytes {
		return nil, fmt.Errorf("stream: expected 1 to %d printable bytes", maxStreamBytes)
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

// Forget lets go of a stream that nothing more is written to.
func (s *Stream) Forget() {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	delete(s.client.streams, s.streamKey)
}

// WriteBlock implements aggregate.Sink: it copies the block and gathers it for the
// spool. The block's epoch must have been described. What a full or failing disk does
// not take is counted in the client's Stats and is no error.
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

// cut is where the part that begins at a row ends.
func cut(b *aggregate.Block, from int) int {
	to := from + 1
	for to < b.Len() && to-from < partRows && b.DistEnd[to]-distStart(b, from) <= partDist {
		to++
	}
	return to
}

// writePart writes the rows [from, to), which are part number n of the block, and the
// block's flows with the last part.
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
		c.stats.Observations = addSat(c.stats.Observations, n)
	}
	return nil
}

// sentWindows are the windows of a resolution, and the rows that a stream wrote of each. The
// collector holds the stream to them, so a count is never too low; that of a window that is long
// past may be too high.
type sentWindows struct {
	list  []sentWindow // by start
	floor int64        // start of the last window that is not in the list any more
	most  windowRows   // at least the rows of each window up to the floor
}

type sentWindow struct {
	start int64
	windowRows
}

// add counts rows of a window, and returns how many there were before.
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
	if len(w.list) < 2*maxWindows {
		return before
	}
	for _, s := range w.list[:maxWindows] {
		w.floor, w.most = s.start, windowRows{max(w.most.rows, s.rows), max(w.most.flows, s.flows)}
	}
	w.list = slices.Delete(w.list, 0, maxWindows)
	return before
}
