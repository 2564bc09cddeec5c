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

// makeRoom removes acknowledged records, oldest first, until size more bytes fit, and reports
// whether they do. The caller holds files.
func (l *Log) makeRoom(size int64) bool {
	for {
		l.mu.Lock()
		fits := l.total+size <= l.o.MaxBytes
		number, ok := l.reclaimable()
		l.mu.Unlock()
		if fits || !ok {
			return fits
		}
		if err := l.rewrite(number, waits); err != nil {
			l.o.Logger.Error("cannot remove sent records from the outbox", slog.String("error", err.Error()))
			return false
		}
	}
}

// waits reports whether a record is not acknowledged yet.
func waits(c *class, seq uint64) bool { return seq > c.acked }

// reclaimable finds the oldest segment in which classes with all their records acknowledged take a third
// or more: rewriting one for less would cost more than it frees. The caller holds mu.
func (l *Log) reclaimable() (number uint64, ok bool) {
	for i := range l.segments {
		s := &l.segments[i]
		waiting := int64(0)
		for _, p := range s.parts {
			if p.last > l.classes[p.class].acked {
				waiting += p.bytes
			}
		}
		if !s.unread && (waiting < s.size-s.size/3 || waiting == 0) {
			return s.number, true
		}
	}
	return 0, false
}

