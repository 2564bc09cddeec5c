package outbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrOwned is the error of a folder that another process, or another Log, has open.
var ErrOwned = errors.New("in use by another process")

// FS is the file system of the log. Names are paths.
type FS interface {
	// Open opens a file, with os.OpenFile's flags.
	Open(name string, flag int) (File, error)
	// List returns the files of a folder.
	List(dir string) ([]FileInfo, error)
	Rename(from, to string) error
	Remove(name string) error
	// SyncDir makes created, renamed and removed files of a folder durable.
	SyncDir(dir string) error
	// Own creates a folder if needed and locks it until it is closed; ErrOwned if it is locked
	// already.
	Own(dir string) (io.Closer, error)
}

// File is an open file.
type File interface {
	io.Writer
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
}

// FileInfo is a file of a folder.
type FileInfo struct {
	Name string // without the folder
	Size int64
}

// OS is the operating system's file system. Files and folders that root creates belong to the owner
// of their folder, so that the owner's commands can use them.
type OS struct{}

// Open implements FS.
func (OS) Open(name string, flag int) (File, error) { return openFile(name, flag) }

func openFile(name string, flag int) (*os.File, error) {
	if flag&os.O_CREATE != 0 {
		// Only a file that is certainly new changes its owner: another one may be a link.
		f, err := os.OpenFile(name, flag|os.O_EXCL, 0o600)
		if err == nil {
			giveToOwner(filepath.Dir(name), f.Chown)
		}
		if err == nil || flag&os.O_EXCL != 0 || !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
	return os.OpenFile(name, flag, 0o600)
}

// giveToOwner makes root's new file or folder belong to the owner of the folder that it is in. Where
// root may not do that, the file stays root's.
func giveToOwner(dir string, chown func(uid, gid int) error) {
	if os.Geteuid() != 0 {
		return
	}
	var owner unix.Stat_t
	if err := unix.Stat(dir, &owner); err == nil && owner.Uid != 0 {
		_ = chown(int(owner.Uid), int(owner.Gid))
	}
}

// List implements FS.
func (OS) List(dir string) ([]FileInfo, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, FileInfo{e.Name(), info.Size()})
	}
	return list, nil
}

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// SyncDir implements FS.
func (OS) SyncDir(dir string) error { return syncDir(dir) }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Own implements FS with a lock that ends with the process.
func (OS) Own(dir string) (io.Closer, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	f, err := openFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, ErrOwned
	}
	return nil, fmt.Errorf("lock: %w", err)
}

// makeDir creates a folder and its parents, durably even after a power cut.
func makeDir(dir string) error {
	_, err := os.Stat(dir)
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	above := filepath.Dir(dir)
	if above != dir {
		if err := makeDir(above); err != nil {
			return err
		}
	}
	err = os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err == nil {
		giveToOwner(above, func(uid, gid int) error { return os.Lchown(dir, uid, gid) })
	}
	return syncDir(above)
}
