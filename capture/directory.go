package capture

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// MaxFiles is the maximum number of files in a directory.
const MaxFiles = 65536

// ErrNoCaptures is wrapped by the error for a directory without captures.
var ErrNoCaptures = errors.New("holds no pcap or pcapng file")

// Files lists the captures that path stands for. For a directory, these are its files with the
// content of a capture, plain or compressed, in the order of their first packets' times, as
// rotation leaves them: the names that capture tools give do not always sort that way. Captures
// without a time come last, and equal times sort by name. Folders, files that are not regular,
// names that start with a dot, and files that are no captures, such as empty ones, are left out;
// damaged has the errors (*FormatError) of those that are not empty and have the name of a capture.
// Captures with damage behind their first bytes are listed; reading them reports it.
//
// Any other path, including "-" for standard input, stands for itself and is not opened.
func Files(path string) (files []string, damaged []error, err error) {
	if path == "-" {
		return []string{path}, nil, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("list captures: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil, nil
	}
	paths, err := regularFiles(path)
	if err != nil {
		return nil, nil, fmt.Errorf("list captures of %q: %w", path, err)
	}
	starts, damaged, err := startsOf(paths)
	if err != nil {
		return nil, nil, fmt.Errorf("list captures of %q: %w", path, err)
	}
	if len(starts) == 0 {
		return nil, nil, errors.Join(fmt.Errorf("list captures of %q: %w", path, ErrNoCaptures), errors.Join(damaged...))
	}
	files = make([]string, len(starts))
	for i, s := range starts {
		files[i] = s.path
	}
	return files, damaged, nil
}

// namedCapture matches the names that capture tools give, also those of rotated and compressed files.
var namedCapture = regexp.MustCompile(`\.(pcap|pcapng|cap)\d*(\.gz|\.zst)?$`)

// regularFiles lists a directory in steps, so that a huge one is refused before it fills the
// memory.
func regularFiles(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // read-only
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
			return nil, fmt.Errorf("more than %d files: name the files to read", MaxFiles)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				continue
			}
			path := filepath.Join(dir, e.Name())
			// A file that has been rotated away in the meantime is ignored.
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				paths = append(paths, path)
			}
		}
	}
}

// start is the start time of a capture.
type start struct {
	path  string
	index int   // in the input list
	time  int64 // of the first packet with a time; math.MaxInt64 if there is none
	waits bool  // waits for another file to be closed
}

// startsOf examines each file, drops those that are no captures, and sorts by time, then name.
func startsOf(paths []string) (starts []start, damaged []error, err error) {
	starts = make([]start, 0, len(paths))
	var b Batch
	for i, path := range paths {
		time, err := firstTime(path, &b)
		var format *FormatError
		switch {
		case err == nil:
			starts = append(starts, start{path: path, index: i, time: time})
		case !errors.As(err, &format):
			return nil, nil, err
		case len(format.First) > 0 && namedCapture.MatchString(path):
			damaged = append(damaged, err)
		}
	}
	sortStarts(starts)
	return starts, damaged, nil
}

func sortStarts(starts []start) {
	slices.SortStableFunc(starts, func(a, b start) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.path, b.path))
	})
}

// firstTime reads the beginning of a capture. It returns an error only if the file is no capture or
// cannot be opened; damage is reported by the actual reading.
//
// Inputs that can be read only once are not examined: they start before all others.
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
	defer func() { _ = r.Close() }() // read-only
	if r.ReadBatch(b) == nil {
		for i := range b.Frames[:b.N] {
			if f := &b.Frames[i]; !f.NoTime {
				return f.TimeNS, nil
			}
		}
	}
	return math.MaxInt64, nil
}
