package replay

import (
	"context"
	"fmt"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
)

// TapCounts is what one capture interface gave in one chunk of a file, and what became
// of it. The chunks of an interface add up.
type TapCounts struct {
	aggregate.Source
	Seq       uint64 // of the chunk and interface; the same whenever the file is replayed
	Name      string // of the tap
	Tap       window.Tap
	Interface capture.Interface
	Tally     window.Tally
	Counts    aggregate.Counts
	Findings  []finding.Finding // their packets numbered in the file
}

// tapCounts is what the lane came to.
func (l *lane) tapCounts() TapCounts {
	from := l.Origin()
	return TapCounts{
		Source: from.Source, Seq: from.SeqBase, Name: l.name, Tap: l.Tap(), Interface: l.of,
		Tally: *l.Tally(), Counts: l.Counts(), Findings: l.Findings(),
	}
}

// writeTaps hands over what the taps of a chunk came to.
func writeTaps(ctx context.Context, cfg *Config, src *source, list []TapCounts) error {
	if cfg.Taps == nil || len(list) == 0 {
		return nil
	}
	if err := cfg.Taps(ctx, list); err != nil {
		return fmt.Errorf("replay %q: %w", src.path, err)
	}
	return nil
}

// interfaceAt describes an interface; packets may name one that their file does not
// describe, which is Ethernet.
func interfaceAt(interfaces []capture.Interface, index uint32) capture.Interface {
	if int(index) >= len(interfaces) {
		return capture.Interface{Link: capture.LinkEthernet}
	}
	return interfaces[index]
}
