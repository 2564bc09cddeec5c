package credential

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// watchEvery is how often files are looked at, at most.
const watchEvery = time.Second

// Watched is what files hold, read again when one of them changes. A change that cannot
// be read is logged, and what was there before stays in force. Safe for concurrent use.
type Watched[T any] struct {
	paths  []string
	load   func() (T, error)
	now    func() time.Time
	logger *slog.Logger

	mu     sync.Mutex
	looked time.Time
	stamps []stamp
	value  T
	told   string // why the files cannot be read, since they cannot
}

// stamp tells one state of a file from another.
type stamp struct {
	modified time.Time
	size     int64
	file     os.FileInfo
}

// Watch reads files by load, and again when one of them has changed. It fails where they
// cannot be read now.
func Watch[T any](load func() (T, error), now func() time.Time, logger *slog.Logger, paths ...string) (*Watched[T], error) {
	w := &Watched[T]{paths: paths, load: load, now: now, logger: logger, looked: now()}
	// Stamps come first: a change in between is noticed later.
	stamps, err := w.stat()
	if err != nil {
		return nil, err
	}
	w.stamps = stamps
	w.value, err = load()
	return w, err
}

func (w *Watched[T]) stat() ([]stamp, error) {
	var list []stamp
	for _, p := range w.paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("look at file: %w", err)
		}
		list = append(list, stamp{info.ModTime(), info.Size(), info})
	}
	return list, nil
}

// Get is what the files hold, as of a second ago at most.
func (w *Watched[T]) Get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if now.Sub(w.looked) < watchEvery {
		return w.value
	}
	w.looked = now
	stamps, err := w.stat()
	if err == nil && slices.EqualFunc(stamps, w.stamps, stamp.equal) {
		w.told = ""
		return w.value
	}
	var value T
	if err == nil {
		value, err = w.load()
	}
	if err != nil {
		if text := err.Error(); text != w.told {
			w.told = text
			w.logger.Error("file changed and cannot be read: what it held before stays in force", slog.String("error", text))
		}
		return w.value
	}
	w.told = ""
	w.logger.Info("file changed and was read again", slog.Any("files", w.paths))
	w.value, w.stamps = value, stamps
	return value
}

func (a stamp) equal(b stamp) bool {
	return a.modified.Equal(b.modified) && a.size == b.size && os.SameFile(a.file, b.file)
}
