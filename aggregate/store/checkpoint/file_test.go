package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

func open(t testing.TB, o Options) *File {
	t.Helper()
	f, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func load(t testing.TB, f *File) *Saved {
	t.Helper()
	saved, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

func save(t testing.TB, f *File, sections []Section) {
	t.Helper()
	if err := f.Save(sections); err != nil {
		t.Fatal(err)
	}
}

func closed(t testing.TB, f *File) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

var some = []Section{{"a", []byte("state")}, {"empty", nil}, {"b", bytes.Repeat([]byte{7}, 1000)}}

// A name finds its place again, beside others, and the last checkpoint in it.
func TestFile(t *testing.T) {
	now := time.Unix(1e9, 5)
	o := Options{Dir: filepath.Join(t.TempDir(), "x", "checkpoints"), Name: "one", Now: func() time.Time { return now }}
	other := o
	other.Name = "two"
	f := open(t, o)
	if saved := load(t, f); saved != nil {
		t.Errorf("a new place has %+v", saved)
	}
	if _, err := Open(o); !errors.Is(err, outbox.ErrOwned) {
		t.Errorf("in use before the first checkpoint: %v", err)
	}
	save(t, f, some[:1])
	save(t, f, some)
	if _, err := Open(o); !errors.Is(err, outbox.ErrOwned) {
		t.Errorf("in use: %v", err)
	}
	g := open(t, other)
	save(t, g, some[2:])
	closed(t, g)
	closed(t, f)

	f = open(t, o)
	saved := load(t, f)
	if saved.Number != 2 || !saved.Time.Equal(now) || len(saved.Sections) != 3 || string(saved.Section("a")) != "state" ||
		!bytes.Equal(saved.Section("b"), some[2].Data) || saved.Section("c") != nil {
		t.Errorf("loaded %+v", saved)
	}
	save(t, f, nil)
	if saved := load(t, f); saved.Number != 3 || len(saved.Sections) != 0 {
		t.Errorf("loaded %+v", saved)
	}
	if err := f.Remove(); err != nil {
		t.Error(err)
	}
	if saved := load(t, f); saved != nil {
		t.Errorf("removed: %+v", saved)
	}
	closed(t, f)

	now = now.Add(DefaultMaxAge + time.Second)
	f = open(t, o)
	save(t, f, nil)
	if _, err := os.Stat(filepath.Join(g.Dir(), fileName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a stale checkpoint stays while others are opened: %v", err)
	}
	closed(t, f)
	g = open(t, other)
	if saved := load(t, g); saved != nil {
		t.Errorf("stale: %+v", saved)
	}
	closed(t, g)
}

// All places taken by checkpoints of others: the oldest gives way. All in use: nobody
// does.
func TestPlaces(t *testing.T) {
	now := time.Unix(1e9, 0)
	o := Options{Dir: t.TempDir(), Now: func() time.Time { return now }}
	var files []*File
	for i := range maxPlaces {
		o.Name = fmt.Sprint("name ", i)
		now = now.Add(time.Second)
		f := open(t, o)
		save(t, f, some)
		files = append(files, f)
	}
	o.Name = "one more"
	if _, err := Open(o); !errors.Is(err, outbox.ErrOwned) {
		t.Errorf("all in use: %v", err)
	}
	for _, f := range files[3:] {
		closed(t, f)
	}
	f := open(t, o)
	if f.Dir() != files[3].Dir() || load(t, f) != nil {
		t.Errorf("place %s, expected that of the oldest, %s", f.Dir(), files[3].Dir())
	}
	o.Name = "name 5"
	if f := open(t, o); load(t, f) == nil {
		t.Error("a later one has given way")
	}
}

// Whatever a disk makes of a checkpoint, it is found out and told of, and the place is
// of use again.
func TestDamage(t *testing.T) {
	var log bytes.Buffer
	o := Options{Dir: t.TempDir(), Name: "name", Logger: slog.New(slog.NewTextHandler(&log, nil))}
	f := open(t, o)
	small := []Section{{"a", []byte("state")}, {"b", []byte("other")}}
	save(t, f, small)
	closed(t, f)
	path := filepath.Join(f.Dir(), fileName)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		log.Reset()
		f, err := Open(o)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		saved, err := f.Load()
		newer := b[:min(len(b), 5)]
		switch {
		case len(newer) == 5 && string(newer[:4]) == magic && newer[4] > version:
			if saved != nil || f.Dir() == filepath.Dir(path) || !strings.Contains(log.String(), ErrNewer.Error()) {
				t.Fatalf("%s: loaded %+v, %v: %s", what, saved, err, &log)
			}
		case saved != nil || err != nil && !errors.Is(err, ErrDamaged) || err == nil && !strings.Contains(log.String(), ErrDamaged.Error()):
			t.Fatalf("%s: loaded %+v, %v: %s", what, saved, err, &log)
		}
		closed(t, f)
	}
	for n := range good {
		try(fmt.Sprint("cut at ", n), good[:n])
		flipped := bytes.Clone(good)
		flipped[n] ^= 1 << (n % 8)
		try(fmt.Sprint("flipped at ", n), flipped)
	}
	try("longer", append(bytes.Clone(good), 0))
}

// faultyFS fails, or stops, at one operation.
type faultyFS struct {
	outbox.OS
	n, at int
	err   error
	ops   []string
}

func (f *faultyFS) op(name string) error {
	f.n++
	f.ops = append(f.ops, name)
	if f.n == f.at {
		return f.err
	}
	return nil
}

func (f *faultyFS) Open(name string, flag int) (outbox.File, error) {
	if flag&os.O_CREATE == 0 {
		return f.OS.Open(name, flag)
	}
	if err := f.op("create"); err != nil {
		return nil, err
	}
	file, err := f.OS.Open(name, flag)
	return &faultyFile{file, f}, err
}

func (f *faultyFS) Rename(from, to string) error {
	if err := f.op("rename"); err != nil {
		return err
	}
	return f.OS.Rename(from, to)
}

func (f *faultyFS) SyncDir(dir string) error {
	if err := f.op("syncdir"); err != nil {
		return err
	}
	return f.OS.SyncDir(dir)
}

type faultyFile struct {
	outbox.File
	fs *faultyFS
}

func (f *faultyFile) Write(b []byte) (int, error) {
	if err := f.fs.op("write"); err != nil {
		n, _ := f.File.Write(b[:len(b)/2])
		return n, err
	}
	return f.File.Write(b)
}

func (f *faultyFile) Sync() error {
	if err := f.fs.op("sync"); err != nil {
		return err
	}
	return f.File.Sync()
}

// A disk that is full or fails at any step leaves the checkpoint before or the new one,
// and the next one is saved.
func TestFaults(t *testing.T) {
	for _, fault := range []error{syscall.ENOSPC, syscall.EIO} {
		steps := 0
		for at := 1; ; at++ {
			disk := &faultyFS{}
			o := Options{Dir: t.TempDir(), Name: "name", FS: disk}
			f := open(t, o)
			save(t, f, some[:1])
			disk.n, disk.ops, disk.at, disk.err = 0, nil, at, fault
			err := f.Save(some)
			if err == nil {
				steps = at - 1
				break
			}
			if !errors.Is(err, fault) {
				t.Fatalf("step %d: %v", at, err)
			}
			saved := load(t, f)
			if !reflect.DeepEqual(saved.Sections, some[:1]) && len(saved.Sections) != len(some) {
				t.Fatalf("step %d, %s: %+v", at, disk.ops, saved)
			}
			if _, err := os.Stat(filepath.Join(f.Dir(), tempName)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("step %d, %s: what was begun takes room: %v", at, disk.ops, err)
			}
			save(t, f, some)
			if saved := load(t, f); len(saved.Sections) != len(some) || saved.Number != 3 {
				t.Errorf("step %d: after it %+v", at, saved)
			}
		}
		if steps < 5 {
			t.Errorf("failed at %d steps alone", steps)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, sections := range [][]Section{nil, some[:1], some} {
		head, err := encodeHeader("name", 3, time.Unix(5, 6), sections)
		if err != nil {
			f.Fatal(err)
		}
		for _, s := range sections {
			head = append(head, s.Data...)
		}
		f.Add(head)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, saved, err := parse(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		again, err := encodeHeader(h.name, saved.Number, saved.Time, saved.Sections)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range saved.Sections {
			again = append(again, s.Data...)
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%q comes back as %q", b, again)
		}
	})
}
