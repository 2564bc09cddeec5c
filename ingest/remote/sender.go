package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/ingest/retry"
	"github.com/csigscope/csigscope/ingest/wire"
)

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
)

// pushBatch is the content of one request: records in spool order.
type pushBatch struct {
	body      []byte
	records   []batchRecord
	items     int
	described []*wire.Description // of its items, one of each epoch
}

// batchRecord is one record of the spool in a pushBatch.
type batchRecord struct {
	record
	from, to int    // in the body of the batch
	number   uint64 // in the spool
	weight   uint64
}

// send sends the content of the spool, oldest first, until the context ends.
func (c *Client) send(ctx context.Context) error {
	backoff := retry.Backoff{First: firstPause, Longest: longestPause, Jitter: true}
	var batch pushBatch
	single := false // after a request was refused as a whole: find the offending record
	again := false  // the collector has just got the descriptions of this batch
	for ctx.Err() == nil {
		if !again {
			if err := c.collect(&batch, single); err != nil {
				// This also happens if newer blocks displaced the record being read.
				c.unread.Warn(c.cfg.Logger, c.cfg.Now(), "spool cannot be read, trying again", slog.String("error", err.Error()))
				backoff.Wait(ctx)
				continue
			}
			if len(batch.records) == 0 && !c.awaitHello(ctx) {
				continue
			}
		}
		answer, err := c.push(ctx, batch.body)
		if err == nil {
			err = checkAnswer(&batch, answer)
		}
		answered := err == nil
		if again = false; answered {
			single = false
			again, err = c.acknowledge(ctx, &batch, answer)
		}
		switch wait, poison := judge(err); {
		case ctx.Err() != nil:
		case err == nil:
			backoff.Reset()
			c.recovered()
		case poison && !answered && len(batch.records) > 1:
			single = true
		case poison && !answered && len(batch.records) == 1:
			c.dropped.Log(c.cfg.Logger, slog.LevelError, c.cfg.Now(), "windows lost: the collector refused them", slog.String("error", err.Error()))
			c.drop(&batch, &batch.records[0])
			single = false
			backoff.Wait(ctx)
		case wait > 0:
			retry.Sleep(ctx, wait)
		default:
			c.fail(err)
			backoff.Wait(ctx)
		}
	}
	return nil
}

// awaitHello waits. It returns false if there may be items to send, and true if it is time for
// an empty request.
func (c *Client) awaitHello(ctx context.Context) bool {
	wait := c.cfg.HelloEvery - c.cfg.Now().Sub(c.answered)
	if wait <= 0 {
		return true
	}
	select {
	case <-time.After(wait):
		return true
	case <-c.log.Ready():
	case <-ctx.Done():
	}
	return false
}

// judge returns how long the collector asks to wait, or that it will never accept the request.
func judge(err error) (wait time.Duration, poison bool) {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return 0, false
	}
	switch e.Code() {
	case connect.CodeResourceExhausted:
		ms, bad := strconv.ParseInt(e.Meta().Get(retryAfter), 10, 64)
		if bad != nil {
			return 0, true
		}
		return time.Duration(min(max(ms, firstPause.Milliseconds()), longestPause.Milliseconds())) * time.Millisecond, false
	case connect.CodeInvalidArgument:
		return 0, true
	}
	return 0, false
}

// fail logs a failed push and switches to the next collector. The next push opens a new
// connection with the current certificates.
func (c *Client) fail(err error) {
	c.http.CloseIdleConnections()
	c.mu.Lock()
	from := c.endpoints[c.current].url
	c.current = (c.current + 1) % len(c.endpoints)
	c.mu.Unlock()
	c.failing.Warn(c.cfg.Logger, c.cfg.Now(), "cannot send windows to the collector, trying again", err, slog.String("collector", from))
}

// sayEvery is the least time between lines that name another collector, if two take turns.
const sayEvery = 10 * time.Second

// recovered logs that the collector answers again if its failure was logged, and, at most once per sayEvery, that
// another collector than the last logged one answers. It is called after each successful push.
func (c *Client) recovered() {
	s, now := c.Stats(), c.cfg.Now()
	collector, waiting := slog.String("collector", s.Collector), slog.Uint64("waiting", s.Waiting)
	switch {
	case s.Collector != c.said && now.Sub(c.saidAt) >= sayEvery:
		c.cfg.Logger.Warn("sending to another collector", collector, slog.String("instead_of", c.said), waiting)
		c.said, c.saidAt = s.Collector, now
		c.failing.Over()
	case s.Collector == c.said && c.failing.Over():
		c.cfg.Logger.Warn("collector answers again", collector, waiting)
	}
}

