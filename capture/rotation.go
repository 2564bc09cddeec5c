package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ErrCompressed is wrapped by the error for following a compressed file, since the end of its data
// is known only after its writer has closed it.
var ErrCompressed = errors.New("is compressed, and a compressed file cannot be followed; " +
	"read it when it is complete, or follow the file that is written before it is compressed")

// ErrMissed is wrapped by errors about a rotated capture that was not read completely although it
// is not damaged.
var ErrMissed = errors.New("not followed to its end")

// Rotation follows a capture program through the files that it rotates, one [Reader] after another:
// a file that is replaced under its name or rewritten in place, or a directory in which new files
// appear, as with tcpdump -C, -G and -W and dumpcap -b.
//
// In a directory, existing captures are read first, in time order. Rotation leaves a capture when
// it has been read completely and another one has a packet, since programs finish a file before
// they start the next. So only one program should write to the directory: data added to a capture
// that has been left is not read, which is reported once. A capture that its program removed or
// overwrote before its turn is reported as well. Compressed files are skipped and reported; files
// that are no captures, or not yet, are skipped silently.
//
// A Rotation is not safe for concurrent use.
type Rotation struct {
	ctx     context.Context // lifetime of the rotation and its readers
	path    string
	folder  bool
	opts    Options
	once    bool // the path is read to its end, not followed; path is empty after that
	notes   map[string]note
	reports []error // problems found while scanning
	present *Reader
	batch   Batch
}

// note describes a file. It is valid until the file changes.
type note struct {
	info  os.FileInfo
	state noteState
	time  int64 // of the first packet, which distinguishes captures with the same name
	read  int64 // bytes, when it was left
	grown bool  // its growth, or its end by an error, was reported
}

// changed reports whether the file has changed.
func (n *note) changed(info os.FileInfo) bool {
	return n.info == nil || !os.SameFile(n.info, info) || n.info.Size() != info.Size() || !n.info.ModTime().Equal(info.ModTime())
}

// continues reports whether the file still holds the capture of an older note: it has not been
// replaced or begun again.
func (n *note) continues(old *note) bool {
	return n.state != noteForeign && old.state != noteForeign && n.time == old.time &&
		os.SameFile(n.info, old.info) && n.info.Size() >= old.info.Size()
}

type noteState uint8

const (
	noteForeign noteState = iota // no capture, or one without a packet yet
	noteUnread
	noteRead // read, or being read
)

// FollowRotation follows a file, a directory, or any other input of [Open], which is then read to
// its end. It does not wait. The path must exist; a file may be empty.
//
// Errors: those of Open, and one that wraps ErrCompressed.
func FollowRotation(ctx context.Context, path string, opts Options) (*Rotation, error) {
	r := &Rotation{ctx: ctx, path: path, opts: opts.withDefaults(), notes: map[string]note{}}
	if path == "-" {
		r.once = true
		return r, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("follow capture: %w", err)
	}
	r.folder = info.IsDir()
	r.once = !r.folder && !info.Mode().IsRegular()
	if r.folder || r.once || info.Size() < classicFileHeader {
		return r, nil
	}
	if packed(path) {
		return nil, fmt.Errorf("follow capture %q: %w", path, ErrCompressed)
	}
	first, err := Open(path, Options{ReadBuffer: minReadBuffer})
	if err != nil {
		return nil, err
	}
	_ = first.Close() // read-only
	return r, nil
}

// packed reports whether a file is compressed.
func packed(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // read-only
	var head [4]byte
	_, err = io.ReadFull(f, head[:])
	return err == nil && compressionOf(head[:]) != uncompressed
}

// Next waits for the next capture and returns its reader. The reader waits for more data at its end
// until there is another capture, and ends like a reader of [Follow]. Next closes the previous
// reader. An error without a reader means that one capture could not be followed; the caller may
// continue. Next returns io.EOF when ctx is done, and after the end of an input that cannot be
// followed.
func (r *Rotation) Next() (*Reader, error) {
	if err := r.Close(); err != nil {
		return nil, err
	}
	if r.once {
		return r.only()
	}
	for r.ctx.Err() == nil {
		path, ok, err := r.earliest()
		if err != nil {
			r.once, r.path = true, ""
			return nil, err
		}
		if len(r.reports) > 0 {
			err := r.reports[0]
			r.reports = r.reports[1:]
			return nil, err
		}
		if !ok {
			r.wait()
		} else if reader, err := r.open(path); reader != nil || err != nil {
			return reader, err
		}
	}
	return nil, io.EOF
}

// only opens an input that is not a regular file and can be read once.
func (r *Rotation) only() (*Reader, error) {
	if r.path == "" {
		return nil, io.EOF
	}
	reader, err := Follow(r.ctx, r.path, r.opts)
	r.present, r.path = reader, ""
	if reader == nil && r.ctx.Err() != nil {
		err = io.EOF
	}
	return reader, err
}

