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

// OS is the operating system's file system.
type OS struct{}

// Open implements FS.
func (OS) Open(name string, flag int) (File, error) { return os.OpenFile(name, flag, 0o600) }

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
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
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
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(above)
}
