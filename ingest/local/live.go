// Package local runs taps continuously through the pipeline: frames to observations, to windows
// that close by the clock, to a journal.
//
// It knows when windows close and the order in which records become durable. It must never know
// SQL, HTTP or file formats: Source hides where frames come from, and Journal hides how closed
// windows become durable.
//
// Each ring of a tap has a worker with its own decoder and shard, and one more decoder and
// shard for each session of its source; per packet, workers share nothing. Closed blocks are
// held until the next barrier. Soon after windows have closed, and once per interval, each
// worker stops between two batches, advances its watermark and delivers its held blocks with
// a mark of its progress. The journal makes all of them durable in one round. Provisional rows
// of windows that have ended but are still open go to a separate sink at once, and never to the
// journal.
//
// A killed process loses the windows that are open in its shards. The next process has a new
// incarnation, so that their rows cannot be confused, and the marks of the last round say from
// when on windows are missing.
package local

import (
	"cmp"
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

// Source delivers the frames of one ring. One goroutine uses it.
type Source interface {
	// ReadBatch fills b with the next frames, oldest first. It waits some milliseconds for
	// them; b.N is 0 if none arrived. Data in b is valid until the next call. io.EOF means that
	// no more frames will arrive; any other error ends the pipeline.
	ReadBatch(b *capture.Batch) error
	// LowWatermark returns a time (Unix ns, system clock), as of the last ReadBatch without
	// frames: all frames received before it have been delivered. It returns 0 before the first
	// such call.
	LowWatermark() int64
	// Ahead returns a lower bound, in ns, of the lead of the frames' clock over the system clock: a
	// network card has its own clock.
	Ahead() int64
	// Close is called after the last ReadBatch.
	Close() error
}

// Counter is an optional interface of a Source that counts observations itself, and delivers only those
// packets as frames that it cannot read. The goroutine of ReadBatch uses it.
type Counter interface {
	// Count sets the settings and the place under which the source counts from now on. It is called before
	// the first ReadBatch, and again when they change. It returns the counts that were not read yet; in
	// the first call those since the source was opened, under the settings of that time. When one source
	// replaces another, the goroutine of the replaced one calls Count of both with unchanged settings, so
	// that counts are exact.
	Count(*window.Settings, window.Tap) (Counts, error)
	// ReadCounts returns the counts since the last call, often none. Of a Counter, LowWatermark also holds
	// after a batch with frames: packets received before it have been counted or delivered.
	ReadCounts() (Counts, error)
}

// Successor is an optional interface of a Counter that can replace another one so that exactly one of them
// counts each packet.
type Successor interface {
	Counter
	// Succeed makes the source count from the moment at which the other one stops, and returns the other's last counts.
	// It discards its own counts from before. The other source still delivers frames afterwards. If it cannot replace the
	// other one, Succeed reports false and changes nothing.
	Succeed(Counter) (last Counts, ok bool, err error)
}

// Counts holds the observations that a Counter has counted. It is valid until the next call of the Counter.
type Counts struct {
	Frames window.CountedFrames
	List   []window.Counted
	// Samples are heavy ones among the observations of the list, from which flows are named.
	Samples []window.Sampled
}

// Journal makes the workers' blocks durable and forwards them. One goroutine uses it.
type Journal interface {
	aggregate.Sink // a block is durable after the next Commit
	// Commit makes the written blocks and the marks durable, together or the marks last. It
	// returns nil if the pipeline may continue, even if it has to retry later.
	Commit(context.Context, []Mark) error
}

// Defaults of a Config.
const (
	DefaultInterval       = time.Second
	DefaultBarrierTimeout = 2 * time.Second
	DefaultDrain          = 10 * time.Second
)

// Config holds the settings that a Pipeline keeps for its lifetime.
type Config struct {
	// Instance distinguishes this process from others: together with the name of a tap it
	// identifies a producer.
	Instance string
	// Interval is the maximum time between rounds. A window of aggregate.LiveResolution that
	// closes triggers one soon. Default 1 s.
	Interval time.Duration
	// BarrierTimeout is how long a barrier waits for a worker before it continues without it. Default
	// 2 s.
	BarrierTimeout time.Duration
	// Drain is how long Run may continue after its context has ended. Default 10 s.
	Drain time.Duration
	// MaxHeldRows is the maximum number of rows that a worker holds for a round; at the limit
	// it takes no more frames. One batch of frames may exceed it by the rows that it closes.
	// Default 1<<20.
	MaxHeldRows int

	Journal Journal // required
	// Provisional receives rows of windows that have ended, before they close; nil: none.
	Provisional aggregate.ProvisionalSink
	// After is the highest incarnation of earlier processes; this process uses higher ones.
	After uint64

	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// Plan holds the settings that a reload may change.
type Plan struct {
	window.Settings
	Rings []Ring
}

// Ring is one ring of a tap. Its key is its name and its number.
type Ring struct {
	Name string
	Ring int // 0 to 65535
	window.Tap
	// Source belongs to the pipeline once Run or Reload is called with it. In a reload, nil
	// means the source of the running ring with the same key.
	Source Source
	// Before is the name of the tap in the previous plan that captures the same packets: with a Source, the
	// ring replaces the rings of that tap. Default Name.
	Before string
	// Link is the link type of frames. Default Ethernet.
	Link decode.Link
	// Sessions returns the tap of a session; Source must then implement Sessions. It is called
	// rarely. Frames with index 0 belong to the tap itself; if nil, all frames do.
	Sessions func(session string) SessionTap
}

type ringID struct {
	name string
	ring int
}

func (t *Ring) id() ringID { return ringID{t.Name, t.Ring} }

func (t *Ring) before() string { return cmp.Or(t.Before, t.Name) }

// Pipeline runs the taps of one process.
type Pipeline struct {
	cfg  Config
	plan *Plan

	workers []*worker
	left    []Mark     // marks of ended rings, for the gaps of the next process
	earlier ledger     // counters of workers that have ended
	events  chan event // from workers to the coordinator
	reloads chan reload
	closed  chan struct{} // holds one if a round is requested
	last    uint64        // latest incarnation
	ended   chan struct{} // closed when Run returns

	round *time.Timer // fires at the next round
	due   time.Time   // time of the next round
	began time.Time   // begin of the last round

	failed    error // error of the journal
	finishing bool  // keep the marks of ending rings

	mu    sync.Mutex
	stats Stats
}

// New validates the configuration. After an error, the plan's sources are closed.
func New(cfg Config, plan Plan) (*Pipeline, error) {
	p, err := newPipeline(cfg, plan)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("taps: %w", err), plan.Close())
	}
	return p, nil
}

