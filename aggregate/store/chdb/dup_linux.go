package chdb

import "golang.org/x/sys/unix"

func replace(from, to int) error { return unix.Dup3(from, to, 0) }

// closeOnExec keeps the descriptors from fd on that this process was started with, such as
// a shell's lock or systemd's sockets, from the programs that it starts. Those that Go has
// opened are kept already; a kernel before 5.11 knows no way without /proc, and passes them on.
func closeOnExec(fd uint) { _ = unix.CloseRange(fd, 1<<32-1, unix.CLOSE_RANGE_CLOEXEC) }
