package remote

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/retry"
	"github.com/csigscope/csigscope/ingest/wire"
)

const (
	// provisionalGather is how long rows of further parts are gathered, since their windows end
	// at the same time.
	provisionalGather = 3 * time.Millisecond
	// provisionalTimeout is the time limit for a collector: later rows are useless.
	provisionalTimeout = time.Second
)

// The reasons in ProvisionalStats.Dropped.
const (
	dropBusy  = "busy"  // later rows replaced them, or needed the room, before the link was free
	dropAway  = "away"  // the collector did not accept their request
	dropLarge = "large" // too large for a message
	dropNames = "names" // their epoch has no description
)

// ProvisionalStats counts provisional rows to one collector, in parts of producers.
type ProvisionalStats struct {
	Sent    uint64
	Dropped map[string]uint64 // by reason: "busy", "away", "large", "names"
}

// Results returns the counts by result: "sent", or the reason for the drop.
func (s *ProvisionalStats) Results() map[string]uint64 {
	all := maps.Clone(s.Dropped)
	all["sent"] = s.Sent
	return all
}

// provisionalPart is a part's provisional rows, encoded as a field of a request. It is
// immutable.
type provisionalPart struct {
	part any // identifies the part
	body []byte
	rows int
}

// encodeProvisional encodes the rows of a part, without their number, as a field of a request.
func encodeProvisional(part any, field protowire.Number, m *wire.Provisional) provisionalPart {
	body, _ := appendMessage(nil, field, m) // encoding numbers and validated names cannot fail
	return provisionalPart{part, body, len(m.GetBlock().GetSignal())}
}

// provisionalSender sends provisional rows to a collector, one request at a time and each once.
// Only the latest rows of each part wait, and no caller waits for them. Its methods are safe
// for concurrent use.
type provisionalSender struct {
	most  int // bytes of the waiting rows, and so of a request
	send  func(context.Context, []byte) error
	ready chan struct{} // holds one if there are rows to send

	mu      sync.Mutex
	waiting []provisionalPart
	bytes   int
	sent    uint64
	dropped map[string]uint64
}

func newProvisionalSender(most int, send func(context.Context, []byte) error) *provisionalSender {
	return &provisionalSender{most: most, send: send, ready: make(chan struct{}, 1), dropped: map[string]uint64{}}
}

// add queues rows and replaces earlier ones of their part. Without room the oldest are dropped.
func (a *provisionalSender) add(n provisionalPart) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(n.body) > a.most || n.rows > maxRows {
		a.dropped[dropLarge]++
		return
	}
	if i := slices.IndexFunc(a.waiting, func(o provisionalPart) bool { return o.part == n.part }); i >= 0 {
		a.cut(i, i+1)
		a.dropped[dropBusy]++
	}
	a.waiting = append(a.waiting, n)
	a.bytes += len(n.body)
	for a.bytes > a.most || len(a.waiting) > maxItems {
		a.cut(0, 1)
		a.dropped[dropBusy]++
	}
	select {
	case a.ready <- struct{}{}:
	default:
	}
}

// cut removes parts from the queue. The caller holds mu.
func (a *provisionalSender) cut(from, to int) {
	for _, n := range a.waiting[from:to] {
		a.bytes -= len(n.body)
	}
	a.waiting = slices.Delete(a.waiting, from, to)
}

func (a *provisionalSender) drop(reason string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropped[reason] += uint64(n)
}

// run sends until ctx ends.
func (a *provisionalSender) run(ctx context.Context) {
	for {
		select {
		case <-a.ready:
		case <-ctx.Done():
			return
		}
		retry.Sleep(ctx, provisionalGather)
		for body, n := a.take(); n > 0; body, n = a.take() {
			sending, cancel := context.WithTimeout(ctx, provisionalTimeout)
			err := a.send(sending, body)
			cancel()
			if err != nil {
				a.drop(dropAway, n)
				continue
			}
			a.mu.Lock()
			a.sent += uint64(n)
			a.mu.Unlock()
		}
	}
}

// take builds a request of as many waiting parts as fit into a message, and returns their
// number.
func (a *provisionalSender) take() (body []byte, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	rows := 0
	for n < len(a.waiting) && rows+a.waiting[n].rows <= maxRows {
		body = append(body, a.waiting[n].body...)
		rows += a.waiting[n].rows
		n++
	}
	a.cut(0, n)
	return body, n
}

func (a *provisionalSender) stats() ProvisionalStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return ProvisionalStats{Sent: a.sent, Dropped: maps.Clone(a.dropped)}
}

// provisionalStream identifies a part of an exporter.
type provisionalStream struct {
	streamKey
	epoch      uint64
	resolution int64
}

// WriteProvisional sends provisional rows of a stream's incarnation to the current collector,
// outside of the spool: at once or never. It keeps no reference to p and does not block on I/O.
// The epoch must have been described. Dropped rows are counted in the client's Stats.
func (c *Client) WriteProvisional(stream string, p *aggregate.Provisional) {
	c.mu.Lock()
	description, err := c.descriptionOf(p.Epoch)
	c.mu.Unlock()
	if err != nil {
		c.provisional.drop(dropNames, 1)
		return
	}
	m := provisionalToWire(p)
	m.Block.Stream, m.Block.Description = stream, description
	c.provisional.add(encodeProvisional(provisionalStream{streamKey{stream, p.Incarnation}, p.Epoch, p.Resolution}, fieldProvisional, m))
}

// sendProvisional sends provisional rows to the current collector, once.
func (c *Client) sendProvisional(ctx context.Context, rows []byte) error {
	c.mu.Lock()
	at := c.endpoints[c.current]
	c.mu.Unlock()
	_, err := at.call.CallUnary(ctx, newRequest(append(c.appendExporter(nil), rows...), c.cfg.Now()))
	return err
}

// provisionalToWire converts provisional rows to a message, which shares their memory.
func provisionalToWire(p *aggregate.Provisional) *wire.Provisional {
	b := (*aggregate.Block)(p)
	m := &wire.Provisional{Block: toWire(b, 0, b.Len())}
	m.Block.Incarnation = b.Incarnation
	return m
}
