package outbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"
)

// Reason says why records are lost.
type Reason string

// Reasons of the log's own. Callers of Discard, Lose and Count may have others.
const (
	// Damaged records fail their checksum.
	Damaged Reason = "damaged"
	// Missing records left nothing behind: a segment is gone, or was cut short.
	Missing Reason = "missing"
	// Torn records ended the log: a crash while they were written, before they were
	// confirmed. They are counted when the log is opened, and are no Entry.
	Torn Reason = "torn"
	// Uncertain is the place behind the last record of a log whose position is lost:
	// records may have been there, and nobody knows how many.
	Uncertain Reason = "uncertain"
)

// Entry is a record or, where Lost is set, the place of some.
type Entry struct {
	Class       int
	First, Last uint64 // sequence numbers; equal but for lost records
	Lost        Reason
	Weight      uint64 // 0 where Lost leaves nothing to count by
	Extent      Extent // of lost records that left none: from the record before to the one after
	At          time.Time
	Label       []byte // nil if it is damaged
	Payload     []byte // in the buffer given to Next
	class       uint8  // its ID
	id          uint64
	after       cursor
}

// Token names a record: the same one each time that it is given out, and no other one,
// not even where a lost position makes the log use a number again.
func (e *Entry) Token() string {
	return fmt.Sprintf("%016x-%d-%d-%x", e.id, e.class, e.Last, e.At.UnixNano())
}

// cursor is how far a class has been read.
type cursor struct {
	number  uint64 // segment
	edition int    // of it
	offset  int64
	seen    uint64 // sequence number up to which all is given out
	sum     uint64 // weight of all records up to seen
	extent  Extent // of the record that was given out last
	skipped bool   // bytes that are no records lie before the place
	held    held
}

// held is a damaged record. It is lost unless the same one follows in the next segment:
// it is written again when a write fails.
type held struct {
	header
	label []byte
}

// view is what of a class may be read.
type view struct {
	segments  []segment
	appended  uint64
	confirmed uint64
	acked     uint64
	sum       uint64 // weight of all records up to confirmed
	ackedSum  uint64
	extent    Extent // of all waiting records
	doubt     uint64
	now       int64 // Unix ns
}

// openSegment is a segment that is being read.
type openSegment struct {
	number  uint64
	edition int
	file    File
	scan    scanner
}

func (r *openSegment) open(l *Log, s *segment) (*scanner, error) {
	if r.file == nil || r.number != s.number || r.edition != s.edition {
		r.close()
		f, err := l.o.FS.Open(l.path(s.number), os.O_RDONLY)
		if err != nil {
			return nil, err
		}
		r.file, r.number, r.edition = f, s.number, s.edition
	}
	r.scan.file, r.scan.id, r.scan.end = r.file, l.id, s.end
	return &r.scan, nil
}

func (r *openSegment) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// readAttempts is how often a place that cannot be read is tried.
const readAttempts = 5

// errOpen is the error of a segment that is there and cannot be opened: that is the
// machine's trouble and not the segment's, so it is tried for good.
var errOpen = errors.New("open segment")

// Next gives the oldest waiting record of the first class in order that has any, or the
// loss in its place; the same one until it is acknowledged or discarded. It passes over the
// given classes, and reads the payload into buf, which grows as needed. ok is false when
// nothing else waits. After an error the caller tries again, later.
func (l *Log) Next(buf []byte, passing ...int) (e Entry, ok bool, err error) {
	l.swap.RLock()
	defer l.swap.RUnlock()
	for _, i := range l.o.Order {
		c := &l.classes[i]
		if slices.Contains(passing, i) {
			continue
		}
		l.mu.Lock()
		if c.held || c.Latest || c.acked >= c.appended {
			l.mu.Unlock()
			continue
		}
		v := l.view(c)
		l.mu.Unlock()
		e, ok, err := l.nextOf(c, v, buf)
		if err != nil {
			return Entry{}, false, fmt.Errorf("read outbox %s: %w", l.o.Dir, err)
		}
		if ok {
			return e, true, nil
		}
	}
	return Entry{}, false, nil
}

// After gives the record that follows an entry in its class, or what was lost in its place,
// before the entry is acknowledged, and reads the payload into buf. ok is false when
// nothing follows.
func (l *Log) After(e *Entry, buf []byte) (next Entry, ok bool, err error) {
	l.swap.RLock()
	defer l.swap.RUnlock()
	c := &l.classes[e.Class]
	l.mu.Lock()
	v := l.view(c)
	l.mu.Unlock()
	cur := e.after
	next, ok, err = l.advance(c, v, &cur, buf)
	if err != nil {
		return Entry{}, false, fmt.Errorf("read outbox %s: %w", l.o.Dir, err)
	}
	next.Class, next.class, next.id, next.after = c.index, c.ID, l.id, cur
	return next, ok, nil
}

// Join adds the following record to the entry, so that both are sent and acknowledged as
// one. The entry keeps its label and payload.
func (e *Entry) Join(next *Entry) {
	e.Last, e.At, e.after = next.Last, next.At, next.after
	e.Weight += next.Weight
	e.Extent = e.Extent.Join(next.Extent)
}

