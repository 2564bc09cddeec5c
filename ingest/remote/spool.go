package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/ingest/wire"
)

const (
	// recordBytes and recordItems limit a record of the spool.
	recordBytes = 1 << 18
	recordItems = 256
	// pushBytes and pushItems limit a request.
	pushBytes = 1 << 20
	pushItems = 512
)

// Reasons for losses, besides the outbox's own.
const (
	lostFull        = "full"        // displaced by newer blocks
	lostDisk        = "disk"        // not writable
	lostUndescribed = "undescribed" // neither the collector nor the spool has their description
	lostRefused     = "refused"     // the collector refused their message
	lostNewer       = "newer"       // written by a newer csigscope, and beyond the limit for such records
)

// record is an encoded wire.PushRequest to which items are appended: concatenated records form
// one request with all of their items.
type record struct {
	body            []byte
	blocks, records int     // number of items: records counts wire.Records
	stands          missing // gaps to report if the record is lost
}

func (r *record) items() int { return r.blocks + r.records }

func (r *record) add(field protowire.Number, m proto.Message) (err error) {
	before := len(r.body)
	if r.body, err = appendMessage(r.body, field, m); err != nil {
		r.body = r.body[:before]
		return err
	}
	r.stands.add("", m)
	if field == fieldBlocks {
		r.blocks++
	} else {
		r.records++
	}
	return nil
}

// appendMessage appends a message as a field of another one.
func appendMessage(body []byte, field protowire.Number, m proto.Message) ([]byte, error) {
	size := proto.Size(m)
	body = protowire.AppendTag(slices.Grow(body, size+8), field, protowire.BytesType)
	body = protowire.AppendVarint(body, uint64(size))
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(body, m)
}

// label encodes the number of items in a record, and the gaps to report if it is lost, as far
// as there is room.
func (r *record) label() []byte {
	var label []byte
	for _, n := range [...]int{r.blocks, r.records} {
		label = binary.AppendUvarint(label, uint64(n))
	}
	for _, s := range r.stands.list() {
		text, err := proto.Marshal(&wire.PushRequest{Records: []*wire.Record{s}})
		if err == nil && len(label)+len(text) <= outbox.MaxLabel {
			label = append(label, text...)
		}
	}
	return label
}

// standIns returns the gaps and other records to send if the label's record is lost.
func standIns(label []byte) []*wire.Record {
	for range 2 {
		_, n := binary.Uvarint(label)
		label = label[max(n, 0):]
	}
	return itemsOf(label).GetRecords()
}

// parseLabel reads the numbers of items from a label.
func (r *record) parseLabel(label []byte) bool {
	for _, to := range [...]*int{&r.blocks, &r.records} {
		n, size := binary.Uvarint(label)
		if size <= 0 || n > recordItems {
			return false
		}
		*to, label = int(n), label[size:]
	}
	return true
}

// countItems counts the items of a record whose label is damaged.
func (r *record) countItems(body []byte) bool {
	items := itemsOf(body)
	r.blocks, r.records = len(items.GetBlocks()), len(items.GetRecords())
	return r.items() > 0 && r.items() <= recordItems
}

// The classes of the spool.
const (
	pushClass  = iota
	marksClass // only the last record counts
)

// Commit writes all items so far to disk together with marks, which replace the previous marks:
// a crash leaves both or neither, unless the items exceed one record. If marks is nil, the
// previous ones remain.
func (c *Client) Commit(_ context.Context, marks []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boundNewer()
	for pass := 0; ; pass++ {
		c.queueMissing()
		if err := c.spoolPending(marks); err != nil || c.missing.empty() {
			return err
		}
		if pass == maxPasses {
			return nil // a spool of nothing but gaps: those that gave way wait for the next call
		}
		marks = nil // they are written; the gap of earlier items that gave way is not
	}
}

// maxPasses limits how often Commit makes room for the gaps of items that gave way.
const maxPasses = 4

// Marks returns the marks that an earlier process committed last. Call it before Run.
func (c *Client) Marks() ([][]byte, error) {
	e, ok, err := c.log.Latest(marksClass)
	if err != nil || !ok {
		return nil, err
	}
	return [][]byte{e.Payload}, nil
}

