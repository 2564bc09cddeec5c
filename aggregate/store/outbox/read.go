package outbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Reader reads a Part, independently of Next. It skips damage, and
// an incomplete record at the end of the segment, which was never confirmed.
type Reader struct {
	log    *Log
	part   Part
	class  uint8 // its ID
	open   openSegment
	scan   *scanner
	offset int64
	at     found
}

// Read opens a part for reading; the caller closes the reader.
func (l *Log) Read(s Part) (*Reader, error) {
	l.swap.RLock()
	defer l.swap.RUnlock()
	l.mu.Lock()
	at := l.segment(s.number)
	var whole segment
	if at != nil {
		whole = *at
	}
	l.mu.Unlock()
	r := &Reader{log: l, part: s, class: l.classes[s.Class].ID}
	err := fs.ErrNotExist
	if at != nil {
		r.scan, err = r.open.open(l, &whole)
	}
	if err != nil {
		return nil, fmt.Errorf("read outbox %s: %w", l.o.Dir, err)
	}
	return r, nil
}

// Next returns the next record without its payload; io.EOF after the last one.
func (r *Reader) Next() (Entry, error) {
	for {
		f, _, err := r.scan.at(r.offset)
		if err != nil {
			if errors.Is(err, io.EOF) {
				return Entry{}, io.EOF
			}
			return Entry{}, fmt.Errorf("read outbox %s: %w", r.log.o.Dir, err)
		}
		r.offset = f.next()
		if f.cut || f.class != r.class || f.seq < r.part.from || f.seq > r.part.to {
			continue
		}
		r.at = f
		label, err := r.scan.label(&f)
		if err != nil {
			return Entry{}, fmt.Errorf("read outbox %s: %w", r.log.o.Dir, err)
		}
		e := f.entry("", label, nil)
		e.Class, e.class = r.part.Class, r.class
		return e, nil
	}
}

// Payload reads the payload of the record last returned by Next into buf, which grows as needed;
// nil if it is damaged.
func (r *Reader) Payload(buf []byte) ([]byte, error) {
	payload, err := r.scan.payload(buf, &r.at)
	if err != nil {
		return nil, fmt.Errorf("read outbox %s: %w", r.log.o.Dir, err)
	}
	return payload, nil
}

// Close closes the segment.
func (r *Reader) Close() { r.open.close() }
