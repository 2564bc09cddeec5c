//go:build !linux

package capture

// MirrorSocket receives the packets of mirror sessions on Linux. Here its methods fail or return
// zero values.
type MirrorSocket struct{ cfg MirrorSocketConfig }

// Open fails.
func (s *MirrorSocket) Open() error { return errTapNeedsLinux }

// ReadBatch fails.
func (s *MirrorSocket) ReadBatch(*Batch) error { return errTapNeedsLinux }

// LowWatermark returns 0.
func (s *MirrorSocket) LowWatermark() int64 { return 0 }

// Ahead returns 0.
func (s *MirrorSocket) Ahead() int64 { return 0 }

// Counters returns zeros.
func (s *MirrorSocket) Counters() MirrorSocketCounters { return MirrorSocketCounters{} }

// Close does nothing.
func (s *MirrorSocket) Close() error { return nil }