// collect reads the oldest records of the spool, as many as fit into a request. It counts
// damaged ones as lost.
func (c *Client) collect(batch *pushBatch, single bool) error {
	*batch = pushBatch{body: c.appendExporter(batch.body[:0]), records: batch.records[:0], described: batch.described[:0]}
	for {
		if segment, ok := c.log.Oldest(pushClass); ok {
			if err := c.readSegment(batch, segment, single); err != nil {
				return err
			}
			if len(batch.records) > 0 {
				return nil
			}
		}
		// Nothing is readable: the waiting records are lost or were dropped.
		if lost, err := c.passLosses(); err != nil || !lost {
			return err
		}
	}
}

// appendExporter begins a request with the exporter's own name.
func (c *Client) appendExporter(body []byte) []byte {
	if c.cfg.Exporter == "" {
		return body
	}
	return protowire.AppendString(protowire.AppendTag(body, fieldExporter, protowire.BytesType), c.cfg.Exporter)
}

func (c *Client) readSegment(batch *pushBatch, segment outbox.Part, single bool) error {
	var buf []byte
	for e, err := range c.log.Records(segment) {
		if err != nil {
			return err
		}
		one := batchRecord{number: e.Last, weight: e.Weight}
		if buf, err = e.Read(buf); err != nil {
			return err
		}
		if buf == nil || !one.parseLabel(e.Label) && !one.countItems(buf) {
			return nil // damage ends the batch: later records wait until the loss is counted
		}
		c.before = e.Label
		c.describeItems(batch, buf)
		if len(batch.records) > 0 && (len(batch.body)+len(buf) > pushBytes || batch.items+one.items() > pushItems || len(batch.described) > maxBatchDescriptions) {
			return nil
		}
		one.from = len(batch.body)
		batch.body = append(batch.body, buf...)
		one.to = len(batch.body)
		batch.items += one.items()
		batch.records = append(batch.records, one)
		if single {
			return nil
		}
	}
	return nil
}

// passLosses counts losses at the head of the spool.
func (c *Client) passLosses() (any bool, err error) {
	for {
		e, ok, err := c.log.Next(nil)
		if err != nil || !ok {
			return any, err
		}
		var r record
		reason := string(e.Lost)
		if reason == "" {
			if r.parseLabel(e.Label) || r.countItems(e.Payload) {
				return any, nil
			}
			reason = string(outbox.Damaged)
		}
		any = true
		c.cfg.Logger.Error("windows lost: the spool is damaged", slog.String("reason", reason), slog.Uint64("first", e.First), slog.Uint64("last", e.Last))
		c.pass(&e, reason)
	}
}

// ack acknowledges records up to a number.
func (c *Client) ack(number uint64) {
	for {
		e, ok, err := c.log.Next(c.scratch)
		if err != nil || !ok || e.Last > number {
			break
		}
		c.scratch = e.Payload[:0]
		if e.Lost != "" {
			c.pass(&e, string(e.Lost))
		} else {
			c.log.Ack(&e)
		}
		if e.Last == number {
			break
		}
	}
	c.release()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broadcast()
}

// broadcast wakes callers that wait for an empty spool. The caller holds mu.
func (c *Client) broadcast() {
	close(c.moved)
	c.moved = make(chan struct{})
}

// release periodically frees acknowledged segments, except the last one, which is still written
// to, unless it is large.
func (c *Client) release() {
	now := c.cfg.Now()
	if now.Sub(c.released) < releaseEvery {
		return
	}
	c.released = now
	acked := c.log.Acked()
	for i, s := range acked {
		if !s.Acked || i == len(acked)-1 && s.Bytes < releaseBytes {
			continue
		}
		if err := c.log.Release(s); err != nil {
			c.untidy.Warn(c.cfg.Logger, now, "spool cannot be tidied up", slog.String("error", err.Error()))
			return
		}
	}
}

const (
	releaseEvery = time.Second
	releaseBytes = 4 << 20
)

// drop gives up a record whose message the collector refused. Its gaps, begins and ends are not
// sent again: the collector would refuse them again.
func (c *Client) drop(batch *pushBatch, r *batchRecord) {
	items := itemsOf(batch.body[r.from:r.to])
	c.mu.Lock()
	c.lost[lostRefused] += r.weight
	for _, b := range items.GetBlocks() {
		c.missing.addBlock(lostRefused, b)
	}
	for _, r := range items.GetRecords() {
		if r.GetTap() != nil {
			c.missing.addRecord(lostRefused, r)
		}
	}
	c.spoolMissing()
	c.mu.Unlock()
	c.ack(r.number)
}

// checkAnswer rejects an answer that does not match the request.
func checkAnswer(batch *pushBatch, answer *wire.PushResponse) error {
	if n := len(answer.GetOutcomes()); n != batch.items {
		return fmt.Errorf("collector answered for %d items: expected %d", n, batch.items)
	}
	return nil
}

