package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// pending is a record on its way into the outbox.
type pending struct {
	outbox.Record
	label      *label
	resendable bool
}

// newPending makes a record of rows, which owns payload.
func newPending(class int, rows uint64, l *label, payload []byte) (pending, error) {
	text, err := l.encode()
	return pending{Record: outbox.Record{Class: class, Weight: rows, Extent: l.extent(), Label: text, Payload: payload}, label: l}, err
}

// maxGroupBytes bounds the records in one append, as does a 16th of the outbox: rows that had to
// wait for their turn may exceed it.
const maxGroupBytes = 32 << 20

// take appends batches, and marks after them, to the outbox; they are on disk when take returns
// nil, or given up and counted. The writer calls it.
func (d *delivery) take(_ context.Context, list []*batch, marks []byte) error {
	d.start()
	var group []pending
	size, used := int64(0), 0
	add := func(of *batch, p pending, err error) error {
		if err != nil {
			return err
		}
		p.resendable = of.resendable
		group = append(group, p)
		if size += int64(len(p.Payload)); size < min(maxGroupBytes, d.limit/16) {
			return nil
		}
		err = d.append(group...)
		group, size, used = group[:0], 0, 0
		return err
	}
	for _, b := range list {
		for from := 0; from < b.rows(); {
			to := b.cut(from)
			if used == len(d.records) {
				d.records = append(d.records, nil)
			}
			d.records[used] = d.taking.append(d.records[used][:0], b, from, to)
			used++
			p, err := newPending(b.table, uint64(to-from), b.label(from, to), d.records[used-1])
			if err := add(b, p, err); err != nil {
				return err
			}
			from = to
		}
		for rows := range slices.Chunk(b.flows, maxFlowRows) {
			p, err := recordOf(&flowTable, rows)
			if err := add(b, p, err); err != nil {
				return err
			}
		}
	}
	if marks != nil {
		group = append(group, pending{Record: outbox.Record{Class: marksClass, Payload: marks}})
	}
	return d.append(group...)
}

// append writes records. When the outbox reaches its bound, or the disk is full and rows wait on
// it, live rows make room by dropping others: flows first, then the oldest of the finest, and never
// in favor of finer ones. Replayed rows, which can be read again, wait for the server. A failing disk is
// retried for a while; then live rows are given up, or discarded if their sender sends them again.
// Names and ends without room are an error, since no gap could stand for them.
func (d *delivery) append(group ...pending) error {
	started, backoff := time.Now(), newBackoff()
	failed := false
	for len(group) > 0 {
		d.mu.Lock()
		changed := d.changed
		d.mu.Unlock()
		records := make([]outbox.Record, len(group))
		for i := range group {
			records[i] = group[i].Record
		}
		waiting := d.rowsWait() // before Append: rows sent while it fails leave room
		err := d.log.Append(records...)
		full := errors.Is(err, outbox.ErrFull) || outbox.NoSpace(err) && waiting
		// Only rows that fit at once prove that others will: some records are exempt from the bound.
		if failed = failed || err != nil; failed == (err != nil) && (failed || group[0].Class < numResolutionTables) {
			d.mu.Lock()
			d.untaken, d.untakenAt = err, d.now()
			d.mu.Unlock()
		}
		waited := time.Since(started)
		live := d.live.Load()
		expendable := live && group[0].Class < namesClass
		switch {
		case err == nil:
			_ = d.appendPending() // logs its error, and is retried
			return nil
		case full && waiting && !d.rowsWait():
			continue
		case full && live && d.makeRoom(leastOf(group)):
			continue
		case full && expendable:
			group = d.dropRecords(lostFull, group, leastOf(group))
			continue
		case full && !live && (!d.closing.Load() || waited < closePatience), !full && waited < d.retry && !errors.Is(err, outbox.ErrTooLarge):
		case expendable:
			if !errors.Is(err, outbox.ErrTooLarge) {
				group = d.discardResendable(group, err)
			}
			d.dropRecords(lostDisk, group, anyClass)
			return nil
		default:
			return fmt.Errorf("%w: %w", ErrOutbox, err)
		}
		d.full.Warn(d.logger, time.Now(), "waiting for room in the outbox",
			slog.String("error", err.Error()), slog.Int64("bytes", d.log.Stats().Bytes))
		select {
		case <-changed:
		case <-time.After(backoff.Pause()):
		}
	}
	return nil
}

