package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/retry"
	"github.com/csigscope/csigscope/ingest/wire"
)

// SharingConfig configures the sharing of windows with other collectors.
type SharingConfig struct {
	// Peers lists base URLs, such as "https://collector2.example:4319"; the other side needs
	// this collector in Admission.Peers.
	Peers []string
	// TLS names this collector's client certificate, and the authority of the peers'
	// certificates unless the system's authorities apply.
	TLS edge.TLSFiles
	// TokenFile contains a bearer token and is reloaded when it changes; empty: none.
	TokenFile string
	// MaxWaiting limits the encoded bytes that wait for each peer; 64 MiB by default. Blocks
	// that wait for several peers are in memory once.
	MaxWaiting int
	// Gather is how long blocks are gathered for one request; 5 ms by default. It adds to the
	// delay until a peer has a window.
	Gather time.Duration

	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// Check validates the URLs and credentials. It reads no file.
func (c *SharingConfig) Check() error {
	if len(c.Peers) > maxPeers {
		return fmt.Errorf("%d peers: expected at most %d", len(c.Peers), maxPeers)
	}
	for i, u := range c.Peers {
		if err := CheckCollector(u, c.TLS); err != nil {
			return err
		}
		if slices.Contains(c.Peers[:i], u) {
			return fmt.Errorf("collector %q: is listed twice", u)
		}
	}
	if err := c.TLS.Check(); err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	return nil
}

const (
	// shareBytes limits a request to a peer; a larger part of a block is sent alone.
	shareBytes = 1 << 20
	// sharedFor is the maximum age of a window that is sent to a peer: live views keep no older
	// ones.
	sharedFor = time.Minute
	// shareTimeout is the time limit of a request to a peer.
	shareTimeout = 10 * time.Second
	// lastShare is the time limit for sending the last windows at the end.
	lastShare = time.Second

	firstSharePause   = 50 * time.Millisecond
	longestSharePause = 2 * time.Second
)

// The reasons in PeerStats.Dropped.
const (
	dropFull    = "full"    // newer windows needed the room, while the peer was down or slow
	dropOld     = "old"     // the peer was down until no live view showed the window
	dropRefused = "refused" // by the peer, which counts the reason
)

// Sharing sends the windows of 1 s that a collector closes or receives from exporters to its
// peers, preceded by their provisional rows, so that each collector has the live windows of
// all. It is an aggregate.Sink; its methods are safe for concurrent use.
//
// Nothing waits for a peer: windows that it does not accept in time are dropped and counted. A
// block may arrive twice after a cut connection; the live view has to detect that.
type Sharing struct {
	cfg   SharingConfig
	links []*link
}

// NewSharing makes a Sharing, which sends while Run runs. It reads credentials, and does
// nothing else before that.
func NewSharing(cfg SharingConfig) (*Sharing, error) {
	setDefault(&cfg.MaxWaiting, 64<<20)
	setDefault(&cfg.Gather, 5*time.Millisecond)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("configure peers: %w", err)
	}
	s := &Sharing{cfg: cfg}
	for _, u := range cfg.Peers {
		client, err := newHTTPClient(cfg.TLS, cfg.TokenFile, cfg.Now, cfg.Logger)
		if err != nil {
			return nil, fmt.Errorf("configure peers: %w", err)
		}
		u = strings.TrimSuffix(u, "/")
		l := &link{
			cfg: &s.cfg, url: u, http: client, ready: make(chan struct{}, 1), dropped: map[string]uint64{},
			failing: retry.CauseThrottle{Every: quietFor}, refused: retry.LogThrottle{Every: quietFor},
			call: connect.NewClient[rawRequest, wire.ShareResponse](client, u+wire.IngestServiceShareProcedure, clientOptions(false)...),
		}
		l.provisional = newProvisionalSender(defaultMaxMessage, func(ctx context.Context, body []byte) error {
			_, err := l.call.CallUnary(ctx, newRequest(body, cfg.Now()))
			return err
		})
		s.links = append(s.links, l)
	}
	return s, nil
}

// WriteBlock implements aggregate.Sink. If the block's window is shared, it encodes the block
// once for all peers. It never fails or blocks.
func (s *Sharing) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if b.Resolution != int64(aggregate.LiveResolution) || b.Len() == 0 {
		return nil
	}
	for _, p := range encodeShared(b) {
		for _, l := range s.links {
			l.add(p)
		}
	}
	return nil
}

