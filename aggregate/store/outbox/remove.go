package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"
)

// makeRoom removes segments whose records are acknowledged, oldest first, until size
// more bytes fit, and tells whether they do. The caller holds files.
func (l *Log) makeRoom(size int64) bool {
	for {
		l.mu.Lock()
		fits := l.total+size <= l.o.MaxBytes
		c, s, ok := l.oldestAcked()
		l.mu.Unlock()
		if fits || !ok {
			return fits
		}
		if err := l.remove(c, s); err != nil {
			l.o.Logger.Error("remove segment failed", slog.String("error", err.Error()))
			return false
		}
	}
}

// oldestAcked finds the segment with the lowest number that holds nothing to send.
func (l *Log) oldestAcked() (*class, segment, bool) {
	var class *class
	for i := range l.classes {
		c := &l.classes[i]
		if len(c.segments) > 0 && c.isAcked(0) && (class == nil || c.segments[0].number < class.segments[0].number) {
			class = c
		}
	}
	if class == nil {
		return nil, segment{}, false
	}
	return class, class.segments[0], true
}

// isAcked tells whether nothing in the i-th segment is to be sent.
func (c *class) isAcked(i int) bool { return c.acked >= c.last(i) }

// last is the last sequence number that can be in the i-th segment.
func (c *class) last(i int) uint64 {
	if i+1 < len(c.segments) {
		return min(c.segments[i+1].first-1, c.appended)
	}
	return c.appended
}

// remove deletes a segment. The position goes first: records that are gone and not
// known to be acknowledged would look lost after a crash. On a full disk that is
// risked, since nothing else frees it. The caller holds files.
func (l *Log) remove(c *class, s segment) error {
	l.mu.Lock()
	i := atOrAfter(c.segments, s.number)
	if i == len(c.segments) || c.segments[i].number != s.number {
		l.mu.Unlock()
		return nil
	}
	known := c.saved >= c.last(i)
	active := i == len(c.segments)-1
	l.mu.Unlock()
	if !known {
		if err := l.save(); err != nil && !NoSpace(err) {
			return err
		}
	}
	if active {
		if err := l.seal(c); err != nil {
			l.o.Logger.Error("close segment failed", slog.String("class", c.Name), slog.String("error", err.Error()))
		}
	}
	if err := l.o.FS.Remove(l.path(c, &s)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove segment: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total -= c.segments[i].size
	c.segments = append(c.segments[:i:i], c.segments[i+1:]...)
	return nil
}

// Segment is a file of a class, for reading what is in it out of turn.
type Segment struct {
	Class   int
	Acked   bool      // all of it is acknowledged
	AckedAt time.Time // since when at the latest, if Acked; not before the log was opened
	Bytes   int64
	Weight  uint64 // of the waiting records, as they were appended; of Oldest and Held
	from    uint64 // the sequence numbers that Read gives
	to      uint64
	sum     uint64 // weight of all confirmed records of the class up to its end
	segment segment
}

// Acked lists the segments that hold acknowledged records, in the order in which they
// were begun.
func (l *Log) Acked() []Segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []Segment
	for i := range l.classes {
		c := &l.classes[i]
		for j, s := range c.segments {
			if c.acked < s.first {
				break
			}
			at := c.ackedAt
			if j+1 < len(c.segments) && !s.ackedAt.IsZero() {
				at = s.ackedAt
			}
			list = append(list, Segment{
				Class: c.index, Acked: c.isAcked(j), AckedAt: at, Bytes: s.size, from: s.first, to: c.acked, segment: s,
			})
		}
	}
	slices.SortFunc(list, func(a, b Segment) int { return cmp.Compare(a.segment.number, b.segment.number) })
	return list
}

// Release deletes a segment that is Acked.
func (l *Log) Release(s Segment) error {
	l.files.Lock()
	defer l.files.Unlock()
	if err := l.remove(&l.classes[s.Class], s.segment); err != nil {
		return fmt.Errorf("release records of outbox %s: %w", l.o.Dir, err)
	}
	return nil
}

// Oldest is the oldest segment with waiting records of the least important class up to
// and including one; expendable classes come first, and have only each other below them.
func (l *Log) Oldest(class int) (Segment, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.classes {
		if l.classes[i].Expendable {
			if s, ok := l.waiting(i); ok {
				return s, true
			}
		}
	}
	if l.classes[class].Expendable {
		return Segment{}, false
	}
	for i := range l.classes[:class+1] {
		if s, ok := l.waiting(i); ok {
			return s, true
		}
	}
	return Segment{}, false
}

// waiting is the oldest segment of a class with waiting records that can give way.
func (l *Log) waiting(class int) (Segment, bool) {
	c := &l.classes[class]
	for j := range c.segments {
		if last := c.last(j); c.acked < last && !c.Exempt && !c.held {
			return c.waitingSegment(j), true
		}
	}
	return Segment{}, false
}

// waitingSegment is the j-th segment, some of which waits.
func (c *class) waitingSegment(j int) Segment {
	s := c.segments[j]
	sum := c.sum
	if j+1 < len(c.segments) {
		sum = min(c.segments[j+1].before, sum)
	}
	sum = max(sum, c.ackedSum)
	return Segment{
		Class: c.index, Bytes: s.size, Weight: sum - min(max(s.before, c.ackedSum), sum),
		from: c.acked + 1, to: c.last(j), sum: sum, segment: s,
	}
}

// Hold keeps the waiting records of a class where they are, for a program that can read
// them: Next gives none of them while the log is open. Classes of the folder that Options
// do not name are held from the beginning.
func (l *Log) Hold(class int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.classes[class].held = true
}

// Held is the oldest segment with records that are held, and the bytes of all such.
func (l *Log) Held() (oldest Segment, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.classes {
		c := &l.classes[i]
		for j := range c.segments {
			if !c.held || c.acked >= c.last(j) {
				continue
			}
			if bytes == 0 || c.segments[j].number < oldest.segment.number {
				oldest = c.waitingSegment(j)
			}
			bytes += c.segments[j].size
		}
	}
	return oldest, bytes
}

// Discard gives up the waiting records of a segment that Oldest gave, for a reason,
// and deletes it.
func (l *Log) Discard(s Segment, reason Reason, n Lost) error {
	l.files.Lock()
	defer l.files.Unlock()
	c := &l.classes[s.Class]
	l.mu.Lock()
	if c.acked < s.to {
		l.lose(reason, n)
		c.ack(s.to, s.sum, n.Records, l.o.Now())
		l.changed = true
	}
	l.mu.Unlock()
	if err := l.remove(c, s.segment); err != nil {
		return fmt.Errorf("discard records of outbox %s: %w", l.o.Dir, err)
	}
	return nil
}

// Clear forgets all records, those that wait too. Nothing may be sent meanwhile.
func (l *Log) Clear() error {
	l.files.Lock()
	defer l.files.Unlock()
	l.mu.Lock()
	for i := range l.classes {
		c := &l.classes[i]
		c.ack(c.appended, c.sum, 0, l.o.Now())
	}
	l.mu.Unlock()
	if err := l.save(); err != nil {
		return fmt.Errorf("clear outbox %s: %w", l.o.Dir, err)
	}
	for i := range l.classes {
		c := &l.classes[i]
		l.mu.Lock()
		list := slices.Clone(c.segments)
		l.mu.Unlock()
		for _, s := range list {
			if err := l.remove(c, s); err != nil {
				return fmt.Errorf("clear outbox %s: %w", l.o.Dir, err)
			}
		}
	}
	return nil
}
