package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

const (
	fileName = "checkpoint"
	tempName = "checkpoint.new"
)

// Options say where checkpoints are and whose is wanted.
type Options struct {
	Dir  string // of all checkpoints; made if need be, for its owner alone
	Name string // 1 to 255 bytes: all that has to be the same to go on
	// MaxAge is how long a checkpoint waits for somebody to go on from it, 7 days unless
	// set.
	MaxAge time.Duration

	FS     outbox.FS        // nil: the operating system's
	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// DefaultMaxAge is that of Options.
const DefaultMaxAge = 7 * 24 * time.Hour

func (o Options) withDefaults() Options {
	if o.MaxAge == 0 {
		o.MaxAge = DefaultMaxAge
	}
	if o.FS == nil {
		o.FS = outbox.OS{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// File is the place of one name. It is safe for concurrent use.
type File struct {
	o     Options
	dir   string
	owner io.Closer

	mu     sync.Mutex
	number uint64 // of the last checkpoint
}

// Dir is the folder of the place.
func (f *File) Dir() string { return f.dir }

// Load reads the checkpoint; nil if there is none. ErrDamaged and ErrNewer are errors of
// one that is there and of no use.
func (f *File) Load() (*Saved, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := readFile(f.o.FS, f.dir, MaxBytes)
	if err != nil || b == nil {
		return nil, f.describe("load", err)
	}
	h, saved, err := parse(b)
	if err != nil {
		return nil, f.describe("load", err)
	}
	if h.name != f.o.Name {
		return nil, f.describe("load", fmt.Errorf("%w: is of %q, expected %q", ErrDamaged, h.name, f.o.Name))
	}
	if saved.Number == claimNumber {
		return nil, nil
	}
	f.number = max(f.number, saved.Number)
	return saved, nil
}

// Save replaces the checkpoint; the new one is durable when Save returns nil. After an
// error the one before is still there or, where the error came late, the new one.
func (f *File) Save(sections []Section) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.number++
	return f.save(f.number, sections)
}

// claimNumber is that of a checkpoint which only says whose place it is.
const claimNumber = 0

func (f *File) save(number uint64, sections []Section) error {
	head, err := encodeHeader(f.o.Name, number, f.o.Now(), sections)
	if err != nil {
		return f.describe("save", err)
	}
	temp := filepath.Join(f.dir, tempName)
	err = f.write(temp, head, sections)
	if err == nil {
		err = f.o.FS.Rename(temp, filepath.Join(f.dir, fileName))
	}
	if err == nil {
		err = f.o.FS.SyncDir(f.dir)
	}
	if err != nil {
		_ = removeFile(f.o.FS, temp) // its room may be what is missing
	}
	return f.describe("save", err)
}

// write writes a file that was not there: one whose syncing has failed is never written
// to again.
func (f *File) write(name string, head []byte, sections []Section) error {
	if err := removeFile(f.o.FS, name); err != nil {
		return err
	}
	to, err := f.o.FS.Open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = to.Write(head)
	for i := range sections {
		if err == nil && len(sections[i].Data) > 0 {
			_, err = to.Write(sections[i].Data)
		}
	}
	if err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}

// Remove removes the checkpoint, for good: nobody goes on from it any more.
func (f *File) Remove() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.describe("remove", removeAll(f.o.FS, f.dir))
}

// Close lets others have the place, with the checkpoint that is in it.
func (f *File) Close() error { return f.describe("close", f.owner.Close()) }

func (f *File) describe(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s checkpoint in %s: %w", what, f.dir, err)
}

func removeAll(fsys outbox.FS, dir string) error {
	err := errors.Join(removeFile(fsys, filepath.Join(dir, fileName)), removeFile(fsys, filepath.Join(dir, tempName)))
	return errors.Join(err, fsys.SyncDir(dir))
}

func removeFile(fsys outbox.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readFile reads up to limit bytes of a checkpoint; nil if there is none.
func readFile(fsys outbox.FS, dir string, limit int64) ([]byte, error) {
	list, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	for _, info := range list {
		if info.Name != fileName {
			continue
		}
		f, err := fsys.Open(filepath.Join(dir, fileName), os.O_RDONLY)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		b := make([]byte, min(info.Size, limit))
		n, err := f.ReadAt(b, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return b[:n], nil
	}
	return nil, nil
}
