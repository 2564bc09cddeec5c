package store

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// badDisk is the operating system's file system, to which writes fail while it is bad.
type badDisk struct {
	outbox.OS
	bad    atomic.Bool
	full   bool // removing a file makes room
	broken bool // room is not the cause
}

func (b *badDisk) failure() error {
	if b.broken {
		return syscall.EIO
	}
	return syscall.ENOSPC
}

func (b *badDisk) Open(name string, flag int) (outbox.File, error) {
	if b.bad.Load() && flag&os.O_CREATE != 0 {
		return nil, b.failure()
	}
	f, err := b.OS.Open(name, flag)
	return &badFile{f, b}, err
}

// Remove implements outbox.FS.
func (b *badDisk) Remove(name string) error {
	if b.full {
		b.bad.Store(false)
	}
	return b.OS.Remove(name)
}

type badFile struct {
	outbox.File
	disk *badDisk
}

func (f *badFile) Write(b []byte) (int, error) {
	if f.disk.bad.Load() {
		return 0, f.disk.failure()
	}
	return f.File.Write(b)
}

func (f *badFile) Sync() error {
	if f.disk.bad.Load() && !f.disk.full { // a full disk has room for writes in place
		return syscall.EIO
	}
	return f.File.Sync()
}

// TestDiskComesBack: rows wait in memory for a disk that fails for a while.
func TestDiskComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &badDisk{}
		f := newFakeServer()
		s := storeBefore(t, f, &Outbox{Dir: t.TempDir(), FS: disk})
		put(t, s, 1, 1, time.Second, 10)
		disk.bad.Store(true)
		go func() {
			time.Sleep(20 * time.Second)
			disk.bad.Store(false)
		}()
		put(t, s, 1, 2, time.Second, 10)
		if err := s.Flush(t.Context()); err != nil || f.observations() != 20 {
			t.Errorf("%d observations, %v, want 20", f.observations(), err)
		}
		closeStore(t, s)
	})
}

// TestDiskFull: a disk full of waiting rows is like a full outbox. A replay waits for the server
// for as long as it takes, live rows make room.
func TestDiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &badDisk{full: true}
		f := newFakeServer()
		s := storeBefore(t, f, &Outbox{Dir: t.TempDir(), FS: disk})
		f.setErr(errAway)
		put(t, s, 1, 1, 10*time.Millisecond, 10)
		disk.bad.Store(true)
		go func() {
			time.Sleep(time.Hour)
			f.setErr(nil)
		}()
		put(t, s, 1, 2, time.Second, 10) // in the room of the first batch
		if err := s.Flush(t.Context()); err != nil || f.observations() != 20 || len(f.gaps) != 0 {
			t.Errorf("%d observations and %d gaps, %v, want 20 and none", f.observations(), len(f.gaps), err)
		}

		closeStore(t, s)
		s = storeBefore(t, f, &Outbox{Dir: t.TempDir(), FS: disk})
		s.deliveries[0].live.Store(true)
		f.setErr(errAway)
		put(t, s, 1, 3, 10*time.Millisecond, 10)
		disk.bad.Store(true)
		put(t, s, 1, 4, time.Second, 10)
		if err := s.Ready(t.Context()); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("ready without room: %v", err)
		}
		f.setErr(nil)
		for range 2 {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if f.observations() != 30 || len(f.gaps) != 1 {
			t.Errorf("%d observations and gaps %v, want 30 and one", f.observations(), f.gaps)
		}
		for g := range f.gaps {
			if g.Reason != string(lostFull) || g.Rows != 10 || g.Resolution != int64(10*time.Millisecond) {
				t.Errorf("gap %+v, want the fine rows", g)
			}
		}
		put(t, s, 1, 5, time.Second, 10)
		if err := errors.Join(s.Flush(t.Context()), s.Ready(t.Context())); err != nil {
			t.Errorf("with room again: %v", err)
		}
		closeStore(t, s)
	})
}

