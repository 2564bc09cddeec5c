package chdb

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxSocketPath is below the 104 (macOS) and 108 (Linux) bytes that a Unix socket's address can
// hold.
const maxSocketPath = 100

// errLocked reports that another child serves the folder.
var errLocked = errors.New("another process serves this folder: other commands attach to it, a second engine cannot")

// folder is the data folder of one engine: the engine's own files in data, the lock, the log,
// unfinished backups, and the socket or a file with the socket's path.
type folder struct{ path string }

// openFolder creates the folder if needed, for its owner alone.
func openFolder(dir string) (folder, error) {
	if dir == "" {
		return folder{}, errors.New("open engine folder: no folder named")
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return folder{}, fmt.Errorf("open engine folder %s: %w", dir, err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return folder{}, fmt.Errorf("open engine folder: %w", err)
	}
	err = os.Chmod(path, 0o700)
	if errors.Is(err, fs.ErrPermission) {
		return folder{}, fmt.Errorf("close engine folder to others: %w: it is another user's: run as that user, or name a store of your own", err)
	}
	if err != nil {
		return folder{}, fmt.Errorf("close engine folder to others: %w", err)
	}
	return folder{path}, nil
}

// Folders returns the folders that an engine over dir writes, and those that it reads: the library's, and
// if the library is a link, also its target's. Callers that restrict their process need them, since the
// engine runs in a child, which is restricted too. dir is created if needed. A missing library is ErrNoEngine.
func Folders(dir, library string) (write, read []string, err error) {
	f, err := openFolder(dir)
	if err != nil {
		return nil, nil, err
	}
	if library, err = FindLibrary(library); err != nil {
		return nil, nil, err
	}
	write = []string{f.path}
	if len(f.socketFile()) > maxSocketPath {
		private := farFolder()
		if err := makePrivate(private); err != nil {
			return nil, nil, fmt.Errorf("place engine socket: %w", err)
		}
		write = append(write, private)
	}
	read = []string{filepath.Dir(library)}
	if target, err := filepath.EvalSymlinks(library); err == nil && filepath.Dir(target) != read[0] {
		read = append(read, filepath.Dir(target))
	}
	return write, read, nil
}

// warnRoot warns if root starts the engine in another user's folder: the files that the engine makes
// there belong to root, even if no command stores and it only merges.
func (f folder) warnRoot(logger *slog.Logger) {
	var owner unix.Stat_t
	if err := unix.Stat(f.path, &owner); err != nil || os.Geteuid() != 0 || owner.Uid == 0 {
		return
	}
	logger.Warn("root runs the engine in a folder of another user, who cannot delete its files: when this command has ended, give them to that user",
		slog.String("command", "chown -R --reference="+f.path+" "+f.path))
}

// farFolder holds the sockets of folders whose own path is too long.
func farFolder() string {
	return filepath.Join(os.TempDir(), "csigscope-"+strconv.Itoa(os.Getuid()))
}

func (f folder) data() string       { return filepath.Join(f.path, "data") }
func (f folder) backups() string    { return filepath.Join(f.path, "backups") }
func (f folder) logFile() string    { return filepath.Join(f.path, "engine.log") }
func (f folder) socketFile() string { return filepath.Join(f.path, "engine.sock") }

// farSocketFile is the file with the socket's path, if the folder's own path is too long for a
// socket.
func (f folder) farSocketFile() string { return filepath.Join(f.path, "engine.sock.path") }

// lock keeps every other child away until the file is closed.
func (f folder) lock() (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(f.path, "engine.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock engine folder: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return file, nil
	}
	file.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock engine folder %s: %w", f.path, errLocked)
	}
	return nil, fmt.Errorf("lock engine folder %s: %w", f.path, err)
}

// socket is the path where a running engine listens; an engine need not run.
func (f folder) socket() string {
	if recorded, err := os.ReadFile(f.farSocketFile()); err == nil {
		return strings.TrimSpace(string(recorded))
	}
	return f.socketFile()
}

// placeSocket chooses the socket's path and removes remains of a crash there. The folder must be
// locked. A path that is too long moves to a private folder below the system's temporary folder
// and is recorded.
func (f folder) placeSocket() (string, error) {
	path := f.socketFile()
	if err := os.Remove(f.farSocketFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("place engine socket: %w", err)
	}
	if len(path) > maxSocketPath {
		private := farFolder()
		if err := makePrivate(private); err != nil {
			return "", fmt.Errorf("place engine socket: %w", err)
		}
		sum := sha256.Sum256([]byte(f.path))
		path = filepath.Join(private, hex.EncodeToString(sum[:8])+".sock")
		if len(path) > maxSocketPath {
			return "", fmt.Errorf("place engine socket %s: longer than %d bytes: set TMPDIR to a shorter folder", path, maxSocketPath)
		}
		if err := os.WriteFile(f.farSocketFile(), []byte(path+"\n"), 0o600); err != nil {
			return "", fmt.Errorf("record engine socket: %w", err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("remove old engine socket: %w", err)
	}
	return path, nil
}

// makePrivate creates a folder that no other user can have prepared.
func makePrivate(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm() != 0o700 || !ok || int(owner.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a folder of this user alone (mode 0700): remove it", path)
	}
	return nil
}