// Latest reads the last record of a Latest class; ok is false where there is none, or where
// it is damaged.
func (l *Log) Latest(class int) (e Entry, ok bool, err error) {
	l.swap.RLock()
	defer l.swap.RUnlock()
	c := &l.classes[class]
	l.mu.Lock()
	v := l.view(c)
	l.mu.Unlock()
	e, ok, err = l.nextOf(c, v, nil)
	if err != nil {
		return Entry{}, false, fmt.Errorf("read outbox %s: %w", l.o.Dir, err)
	}
	return e, ok && e.Lost == "", nil
}

// view is what of a class may be read now; the caller holds mu.
func (l *Log) view(c *class) view {
	return view{
		segments: slices.Clone(l.segments[atOrAfter(l.segments, c.cursor.number):]),
		appended: c.appended, confirmed: c.confirmed, acked: c.acked,
		sum: c.sum, ackedSum: c.ackedSum, extent: c.extent, doubt: c.doubt, now: l.o.Now().UnixNano(),
	}
}

func (l *Log) nextOf(c *class, v view, buf []byte) (Entry, bool, error) {
	if v.acked >= v.appended {
		return Entry{}, false, nil
	}
	if c.cursor.seen < v.acked {
		c.cursor.seen, c.cursor.sum = v.acked, v.ackedSum
		if c.cursor.held.seq <= v.acked {
			c.cursor.held = held{}
		}
	}
	cur := c.cursor
	e, ok, err := l.advance(c, v, &cur, buf)
	if err == nil {
		c.failures = 0
		e.Class, e.class, e.id, e.after = c.index, c.ID, l.id, cur
		return e, ok, nil
	}
	if c.failures++; c.failures < readAttempts || errors.Is(err, ErrNewer) || errors.Is(err, errOpen) {
		return Entry{}, false, err
	}
	l.o.Logger.Error("segment cannot be read, passing over it", slog.String("class", c.Name), slog.String("error", err.Error()))
	c.failures = 0
	cur.number, cur.offset, cur.skipped = cur.number+1, 0, true
	c.cursor = cur
	l.mu.Lock()
	l.rotate = true
	l.mu.Unlock()
	return l.nextOf(c, v, buf)
}

// advance moves the cursor behind the next entry.
func (l *Log) advance(c *class, v view, cur *cursor, buf []byte) (Entry, bool, error) {
	for {
		f, s, err := l.scan(c, v, cur)
		if errors.Is(err, io.EOF) {
			e, ok := cur.end(&v)
			return e, ok, nil
		}
		if err != nil {
			return Entry{}, false, err
		}
		if f.class != c.ID || f.seq > v.appended {
			cur.offset = f.next()
			continue
		}
		if f.seq <= cur.seen {
			cur.offset, cur.skipped = f.next(), false
			continue
		}
		if e, ok := cur.before(&v, &f.header); ok {
			return e, true, nil
		}
		label, err := s.label(&f)
		if err != nil {
			return Entry{}, false, err
		}
		payload, err := s.payload(buf, &f)
		if err != nil {
			return Entry{}, false, err
		}
		cur.offset = f.next()
		if payload == nil {
			cur.held = held{f.header, label}
			continue
		}
		cur.pass(&f.header)
		return f.entry("", label, payload), true, nil
	}
}

