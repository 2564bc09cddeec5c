package bpf

import (
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

// Config says what a Source counts.
type Config struct {
	Interface string
	// Keys is the number of keys that are counted between two readings, which are a second or a shorter window apart. It is a
	// power of two. Further keys count as overflow. A key takes 144 bytes of the kernel's memory. Default: DefaultKeys.
	Keys int
	// Odd has the ring take packets that the program does not read. Without it they are counted alone.
	Odd bool
	// Blocks is as in capture.TapConfig, for odd packets.
	Blocks      int
	SnapLen     uint32 // bytes of an odd packet that are kept
	Promiscuous bool
	Logger      *slog.Logger // nil: silent
}

func (c *Config) setDefaults() {
	if c.Keys == 0 {
		c.Keys = DefaultKeys
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// snap is what the filter returns for an odd packet.
func (c *Config) snap() uint32 {
	if c.SnapLen == 0 {
		return 1 << 18
	}
	return c.SnapLen
}

// tap is the ring beside the program, which watches the link, and is as small as it can be where it takes nothing in.
func (c *Config) tap() capture.TapConfig {
	t := capture.TapConfig{
		Interface: c.Interface, Extended: true, Blocks: c.Blocks, Promiscuous: c.Promiscuous, Stamp: capture.StampSoftware, Logger: c.Logger,
	}
	if !c.Odd {
		t.Blocks, t.BlockSize = 2, 64<<10
	}
	return t
}

// ErrUnsupported is wrapped by errors about what the program does not read.
var ErrUnsupported = errors.New("counting in the kernel does not support it: use --capture ring, or auto")

// checkSignals finds tables whose values the program cannot add up.
func checkSignals(s *window.Settings) error {
	_, err := signalsOf(s)
	if errors.Is(err, window.ErrSplits) {
		return fmt.Errorf("csig: tables: %w: %w", err, ErrUnsupported)
	}
	return err
}

// Check says what settings and a place need that the program does not read.
func Check(s *window.Settings, at window.Tap) error {
	unsupported := func(key string) error { return fmt.Errorf("%s: %w", key, ErrUnsupported) }
	switch {
	case s.Decode.Endpoints != decode.Outer:
		return unsupported("decode: endpoints: inner")
	case s.Decode.InnerTags:
		return unsupported("decode: inner_tags")
	case at.Mirrors != decode.Mirrors{}:
		return unsupported("mirrors of a tap")
	case at.Stand != 0:
		return unsupported("taps in the middle of the fabric, of which the fabric file says at")
	}
	if finder, ok := s.Resolver.(aggregate.Wayfinder); ok && finder.HasWays() {
		return unsupported("path tables, hashes and taps at places in the fabric file, which are about single flows")
	}
	if err := checkSignals(s); err != nil {
		return err
	}
	if e := newEnds(s.Resolver); !e.classed() && e.bits6 > 64 {
		return unsupported("IPv6 addresses of hosts in a fabric file without groups")
	}
	return nil
}