func newPipeline(cfg Config, plan Plan) (*Pipeline, error) {
	switch {
	case cfg.Instance == "":
		return nil, errors.New("expected a name for this instance")
	case cfg.Journal == nil:
		return nil, errors.New("expected a journal")
	}
	cfg.Interval = cmp.Or(cfg.Interval, DefaultInterval)
	cfg.BarrierTimeout = cmp.Or(cfg.BarrierTimeout, DefaultBarrierTimeout)
	cfg.Drain = cmp.Or(cfg.Drain, DefaultDrain)
	cfg.MaxHeldRows = cmp.Or(cfg.MaxHeldRows, 1<<20)
	if cfg.Interval < 0 || cfg.BarrierTimeout < 0 || cfg.Drain < 0 || cfg.MaxHeldRows < 0 {
		return nil, errors.New("expected no negative duration or number of rows")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	p := &Pipeline{
		cfg: cfg, plan: &plan, last: cfg.After,
		events: make(chan event), reloads: make(chan reload), closed: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	if err := plan.check(nil); err != nil {
		return nil, err
	}
	return p, nil
}

const maxRing = 1<<16 - 1

// check builds what the plan's workers will build, so that they cannot fail at it.
func (p *Plan) check(running []*worker) error {
	seen := make(map[ringID]bool)
	for i := range p.Rings {
		t := &p.Rings[i]
		switch {
		case t.Name == "" || t.Ring < 0 || t.Ring > maxRing:
			return fmt.Errorf("tap %q, ring %d: expected a name and a ring of 0 to %d", t.Name, t.Ring, maxRing)
		case seen[t.id()]:
			return fmt.Errorf("tap %q, ring %d: is there twice", t.Name, t.Ring)
		case t.Source == nil && runs(running, t.id()) == nil:
			return fmt.Errorf("tap %q, ring %d: has no source", t.Name, t.Ring)
		case t.Sessions != nil && t.Source != nil && !hasSessions(t.Source):
			return fmt.Errorf("tap %q, ring %d: expected a source with sessions", t.Name, t.Ring)
		case t.Link != 0 && !t.Link.Known():
			return fmt.Errorf("tap %q: link type %d: expected Ethernet, Linux SLL or Linux SLL2", t.Name, t.Link)
		}
		seen[t.id()] = true
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
