package chdb

import "golang.org/x/sys/unix"

func replace(from, to int) error { return unix.Dup3(from, to, 0) }

// closeOnExec marks the descriptors from fd on that this process inherited, such as a shell's
// lock or systemd's sockets, as close-on-exec for the programs that it starts. Go marks its own
// descriptors already. A kernel before 5.11 has no such call without /proc, and passes them on.
func closeOnExec(fd uint) { _ = unix.CloseRange(fd, 1<<32-1, unix.CLOSE_RANGE_CLOEXEC) }
