package remote

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/ingest/retry"
	"github.com/csigscope/csigscope/ingest/wire"
)

// Client hands blocks to a collector. What it was given goes to a spool
// on disk first, and stays there until a collector has it for good. Its methods are safe
// for concurrent use.
type Client struct {
	cfg         ClientConfig
	log         *outbox.Log
	life        uint64 // incarnation
	endpoints   []endpoint
	provisional *provisionalSender
	http        *http.Client

	mu      sync.Mutex
	streams map[streamKey]*Stream
	latest  map[uint64]*wire.Description // by epoch
	pending record
	missing missing      // what was lost, and is to be told
	beside  []missingKey // the streams beside the last loss in the spool
	stats   ClientStats
	lost    map[string]uint64
	closed  bool
	bounded bool  // no more is kept for a newer version than may be
	err     error // of the spool, at the last try
	moved   chan struct{}
	current int // index of the collector in use

	// The sender's.
	scratch      []byte
	before       []byte // label of the last record that was read
	released     time.Time
	describedFor int
	answered     time.Time // when a collector answered last

	failing retry.LogThrottle // pushes
	unread  retry.LogThrottle // the spool
	untidy  retry.LogThrottle
	refused [NumReasons]retry.LogThrottle // blocks
}

// quietFor is the least time between two lines of the log about one lasting failure.
const quietFor = time.Minute

// endpoint is a collector's.
type endpoint struct {
	url  string
	call *connect.Client[rawRequest, wire.PushResponse]
}

// ClientStats counts what became of what the client was given, in this process. Items
// are blocks, parts of large ones, and records.
type ClientStats struct {
	Items, Observations uint64 // given
	FoldedFlows         uint64 // rows of flows that went into rests, since their block had too many
	Stored, Repeated    uint64 // items that a collector has
	Refused             map[string]uint64
	// Lost is what was given up, by reason: "full", "disk", "undescribed", "refused",
	// "newer", or the outbox's own; in items. What gave way while it was being sent may be among
	// Stored too.
	Lost          map[string]uint64
	Waiting       uint64    // items in the spool
	Oldest        time.Time // when the oldest item in the spool came, or somewhat before; the zero Time for none
	SpoolBytes    int64     // on disk
	SpoolLimit    int64
	Answering     bool // whether the last push was answered; false before the first one
	Pushes        uint64
	Failures      uint64 // pushes that failed
	SentBytes     uint64 // uncompressed
	Collector     string // in use
	Incarnation   uint64
	LastAnswerNS  int64 // Unix ns; 0: none so far
	DescribeParts uint64
	Provisional   ProvisionalStats
}

// saveEvery is how often the spool's position is written: seldom, since what is sent
// again after a crash is not counted again.
const saveEvery = 10 * time.Second

// OpenClient takes possession of the spool. Run sends what is in it; the caller closes
// the client after Run has ended.
func OpenClient(cfg ClientConfig) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure exporter: %w", err)
	}
	c := &Client{
		cfg: cfg, streams: map[streamKey]*Stream{}, latest: map[uint64]*wire.Description{},
		lost: map[string]uint64{}, moved: make(chan struct{}),
		failing: retry.LogThrottle{Every: quietFor}, unread: retry.LogThrottle{Every: quietFor}, untidy: retry.LogThrottle{Every: quietFor},
	}
	c.stats.Refused = map[string]uint64{}
	c.provisional = newProvisionalSender(c.sendProvisional)
	if err := c.dial(); err != nil {
		return nil, fmt.Errorf("configure exporter: %w", err)
	}
	c.log, err = outbox.Open(outbox.Options{
		Dir: cfg.Dir, Classes: spoolClasses(), MaxBytes: cfg.MaxBytes, FS: cfg.FS, Now: cfg.Now, Logger: cfg.Logger,
		SaveEvery: saveEvery,
	})
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	if c.life, err = nextIncarnation(cfg.Dir, cfg.Now()); err != nil {
		c.log.Close()
		return nil, fmt.Errorf("open spool: %w", err)
	}
	return c, nil
}

// Run spools what is gathered and sends what is spooled until the context ends. What
// is left then is sent by the next client that opens the spool.
func (c *Client) Run(ctx context.Context) error {
	var spooling sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer spooling.Wait()
	defer stop()
	spooling.Go(func() { c.provisional.run(ctx) })
	spooling.Go(func() {
		for retry.Sleep(ctx, c.cfg.SpoolEvery) {
			_ = c.Sync(ctx) // Commit and WriteBlock tell
		}
	})
	err := c.send(ctx)
	c.http.CloseIdleConnections()
	return err
}

// Flush waits until a collector has all that was given so far. Run must be under way.
func (c *Client) Flush(ctx context.Context) error {
	if err := c.Sync(ctx); err != nil {
		return err
	}
	for {
		c.mu.Lock()
		moved := c.moved
		c.mu.Unlock()
		if c.log.Stats().Waiting.Records == 0 {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Sync puts all that was given so far onto the disk.
func (c *Client) Sync(ctx context.Context) error { return c.Commit(ctx, nil) }

// Close spools what is gathered and lets go of the spool. Run must have ended.
func (c *Client) Close() error {
	err := c.Sync(context.Background())
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	if e := c.log.Close(); err == nil {
		err = e
	}
	c.http.CloseIdleConnections()
	return err
}

// Stats is a snapshot of the client's counts.
func (c *Client) Stats() ClientStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	logged := c.log.Stats() // of the same moment: what is pending goes there under mu
	s := c.stats
	s.Refused, s.Lost = map[string]uint64{}, map[string]uint64{}
	for k, n := range c.stats.Refused {
		s.Refused[k] = n
	}
	for k, n := range c.lost {
		s.Lost[k] = n
	}
	s.Waiting = logged.Waiting.Weight + uint64(c.pending.items())
	s.Oldest, s.SpoolBytes, s.SpoolLimit, s.Incarnation = logged.Oldest, logged.Bytes, c.cfg.MaxBytes, c.life
	s.Collector = c.endpoints[c.current].url
	s.Provisional = c.provisional.stats()
	return s
}