// leastOf is the class of a group that is given up first.
func leastOf(group []pending) int {
	least := group[0].Class
	for i := range group {
		if class := group[i].Class; class == flowsClass || least != flowsClass && class < least {
			least = class
		}
	}
	return least
}

// rowsWait reports whether the outbox holds rows that could be dropped for others.
func (d *delivery) rowsWait() bool {
	_, ok := d.log.Oldest(numResolutionTables - 1)
	return ok
}

// makeRoom drops rows for a record of a class; it is false if there are none to drop.
func (d *delivery) makeRoom(class int) bool {
	s, ok := d.log.Oldest(class)
	return ok && s.Class != namesClass && d.drop(s, lostFull)
}

// drop gives up the rows of a segment. It writes the gap first: rows are never lost silently, not
// even in a crash between the two. On a full disk the gap takes the place of the dropped rows.
func (d *delivery) drop(s outbox.Part, reason outbox.Reason) bool {
	c, err := d.contents(s)
	if err != nil {
		d.logger.Error("cannot read rows of the outbox before they are dropped: their gap may be incomplete", slog.String("error", err.Error()))
	}
	if s.Weight > c.sum.Weight { // of damaged records
		c.parts = addPart(c.parts, d.partOf(s.Class, s.Weight-c.sum.Weight, c.extent))
		c.sum.Weight = s.Weight
	}
	gaps := inLog(gapsOf(c.parts, string(reason), c.id, d.now()), d.log.ClassName(s.Class), c.first, c.last)
	noted := d.appendGaps(gaps) == nil
	if err := d.log.Discard(s, reason, c.sum); err != nil {
		d.logger.Error("cannot drop rows from the outbox", slog.String("error", err.Error()))
		return false
	}
	if !noted {
		noted = d.appendGaps(nil) == nil
	}
	d.lose(c.parts, c.sum.Records, c.last > d.before[s.Class])
	d.logger.Error("dropped the oldest rows of the outbox", slog.String("reason", string(reason)),
		slog.String("class", d.log.ClassName(s.Class)), slog.Uint64("rows", c.sum.Weight), slog.Bool("gap", noted))
	return true
}

// contents sums up the labels of a segment.
type contents struct {
	parts  []lossExtent
	sum    outbox.Lost
	extent outbox.Extent
	id     uint64 // of the first record
	first  uint64 // sequence numbers
	last   uint64
}

func (d *delivery) contents(s outbox.Part) (c contents, err error) {
	for e, err := range d.log.Records(s) {
		if err != nil {
			return c, err
		}
		if c.sum.Records == 0 {
			c.id, c.first = xxhash.Sum64String(e.Token()), e.First
		}
		c.sum.Records++
		c.sum.Weight += e.Weight
		c.last = e.Last
		c.extent = c.extent.Join(e.Extent)
		for _, p := range d.partsOf(&e.Entry) {
			c.parts = addPart(c.parts, p)
		}
	}
	return c, nil
}

// anyClass stands for all classes.
const anyClass = -1

// dropRecords counts the records of a class that never reached the outbox, and returns the others.
func (d *delivery) dropRecords(reason outbox.Reason, group []pending, class int) (left []pending) {
	for i := range group {
		p := &group[i]
		if class != anyClass && p.Class != class {
			left = append(left, *p)
			continue
		}
		if p.label == nil {
			continue // marks: the previous ones stay
		}
		err := d.appendGaps(inLog(gapsOf(p.label.Parts, string(reason), xxhash.Sum64(p.Label), d.now()), d.log.ClassName(p.Class), 0, 0))
		d.log.Count(reason, outbox.Lost{Records: 1, Weight: p.Weight})
		d.lose(p.label.Parts, 1, true)
		d.unlogged.Add(1)
		d.logger.Error("rows lost: they could not be written to the outbox", slog.String("reason", string(reason)), slog.String("class", d.log.ClassName(p.Class)),
			slog.Uint64("rows", p.Weight), slog.Bool("gap", err == nil))
	}
	return left
}

