package capture

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// MaxFiles is how many files of a directory are looked at.
const MaxFiles = 65536

// ErrNoCaptures is wrapped by the error for a directory without a capture.
var ErrNoCaptures = errors.New("holds no pcap or pcapng file")

// Files lists the captures that path stands for. Of a directory these are the
// files in it that are captures by content, plain or compressed, in the order of
// their first packets' times, as rotation leaves them: the names that capture
// tools give do not always sort that way. Captures without a time come last, and
// equal times sort by name. Left out are folders and all that is no regular file,
// names that start with a dot, and what is no capture, such as an empty file. A
// capture that is damaged is listed: reading it tells.
//
// Anything else than a directory, with "-" for standard input, stands for
// itself and is not opened.
func Files(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("list captures: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	paths, err := regularFiles(path)
	if err != nil {
		return nil, fmt.Errorf("list captures of %q: %w", path, err)
	}
	starts, err := startsOf(paths)
	if err != nil {
		return nil, fmt.Errorf("list captures of %q: %w", path, err)
	}
	if len(starts) == 0 {
		return nil, fmt.Errorf("list captures of %q: %w", path, ErrNoCaptures)
	}
	sorted := make([]string, len(starts))
	for i, s := range starts {
		sorted[i] = s.path
	}
	return sorted, nil
}

// regularFiles lists a directory in steps, so that one of any size is refused
// before it fills the memory.
func regularFiles(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read from
	var paths []string
	for seen := 0; ; {
		entries, err := d.ReadDir(1024)
		if errors.Is(err, io.EOF) {
			return paths, nil
		}
		if err != nil {
			return nil, err
		}
		if seen += len(entries); seen > MaxFiles {
			return nil, fmt.Errorf("more than %d files; name those to read", MaxFiles)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				continue
			}
			path := filepath.Join(dir, e.Name())
			// A file that has been rotated away meanwhile is not missed.
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				paths = append(paths, path)
			}
		}
	}
}

// start is where in time a capture begins.
type start struct {
	path  string
	index int   // in the list that was asked about
	time  int64 // of the first packet that has one; math.MaxInt64 for none
	waits bool  // for another file to be closed
}

// startsOf looks into each file, leaves out what is no capture, and sorts by
// time, then name.
func startsOf(paths []string) ([]start, error) {
	starts := make([]start, 0, len(paths))
	var b Batch
	for i, path := range paths {
		time, err := firstTime(path, &b)
		var format *FormatError
		switch {
		case err == nil:
			starts = append(starts, start{path: path, index: i, time: time})
		case !errors.As(err, &format):
			return nil, err
		}
	}
	sortStarts(starts)
	return starts, nil
}

func sortStarts(starts []start) {
	slices.SortStableFunc(starts, func(a, b start) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.path, b.path))
	})
}

// firstTime reads the beginning of a capture. Errors are those that say that it
// is none or cannot be opened; damage is left for the real reading.
//
// What can be read only once is not looked into: it begins before all others.
func firstTime(path string, b *Batch) (int64, error) {
	if info, err := os.Stat(path); path == "-" || err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return math.MinInt64, nil
	}
	r, err := Open(path, Options{ReadBuffer: minReadBuffer})
	var format *FormatError
	var system *os.PathError
	if errors.As(err, &format) || errors.As(err, &system) || errors.Is(err, ErrDirectory) {
		return 0, err
	}
	if err != nil {
		return math.MaxInt64, nil
	}
	defer func() { _ = r.Close() }() // only read from
	if r.ReadBatch(b) == nil {
		for i := range b.Frames[:b.N] {
			if f := &b.Frames[i]; !f.NoTime {
				return f.TimeNS, nil
			}
		}
	}
	return math.MaxInt64, nil
}
