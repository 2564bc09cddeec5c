package outbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOS works on real files.
func TestOS(t *testing.T) {
	h := newHistory(t)
	dir := filepath.Join(t.TempDir(), "a", "b")
	open := func() (*Log, error) {
		o := h.options(OS{})
		o.Dir = dir
		return Open(o)
	}
	for life := range 3 {
		l, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := open(); !errors.Is(err, ErrOwned) {
			t.Errorf("second owner: %v, want ErrOwned", err)
		}
		h.work(l)
		if life == 2 {
			h.send(l, 1000)
			h.check()
			for _, s := range l.Acked() {
				if err := l.Release(s); err != nil {
					t.Error(err)
				}
			}
			if got := l.Stats(); got.Bytes != 0 || got.Waiting != (Waiting{}) {
				t.Errorf("%+v after all was sent and released", got)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(Record{Weight: 1}); !errors.Is(err, ErrClosed) {
			t.Errorf("append after closing: %v, want ErrClosed", err)
		}
	}
}

// TestOSOwner: the outbox that root makes in the folder of another user belongs to that user.
func TestOSOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const user, group = 65534, 65533
	h, above := newHistory(t), t.TempDir()
	if err := os.Chown(above, user, group); err != nil {
		t.Skipf("root may not give a folder to another user: %v", err)
	}
	o := h.options(OS{})
	o.Dir = filepath.Join(above, "outbox", "2")
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	h.work(l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	files := 0
	if err := filepath.WalkDir(above, func(path string, _ fs.DirEntry, err error) error {
		var is unix.Stat_t
		if err := errors.Join(err, unix.Lstat(path, &is)); err != nil {
			return err
		}
		if is.Uid != user || is.Gid != group {
			t.Errorf("%s belongs to %d:%d, want %d:%d", path, is.Uid, is.Gid, user, group)
		}
		files++
		return nil
	}); err != nil {
		t.Error(err)
	}
	if files < 5 {
		t.Errorf("%d files and folders, expected a lock and a position at least", files)
	}
}

// TestOSLink: root does not give a file behind a link to the owner of the link's folder.
func TestOSLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir, mine := t.TempDir(), filepath.Join(t.TempDir(), "mine")
	if err := errors.Join(os.WriteFile(mine, nil, 0o600), os.Symlink(mine, filepath.Join(dir, "lock")), os.Chown(dir, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if lock, err := (OS{}).Own(dir); err == nil {
		lock.Close()
	}
	var is unix.Stat_t
	if err := unix.Lstat(mine, &is); err != nil || is.Uid != 0 {
		t.Errorf("the file behind the link belongs to %d, %v", is.Uid, err)
	}
}