// discardResendable leaves rows to their senders, which have no answer yet, and returns the other
// records.
func (d *delivery) discardResendable(group []pending, why error) (left []pending) {
	rows := uint64(0)
	for i := range group {
		if group[i].resendable {
			rows += group[i].Weight
		} else {
			left = append(left, group[i])
		}
	}
	if rows > 0 {
		d.discarded.Add(1)
		d.unlogged.Add(1)
		d.logger.Warn("the outbox takes no rows: their senders have to send them again", slog.Uint64("rows", rows), slog.String("error", why.Error()))
	}
	return left
}

// partsOf returns the parts that are missing without a record: those of its label or, if that is
// lost too, one part with the number and time of its rows.
func (d *delivery) partsOf(e *outbox.Entry) []lossExtent {
	if parts := parseLabel(e.Label).Parts; len(parts) > 0 {
		return parts
	}
	return []lossExtent{d.partOf(e.Class, e.Weight, e.Extent)}
}

// partOf is a part for rows of a class with an unknown source. For lost gaps the number of
// affected rows is unknown too.
func (d *delivery) partOf(class int, rows uint64, at outbox.Extent) lossExtent {
	p := lossExtent{From: at.From, To: at.To, Rows: rows}
	switch {
	case class < numResolutionTables:
		p.Resolution = int64(resolutionTableAt(class).Length)
	case class == gapsClass:
		p.Rows = 0
	}
	return p
}

// report logs lost records, and records a gap if they held rows.
func (d *delivery) report(reason outbox.Reason, e *outbox.Entry) {
	parts, gap := d.partsOf(e), e.Class < namesClass
	if gap {
		list := gapsOf(parts, string(reason), xxhash.Sum64String(e.Token()), d.now())
		gap = d.appendGaps(inLog(list, d.log.ClassName(e.Class), e.First, e.Last)) == nil
	}
	d.lose(parts, e.Last-e.First+1, e.Last > d.before[e.Class])
	d.logger.Error("rows lost from the outbox", slog.String("reason", string(reason)), slog.String("class", d.log.ClassName(e.Class)),
		slog.Uint64("first", e.First), slog.Uint64("last", e.Last), slog.Uint64("rows", e.Weight), slog.Bool("gap", gap))
}

// appendPending retries gaps that the disk did not take.
func (d *delivery) appendPending() error {
	d.gaps.Lock()
	n := len(d.pending)
	d.gaps.Unlock()
	if n == 0 {
		return nil
	}
	return d.appendGaps(nil)
}

// appendGaps appends gaps to the outbox, so that they reach the table once the server is
// available. Gaps that a failing disk does not take are written with the next ones.
func (d *delivery) appendGaps(list []gap) error {
	d.gaps.Lock()
	defer d.gaps.Unlock()
	if d.pending = append(d.pending, list...); len(d.pending) > maxPendingGaps {
		d.logger.Error("gaps lost: the outbox takes none, and too many wait", slog.Int("gaps", len(d.pending)-maxPendingGaps))
		d.pending = d.pending[len(d.pending)-maxPendingGaps:]
	}
	var l label
	for i := range d.pending {
		l.Parts = addPart(l.Parts, d.pending[i].lossExtent)
	}
	text, err := l.encode()
	if err != nil {
		return err
	}
	rows, err := json.Marshal(d.pending)
	if err == nil {
		err = d.log.Append(outbox.Record{Class: gapsClass, Weight: uint64(len(d.pending)), Extent: l.extent(), Label: text, Payload: rows})
	}
	if err != nil {
		d.logger.Error("cannot write a gap to the outbox, trying again", slog.String("error", err.Error()))
		return err
	}
	d.pending = nil
	return nil
}

// lose counts this process's own rows that will never be stored, by their source if it is known.
// Rows left by earlier processes belong to no run of this one.
func (d *delivery) lose(parts []lossExtent, records uint64, own bool) {
	if !own {
		return
	}
	d.note(func() {
		for i := range parts {
			if parts[i].Producer == 0 {
				d.unknown += max(parts[i].Rows, records)
				continue
			}
			if _, known := d.lost[parts[i].source()]; known || len(d.lost) < maxLostSources {
				d.lost[parts[i].source()] += parts[i].Rows
			} else {
				d.unknown++
			}
		}
	})
}

const (
	// maxLostSources bounds the number of sources with counted losses.
	maxLostSources = 1 << 12
	// maxPendingGaps bounds the gaps that wait for a disk.
	maxPendingGaps = 1 << 12
)
