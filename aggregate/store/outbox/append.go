package outbox

import (
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"syscall"
	"time"
)

// appendAttempts is how many segments are tried for one group.
const appendAttempts = 3

// saveInterval is how often the position is written while records are acknowledged, unless
// Options set another interval.
const saveInterval = time.Second

// Append writes a group of records; they are on disk when Append returns nil, and after a crash
// all of them are there or none. After an error some of them may be on disk all the same, and be sent
// after a crash; their bytes are those given here. A segment whose write or sync failed is never written to again;
// the group goes to a new one.
//
// At the bound Append rewrites segments without their acknowledged records where that frees a third or
// more, oldest first, before it fails with ErrFull. It is safe for concurrent use. It keeps no reference to the records.
func (l *Log) Append(records ...Record) error {
	if len(records) == 0 {
		return nil
	}
	l.files.Lock()
	defer l.files.Unlock()
	size, bounded := int64(0), false
	for i := range records {
		r := &records[i]
		if len(r.Label) > MaxLabel || len(r.Payload) > MaxPayload {
			return fmt.Errorf("append %d bytes to outbox %s: %w", len(r.Label)+len(r.Payload), l.o.Dir, ErrTooLarge)
		}
		size += headerSize + int64(len(r.Label)) + int64(len(r.Payload))
		bounded = bounded || !l.classes[r.Class].Exempt && !l.classes[r.Class].Latest
	}
	if bounded && size > l.o.MaxBytes {
		return fmt.Errorf("append %d bytes to outbox %s: %w", size, l.o.Dir, ErrTooLarge)
	}
	if bounded && !l.makeRoom(size) {
		return ErrFull
	}
	g, err := l.group(records, size)
	if err != nil {
		return err
	}
	for range appendAttempts {
		if err = l.write(g); err == nil {
			l.signal()
			return nil
		}
		l.removeEmpty()
		if NoSpace(err) {
			l.makeRoom(l.o.MaxBytes)
			continue
		}
		l.o.Logger.Error("cannot write a file of the outbox, starting another one", slog.String("error", err.Error()))
	}
	return fmt.Errorf("append to outbox %s: %w", l.o.Dir, err)
}

// group is a set of records on their way to the disk, and their headers.
type group struct {
	records []Record
	headers []header
	size    int64
}

// group numbers records. A number is used once, even if the group fails: some of it may be on
// disk.
func (l *Log) group(records []Record, size int64) (*group, error) {
	g := &group{records, make([]header, len(records)), size}
	now := l.o.Now().UnixNano()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	last := make(map[int]*header, len(l.classes)) // of the group, by class
	for i := range records {
		r, h := &records[i], &g.headers[i]
		c := l.classes[r.Class]
		*h = header{
			class: c.ID, more: i < len(records)-1, labelSize: uint32(len(r.Label)), payloadSize: uint32(len(r.Payload)), id: l.id,
			seq: c.next, prev: c.confirmed, written: now, weight: r.Weight, before: c.sum, extent: r.Extent,
			labelCRC: crc32.Checksum(r.Label, castagnoli), payloadCRC: crc32.Checksum(r.Payload, castagnoli),
		}
		if was := last[r.Class]; was != nil {
			h.prev, h.before = was.seq, was.before+was.weight
		}
		last[r.Class] = h
		c.next++
	}
	return g, nil
}

// removeEmpty deletes a new segment whose first group failed: on a full disk its written part
// would take the room that a later attempt needs.
func (l *Log) removeEmpty() {
	l.mu.Lock()
	n := len(l.segments)
	if n == 0 || !l.rotate || l.active == nil || l.segments[n-1].end > 0 {
		l.mu.Unlock()
		return
	}
	s := l.segments[n-1]
	l.mu.Unlock()
	_ = l.seal() // its contents are of no use
	l.swap.Lock()
	defer l.swap.Unlock()
	if err := l.o.FS.Remove(l.path(s.number)); err != nil {
		l.o.Logger.Warn("cannot remove an unfinished file of the outbox", slog.String("error", err.Error()))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total -= s.size
	l.segments = l.segments[: n-1 : n-1]
}

// NoSpace reports the errors of a full disk and of an exhausted quota.
func NoSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// write appends to the active segment, or to a new one.
func (l *Log) write(g *group) error {
	if err := l.activate(g); err != nil {
		return err
	}
	l.mu.Lock()
	s := l.segments[len(l.segments)-1]
	l.mu.Unlock()
	written, err := l.writeRecords(g, s.end)
	if err == nil {
		err = l.active.Sync()
	}
	if err == nil && s.end == 0 {
		err = l.o.FS.SyncDir(l.o.Dir)
	}
	l.wrote(g, written, err)
	switch {
	case err == nil && s.end == 0:
		l.trySave() // records in the position that the segment exists
	case err == nil:
		l.note()
	}
	return err
}

func (l *Log) writeRecords(g *group, offset int64) (written int64, err error) {
	var head []byte
	for i := range g.records {
		head = append(g.headers[i].appendTo(head[:0], offset+written), g.records[i].Label...)
		for _, part := range [][]byte{head, g.records[i].Payload} {
			n, err := l.active.Write(part)
			written += int64(n)
			if err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

// wrote updates the counts for a group that was confirmed, or that failed.
func (l *Log) wrote(g *group, written int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.segments[len(l.segments)-1]
	s.size += written
	l.total += written
	if err != nil {
		l.rotate = true
		return
	}
	s.end += written
	l.changed = true
	for i := range g.headers {
		h, c := &g.headers[i], l.classes[g.records[i].Class]
		s.note(c.index, h)
		c.confirm(h)
		if c.Latest {
			l.ack(c, h.prev, h.before, c.waiting-1, h.time())
		}
	}
}

// confirm counts a record that is on disk; the caller holds mu.
func (c *class) confirm(h *header) {
	c.appended, c.confirmed = h.seq, h.seq
	c.sum = h.before + h.weight
	c.extent = c.extent.Join(h.extent)
	c.waiting++
	c.ages.note(h.seq, h.time())
}

// activate makes sure that there is a segment to write to.
func (l *Log) activate(g *group) error {
	first := &g.headers[0]
	l.mu.Lock()
	fresh := l.active == nil || l.rotate
	if !fresh {
		s := &l.segments[len(l.segments)-1]
		full := s.end > 0 && s.end+g.size > l.o.SegmentBytes
		age := first.time().Sub(s.begun) // below 0 if the clock was set back
		old := s.end > 0 && l.o.SegmentAge > 0 && (age < 0 || age >= l.o.SegmentAge)
		fresh = full || old
	}
	l.mu.Unlock()
	if !fresh {
		return nil
	}
	if err := l.seal(); err != nil {
		l.o.Logger.Error("cannot close a file of the outbox", slog.String("error", err.Error()))
	}
	l.mu.Lock()
	l.number++
	s := segment{number: l.number, begun: first.time()}
	l.mu.Unlock()
	f, err := l.o.FS.Open(l.path(s.number), os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	l.active = f
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rotate = false
	l.segments = append(l.segments, s)
	return nil
}

// seal ends the active segment. The caller holds files.
func (l *Log) seal() error {
	f := l.active
	l.active = nil
	if f == nil {
		return nil
	}
	return f.Close()
}
