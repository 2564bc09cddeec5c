package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
)

// ErrNoSandbox is the error of a machine that cannot restrict a process in this way.
var ErrNoSandbox = errors.New("no Landlock here")

// Folders are what a process may open once it is restricted, and the processes that it
// starts from then on. Those that do not exist are left out.
type Folders struct {
	Read  []string // folders and files: to read, and to run what is in them
	Write []string // folders: to read and to change
}

// systemFolders are what any program reads: libraries, time zones, names of hosts,
// authorities for TLS, what the machine has.
var systemFolders = []string{"/usr", "/lib", "/lib64", "/etc", "/proc", "/sys", "/run/systemd/resolve", "/dev/urandom"}

// Restrict gives up for good what is not in the folders (Landlock), for this process and
// all that it starts. It must come before the first file that only the folders may
// reach, and after the last other one. It keeps what is open already, and sockets.
//
// What the machine cannot do is told and no error: the folders are a second line of
// defence. Where Landlock exists, a failure is an error.
func Restrict(f Folders, logger *slog.Logger) error {
	f = Folders{Read: absolute(f.Read), Write: absolute(f.Write)}
	system := systemFolders
	if exe, err := os.Executable(); err == nil { // it starts itself as the engine
		system = slices.Concat([]string{exe}, system)
	}
	err := restrict(Folders{Read: slices.Concat(system, f.Read), Write: f.Write})
	if errors.Is(err, ErrNoSandbox) {
		logger.Warn("not restricted to its folders", slog.String("error", err.Error()))
		return nil
	}
	if err == nil {
		logger.Info("restricted to its folders", slog.Any("write", f.Write), slog.Any("read", f.Read))
	}
	return err
}

// absolute names the paths that are not empty, whatever the working folder will be.
func absolute(paths []string) []string {
	var list []string
	for _, path := range paths {
		if abs, err := filepath.Abs(path); err == nil && path != "" {
			list = append(list, abs)
		}
	}
	return list
}

// Holding are the folders that hold files, and those that links to files lead to: a file
// that is replaced is another one, in the same folder. Empty names are passed over.
func Holding(files ...string) (folders []string) {
	for _, file := range files {
		if file == "" {
			continue
		}
		folders = append(folders, filepath.Dir(file))
		if real, err := filepath.EvalSymlinks(file); err == nil && filepath.Dir(real) != filepath.Dir(file) {
			folders = append(folders, filepath.Dir(real))
		}
	}
	return folders
}

// Make makes the folders to write that are not there, for their owner alone: a rule can only
// be of what is.
func (f *Folders) Make() error {
	for _, dir := range f.Write {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	return nil
}
