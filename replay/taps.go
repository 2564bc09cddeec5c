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
	Seen      window.Seen
	Counts    aggregate.Counts
	Findings  []finding.Finding // their packets numbered in the file
}

// tapCounts is what the lane came to.
func (l *lane) tapCounts(src *source, counts *aggregate.Counts) TapCounts {
	return TapCounts{Source: src.id, Seq: l.seq, Name: l.name, Tap: l.tap, Interface: l.of, Seen: *l.Seen(), Counts: *counts, Findings: l.findings()}
}

// watch makes what looks at the observations of a shard's tap, if anything is to.
func (w *worker) watch(cfg *window.Config, tap window.Tap) (*finding.Watcher, error) {
	if w.cfg.Finding == nil {
		return nil, nil
	}
	watch, err := finding.NewWatcher(*w.cfg.Finding, w.src.path)
	if err != nil {
		return nil, fmt.Errorf("watch tap: %w", err)
	}
	if w.src.inPieces() {
		watch.InPieces()
	}
	cfg.Watch, cfg.WatchSent = watch, tap.Place == "sender"
	return watch, nil
}

// findings are those of the lane.
func (l *lane) findings() []finding.Finding {
	if l.watch == nil {
		return nil
	}
	return l.watch.Findings()
}

// passage is what the lane's findings may come of.
func (l *lane) passage() *finding.Passage {
	if l.watch == nil {
		return nil
	}
	return l.watch.Passage()
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