// sharedSource identifies a part whose provisional rows are shared.
type sharedSource struct{ producer, incarnation, part uint64 }

// WriteProvisional implements aggregate.ProvisionalSink. If the rows' window is shared, it
// encodes them once for all peers. Each peer gets them at once or never.
func (s *Sharing) WriteProvisional(p *aggregate.Provisional) {
	b := (*aggregate.Block)(p)
	if b.Resolution != int64(aggregate.LiveResolution) {
		return
	}
	m := provisionalToWire(p)
	m.Producer, m.Block.Seq = b.Producer, b.Part()<<aggregate.PartShift
	n := encodeProvisional(sharedSource{b.Producer, b.Incarnation, b.Part()}, fieldSharedProvisional, m)
	for _, l := range s.links {
		l.provisional.add(n)
	}
}

// Run sends until ctx ends, and then briefly continues with the rest.
func (s *Sharing) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, l := range s.links {
		all.Go(func() { l.run(ctx) })
		all.Go(func() { l.provisional.run(ctx) })
	}
	all.Wait()
	return nil
}

// PeerStats counts the blocks for one peer. A block that is too large for a message counts as
// its parts.
type PeerStats struct {
	URL           string
	Away          bool              // the last request failed, other than by a refusal of windows
	Sent, Rows    uint64            // blocks that the peer has, and their rows
	Bytes         uint64            // of answered requests, uncompressed
	Dropped       map[string]uint64 // blocks, by reason: "full", "old", "refused"
	WaitingBlocks int
	WaitingBytes  int
	Provisional   ProvisionalStats
}

// Stats returns the counters of each peer, in the order of the configuration.
func (s *Sharing) Stats() (list []PeerStats) {
	for _, l := range s.links {
		list = append(list, l.snapshot())
	}
	return list
}

// sharedPart is a block, or a part of a large one, encoded for a request. It is immutable.
type sharedPart struct {
	body []byte
	end  int64 // end of its window, Unix ns
	rows int
}

// encodeShared cuts a block into parts that fit into messages. A block that an exporter sent in
// one message fits into one.
func encodeShared(b *aggregate.Block) []sharedPart {
	whole := encodePart(b, 0, b.Len(), 0)
	if b.Len() <= maxRows && len(whole.body) <= defaultMaxMessage {
		return []sharedPart{whole}
	}
	var parts []sharedPart
	for from := 0; from < b.Len(); {
		to := cut(b, from)
		parts = append(parts, encodePart(b, from, to, uint32(len(parts))))
		from = to
	}
	return parts
}

func encodePart(b *aggregate.Block, from, to int, part uint32) sharedPart {
	m := &wire.SharedBlock{Producer: b.Producer, Part: part, Block: toWire(b, from, to)}
	m.Block.Incarnation, m.Block.Seq = b.Incarnation, b.Seq
	body, _ := appendMessage(nil, fieldShared, m) // encoding numbers cannot fail
	return sharedPart{body, b.WindowStart + b.Resolution, to - from}
}

// link is the connection to one peer.
type link struct {
	cfg   *SharingConfig
	url   string
	http  *http.Client
	call  *connect.Client[rawRequest, wire.ShareResponse]
	ready chan struct{} // holds one if there are parts to send

	provisional *provisionalSender

	failing retry.CauseThrottle // requests
	refused retry.LogThrottle   // blocks

	mu      sync.Mutex
	queue   []sharedPart
	waiting int // bytes in the queue
	dropped map[string]uint64
	stats   PeerStats // without the fields that snapshot adds
}

func (l *link) snapshot() PeerStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.URL, s.WaitingBlocks, s.WaitingBytes, s.Dropped = l.url, len(l.queue), l.waiting, maps.Clone(l.dropped)
	s.Provisional = l.provisional.stats()
	return s
}

// add queues a part. Without room the oldest parts are dropped.
func (l *link) add(p sharedPart) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, p)
	l.waiting += len(p.body)
	if l.waiting > l.cfg.MaxWaiting {
		n := 0
		for ; l.waiting > l.cfg.MaxWaiting; n++ {
			l.waiting -= len(l.queue[n].body)
		}
		l.cutQueue(n)
		l.dropped[dropFull] += uint64(n)
	}
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// cutQueue removes parts from the queue's head. The caller holds mu.
func (l *link) cutQueue(n int) {
	clear(l.queue[:n]) // free the encoded parts, since the array stays
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil
	}
}

