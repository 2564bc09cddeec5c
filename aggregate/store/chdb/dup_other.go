//go:build unix && !linux

package chdb

import "golang.org/x/sys/unix"

func replace(from, to int) error { return unix.Dup2(from, to) }
