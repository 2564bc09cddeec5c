package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// DefaultKeys is the default of Config.Keys, and its maximum.
const DefaultKeys = 1 << 17

// Config configures a Source.
type Config struct {
	Interface string
	// Keys is the maximum number of keys between two readings of the counts, which are at most a second apart: a power of two
	// up to DefaultKeys, which is the default. Observations with further keys count as overflow, without endpoints and
	// location. Each key takes 144 bytes of the kernel's memory.
	Keys int
	// Odd makes the Source deliver odd packets, by a ring beside the program. Otherwise they are only counted.
	Odd bool
	// Blocks is capture.TapConfig.Blocks of that ring. It is ignored without Odd.
	Blocks      int
	SnapLen     uint32 // maximum length of an odd packet in the ring, bytes; 0: whole packets, up to 256 KiB
	Promiscuous bool
	Logger      *slog.Logger // nil: silent
}

func (c *Config) setDefaults() {
	c.Keys = cmp.Or(c.Keys, DefaultKeys)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
}

// snap returns the maximum length of an odd packet, for the filter.
func (c *Config) snap() uint32 {
	if c.SnapLen == 0 {
		return 1 << 18
	}
	return c.SnapLen
}

// tap configures the ring beside the program. Without odd packets, it only watches the interface's link and has the minimum
// size.
func (c *Config) tap() capture.TapConfig {
	t := capture.TapConfig{
		Interface: c.Interface, Extended: true, Blocks: c.Blocks, Promiscuous: c.Promiscuous, Timestamps: capture.TimestampSoftware, Logger: c.Logger,
	}
	if !c.Odd {
		t.Blocks, t.BlockSize = 2, 64<<10
	}
	return t
}

// ErrUnsupported is wrapped by errors about settings that the program cannot serve.
var ErrUnsupported = errors.New("counting in the kernel does not support it: use --capture ring, or auto")

// checkSignals returns an error that wraps ErrUnsupported for a table with more than maxSplits codes at which its buckets
// must be divided.
func checkSignals(s *window.Settings) error {
	_, err := signalsOf(s)
	if errors.Is(err, window.ErrSplits) {
		return fmt.Errorf("csig: tables: %w: %w", err, ErrUnsupported)
	}
	return err
}

// Check returns an error that wraps ErrUnsupported if the program cannot serve the settings at the place of a tap. The error
// names the key of the configuration. It needs no privileges: Source.Try asks the kernel too.
func Check(s *window.Settings, at window.Tap) error {
	unsupported := func(key string) error { return fmt.Errorf("%s: %w", key, ErrUnsupported) }
	switch {
	case s.Decode.Endpoints != decode.Outer:
		return unsupported("decode: endpoints: inner")
	case s.Decode.InnerTags:
		return unsupported("decode: inner_tags")
	case at.Mirrors != decode.Mirrors{}:
		return unsupported("mirrors: of a tap")
	case at.ObservationPoint != 0:
		return unsupported("taps: at: in the fabric file, for which each flow must be seen")
	}
	if finder, ok := s.Resolver.(aggregate.PathResolver); ok && finder.HasWays() {
		return unsupported("paths, ecmp, or at of a tap in the fabric file, which are about the paths of single flows")
	}
	if err := checkSignals(s); err != nil {
		return err
	}
	if e := newEnds(s.Resolver); !e.classed() && e.bits6 > 64 {
		return unsupported("hosts with IPv6 addresses in a fabric file without groups")
	}
	return nil
}
