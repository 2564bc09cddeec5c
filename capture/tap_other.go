//go:build !linux

package capture

import "errors"

var errTapNeedsLinux = errors.New("capture live frames: needs Linux: read capture files instead")

// Ring delivers a tap's frames to one core on Linux; here there are none.
type Ring struct{}

type groups struct{}

func openRing(*Tap) (*Ring, error) { return nil, errTapNeedsLinux }

func (r *Ring) extend() error { return errTapNeedsLinux }

// ReadBatch fails.
func (r *Ring) ReadBatch(*Batch) error { return errTapNeedsLinux }

// LowWatermark returns 0.
func (r *Ring) LowWatermark() int64 { return 0 }

// Ahead returns 0.
func (r *Ring) Ahead() int64 { return 0 }

// Interfaces returns nil.
func (r *Ring) Interfaces() []Interface { return nil }

// State returns LinkGone.
func (r *Ring) State() LinkState { return LinkGone }

// Timestamps returns TimestampAuto.
func (r *Ring) Timestamps() TimestampSource { return TimestampAuto }

// Counters returns zeros.
func (r *Ring) Counters() TapCounters { return TapCounters{} }

// Close does nothing.
func (r *Ring) Close() error { return nil }

// InterfacePackets fails.
func InterfacePackets() (map[string]uint64, error) { return nil, errTapNeedsLinux }
