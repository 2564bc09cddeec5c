//go:build !linux

package capture

import "errors"

var errTapNeedsLinux = errors.New("capture live frames: needs Linux: read capture files instead")

// Ring is what one core reads a tap's frames from; there are none but on Linux.
type Ring struct{}

type groups struct{}

func openRing(*Tap) (*Ring, error) { return nil, errTapNeedsLinux }

// ReadBatch fails.
func (r *Ring) ReadBatch(*Batch) error { return errTapNeedsLinux }

// QuietUntil is 0.
func (r *Ring) QuietUntil() int64 { return 0 }

// Ahead is 0.
func (r *Ring) Ahead() int64 { return 0 }

// Interfaces is empty.
func (r *Ring) Interfaces() []Interface { return nil }

// State is LinkGone.
func (r *Ring) State() LinkState { return LinkGone }

// Stamp is StampAuto.
func (r *Ring) Stamp() Stamp { return StampAuto }

// Counters are zero.
func (r *Ring) Counters() TapCounters { return TapCounters{} }

// Close does nothing.
func (r *Ring) Close() error { return nil }

// Passed is empty.
func Passed() (map[string]uint64, error) { return nil, errTapNeedsLinux }