// boundNewer drops the oldest records of classes that this version does not know, down to a
// 16th of the spool, once there is a stream that can report their gap. Only the time of such a
// record is certain. The gap is written first, unless the spool is full of such records. The
// caller holds mu.
func (c *Client) boundNewer() {
	for !c.bounded && len(c.streams) > 0 {
		s, bytes := c.log.Held()
		if c.bounded = bytes <= c.cfg.MaxBytes/16; c.bounded {
			return
		}
		if _, _, err := c.latestEpoch(); err != nil {
			return
		}
		loss, n := unknownLoss{reason: lostNewer}, outbox.Lost{}
		for e, err := range c.log.Records(s) {
			if err == nil {
				loss.Extent, loss.id = loss.Join(e.Extent), e.Last
				n.Records++
			}
		}
		n.Weight = s.Weight
		c.beside, c.missing.unknown = nil, append(c.missing.unknown, loss)
		c.queueMissing()
		_ = c.spoolPending(nil) // logs its own error; the gap then stays in memory
		if err := c.log.Discard(s, lostNewer, n); err != nil {
			c.cfg.Logger.Error("records of a newer csigscope cannot be dropped", slog.String("error", err.Error()))
			return
		}
		c.lost[lostNewer] += n.Weight
		c.cfg.Logger.Error("dropped the oldest records of a newer csigscope from the spool", slog.Uint64("items", n.Weight))
	}
}

// gather adds an item to the pending record. If the disk has no room for it, the item is lost
// and counted, so that measuring continues. The caller holds mu.
func (c *Client) gather(field protowire.Number, m proto.Message) error {
	c.stats.Items++
	if !c.hasRoom(m) {
		c.lost[lostDisk]++
		c.missing.add(lostDisk, m)
		return nil
	}
	return c.pending.add(field, m)
}

// hasRoom writes the pending record if the item does not fit into it, and reports whether it fits
// now. The caller holds mu.
func (c *Client) hasRoom(m proto.Message) bool {
	r := &c.pending
	full := r.items() >= recordItems || r.items() > 0 && len(r.body)+proto.Size(m) > recordBytes
	return !full || c.spoolPending(nil) == nil
}

// spoolPending writes the pending record, followed by marks unless nil; if the disk fails, the
// record stays pending. The caller holds mu.
func (c *Client) spoolPending(marks []byte) error {
	r := &c.pending
	var list []outbox.Record
	if r.items() > 0 {
		list = append(list, outbox.Record{Class: pushClass, Weight: uint64(r.items()), Extent: r.stands.extent, Label: r.label(), Payload: r.body})
	}
	if marks != nil {
		list = append(list, outbox.Record{Class: marksClass, Payload: marks})
	}
	for {
		err := c.log.Append(list...)
		if errors.Is(err, outbox.ErrFull) && c.giveWay() {
			continue
		}
		if c.logFirst(err) {
			return fmt.Errorf("spool: %w", err)
		}
		*r = record{body: r.body[:0]}
		return nil
	}
}

// logFirst logs the first of a series of errors, and reports whether err is one.
func (c *Client) logFirst(err error) bool {
	if err != nil && c.err == nil {
		c.cfg.Logger.Error("spool cannot be written", slog.String("error", err.Error()))
	}
	c.err = err
	return err != nil
}

// giveWay drops the oldest waiting records.
func (c *Client) giveWay() bool {
	s, ok := c.log.Oldest(pushClass)
	if !ok {
		return false
	}
	n, again := outbox.Lost{}, uint64(0)
	for e, err := range c.log.Records(s) {
		if err != nil {
			break
		}
		n.Records++
		n.Weight += e.Weight
		if body, err := e.Read(nil); err == nil && body != nil {
			again += c.missing.addAll(lostFull, body)
		} else {
			c.missing.addEntry(lostFull, &e.Entry)
		}
	}
	if s.Weight > n.Weight { // some records are damaged
		c.missing.unknown = append(c.missing.unknown, unknownLoss{reason: string(outbox.Damaged)})
		n.Weight = s.Weight
	}
	if err := c.log.Discard(s, lostFull, n); err != nil {
		c.cfg.Logger.Error("spool is full, and nothing can be dropped", slog.String("error", err.Error()))
		return false
	}
	c.stats.Items -= min(again, c.stats.Items) // earlier processes' gaps were not counted
	c.lost[lostFull] += n.Weight - again
	c.broadcast()
	c.cfg.Logger.Error("spool is full: dropped its oldest windows", slog.Uint64("items", n.Weight-again), slog.Int64("limit", c.cfg.MaxBytes))
	return true
}