// take moves the oldest parts from the queue into a batch, as many as fit into a request. It
// drops those that no live view shows any more.
func (l *link) take(batch []sharedPart) []sharedPart {
	l.mu.Lock()
	defer l.mu.Unlock()
	oldest := l.cfg.Now().Add(-sharedFor).UnixNano()
	n, size, rows := 0, 0, 0
	for _, p := range l.queue {
		if p.end < oldest {
			l.dropped[dropOld]++
		} else {
			size += len(p.body)
			rows += p.rows
			if len(batch) > 0 && (size > shareBytes || rows > maxRows || len(batch) >= maxItems) {
				break
			}
			batch = append(batch, p)
		}
		l.waiting -= len(p.body)
		n++
	}
	l.cutQueue(n)
	return batch
}

// run sends until ctx ends, and then briefly continues with the rest. A running request gets
// that time too, so that it is not sent twice.
func (l *link) run(ctx context.Context) {
	defer l.http.CloseIdleConnections()
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastShare, stop) })()
	var batch []sharedPart
	for {
		select {
		case <-l.ready:
		case <-ctx.Done():
		}
		retry.Sleep(ctx, l.cfg.Gather)
		for batch = l.take(batch[:0]); len(batch) > 0; batch = l.take(batch[:0]) {
			if !l.deliver(ctx, sending, batch) {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// deliver sends a batch until the peer has it or it is too old. It returns false if a request
// failed and ctx has ended.
func (l *link) deliver(ctx, sending context.Context, batch []sharedPart) bool {
	backoff := retry.Backoff{First: firstSharePause, Longest: longestSharePause, Jitter: true}
	for len(batch) > 0 {
		err := l.send(sending, batch)
		switch wait, poison := judge(err); {
		case err == nil:
			if l.failing.Over() {
				l.cfg.Logger.Warn("peer answers again", slog.String("peer", l.url))
			}
			return true
		case ctx.Err() != nil:
			return false
		case poison && len(batch) > 1: // find the offending part
			half := len(batch) / 2
			return l.deliver(ctx, sending, batch[:half]) && l.deliver(ctx, sending, batch[half:])
		case poison:
			l.refused.Log(l.cfg.Logger, slog.LevelError, l.cfg.Now(), "the peer refused windows, and does not show them", slog.String("peer", l.url), slog.String("error", err.Error()))
			l.drop(dropRefused, 1)
			return true
		case wait > 0:
			retry.Sleep(ctx, wait)
		default:
			// The next request opens a new connection with the current certificates.
			l.http.CloseIdleConnections()
			l.failing.Warn(l.cfg.Logger, l.cfg.Now(), "peer does not take windows, trying again", err, slog.String("peer", l.url))
			backoff.Wait(ctx)
		}
		batch = l.withoutOld(batch)
	}
	return true
}

// withoutOld drops the parts of a batch that no live view shows any more.
func (l *link) withoutOld(batch []sharedPart) []sharedPart {
	oldest, n := l.cfg.Now().Add(-sharedFor).UnixNano(), len(batch)
	batch = slices.DeleteFunc(batch, func(p sharedPart) bool { return p.end < oldest })
	if n > len(batch) {
		l.drop(dropOld, n-len(batch))
	}
	return batch
}

func (l *link) drop(reason string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropped[reason] += uint64(n)
}

// errAnswer is the error for an answer that does not match the request.
var errAnswer = errors.New("peer did not answer for each block")

// send sends a batch once and counts the outcomes.
func (l *link) send(ctx context.Context, batch []sharedPart) error {
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	size := 0
	for _, p := range batch {
		size += len(p.body)
	}
	body := make([]byte, 0, size)
	for _, p := range batch {
		body = append(body, p.body...)
	}
	answer, err := l.call.CallUnary(ctx, newRequest(body, l.cfg.Now()))
	if err == nil && len(answer.Msg.GetOutcomes()) != len(batch) {
		err = errAnswer
	}
	wait, poison := judge(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stats.Away = err != nil && wait == 0 && !poison; err != nil {
		return err
	}
	l.stats.Bytes += uint64(size)
	for i, o := range answer.Msg.GetOutcomes() {
		if o == wire.Outcome_OUTCOME_STORED {
			l.stats.Sent++
			l.stats.Rows += uint64(batch[i].rows)
		} else {
			l.dropped[dropRefused]++
			l.refused.Warn(l.cfg.Logger, l.cfg.Now(), "peer refuses windows", slog.String("peer", l.url), slog.String("reason", reasonOf(o).String()))
		}
	}
	return nil
}
