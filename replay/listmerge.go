package replay

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// A listing is what is known of one capture while it is listed.
type listing struct {
	path   string
	named  bool
	prefix []byte   // of each object: the file, or nothing
	ports  []uint32 // numbers of its interfaces in the annotated copy

	mirrors []decode.Mirrors // of its taps, by interface
}

func newListing(path string, named bool) *listing {
	from := &listing{path: path, named: named}
	if named {
		quoted, _ := json.Marshal(path) // a string always has an encoding
		from.prefix = append(append(from.prefix, `{"file":`...), quoted...)
	}
	return from
}

// merge lists several captures in the order of their times.
func (l *Lister) merge(ctx context.Context, files []string) error {
	m := capture.MergeFiles(files, listOptions())
	defer m.Close()
	listings := make([]*listing, len(files))
	var failures []error
	for ctx.Err() == nil {
		f, i, err := m.Next()
		for i, ok := m.Ended(); ok; i, ok = m.Ended() {
			if r := m.Reader(i); r != nil {
				failures = append(failures, l.counts.Damaged.add(r))
			}
			listings[i] = nil
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if listings[i] == nil {
			listings[i] = newListing(files[i], true)
		}
		if err := l.frame(f, m.Reader(i).Interfaces(), listings[i]); err != nil {
			return err
		}
	}
	l.counts.Deferred = m.Deferred()
	return errors.Join(append(failures, ctx.Err())...)
}
