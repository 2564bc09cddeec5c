package chdb

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// The engine writes to its standard error in any amount. Its log keeps the recent part: past
// maxLog bytes it is cut to the last keptLog.
const (
	maxLog  = 4 << 20
	keptLog = 256 << 10
)

func openLog(f folder) (*os.File, error) {
	file, err := os.OpenFile(f.logFile(), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open engine log: %w", err)
	}
	return file, nil
}

// boundLog cuts a log that has grown too long. Writers append, so they continue at the new end;
// bytes written during the cut may be lost.
func boundLog(file *os.File) error {
	info, err := file.Stat()
	if err != nil || info.Size() <= maxLog {
		return err
	}
	kept, err := tail(file, info.Size(), keptLog)
	if err != nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.Write(kept)
	return err
}

func tail(file *os.File, size, n int64) ([]byte, error) {
	n = min(n, size)
	text := make([]byte, n)
	read, err := file.ReadAt(text, size-n)
	if read < len(text) && err != nil {
		return nil, err
	}
	return text, nil
}

// lastLines quotes the end of the log's bytes after the first from bytes.
func lastLines(f folder, from int64) string {
	file, err := os.Open(f.logFile())
	if err != nil {
		return ""
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() <= from {
		return ""
	}
	text, err := tail(file, info.Size(), min(info.Size()-from, 2048))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// redirectOutput sends the process's standard output and error to the log, and returns a function
// that undoes it.
func redirectOutput(file *os.File) (restore func(), err error) {
	var saved [2]int
	for i, fd := range []int{1, 2} {
		if saved[i], err = duplicate(fd); err == nil {
			err = replace(int(file.Fd()), fd)
		}
		if err != nil {
			return nil, fmt.Errorf("redirect engine output: %w", err)
		}
	}
	return func() {
		for i, fd := range []int{1, 2} {
			_ = replace(saved[i], fd)
			_ = closeDescriptor(saved[i])
		}
	}, nil
}

func duplicate(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3) }

func closeDescriptor(fd int) error { return unix.Close(fd) }
