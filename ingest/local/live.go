// Package local runs taps through the pipeline all day: frames to observations, to
// windows that close by the clock, to a journal.
//
// It knows when windows close and what must be durable before what. It must never know
// SQL, HTTP or the formats of files: where frames come from and who makes closed windows
// durable is behind Source and Journal.
//
// Each ring of a tap has a worker with a decoder and a shard of its own, and one more of
// each for every session that its source tells apart; per packet workers share nothing.
// What their shards close is held until the next barrier: soon after windows have closed, and
// once an interval, each worker stops between two batches, advances its watermark and hands
// over the blocks that it holds, with a mark of how far it has come. Rows of windows that have
// ended and are open go to a sink of their own at once, and never to the journal. The journal makes all of them durable in one
// round.
//
// A process that is killed loses the windows that are open in its shards. The next one has
// an incarnation of its own, so that no row of one can stand for a row of the other, and
// the marks of the last round say from when on windows are missing.
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// Source is where the frames of one ring come from. One goroutine uses it.
type Source interface {
	// ReadBatch fills b with the next frames, oldest first, and waits for them for some
	// milliseconds: without an error, b.N is 0 where none came. What b refers to is valid
	// until the next call. io.EOF says that no more will come; any other error ends the
	// pipeline.
	ReadBatch(b *capture.Batch) error
	// QuietUntil is a time (Unix ns, system clock) before which no frame was received that
	// is yet to be delivered, as of the last ReadBatch without frames; 0 before the first.
	QuietUntil() int64
	// Ahead is how far the clock that frames have their times from is at least ahead of the
	// system's, in ns, as the source knows it now: a network card has a clock of its own.
	Ahead() int64
	// Close is called after the last ReadBatch.
	Close() error
}

// Journal makes what workers hand over durable, and hands it on. One goroutine uses it.
type Journal interface {
	// WriteBlock takes a block over, which is durable after the next Commit.
	aggregate.Sink
	// Commit makes the blocks that were written durable, and then the marks of how far
	// they go. Where it cannot, it is tried again later: nil says that the pipeline may go
	// on.
	Commit(context.Context, []Mark) error
}

// Defaults of a Config.
const (
	DefaultInterval = time.Second
	DefaultPatience = 2 * time.Second
	DefaultDrain    = 10 * time.Second
)

// Config is what a Pipeline is from its beginning to its end.
type Config struct {
	// Instance names this process among others: with the name of a tap, it identifies
	// what the tap measures.
	Instance string
	// Interval is the longest time between rounds. Windows of aggregate.LiveResolution that close
	// have one made soon. Default 1 s.
	Interval time.Duration
	// Patience is how long a barrier waits for a worker before it goes on without it.
	// Default 2 s.
	Patience time.Duration
	// Drain is how long Run may go on after its context has ended. Default 10 s.
	Drain time.Duration
	// MaxHeldRows bounds the rows that wait in a worker for a round; at the bound it
	// takes no more frames. One batch of frames may go beyond it by as many rows as it
	// closes. Default 1<<20.
	MaxHeldRows int

	Journal Journal // required
	// Provisional takes rows of windows that have ended, before they close; nil: there are none.
	Provisional aggregate.ProvisionalSink
	// After is the highest incarnation of earlier processes; those of this one are above.
	After uint64

	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// Plan is what a reload may change.
type Plan struct {
	window.Settings
	Rings []Ring
}

// Ring is one ring of a tap. Its key is its name and its ring.
type Ring struct {
	Name string
	Ring int // 0 to 65535
	window.Tap
	// Source is owned by the pipeline once Run or Reload has been called with it. Nil, in
	// a reload, is that of the ring of the same key.
	Source Source
	// Link is how frames start. Default Ethernet.
	Link decode.Link
	// Sessions says what a session of the Source, which is a Sessions then, counts as; it
	// is called rarely. Frames of index 0 are of the tap itself. With nil all frames are.
	Sessions func(session string) SessionTap
}

type key struct {
	name string
	ring int
}

func (t *Ring) key() key { return key{t.Name, t.Ring} }

// Pipeline runs the taps of one process.
type Pipeline struct {
	cfg  Config
	plan *Plan

	workers []*worker
	left    []Mark     // of rings that ended, for the gaps of the next process
	events  chan event // of workers, to the coordinator
	reloads chan reload
	closed  chan struct{} // holds one when a round is asked for
	last    uint64        // incarnation given last
	ended   chan struct{} // closed when Run has returned

	round *time.Timer // of the next round
	due   time.Time   // when that is
	began time.Time   // the last one

	failed    error // of the journal
	finishing bool  // marks of rings that end are left

	mu    sync.Mutex
	stats Stats
}

// New checks the configuration.
func New(cfg Config, plan Plan) (*Pipeline, error) {
	switch {
	case cfg.Instance == "":
		return nil, errors.New("taps: expected a name for this instance")
	case cfg.Journal == nil:
		return nil, errors.New("taps: expected a journal")
	}
	setDefault(&cfg.Interval, DefaultInterval)
	setDefault(&cfg.Patience, DefaultPatience)
	setDefault(&cfg.Drain, DefaultDrain)
	setDefault(&cfg.MaxHeldRows, 1<<20)
	if cfg.Interval < 0 || cfg.Patience < 0 || cfg.Drain < 0 || cfg.MaxHeldRows < 0 {
		return nil, errors.New("taps: expected no negative duration or number of rows")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Pipeline{
		cfg: cfg, plan: &plan, last: cfg.After,
		events: make(chan event), reloads: make(chan reload), closed: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	if err := plan.check(nil); err != nil {
		return nil, fmt.Errorf("taps: %w", err)
	}
	return p, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

const maxRing = 1<<16 - 1

// check makes what the plan's workers will make, so that they cannot fail at it.
func (p *Plan) check(running []*worker) error {
	seen := make(map[key]bool)
	for i := range p.Rings {
		t := &p.Rings[i]
		switch {
		case t.Name == "" || t.Ring < 0 || t.Ring > maxRing:
			return fmt.Errorf("tap %q, ring %d: expected a name and a ring of 0 to %d", t.Name, t.Ring, maxRing)
		case seen[t.key()]:
			return fmt.Errorf("tap %q, ring %d: is there twice", t.Name, t.Ring)
		case t.Source == nil && runs(running, t.key()) == nil:
			return fmt.Errorf("tap %q, ring %d: has no source", t.Name, t.Ring)
		case t.Sessions != nil && t.Source != nil && !hasSessions(t.Source):
			return fmt.Errorf("tap %q, ring %d: expected a source with sessions", t.Name, t.Ring)
		case t.Link != 0 && !t.Link.Known():
			return fmt.Errorf("tap %q: link type %d: expected Ethernet, Linux SLL or Linux SLL2", t.Name, t.Link)
		}
		seen[t.key()] = true
		if _, err := window.NewStream(&p.Settings, t.Tap, window.Origin{Link: decode.Ethernet}, nil); err != nil {
			return fmt.Errorf("tap %q: %w", t.Name, err)
		}
	}
	return nil
}

func hasSessions(s Source) bool {
	_, ok := s.(Sessions)
	return ok
}