// open opens an unread capture. Without a reader and an error, the file holds another capture, whose
// turn may be later.
func (r *Rotation) open(path string) (*Reader, error) {
	n := r.notes[path]
	n.state = noteRead
	r.notes[path] = n
	f, size, err := openFile(path)
	if errors.Is(err, os.ErrNotExist) {
		err = missed(path, "it was removed before it was read")
	}
	if err != nil {
		return nil, err
	}
	if size < 0 {
		_ = f.Close() // read-only
		return nil, missed(path, "it is no regular file any more")
	}
	if !r.begin(path, f) {
		return nil, f.Close()
	}
	reader, err := follow(r.ctx, f, path, r.opts, r.successor)
	if err == nil && !r.begin(path, f) { // its first bytes may be of either capture
		return nil, reader.Close()
	}
	r.present = reader
	return reader, err
}

// begin marks an opened file as read. If it does not hold the capture of its note any more, begin
// reports that and returns false.
func (r *Rotation) begin(path string, f *os.File) bool {
	old := r.notes[path]
	old.state = noteUnread
	n := old
	if info, err := f.Stat(); err == nil && old.changed(info) {
		n = r.examine(path, info, old)
	}
	same := n.continues(&old)
	if same {
		n.state = noteRead
	}
	r.notes[path] = n
	return same
}

// successor reports whether another capture is waiting.
func (r *Rotation) successor(os.FileInfo) bool {
	_, ok, err := r.earliest()
	return ok || err != nil // Next returns the error
}

func (r *Rotation) wait() {
	select {
	case <-r.ctx.Done():
	case <-time.After(r.opts.Poll):
	}
}

// earliest returns the unread capture that begins first. It scans only when it knows of none, so
// that a full directory is not scanned for each file.
func (r *Rotation) earliest() (path string, ok bool, err error) {
	if path, ok = r.unread(); ok {
		return path, true, nil
	}
	if err := r.refresh(); err != nil {
		return "", false, err
	}
	path, ok = r.unread()
	return path, ok, nil
}

func (r *Rotation) unread() (path string, ok bool) {
	var first start
	for path, n := range r.notes {
		s := start{path: path, time: n.time}
		if n.state == noteUnread && (!ok || cmp.Or(cmp.Compare(s.time, first.time), cmp.Compare(s.path, first.path)) < 0) {
			first, ok = s, true
		}
	}
	return first.path, ok
}

// refresh updates the notes. It opens a file only if the file has changed.
func (r *Rotation) refresh() error {
	paths := []string{r.path}
	if r.folder {
		var err error
		if paths, err = regularFiles(r.path); err != nil {
			return fmt.Errorf("follow captures of %q: %w", r.path, err)
		}
	}
	there := make(map[string]bool, len(paths))
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue // gone, or being replaced
		}
		there[path] = true
		if old := r.notes[path]; old.changed(info) {
			r.notes[path] = r.examine(path, info, old)
		}
	}
	for path, n := range r.notes {
		if there[path] {
			continue
		}
		if n.state == noteUnread {
			r.reports = append(r.reports, missed(path, "it was removed before it was read"))
		}
		delete(r.notes, path)
	}
	return nil
}

func missed(path, why string) error {
	return fmt.Errorf("follow capture %q: %w: %s", path, ErrMissed, why)
}

// grew reports that a capture has grown after it was left.
func (r *Rotation) grew(path string, n *note) {
	if !n.grown {
		n.grown = true
		r.reports = append(r.reports, missed(path, "it grew after another capture was begun, "+
			"as where two programs write to one folder: follow each file on its own"))
	}
}

// examine opens a file that is new or has changed.
func (r *Rotation) examine(path string, info os.FileInfo, old note) note {
	n := note{info: info}
	r.batch.N = 0
	if packed(path) {
		if old.info == nil || !os.SameFile(old.info, info) {
			r.reports = append(r.reports, fmt.Errorf("follow capture %q: %w", path, ErrCompressed))
		}
	} else if first, err := firstTime(path, &r.batch); err == nil && r.batch.N > 0 {
		n.state, n.time = noteUnread, first
	}
	switch same := n.continues(&old); {
	case !same && old.state == noteUnread:
		r.reports = append(r.reports, missed(path, "it was overwritten before it was read"))
	case same && old.state == noteRead:
		n.state, n.read, n.grown = noteRead, old.read, old.grown
		if !r.reading(path) && info.Size() > n.read {
			r.grew(path, &n)
		}
	}
	return n
}

// reading reports whether the capture at path is being read.
func (r *Rotation) reading(path string) bool {
	return r.present != nil && r.present.name == path
}

// Close closes the reader that Next returned last.
func (r *Rotation) Close() error {
	reader := r.present
	if reader == nil {
		return nil
	}
	r.present = nil
	if errors.Is(reader.err, ErrShrunk) {
		delete(r.notes, reader.name) // it is a new capture now
	} else if n := r.notes[reader.name]; n.state == noteRead {
		n.read, n.grown = reader.win.offset(), !errors.Is(reader.err, io.EOF)
		if info, err := os.Stat(reader.name); err == nil && info.Mode().IsRegular() && n.changed(info) {
			n = r.examine(reader.name, info, n)
		}
		r.notes[reader.name] = n
	}
	return reader.Close()
}
