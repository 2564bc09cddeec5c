//go:build unix && !linux

package chdb

// lowerMerges does nothing where threads have no priorities of their own.
func lowerMerges() error { return nil }