// rewrite leaves in a segment only the records that keep selects; an empty segment is deleted. It
// writes the position first: after a crash, removed records that are not known to be acknowledged
// would look lost. On a full disk it takes that risk, since nothing else frees room. keep is called
// with mu held, since the sender acknowledges meanwhile. The caller holds files.
func (l *Log) rewrite(number uint64, keep func(c *class, seq uint64) bool) error {
	l.mu.Lock()
	s := l.segment(number)
	if s == nil {
		l.mu.Unlock()
		return nil
	}
	old, known := *s, true
	old.parts = slices.Clone(s.parts)
	for _, p := range s.parts {
		c := l.classes[p.class]
		known = known && c.saved >= min(c.acked, p.last)
	}
	active := number == l.segments[len(l.segments)-1].number
	l.mu.Unlock()
	if !known {
		if err := l.save(); err != nil && !NoSpace(err) {
			return err
		}
	}
	if active {
		if err := l.seal(); err != nil {
			l.o.Logger.Error("cannot close a file of the outbox", slog.String("error", err.Error()))
		}
	}
	b, next, err := l.kept(&old, keep)
	if err != nil {
		return fmt.Errorf("rewrite segment: %w", err)
	}
	l.swap.Lock()
	defer l.swap.Unlock()
	if err := l.replace(number, b); err != nil {
		return fmt.Errorf("rewrite segment: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total += int64(len(b)) - old.size
	i := atOrAfter(l.segments, number)
	if len(b) == 0 {
		l.segments = slices.Delete(l.segments, i, i+1)
		return nil
	}
	l.segments[i] = next
	return nil
}

// kept reads the records of a segment that keep selects, as the segment is rewritten.
func (l *Log) kept(old *segment, keep func(c *class, seq uint64) bool) (b []byte, next segment, err error) {
	next = segment{number: old.number, edition: old.edition + 1, begun: old.begun}
	if !l.keepsAny(old, keep) {
		return nil, next, nil
	}
	var r openSegment
	defer r.close()
	scan, err := r.open(l, old)
	for offset := int64(0); err == nil; {
		var f found
		if f, _, err = scan.at(offset); err != nil {
			break
		}
		offset = f.next()
		c := l.known(f.class)
		if c == nil || f.cut || !l.selects(keep, c, f.seq) {
			continue
		}
		f.more = false
		b = slices.Grow(f.appendTo(b, int64(len(b))), int(f.size()))
		body := b[len(b) : len(b)+int(f.size()-headerSize)]
		if _, err = scan.read(body, f.offset+headerSize); err != nil {
			break
		}
		b = b[:len(b)+len(body)]
		next.note(c.index, &f.header)
		if p, was := next.part(c.index), old.part(c.index); was != nil {
			p.ackedAt, p.earlier, p.released = was.ackedAt, was.earlier, was.released
		}
	}
	next.end, next.size = int64(len(b)), int64(len(b))
	if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return b, next, err
}

func (l *Log) selects(keep func(c *class, seq uint64) bool, c *class, seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return keep(c, seq)
}

// keepsAny reports whether a segment may have records that keep selects.
func (l *Log) keepsAny(s *segment, keep func(c *class, seq uint64) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(s.parts, func(p part) bool { return keep(l.classes[p.class], p.last) || keep(l.classes[p.class], p.prev+1) })
}

// known returns the class of an ID, nil for none.
func (l *Log) known(id uint8) *class {
	for _, c := range l.classes {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// replace replaces the bytes of a segment, or removes it. On a full disk the records move within
// the segment: a crash then damages those that are being moved.
func (l *Log) replace(number uint64, b []byte) error {
	name := l.path(number)
	if len(b) == 0 {
		if err := l.o.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	err := l.create(name+rewriteSuffix, b)
	if err == nil {
		err = l.o.FS.Rename(name+rewriteSuffix, name)
	}
	if NoSpace(err) {
		return l.overwrite(name, b)
	}
	if err != nil {
		return err
	}
	if err := l.o.FS.SyncDir(l.o.Dir); err != nil { // after a power cut the old segment may be back
		l.o.Logger.Warn("cannot sync the folder of the outbox", slog.String("error", err.Error()))
	}
	return nil
}

func (l *Log) overwrite(name string, b []byte) error {
	f, err := l.o.FS.Open(name, os.O_RDWR)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Truncate(int64(len(b)))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// create writes a file durably, or leaves none.
func (l *Log) create(name string, b []byte) error {
	f, err := l.o.FS.Open(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, l.o.FS.Remove(name))
	}
	return nil
}

// Part is a part of a segment, the records of one class, for reading independently of Next.
type Part struct {
	Class   int
	Acked   bool      // all of them are acknowledged
	AckedAt time.Time // latest possible time, if Acked; not before the log was opened
	Earlier bool      // if Acked: by an earlier process
	Bytes   int64
	Weight  uint64 // of the waiting records, when appended; from Oldest and Held
	from    uint64 // the range of sequence numbers for Read
	to      uint64
	sum     uint64 // weight of all confirmed records of the class up to to
	number  uint64
}

// Acked lists acknowledged records, ordered by the start of their segments.
func (l *Log) Acked() []Part {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []Part
	for i := range l.segments {
		for _, p := range l.segments[i].parts {
			c := l.classes[p.class]
			if c.acked <= p.prev || c.Latest || p.released {
				continue
			}
			list = append(list, Part{
				Class: p.class, Acked: c.acked >= p.last, AckedAt: p.ackedAt, Earlier: p.earlier, Bytes: p.bytes,
				from: p.prev + 1, to: min(c.acked, p.last), number: l.segments[i].number,
			})
		}
	}
	return list
}

// Release marks the records of an acknowledged Part as no longer needed. Their room is freed
// once all records of the same segment file are.
func (l *Log) Release(s Part) error {
	l.files.Lock()
	defer l.files.Unlock()
	l.mu.Lock()
	whole := false
	if at := l.segment(s.number); at != nil {
		if p := at.part(s.Class); p != nil && p.last <= s.to {
			p.released = true
		}
		whole = !slices.ContainsFunc(at.parts, func(p part) bool {
			c := l.classes[p.class]
			return !p.released && (!c.Latest || c.acked < p.last)
		})
	}
	l.mu.Unlock()
	if !whole {
		return nil
	}
	if err := l.rewrite(s.number, waits); err != nil {
		return fmt.Errorf("release records of outbox %s: %w", l.o.Dir, err)
	}
	return nil
}

// Oldest returns the oldest waiting records of the least important class up to and including
// class. Expendable classes come first, and displace only each other.
func (l *Log) Oldest(class int) (Part, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.classes {
		if l.classes[i].Expendable {
			if s, ok := l.oldest(i); ok {
				return s, true
			}
		}
	}
	if l.classes[class].Expendable {
		return Part{}, false
	}
	for i := range l.classes[:class+1] {
		if s, ok := l.oldest(i); ok {
			return s, true
		}
	}
	return Part{}, false
}

// oldest returns the oldest waiting records of a class that may be dropped.
func (l *Log) oldest(class int) (Part, bool) {
	c := l.classes[class]
	if c.Exempt || c.held || c.Latest {
		return Part{}, false
	}
	for i := range l.segments {
		if p := l.segments[i].part(class); p != nil && c.acked < p.last {
			return l.waiting(i, p), true
		}
	}
	return Part{}, false
}

// waiting returns the waiting records of a part of the i-th segment, with those that are missing
// between them and the next part.
func (l *Log) waiting(i int, p *part) Part {
	c := l.classes[p.class]
	to, sum := c.confirmed, c.sum
	for j := range l.segments[i+1:] {
		if next := l.segments[i+1+j].part(p.class); next != nil {
			to, sum = next.prev, min(next.before, sum)
			break
		}
	}
	sum = max(sum, c.ackedSum)
	return Part{
		Class: p.class, Bytes: p.bytes, Weight: sum - min(max(p.before, c.ackedSum), sum),
		from: c.acked + 1, to: max(to, p.last), sum: sum, number: l.segments[i].number,
	}
}

// Hold keeps the waiting records of a class for a program that can read them: Next returns none
// of them while the log is open. Classes that Options do not name are held from the start.
func (l *Log) Hold(class int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.classes[class].held = true
}

// Held returns the oldest held records, and the bytes of all.
func (l *Log) Held() (oldest Part, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.segments {
		for _, p := range l.segments[i].parts {
			if c := l.classes[p.class]; !c.held || c.acked >= p.last {
				continue
			}
			if bytes == 0 {
				oldest = l.waiting(i, &p)
			}
			bytes += p.bytes
		}
	}
	return oldest, bytes
}

// Discard gives up and deletes the waiting records of a Part from Oldest or Held, for a
// reason. n is counted as lost.
func (l *Log) Discard(s Part, reason Reason, n Lost) error {
	l.files.Lock()
	defer l.files.Unlock()
	c := l.classes[s.Class]
	l.mu.Lock()
	if c.acked < s.to {
		l.lose(reason, n)
		l.ack(c, s.to, s.sum, c.waiting-min(n.Records, c.waiting), l.o.Now())
		l.changed = true
	}
	l.mu.Unlock()
	if err := l.rewrite(s.number, waits); err != nil {
		return fmt.Errorf("discard records of outbox %s: %w", l.o.Dir, err)
	}
	return nil
}

// Clear deletes all records, waiting ones too. Nothing may be sent meanwhile.
func (l *Log) Clear() error {
	l.files.Lock()
	defer l.files.Unlock()
	l.mu.Lock()
	for i := range l.classes {
		c := l.classes[i]
		l.ack(c, c.appended, c.sum, 0, l.o.Now())
	}
	list := slices.Clone(l.segments)
	l.mu.Unlock()
	for i := range list {
		if err := l.rewrite(list[i].number, waits); err != nil {
			return fmt.Errorf("clear outbox %s: %w", l.o.Dir, err)
		}
	}
	return nil
}
