package remote

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/retry"
	"github.com/csigscope/csigscope/ingest/wire"
)

const (
	// provisionalGather is how long rows of further parts, whose windows end at the same time, are gathered.
	provisionalGather = 3 * time.Millisecond
	// provisionalTimeout is how long a collector may take to answer: rows that come later are of no use.
	provisionalTimeout = time.Second
	// provisionalBytes bounds what waits, and what is sent at once.
	provisionalBytes = defaultMaxMessage
)

// The reasons of ProvisionalStats.Dropped.
const (
	dropBusy  = "busy"  // later rows came, or needed the room, before the link was free
	dropAway  = "away"  // the collector did not take the request that they were in
	dropLarge = "large" // they do not fit into a message
	dropNames = "names" // nobody described their epoch
)

// ProvisionalStats is what became of provisional rows on the way to one collector, in parts of
// producers.
type ProvisionalStats struct {
	Sent    uint64
	Dropped map[string]uint64 // by reason: "busy", "away", "large", "names"
}

// Results are the counts by result: "sent", or the reason of dropped ones.
func (s *ProvisionalStats) Results() map[string]uint64 {
	all := maps.Clone(s.Dropped)
	all["sent"] = s.Sent
	return all
}

// provisionalPart is the encoding of a part's provisional rows as a field of a request. It never changes.
type provisionalPart struct {
	part any // tells parts apart
	body []byte
	rows int
}

// encodeProvisional encodes rows of a part, without its number, as a field of a request.
func encodeProvisional(part any, field protowire.Number, m *wire.Provisional) provisionalPart {
	size := proto.Size(m)
	body := protowire.AppendTag(make([]byte, 0, size+8), field, protowire.BytesType)
	body = protowire.AppendVarint(body, uint64(size))
	// A message of numbers, and of names that were checked, cannot fail to encode.
	body, _ = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(body, m)
	return provisionalPart{part, body, len(m.GetBlock().GetSignal())}
}

// provisionalSender sends provisional rows to a collector, one request at a time and each once. Of every part
// only the latest rows wait, and nobody waits for them. Its methods are safe for concurrent use.
type provisionalSender struct {
	send  func(context.Context, []byte) error
	ready chan struct{} // holds one when there is something to send

	mu      sync.Mutex
	waiting []provisionalPart
	bytes   int
	sent    uint64
	dropped map[string]uint64
}

func newProvisionalSender(send func(context.Context, []byte) error) *provisionalSender {
	return &provisionalSender{send: send, ready: make(chan struct{}, 1), dropped: map[string]uint64{}}
}

// add has rows sent in the place of earlier ones of their part. Without room the oldest give way.
func (a *provisionalSender) add(n provisionalPart) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(n.body) > provisionalBytes || n.rows > maxRows {
		a.dropped[dropLarge]++
		return
	}
	if i := slices.IndexFunc(a.waiting, func(o provisionalPart) bool { return o.part == n.part }); i >= 0 {
		a.cut(i, i+1)
		a.dropped[dropBusy]++
	}
	a.waiting = append(a.waiting, n)
	a.bytes += len(n.body)
	for a.bytes > provisionalBytes || len(a.waiting) > maxItems {
		a.cut(0, 1)
		a.dropped[dropBusy]++
	}
	select {
	case a.ready <- struct{}{}:
	default:
	}
}

// cut takes announcements out of the queue. The caller holds mu.
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

// take makes a request of what waits, as much as fits into a message, and returns of how many parts.
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

// provisionalStream tells the parts apart of which an exporter sends rows.
type provisionalStream struct {
	streamKey
	epoch      uint64
	resolution int64
}

// WriteProvisional sends provisional rows of a stream's incarnation to the collector in use, beside the
// spool: at once or never. It takes nothing of them over, and waits for nothing but memory. Their epoch
// must have been described. What is not sent is counted in the client's Stats.
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

// sendProvisional sends provisional rows to the collector in use, once.
func (c *Client) sendProvisional(ctx context.Context, rows []byte) error {
	c.mu.Lock()
	at := c.endpoints[c.current]
	c.mu.Unlock()
	_, err := at.call.CallUnary(ctx, newRequest(append(c.appendExporter(nil), rows...), c.cfg.Now()))
	return err
}

// provisionalToWire makes a message of provisional rows, which shares their memory.
func provisionalToWire(p *aggregate.Provisional) *wire.Provisional {
	b := (*aggregate.Block)(p)
	m := &wire.Provisional{Block: toWire(b, 0, b.Len())}
	m.Block.Incarnation = b.Incarnation
	return m
}