// TestDiskFails: a replay fails with an error that says how to fix it; live rows are given up,
// and leave gaps as soon as there is room for those.
func TestDiskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &badDisk{}
		f := newFakeServer()
		s := storeBefore(t, f, &Outbox{Dir: t.TempDir(), FS: disk})
		disk.bad.Store(true)
		if err := s.WriteBlock(t.Context(), blockAt(testStart, 5)); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(t.Context()); !errors.Is(err, ErrOutbox) || !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrUnreachable) {
			t.Errorf("flush: %v, want ErrOutbox", err)
		}
		if err := s.Close(); !errors.Is(err, ErrOutbox) {
			t.Errorf("close: %v, want ErrOutbox", err)
		}

		disk.bad.Store(false)
		s = storeBefore(t, f, &Outbox{Dir: t.TempDir(), FS: disk})
		s.deliveries[0].live.Store(true)
		disk.bad.Store(true)
		put(t, s, 3, 1, time.Second, 10)
		disk.bad.Store(false)
		put(t, s, 3, 2, time.Second, 10)
		for range 2 {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if lost := s.lostOf(aggregate.Source{Producer: 3}); f.observations() != 10 || len(f.gaps) != 1 || lost != 10 {
			t.Errorf("%d observations, gaps %v, %d lost, want 10, one, 10", f.observations(), f.gaps, lost)
		}
		for g := range f.gaps {
			if g.Reason != string(lostDisk) || g.Rows != 10 || g.Producer != 3 || g.LogClass != "partials_1s" {
				t.Errorf("gap %+v", g)
			}
		}
		closeStore(t, s)
	})
}

// TestResendable: rows that their sender sends again leave no gap when the disk fails, and Sync
// reports them. Rows of own taps beside them are lost.
func TestResendable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &badDisk{}
		f := newFakeServer()
		s := storeBefore(t, f, &Outbox{Dir: t.TempDir(), FS: disk})
		s.deliveries[0].live.Store(true)
		senders := Resendable{s}
		block := func(producer uint64) *aggregate.Block {
			return blockOf([]row{{
				resolution: int64(time.Second), window: testStart.UnixNano(), source: aggregate.Source{Producer: producer},
				seq: 1, kind: 1, observations: 1,
			}})
		}
		disk.bad.Store(true)
		for range 3 { // each is sent again
			if err := senders.WriteBlock(t.Context(), block(1)); err != nil {
				t.Fatal(err)
			}
			if err := senders.Sync(t.Context()); !errors.Is(err, ErrOutbox) {
				t.Errorf("sync while the disk fails: %v, want ErrOutbox", err)
			}
		}
		if err := errors.Join(s.WriteBlock(t.Context(), block(2)), senders.WriteBlock(t.Context(), block(1)), s.Sync(t.Context())); err != nil {
			t.Fatal(err)
		}
		disk.bad.Store(false)
		if err := errors.Join(senders.WriteBlock(t.Context(), block(1)), senders.Sync(t.Context())); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if lost := s.WriterStats().Lost; f.observations() != 1 || len(f.gaps) != 1 || lost != 1 || s.Unlogged() != 5 {
			t.Errorf("%d observations, gaps %v, %d rows lost, %d times, want 1, one, 1, 5", f.observations(), f.gaps, lost, s.Unlogged())
		}
		for g := range f.gaps {
			if g.Reason != string(lostDisk) || g.Producer != 2 {
				t.Errorf("gap %+v, want the rows of the own tap", g)
			}
		}
		closeStore(t, s)
	})
}

// TestDamagedOutbox: damage on disk between two commands leaves a gap.
func TestDamagedOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), &Outbox{Dir: t.TempDir()}
		s := storeBefore(t, f, o)
		f.setErr(errAway)
		put(t, s, 1, 1, time.Second, 10)
		put(t, s, 2, 2, time.Second, 10)
		closeStore(t, s)
		names, err := filepath.Glob(filepath.Join(o.Dir, "1", "*.seg"))
		if err != nil || len(names) != 1 {
			t.Fatalf("segments %s, %v, want one", names, err)
		}
		data, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2-1] ^= 1 // the last byte of the first record
		if err := os.WriteFile(names[0], data, 0o600); err != nil {
			t.Fatal(err)
		}
		f.setErr(nil)
		s = storeBefore(t, f, o)
		for range 2 {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if f.observations() != 10 || len(f.gaps) != 1 {
			t.Errorf("%d observations and gaps %v, want 10 and one", f.observations(), f.gaps)
		}
		for g := range f.gaps {
			if g.Reason != string(outbox.Damaged) || g.Producer != 1 || g.Observations != 10 {
				t.Errorf("gap %+v", g)
			}
		}
		closeStore(t, s)
	})
}

