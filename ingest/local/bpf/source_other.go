//go:build !linux

package bpf

import (
	"errors"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
)

var errNeedsLinux = errors.New("count in the kernel: needs Linux")

// Source counts the packets of an interface in the kernel, which only Linux can do: elsewhere, New fails.
type Source struct{}

// New fails.
func New(Config) (*Source, error) { return nil, errNeedsLinux }

// Try fails.
func (s *Source) Try(*window.Settings, window.Tap, bool) error { return errNeedsLinux }

// Open fails.
func (s *Source) Open(*window.Settings, window.Tap) error { return errNeedsLinux }

// ReadBatch fails.
func (s *Source) ReadBatch(*capture.Batch) error { return errNeedsLinux }

// LowWatermark is 0.
func (s *Source) LowWatermark() int64 { return 0 }

// Ahead is 0.
func (s *Source) Ahead() int64 { return 0 }

// State is LinkGone.
func (s *Source) State() capture.LinkState { return capture.LinkGone }

// Counters are zero.
func (s *Source) Counters() capture.TapCounters { return capture.TapCounters{} }

// Close does nothing.
func (s *Source) Close() error { return nil }

// Host reports that only Linux can count in the kernel.
func Host(*window.Settings, []string) []Requirement {
	return []Requirement{{"kernel", false, errNeedsLinux.Error()}}
}
