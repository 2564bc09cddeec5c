package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
)

// errNoSandbox is returned on a machine that cannot restrict a process in this way.
var errNoSandbox = errors.New("this machine has no Landlock")

// Folders lists the files that a restricted process and its later children may open. Missing
// ones are ignored.
type Folders struct {
	Read  []string // folders and files: to read, and to execute files in them
	Write []string // folders: to read and to change
}

// systemFolders are paths that any program reads: libraries, time zones, host names, TLS
// authorities, hardware information.
var systemFolders = []string{"/usr", "/lib", "/lib64", "/etc", "/proc", "/sys", "/run/systemd/resolve", "/dev/urandom"}

// systemFiles are files in /etc that may be links: resolvconf and NetworkManager keep the addresses
// of name servers in folders of their own in /run.
var systemFiles = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"}

// systemLinks returns the folders that hold the targets of those systemFiles that are links. For a target in /run
// itself, which also has the files of others, it returns only the target.
func systemLinks() (paths []string) {
	for _, file := range systemFiles {
		real, err := filepath.EvalSymlinks(file)
		switch {
		case err != nil || filepath.Dir(real) == "/etc":
		case filepath.Dir(real) == "/run":
			paths = append(paths, real)
		default:
			paths = append(paths, filepath.Dir(real))
		}
	}
	return paths
}

// Restrict permanently limits file access to the folders (Landlock), for this process and its
// children. Call it before opening the first file that must be restricted, and after opening
// the last file outside of the folders. Open files and sockets stay usable.
//
// A machine without Landlock causes a log line and no error: the restriction is a second line
// of defense. If Landlock exists, a failure is an error.
func Restrict(f Folders, logger *slog.Logger) error {
	f = Folders{Read: absolute(f.Read), Write: absolute(f.Write)}
	system := slices.Concat(systemFolders, systemLinks())
	if exe, err := os.Executable(); err == nil { // it starts itself as the engine
		system = append(system, exe)
	}
	err := restrict(Folders{Read: slices.Concat(system, f.Read), Write: f.Write})
	if errors.Is(err, errNoSandbox) {
		logger.Warn("this process may open files outside of its folders", slog.String("error", err.Error()))
		return nil
	}
	if err == nil {
		logger.Info("this process may open only files in its folders", slog.Any("write", f.Write), slog.Any("read", f.Read))
	}
	return err
}

// absolute returns the non-empty paths as absolute paths, independent of later changes of the
// working folder.
func absolute(paths []string) []string {
	var list []string
	for _, path := range paths {
		if abs, err := filepath.Abs(path); err == nil && path != "" {
			list = append(list, abs)
		}
	}
	return list
}

// Holding returns the folders of files, and those of the targets of links: a replaced file is a
// new file in the same folder. It ignores empty names.
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

// Make creates missing folders in Write, accessible to their owner only: a rule needs an
// existing folder.
func (f *Folders) Make() error {
	for _, dir := range f.Write {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	return nil
}