// othersDisk is a file system on which some folders belong to another user.
type othersDisk struct {
	outbox.OS
	others []string
}

func (d *othersDisk) Own(dir string) (io.Closer, error) {
	if slices.Contains(d.others, filepath.Base(dir)) {
		return nil, &os.PathError{Op: "open", Path: dir, Err: syscall.EACCES}
	}
	return d.OS.Own(dir)
}

// TestOutboxOfOthers: an outbox of another user is skipped with a warning, if there is another one.
func TestOutboxOfOthers(t *testing.T) {
	var all []string
	for i := range maxOutboxes {
		all = append(all, strconv.Itoa(i+1))
	}
	for _, c := range []struct {
		name         string
		there        []string
		others       []string
		opened       []string
		warned, fail bool
	}{
		{name: "own", there: all[:2], opened: all[:2]},
		{name: "second is another's", there: all[:3], others: all[1:2], opened: []string{"1", "3"}, warned: true},
		{name: "first is another's", there: all[:1], others: all[:1], opened: all[1:2], warned: true},
		{name: "nothing may be created", others: all, fail: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			o := Outbox{Dir: t.TempDir(), FS: &othersDisk{others: c.others}}
			for _, name := range c.there {
				if err := os.Mkdir(filepath.Join(o.Dir, name), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			logs, err := o.claim(slog.New(slog.NewTextHandler(&log, nil)))
			if c.fail != (errors.Is(err, ErrOutbox) && errors.Is(err, fs.ErrPermission)) {
				t.Errorf("%v, want a refusal: %v", err, c.fail)
			}
			var opened []string
			for _, l := range logs {
				opened = append(opened, filepath.Base(l.Dir()))
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			if warned := strings.Contains(log.String(), "an outbox of another user is skipped"); !slices.Equal(opened, c.opened) || warned != c.warned {
				t.Errorf("opened %v, want %v; log:\n%s", opened, c.opened, log.String())
			}
		})
	}
}

// TestReadyByOutbox: a store is not ready while its outbox does not take rows, whatever the cause is and whether or not it
// takes other records. It is ready once the outbox takes rows again, or when none came for a while: if exporters wait until
// the store is ready, no row shows that.
func TestReadyByOutbox(t *testing.T) {
	for name, broken := range map[string]bool{"full": false, "broken": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &badDisk{broken: broken}
				s := storeBefore(t, newFakeServer(), &Outbox{Dir: t.TempDir(), FS: disk})
				s.deliveries[0].live.Store(true)
				for i, again := range []func(){
					func() { put(t, s, 1, 9, time.Second, 10) },
					func() { time.Sleep(stalledAfter) },
				} {
					if err := s.Ready(t.Context()); err != nil {
						t.Fatal(err)
					}
					disk.bad.Store(true)
					put(t, s, 1, uint64(i), time.Second, 10) // is given up
					disk.bad.Store(false)
					if err := s.WriteTaps(t.Context(), []TapRow{{Source: aggregate.Source{Producer: 1}, Name: "eth0", Seq: 1}}); err != nil {
						t.Fatal(err)
					}
					if err := s.Ready(t.Context()); !errors.Is(err, disk.failure()) {
						t.Errorf("ready while the outbox takes no rows: %v, want %v", err, disk.failure())
					}
					again()
				}
				if err := s.Ready(t.Context()); err != nil {
					t.Error(err)
				}
				closeStore(t, s)
			})
		})
	}
}
