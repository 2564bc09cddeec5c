package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// take puts a batch into the outbox; it is on disk when take returns nil, or given up
// and counted. The writer calls it.
func (d *delivery) take(_ context.Context, b *batch) error {
	d.start()
	for from := 0; from < b.rows(); {
		to := b.cut(from)
		d.record = d.taking.append(d.record[:0], b, from, to)
		if err := d.append(b.grain, uint64(to-from), b.label(from, to), d.record); err != nil {
			return err
		}
		from = to
	}
	for rows := range slices.Chunk(b.flows, maxFlowRows) {
		if err := takeRecords(d, &flowTable, rows); err != nil {
			return err
		}
	}
	return nil
}

// append writes a record. At the bound of the outbox, and on a disk that is full while
// rows wait on it, live rows make room, finest and oldest first; rows that can be had
// again wait for the server. A disk that fails is tried again for a while.
func (d *delivery) append(class int, rows uint64, l *label, record []byte) error {
	text, err := l.encode()
	if err != nil {
		return err
	}
	started, told, pause := time.Now(), time.Time{}, firstPause
	for {
		d.mu.Lock()
		changed := d.changed
		d.mu.Unlock()
		err := d.log.Append(class, rows, l.extent(), text, record)
		full := errors.Is(err, outbox.ErrFull) || outbox.NoSpace(err) && d.rowsWait()
		waited := time.Since(started)
		switch {
		case err == nil:
			d.appendPending()
			return nil
		case full && d.live.Load():
			if s, ok := d.log.Oldest(class); ok && d.drop(s, lostFull) {
				continue
			}
			d.giveUp(lostFull, class, rows, l.Parts, text)
			return nil
		case full && (!d.closing.Load() || waited < closePatience), !full && waited < d.retry:
		case d.live.Load():
			d.giveUp(lostDisk, class, rows, l.Parts, text)
			return nil
		default:
			return fmt.Errorf("%w: %w", ErrOutbox, err)
		}
		if time.Since(told) > tellEvery {
			told = time.Now()
			d.logger.Warn("waiting for room in the outbox", slog.String("error", err.Error()), slog.Int64("bytes", d.log.Stats().Bytes))
		}
		select {
		case <-changed:
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// rowsWait tells whether the outbox holds rows whose place others could have.
func (d *delivery) rowsWait() bool {
	_, ok := d.log.Oldest(numGrains - 1)
	return ok
}

// drop gives up the rows of a segment. The gap goes first: rows are never lost in
// silence, not even in a crash between the two. Where the disk is full it takes the
// place of what is dropped.
func (d *delivery) drop(s outbox.Segment, reason outbox.Reason) bool {
	c, err := d.contents(s)
	if err != nil {
		d.logger.Error("rows to drop cannot be read", slog.String("error", err.Error()))
	}
	if s.Weight > c.sum.Weight { // of records that are damaged
		c.parts = addPart(c.parts, d.partOf(s.Class, s.Weight-c.sum.Weight, c.extent))
		c.sum.Weight = s.Weight
	}
	noted := d.appendGaps(gapsOf(c.parts, string(reason), c.id, d.now())) == nil
	if err := d.log.Discard(s, reason, c.sum); err != nil {
		d.logger.Error("rows cannot be dropped", slog.String("error", err.Error()))
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

// contents is what the labels of a segment say together.
type contents struct {
	parts  []part
	sum    outbox.Lost
	extent outbox.Extent
	id     uint64 // of the first record
	last   uint64 // sequence number
}

func (d *delivery) contents(s outbox.Segment) (c contents, err error) {
	r, err := d.log.Read(s)
	if err != nil {
		return c, err
	}
	defer r.Close()
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return c, err
		}
		if c.sum.Records == 0 {
			c.id = xxhash.Sum64String(e.Token())
		}
		c.sum.Records++
		c.sum.Weight += e.Weight
		c.last = e.Last
		c.extent = c.extent.Join(e.Extent)
		for _, p := range d.partsOf(&e) {
			c.parts = addPart(c.parts, p)
		}
	}
}

// giveUp counts a record that never came into the outbox.
func (d *delivery) giveUp(reason outbox.Reason, class int, rows uint64, parts []part, text []byte) {
	err := d.appendGaps(gapsOf(parts, string(reason), xxhash.Sum64(text), d.now()))
	d.log.Count(reason, outbox.Lost{Records: 1, Weight: rows})
	d.lose(parts, 1, true)
	d.logger.Error("rows given up", slog.String("reason", string(reason)), slog.String("class", d.log.ClassName(class)),
		slog.Uint64("rows", rows), slog.Bool("gap", err == nil))
}

// partsOf is what is missing without a record: what its label says or, where that is lost
// as well, how many rows there were, and of which time.
func (d *delivery) partsOf(e *outbox.Entry) []part {
	if parts := parseLabel(e.Label).Parts; len(parts) > 0 {
		return parts
	}
	return []part{d.partOf(e.Class, e.Weight, e.Extent)}
}

// partOf is some rows of a class whose source nobody knows. Of gaps that are lost it
// cannot be said how many rows they are about.
func (d *delivery) partOf(class int, rows uint64, at outbox.Extent) part {
	p := part{From: at.From, To: at.To, Rows: rows}
	switch {
	case class < numGrains:
		p.Resolution = int64(grainAt(class).Length)
	case class == gapsClass:
		p.Rows = 0
	}
	return p
}

// report tells of lost records, and leaves a gap in their place. Those that were torn
// by a crash were never confirmed to anybody, who will have them written again.
func (d *delivery) report(reason outbox.Reason, e *outbox.Entry) {
	parts := d.partsOf(e)
	gap := reason != outbox.Torn
	if gap {
		gap = d.appendGaps(gapsOf(parts, string(reason), xxhash.Sum64String(e.Token()), d.now())) == nil
	}
	d.lose(parts, e.Last-e.First+1, e.Last > d.before[e.Class])
	d.logger.Error("records of the outbox are lost", slog.String("reason", string(reason)), slog.String("class", d.log.ClassName(e.Class)),
		slog.Uint64("first", e.First), slog.Uint64("last", e.Last), slog.Uint64("rows", e.Weight), slog.Bool("gap", gap))
}

// appendPending tries again with gaps that the disk did not take.
func (d *delivery) appendPending() {
	d.gaps.Lock()
	n := len(d.pending)
	d.gaps.Unlock()
	if n > 0 {
		_ = d.appendGaps(nil) // has told, and tries again
	}
}

// appendGaps puts gaps into the outbox, so that they come to the table when the server
// is back. Those that do not fit onto a failing disk come with the next ones.
func (d *delivery) appendGaps(list []gap) error {
	d.gaps.Lock()
	defer d.gaps.Unlock()
	if d.pending = append(d.pending, list...); len(d.pending) > maxPendingGaps {
		d.logger.Error("gaps given up", slog.Int("gaps", len(d.pending)-maxPendingGaps))
		d.pending = d.pending[len(d.pending)-maxPendingGaps:]
	}
	var l label
	for i := range d.pending {
		l.Parts = addPart(l.Parts, d.pending[i].part)
	}
	text, err := l.encode()
	if err != nil {
		return err
	}
	rows, err := json.Marshal(d.pending)
	if err == nil {
		err = d.log.Append(gapsClass, uint64(len(d.pending)), l.extent(), text, rows)
	}
	if err != nil {
		d.logger.Error("gap cannot be written yet", slog.String("error", err.Error()))
		return err
	}
	d.pending = nil
	return nil
}

// lose counts rows of this process's own that the table will not have, by their source
// where it is known. What earlier processes left is not of any run of this one.
func (d *delivery) lose(parts []part, records uint64, own bool) {
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
	// maxLostSources bounds what is remembered of sources with losses.
	maxLostSources = 1 << 12
	// maxPendingGaps bounds the gaps that wait for a disk.
	maxPendingGaps = 1 << 12
)
