//go:build unix && !linux

package chdb

import "golang.org/x/sys/unix"

func replace(from, to int) error { return unix.Dup2(from, to) }

// closeOnExec does nothing where a process cannot list all of its descriptors.
func closeOnExec(uint) {}
