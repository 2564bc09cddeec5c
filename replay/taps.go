package replay

import (
	"context"
	"fmt"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/feed"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/capture"
)

// TapCounts is what one capture interface gave in one chunk of a file, and what became
// of it. The chunks of an interface add up.
type TapCounts struct {
	aggregate.Source
	Seq       uint64 // of the chunk and interface; the same whenever the file is replayed
	Name      string // of the tap
	Tap       feed.Tap
	Interface capture.Interface
	Seen      feed.Seen
	Counts    aggregate.Counts
	Findings  []finding.Finding // without packets beyond the first chunk, where they are not numbered
}

// tapCounts is what the lane came to.
func (l *lane) tapCounts(src *source, counts *aggregate.Counts) TapCounts {
	return TapCounts{Source: src.id, Seq: l.seq, Name: l.name, Tap: l.tap, Interface: l.of, Seen: *l.Seen(), Counts: *counts, Findings: l.findings()}
}

// watch makes what looks at the observations of a shard's tap, if anything is to.
func (w *worker) watch(cfg *aggregate.Config, tap feed.Tap) (*finding.Watcher, error) {
	if w.cfg.Finding == nil {
		return nil, nil
	}
	watch, err := finding.NewWatcher(*w.cfg.Finding, w.numbered())
	if err != nil {
		return nil, fmt.Errorf("watch tap: %w", err)
	}
	cfg.Watch, cfg.WatchSent = watch, tap.Place == "sender"
	return watch, nil
}

// numbered is the file that packets of the chunk are numbered in.
func (w *worker) numbered() string {
	if w.chunk > 0 {
		return ""
	}
	return w.src.path
}

// findings are those of the lane.
func (l *lane) findings() []finding.Finding {
	if l.watch == nil {
		return nil
	}
	return l.watch.Findings()
}

// writeTaps hands over what the lanes of a chunk came to.
func (w *worker) writeTaps(ctx context.Context, list []TapCounts) error {
	if w.cfg.Taps == nil || len(list) == 0 {
		return nil
	}
	if err := w.cfg.Taps(ctx, list); err != nil {
		return w.failed(err)
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