// cut removes the first n records.
func (b *pushBatch) cut(n int) {
	if n == 0 {
		return
	}
	size := b.records[n].from - b.records[0].from
	b.body = slices.Delete(b.body, b.records[0].from, b.records[n].from)
	for i := range b.records[:n] {
		b.items -= b.records[i].items()
	}
	b.records = slices.Delete(b.records, 0, n)
	for i := range b.records {
		b.records[i].from -= size
		b.records[i].to -= size
	}
}

// acknowledge acknowledges the records before the first one that has an item without a final
// outcome, and sends the descriptions that the collector asks for. If again is true, the rest of
// the batch has to be repeated as it is: collect could refer to newer descriptions, which the collector was not sent. It
// returns an error if the request has to be repeated later.
func (c *Client) acknowledge(ctx context.Context, batch *pushBatch, answer *wire.PushResponse) (again bool, err error) {
	own := outcomesOf(batch, answer)
	lost := false // the descriptions that the collector asks for
	open := func(o wire.Outcome) bool {
		return o == wire.Outcome_OUTCOME_UNSPECIFIED || o == wire.Outcome_OUTCOME_UNDESCRIBED && !lost
	}
	for done := 0; ; {
		n := done
		for n < len(own) && !slices.ContainsFunc(own[n], open) {
			n++
		}
		c.finish(batch, own, done, n)
		if done = n; n == len(own) {
			return false, nil
		}
		if own[n][slices.IndexFunc(own[n], open)] == wire.Outcome_OUTCOME_UNSPECIFIED {
			return false, errBusy
		}
		described, err := c.describeAll(ctx, batch, answer.GetDescribe())
		if err != nil {
			return false, err
		}
		if lost = described == 0 && len(answer.GetDescribe()) > 0; !lost {
			batch.cut(n)
			err := c.describedAgain()
			return err == nil, err
		}
	}
}

// outcomesOf returns the outcomes of each record of a batch: those of its blocks, then those of its
// wire.Records. The answer has them of all blocks first.
func outcomesOf(batch *pushBatch, answer *wire.PushResponse) [][]wire.Outcome {
	n := 0
	for i := range batch.records {
		n += batch.records[i].blocks
	}
	blocks, records := answer.GetOutcomes()[:n], answer.GetOutcomes()[n:]
	own := make([][]wire.Outcome, len(batch.records))
	for i := range batch.records {
		r := &batch.records[i]
		own[i] = slices.Concat(blocks[:r.blocks], records[:r.records])
		blocks, records = blocks[r.blocks:], records[r.records:]
	}
	return own
}

// finish counts and acknowledges the records [from, to) of a batch, whose outcomes are final. The
// blocks that are lost share a gap for each stream, epoch, resolution and reason, which is on disk
// before they are acknowledged.
func (c *Client) finish(batch *pushBatch, outcomes [][]wire.Outcome, from, to int) {
	if from == to {
		return
	}
	c.mu.Lock()
	for i, own := range outcomes[from:to] {
		r := &batch.records[from+i]
		var items *wire.PushRequest
		if slices.ContainsFunc(own, unstored) {
			items = itemsOf(batch.body[r.from:r.to])
			c.missing.addRefused(items, own[:r.blocks])
		}
		c.count(items, own)
	}
	c.spoolMissing()
	c.mu.Unlock()
	c.ack(batch.records[to-1].number)
	c.describedFor = 0
}

// maxDescribedFor is how often in a row a collector may ask for descriptions, as several behind
// a load balancer do.
const maxDescribedFor = 4

// describedAgain returns an error, so that the sender pauses, if descriptions do not help.
func (c *Client) describedAgain() error {
	if c.describedFor++; c.describedFor > maxDescribedFor {
		return errAsked
	}
	return nil
}

// errAsked is the error for a collector that keeps asking for a description.
var errAsked = errors.New("collector keeps asking for a description that it already has")

// unstored reports whether an item is lost by its final outcome.
func unstored(o wire.Outcome) bool {
	return o != wire.Outcome_OUTCOME_STORED && o != wire.Outcome_OUTCOME_REPEAT
}

// count counts the items of a finished record; items are needed only if one is lost. The caller
// holds mu.
func (c *Client) count(items *wire.PushRequest, outcomes []wire.Outcome) {
	streams := streamsOf(items, len(outcomes))
	for i, o := range outcomes {
		switch o {
		case wire.Outcome_OUTCOME_STORED:
			c.stats.Stored++
		case wire.Outcome_OUTCOME_REPEAT:
			c.stats.Repeated++
		case wire.Outcome_OUTCOME_UNDESCRIBED:
			c.lost[lostUndescribed]++
		default:
			reason := reasonOf(o)
			c.stats.Refused[reason.String()]++
			c.refused[reason].Log(c.cfg.Logger, slog.LevelError, c.cfg.Now(), "collector refused a block or a record",
				slog.String("stream", streams[i]), slog.String("reason", reason.String()), slog.Uint64("so_far", c.stats.Refused[reason.String()]))
		}
	}
}
