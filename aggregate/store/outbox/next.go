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
	// Missing records left no trace: a segment is gone, or was cut short.
	Missing Reason = "missing"
	// Torn records ended the log: a crash interrupted their writing, before they were confirmed.
	// They are counted when the log is opened, and are no Entry.
	Torn Reason = "torn"
	// Uncertain is the loss after the last record of a log whose file "position" is lost: an unknown
	// number of records may have been there.
	Uncertain Reason = "uncertain"
)

// Entry is a record or, if Lost is set, a range of lost ones.
type Entry struct {
	Class       int
	First, Last uint64 // sequence numbers; equal except for lost records
	Lost        Reason
	Weight      uint64 // 0 if Lost and unknown
	Extent      Extent // of lost records without a trace: from the previous record to the next one
	At          time.Time
	Label       []byte // nil if it is damaged
	Payload     []byte // in the buffer given to Next
	class       uint8  // its ID
	id          uint64
	after       cursor
}

// Token names a record: it is the same each time Next returns the record, and unique, even if a
// lost position makes the log reuse a number.
func (e *Entry) Token() string {
	return fmt.Sprintf("%016x-%d-%d-%x", e.id, e.class, e.Last, e.At.UnixNano())
}

// cursor is the reading position in a class.
type cursor struct {
	number  uint64 // segment
	edition int    // of the segment
	offset  int64
	seen    uint64 // sequence number up to which all was returned
	sum     uint64 // weight of all records up to seen
	extent  Extent // of the record that was returned last
	skipped bool   // bytes that are not records lie before the position
	held    held
}

// held is a damaged record. It is lost unless it follows again in the next segment: Append
// rewrites it there when a write fails.
type held struct {
	header
	label []byte
}

// view is the readable part of a class.
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

// readAttempts is how often an unreadable position is retried.
const readAttempts = 5

// errOpen is the error of an existing segment that cannot be opened: the cause is the machine and
// not the segment, so opening it is retried without limit.
var errOpen = errors.New("open segment")

// Next returns the oldest waiting record of the first class in order that has any, or the loss in
// its place; the same one until it is acknowledged or discarded. It skips the classes of passing,
// and reads the payload into buf, which grows as needed. ok is false when no other record waits.
// After an error the caller retries later.
func (l *Log) Next(buf []byte, passing ...int) (e Entry, ok bool, err error) {
	l.swap.RLock()
	defer l.swap.RUnlock()
	for _, i := range l.o.Order {
		c := l.classes[i]
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

// After returns the record that follows an entry in its class, or the loss in its place, before
// the entry is acknowledged, and reads the payload into buf. ok is false if no record follows.
func (l *Log) After(e *Entry, buf []byte) (next Entry, ok bool, err error) {
	l.swap.RLock()
	defer l.swap.RUnlock()
	c := l.classes[e.Class]
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

// Join adds the following record to the entry, so that both are sent and acknowledged as one. The
// entry keeps its label and payload.
func (e *Entry) Join(next *Entry) {
	e.Last, e.At, e.after = next.Last, next.At, next.after
	e.Weight += next.Weight
	e.Extent = e.Extent.Join(next.Extent)
}

// Latest reads the last record of a Latest class; ok is false if there is none, or if it is
// damaged.
func (l *Log) Latest(class int) (e Entry, ok bool, err error) {
	l.swap.RLock()
	defer l.swap.RUnlock()
	c := l.classes[class]
	l.mu.Lock()
	v := l.view(c)
	l.mu.Unlock()
	e, ok, err = l.nextOf(c, v, nil)
	if err != nil {
		return Entry{}, false, fmt.Errorf("read outbox %s: %w", l.o.Dir, err)
	}
	return e, ok && e.Lost == "", nil
}

// view returns the presently readable part of a class; the caller holds mu.
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
	l.o.Logger.Error("cannot read a file of the outbox, skipping it", slog.String("class", c.Name), slog.String("error", err.Error()))
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

// scan finds the next valid header at or after the cursor.
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

// before returns the loss, if any, between the cursor and the next record.
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

// end returns the loss at the end of all segments.
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

// missing returns the position of lost records up to a number, which left no trace. The following
// records supply their weight and the end of their time.
func (cur *cursor) missing(v *view, to, sum uint64, behind Extent) Entry {
	e := Entry{First: cur.seen + 1, Last: to, Lost: Missing, Weight: sum - min(cur.sum, sum), Extent: cur.until(v, behind)}
	if cur.skipped {
		e.Lost = Damaged
	}
	cur.seen, cur.sum, cur.skipped = to, sum, false
	return e
}

// until is the time from the record before a position to the record after it or, if that is no
// later, to the end of all waiting records.
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

// uncertain returns the position after the records of an earlier process.
func (cur *cursor) uncertain(v *view, behind Extent) Entry {
	e := Entry{First: cur.seen + 1, Last: v.doubt, Lost: Uncertain, Extent: cur.until(v, behind)}
	e.Extent.To = max(e.Extent.To, v.now)
	cur.seen, cur.skipped = v.doubt, false
	return e
}

// lose returns the position of a damaged record with a valid header.
func (cur *cursor) lose(at *held) Entry {
	cur.pass(&at.header)
	return at.entry(Damaged, at.label, nil)
}

// pass moves the cursor past a record.
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

// Ack acknowledges an entry; the following records of its class are next.
func (l *Log) Ack(e *Entry) {
	l.ackAs(e, e.Lost)
}

// Waits reports whether an entry is neither acknowledged nor discarded.
func (l *Log) Waits(e *Entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.classes[e.Class].acked < e.Last
}

// Lose acknowledges a record that can never be delivered, and counts it as lost for a reason.
func (l *Log) Lose(e *Entry, reason Reason) {
	l.ackAs(e, reason)
}

func (l *Log) ackAs(e *Entry, lost Reason) {
	c := l.classes[e.Class]
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
	l.unsaved += e.Weight
	if now.Sub(l.saved) >= l.o.SaveEvery || l.o.SaveWeight > 0 && l.unsaved >= l.o.SaveWeight {
		l.trySave()
	}
}

// ack acknowledges records of the class up to a number. sum is the weight of all records up to
// it, waiting the number of records after it; the caller holds mu.
func (l *Log) ack(c *class, to, sum, waiting uint64, now time.Time) {
	c.acked, c.ackedSum, c.waiting = to, max(c.ackedSum, sum), waiting
	c.ages.forget(to)
	switch {
	case c.acked >= c.appended:
		c.waiting, c.ackedSum, c.extent = 0, c.sum, Extent{}
	case c.waiting == 0:
		c.waiting = 1 // a record with a damaged header was never counted, and is lost now
	}
	for i := range l.segments {
		if p := l.segments[i].part(c.index); p != nil && p.last <= c.acked && p.ackedAt.IsZero() {
			p.ackedAt = now
		}
	}
}

// Count counts lost records that are no longer, or not yet, in the log.
func (l *Log) Count(reason Reason, n Lost) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose(reason, n)
}

func (l *Log) lose(reason Reason, n Lost) {
	sum := l.lost[reason]
	l.lost[reason] = Lost{sum.Records + n.Records, sum.Weight + n.Weight}
}
