package outbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
)

// Stored is a record of a Part that is being read, without its payload. It is valid until the
// next one.
type Stored struct {
	Entry
	log  *Log
	scan *scanner
	at   found
}

// Records yields the records of a Part, independently of Next, or an error, which ends them. It
// skips damage, and an incomplete record at the end of the segment, which was never confirmed.
func (l *Log) Records(s Part) iter.Seq2[*Stored, error] {
	return func(yield func(*Stored, error) bool) {
		var open openSegment
		defer open.close()
		r := &Stored{log: l}
		var err error
		if r.scan, err = l.openPart(&open, s); err != nil {
			yield(r, fmt.Errorf("read outbox %s: %w", l.o.Dir, err))
			return
		}
		class := l.classes[s.Class].ID
		for offset := int64(0); ; offset = r.at.next() {
			if r.at, _, err = r.scan.at(offset); errors.Is(err, io.EOF) {
				return
			}
			f, label := &r.at, []byte(nil)
			if err == nil {
				if f.cut || f.class != class || f.seq < s.from || f.seq > s.to {
					continue
				}
				label, err = r.scan.label(f)
			}
			if err != nil {
				yield(r, fmt.Errorf("read outbox %s: %w", l.o.Dir, err))
				return
			}
			r.Entry = f.entry("", label, nil)
			r.Class, r.class = s.Class, class
			if !yield(r, nil) {
				return
			}
		}
	}
}

// openPart opens the segment of a part.
func (l *Log) openPart(open *openSegment, s Part) (*scanner, error) {
	l.swap.RLock()
	defer l.swap.RUnlock()
	l.mu.Lock()
	at := l.segment(s.number)
	var whole segment
	if at != nil {
		whole = *at
	}
	l.mu.Unlock()
	if at == nil {
		return nil, fs.ErrNotExist
	}
	return open.open(l, &whole)
}

// Read reads the payload into buf, which grows as needed; nil if it is damaged.
func (r *Stored) Read(buf []byte) ([]byte, error) {
	payload, err := r.scan.payload(buf, &r.at)
	if err != nil {
		return nil, fmt.Errorf("read outbox %s: %w", r.log.o.Dir, err)
	}
	return payload, nil
}
