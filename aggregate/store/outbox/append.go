package outbox

import (
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// appendAttempts is how many segments are tried for one record.
const appendAttempts = 3

// saveInterval is how often the position is written while records are acknowledged,
// unless Options say otherwise.
const saveInterval = time.Second

// Append writes a record; it is on disk when Append returns nil. Weight counts what is
// in it, and extent is the time that this is of: both stand in for the record if it is
// lost. After an error it may still be sent after a crash: what was written of it is
// identical then. A segment whose writing or syncing failed is never written to again;
// the record is written to a new one.
//
// At the bound records that are acknowledged give way, oldest first, before it fails
// with ErrFull. Anyone may call it.
func (l *Log) Append(class int, weight uint64, extent Extent, label, payload []byte) error {
	l.files.Lock()
	defer l.files.Unlock()
	c := &l.classes[class]
	size := headerSize + int64(len(label)) + int64(len(payload))
	if len(label) > MaxLabel || len(payload) > MaxPayload || !c.Exempt && size > l.o.MaxBytes {
		return fmt.Errorf("append %d bytes to outbox %s: %w", size, l.o.Dir, ErrTooLarge)
	}
	if !c.Exempt && !l.makeRoom(size) {
		return ErrFull
	}
	h := header{
		class: uint8(c.index), labelSize: uint32(len(label)), payloadSize: uint32(len(payload)), id: l.id,
		written: l.o.Now().UnixNano(), weight: weight, extent: extent,
		labelCRC: crc32.Checksum(label, castagnoli), payloadCRC: crc32.Checksum(payload, castagnoli),
	}
	l.mu.Lock()
	h.seq, h.prev, h.before = c.next, c.confirmed, c.sum
	closed := l.closed
	// A number is used once, even if the record fails: some of it may be on disk.
	c.next++
	l.mu.Unlock()
	if closed {
		return ErrClosed
	}
	var err error
	for range appendAttempts {
		if err = l.write(c, &h, label, payload); err == nil {
			l.signal()
			return nil
		}
		l.removeEmpty(c)
		if NoSpace(err) {
			l.makeRoom(l.o.MaxBytes)
			continue
		}
		l.o.Logger.Error("segment failed, beginning another one", slog.String("class", c.Name), slog.String("error", err.Error()))
	}
	return fmt.Errorf("append to outbox %s: %w", l.o.Dir, err)
}

// removeEmpty deletes a new segment whose first record failed: on a full disk what was
// written of it would take the place that a later attempt needs.
func (l *Log) removeEmpty(c *class) {
	l.mu.Lock()
	n := len(c.segments)
	if n == 0 || !c.rotate || c.active == nil || c.segments[n-1].end > 0 {
		l.mu.Unlock()
		return
	}
	s := c.segments[n-1]
	l.mu.Unlock()
	_ = l.seal(c) // nobody needs what was not written
	if err := l.o.FS.Remove(l.path(c, &s)); err != nil {
		l.o.Logger.Warn("remove failed segment", slog.String("error", err.Error()))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total -= s.size
	c.segments = c.segments[: n-1 : n-1]
}

// NoSpace tells the errors of a full disk and of a used up quota.
func NoSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// write appends to the active segment, or to a new one, and seals it where that fails.
func (l *Log) write(c *class, h *header, label, payload []byte) error {
	if err := l.activate(c, h); err != nil {
		return err
	}
	l.mu.Lock()
	s := c.segments[len(c.segments)-1]
	l.mu.Unlock()
	head := append(h.appendTo(make([]byte, 0, headerSize+len(label)), s.end), label...)
	written := int64(0)
	err := func() error {
		for _, part := range [][]byte{head, payload} {
			n, err := c.active.Write(part)
			written += int64(n)
			if err != nil {
				return err
			}
		}
		if err := c.active.Sync(); err != nil {
			return err
		}
		if s.end == 0 {
			return l.o.FS.SyncDir(l.o.Dir)
		}
		return nil
	}()
	l.wrote(c, h, written, err)
	switch {
	case err == nil && s.end == 0:
		l.trySave() // from now on the segment is known to be there
	case err == nil:
		l.note()
	}
	return err
}

func (l *Log) wrote(c *class, h *header, written int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := &c.segments[len(c.segments)-1]
	last.size += written
	l.total += written
	if err != nil {
		c.rotate = true
		return
	}
	last.end += written
	c.appended, c.confirmed = h.seq, h.seq
	c.sum += h.weight
	c.extent = c.extent.Join(h.extent)
	l.changed = true
	c.waiting++
	c.ages.note(h.seq, h.time())
}

// activate makes sure that there is a segment to write to.
func (l *Log) activate(c *class, h *header) error {
	l.mu.Lock()
	fresh := c.active == nil || c.rotate
	if !fresh {
		s := &c.segments[len(c.segments)-1]
		full := s.end > 0 && s.end+h.size() > l.o.SegmentBytes
		age := h.time().Sub(s.begun) // below 0 where the clock was set back
		old := s.end > 0 && l.o.SegmentAge > 0 && (age < 0 || age >= l.o.SegmentAge)
		fresh = full || old
	}
	l.mu.Unlock()
	if !fresh {
		return nil
	}
	if err := l.seal(c); err != nil {
		l.o.Logger.Error("close segment failed", slog.String("class", c.Name), slog.String("error", err.Error()))
	}
	l.mu.Lock()
	l.number++
	s := segment{number: l.number, first: h.seq, before: h.before, begun: h.time()}
	l.mu.Unlock()
	f, err := l.o.FS.Open(l.path(c, &s), os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.active, c.rotate = f, false
	if n := len(c.segments); n > 0 {
		c.segments[n-1].next = s.first
	}
	c.segments = append(c.segments, s)
	return nil
}

// seal ends the active segment.
func (l *Log) seal(c *class) error {
	l.mu.Lock()
	f := c.active
	c.active = nil
	l.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.Close()
}

func (l *Log) path(c *class, s *segment) string {
	return filepath.Join(l.o.Dir, segmentName(c.Name, s.number, s.first))
}
