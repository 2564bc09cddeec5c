//go:build !linux

package capture

// MirrorSocket receives the packets of mirror sessions; on Linux alone.
type MirrorSocket struct{ cfg MirrorSocketConfig }

// Open fails.
func (s *MirrorSocket) Open() error { return errTapNeedsLinux }

// ReadBatch fails.
func (s *MirrorSocket) ReadBatch(*Batch) error { return errTapNeedsLinux }

// QuietUntil is 0.
func (s *MirrorSocket) QuietUntil() int64 { return 0 }

// Ahead is 0: packets have the time of the system clock.
func (s *MirrorSocket) Ahead() int64 { return 0 }

// Counters are zero.
func (s *MirrorSocket) Counters() MirrorSocketCounters { return MirrorSocketCounters{} }

// Close does nothing.
func (s *MirrorSocket) Close() error { return nil }
