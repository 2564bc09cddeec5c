package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/ingest/retry"
	"github.com/csigscope/csigscope/ingest/wire"
)

// Client sends blocks to a collector. It first writes them to a spool on disk, where they stay
// until a collector has stored them. Its methods are safe for concurrent use.
type Client struct {
	cfg         ClientConfig
	log         *outbox.Log
	endpoints   []endpoint
	provisional *provisionalSender
	http        *http.Client

	mu      sync.Mutex
	streams map[streamKey]*Stream
	kept    []keptDescription // one of each epoch, latest last
	pending record
	missing missing      // losses to be reported
	beside  []missingKey // streams next to the last loss in the spool
	stats   ClientStats
	lost    map[string]uint64
	closed  bool
	bounded bool  // records of a newer version are within their limit
	err     error // last error of the spool
	moved   chan struct{}
	current int // index of the current collector

	// Only the sender uses these.
	scratch      []byte
	before       []byte // label of the last record read
	released     time.Time
	describedFor int
	answered     time.Time // time of the last answer
	said         string    // URL of the collector that the log named last
	saidAt       time.Time

	failing     retry.CauseThrottle // pushes
	unread      retry.LogThrottle   // reading the spool
	untidy      retry.LogThrottle
	undescribed retry.LogThrottle
	dropped     retry.LogThrottle             // whole records of the spool
	refused     [NumReasons]retry.LogThrottle // blocks
}

// quietFor is the minimum time between two log lines about one cause of a lasting failure.
const quietFor = time.Minute

// endpoint is the address of a collector.
type endpoint struct {
	url  string
	call *connect.Client[rawRequest, wire.PushResponse]
}

// ClientStats counts the items of this process by outcome. Items are blocks, parts of large
// blocks, and records.
type ClientStats struct {
	Items, Observations uint64 // accepted from the caller
	FoldedFlows         uint64 // flow rows added to rests because their block had too many
	Stored, Repeated    uint64 // items that a collector has
	Refused             map[string]uint64
	// Lost counts dropped items by reason: "full", "disk", "undescribed", "refused", "newer",
	// or a reason of the outbox. An item dropped while it was being sent may also count as
	// Stored.
	Lost          map[string]uint64
	Waiting       uint64    // items in the spool
	Oldest        time.Time // when the oldest item in the spool arrived, or somewhat earlier; zero for none
	SpoolBytes    int64     // on disk
	SpoolLimit    int64
	Answering     bool   // the last push was answered; false before the first one
	Pushes        uint64 // requests sent, failed ones included
	Failures      uint64 // failed pushes
	SentBytes     uint64 // uncompressed
	Collector     string // current one
	LastAnswerNS  int64  // Unix ns; 0: none so far
	DescribeParts uint64 // parts of descriptions that a collector has taken
	Provisional   ProvisionalStats
}

// saveEvery is the interval at which the spool's position is written. It is long, because items
// that are sent again after a crash do not count twice. saveItems is how many items are
// acknowledged in between, so that the collector still remembers all that are sent again: those
// and one request.
const (
	saveEvery = 10 * time.Second
	saveItems = maxInFlightBlocks - pushItems
)

// OpenClient opens the spool and takes ownership of it. Run sends its content; the caller
// closes the client after Run has ended.
func OpenClient(cfg ClientConfig) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure exporter: %w", err)
	}
	c := &Client{
		cfg: cfg, streams: map[streamKey]*Stream{},
		lost: map[string]uint64{}, moved: make(chan struct{}),
		failing: retry.CauseThrottle{Every: quietFor}, unread: retry.LogThrottle{Every: quietFor}, untidy: retry.LogThrottle{Every: quietFor},
		undescribed: retry.LogThrottle{Every: quietFor}, dropped: retry.LogThrottle{Every: quietFor},
	}
	c.stats.Refused = map[string]uint64{}
	c.provisional = newProvisionalSender(defaultMaxMessage-len(c.appendExporter(nil)), c.sendProvisional)
	if err := c.dial(); err != nil {
		return nil, fmt.Errorf("configure exporter: %w", err)
	}
	c.said = c.endpoints[c.current].url
	c.log, err = outbox.Open(outbox.Options{
		Dir: cfg.Dir, Classes: []outbox.Class{pushClass: {Name: "push"}, marksClass: {Name: "marks", Latest: true}}, MaxBytes: cfg.MaxBytes, FS: cfg.FS, Now: cfg.Now, Logger: cfg.Logger,
		SaveEvery: saveEvery, SaveWeight: saveItems,
	})
	if errors.Is(err, outbox.ErrOwned) {
		return nil, fmt.Errorf("open spool %s: %w: end the other csigscope export, or name another folder with --spool", cfg.Dir, outbox.ErrOwned)
	}
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	if err := c.openDescriptions(); err != nil {
		c.log.Close()
		return nil, fmt.Errorf("open spool: %w", err)
	}
	return c, nil
}

// Run spools gathered items and sends spooled ones until the context ends. The next client that
// opens the spool sends the rest.
func (c *Client) Run(ctx context.Context) error {
	var spooling sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer spooling.Wait()
	defer stop()
	spooling.Go(func() { c.provisional.run(ctx) })
	spooling.Go(func() {
		for retry.Sleep(ctx, c.cfg.SpoolEvery) {
			_ = c.Sync(ctx) // errors are logged, and the next Commit returns one again
		}
	})
	err := c.send(ctx)
	c.http.CloseIdleConnections()
	return err
}

// Flush waits until the spool is empty: until a collector has stored all items, or they are lost
// (ClientStats.Lost). Items that are added meanwhile delay it. Run must be running. Its errors are
// those of Sync and of ctx.
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

// Sync writes all items so far to disk. After an error they wait in memory for the next attempt.
func (c *Client) Sync(ctx context.Context) error { return c.Commit(ctx, nil) }

// Close spools gathered items and releases the spool. Run must have ended.
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

// Stats returns a snapshot of the client's counters.
func (c *Client) Stats() ClientStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	logged := c.log.Stats() // consistent: pending items move there under mu
	s := c.stats
	s.Refused, s.Lost = map[string]uint64{}, map[string]uint64{}
	maps.Copy(s.Refused, c.stats.Refused)
	maps.Copy(s.Lost, c.lost)
	s.Waiting = logged.Waiting.Weight + uint64(c.pending.items())
	s.Oldest, s.SpoolBytes, s.SpoolLimit = logged.Oldest, logged.Bytes, c.cfg.MaxBytes
	s.Collector = c.endpoints[c.current].url
	s.Provisional = c.provisional.stats()
	return s
}