// scan finds the next sound header at or after the cursor.
func (l *Log) scan(c *class, v view, cur *cursor) (found, *scanner, error) {
	for {
		i := atOrAfter(v.segments, cur.number)
		if i == len(v.segments) {
			return found{}, nil, io.EOF
		}
		if at := &v.segments[i]; cur.number != at.number || cur.edition != at.edition {
			cur.number, cur.edition, cur.offset = at.number, at.edition, 0
		}
		s, err := c.reader.open(l, &v.segments[i])
		if err == nil {
			f, skipped, err := s.at(cur.offset)
			if skipped {
				cur.skipped = true
			}
			if err == nil {
				cur.offset = f.offset
				return f, s, nil
			}
			if !errors.Is(err, io.EOF) {
				return found{}, nil, err
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return found{}, nil, fmt.Errorf("%w: %w", errOpen, err)
		}
		if i+1 == len(v.segments) {
			return found{}, nil, io.EOF
		}
		cur.number, cur.edition, cur.offset = v.segments[i+1].number, v.segments[i+1].edition, 0
	}
}

// before gives what is lost before a record that follows.
func (cur *cursor) before(v *view, h *header) (Entry, bool) {
	if at := cur.held; at.seq != 0 && at.seq != h.seq {
		cur.held = held{}
		if at.seq <= h.prev && at.seq == cur.seen+1 {
			return cur.lose(&at), true
		}
	}
	if h.prev > cur.seen {
		return cur.missing(v, h.prev, h.before, h.extent), true
	}
	if v.doubt > cur.seen && v.doubt < h.seq {
		return cur.uncertain(v, h.extent), true
	}
	return Entry{}, false
}

// end gives what is lost at the end of all segments.
func (cur *cursor) end(v *view) (Entry, bool) {
	if at := cur.held; at.seq == cur.seen+1 && at.seq <= v.appended {
		cur.held = held{}
		return cur.lose(&at), true
	}
	switch {
	case cur.seen < v.confirmed:
		return cur.missing(v, v.confirmed, v.sum, Extent{v.extent.To, v.extent.To}), true
	case cur.seen < v.appended:
		return cur.uncertain(v, Extent{}), true
	}
	return Entry{}, false
}

// missing gives the place of records up to a number, of which nothing is left. What is
// behind them tells how much was in them, and until when.
func (cur *cursor) missing(v *view, to, sum uint64, behind Extent) Entry {
	e := Entry{First: cur.seen + 1, Last: to, Lost: Missing, Weight: sum - min(cur.sum, sum), Extent: cur.until(v, behind)}
	if cur.skipped {
		e.Lost = Damaged
	}
	cur.seen, cur.sum, cur.skipped = to, sum, false
	return e
}

// until is the time from the record before a place to what is behind it or, where that is
// no later, to the end of all that waits.
func (cur *cursor) until(v *view, behind Extent) Extent {
	switch {
	case cur.extent != (Extent{}):
		if behind.To <= cur.extent.To {
			behind = behind.Join(v.extent)
			behind.From = max(behind.From, cur.extent.From)
		}
		return cur.extent.Join(behind)
	case v.extent != (Extent{}):
		return Extent{v.extent.From, max(v.extent.From, behind.To)}
	}
	return behind
}

// uncertain gives the place behind the records that an earlier process left.
func (cur *cursor) uncertain(v *view, behind Extent) Entry {
	e := Entry{First: cur.seen + 1, Last: v.doubt, Lost: Uncertain, Extent: cur.until(v, behind)}
	e.Extent.To = max(e.Extent.To, v.now)
	cur.seen, cur.skipped = v.doubt, false
	return e
}

// lose gives the place of a damaged record whose header is sound.
func (cur *cursor) lose(at *held) Entry {
	cur.pass(&at.header)
	return at.entry(Damaged, at.label, nil)
}

// pass moves the cursor behind a record.
func (cur *cursor) pass(h *header) {
	cur.seen, cur.sum, cur.extent = h.seq, h.before+h.weight, h.extent
	cur.skipped, cur.held = false, held{}
}

func (h *header) entry(lost Reason, label, payload []byte) Entry {
	return Entry{
		First: h.seq, Last: h.seq, Lost: lost, Weight: h.weight, Extent: h.extent, At: h.time(),
		Label: label, Payload: payload, id: h.id,
	}
}

// Ack says that an entry is taken care of; records that follow it in its class are
// next.
func (l *Log) Ack(e *Entry) {
	l.ackAs(e, e.Lost)
}

// Waits tells whether an entry is neither acknowledged nor discarded.
func (l *Log) Waits(e *Entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.classes[e.Class].acked < e.Last
}

// Lose is an Ack of a record that nobody will take, for a reason that counts it as
// lost.
func (l *Log) Lose(e *Entry, reason Reason) {
	l.ackAs(e, reason)
}

func (l *Log) ackAs(e *Entry, lost Reason) {
	c := &l.classes[e.Class]
	now := l.o.Now()
	c.cursor = e.after
	l.mu.Lock()
	if c.acked < e.Last {
		n := Lost{e.Last - e.First + 1, e.Weight}
		if lost != "" {
			l.lose(lost, n)
		}
		l.ack(c, e.Last, e.after.sum, c.waiting-min(n.Records, c.waiting), now)
		l.changed = true
	}
	l.mu.Unlock()
	l.files.Lock()
	defer l.files.Unlock()
	if now.Sub(l.saved) >= l.o.SaveEvery {
		l.trySave()
	}
}

// ack moves the class on to a number, up to which the weight of all records is sum, and
// behind which so many records wait; the caller holds mu.
func (l *Log) ack(c *class, to, sum, waiting uint64, now time.Time) {
	c.acked, c.ackedSum, c.waiting = to, max(c.ackedSum, sum), waiting
	c.ages.forget(to)
	switch {
	case c.acked >= c.appended:
		c.waiting, c.ackedSum, c.extent = 0, c.sum, Extent{}
	case c.waiting == 0:
		c.waiting = 1 // a record whose header is damaged was never counted, and is lost now
	}
	for i := range l.segments {
		if p := l.segments[i].part(c.index); p != nil && p.last <= c.acked && p.ackedAt.IsZero() {
			p.ackedAt = now
		}
	}
}

// Count counts records that are lost and no longer, or not yet, in the log.
func (l *Log) Count(reason Reason, n Lost) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose(reason, n)
}

func (l *Log) lose(reason Reason, n Lost) {
	sum := l.lost[reason]
	l.lost[reason] = Lost{sum.Records + n.Records, sum.Weight + n.Weight}
}
