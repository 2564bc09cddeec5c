package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
)

// Keeper is a place on disk for what the directory has not been told yet.
type Keeper interface {
	// Load gives what was saved last, nil for nothing.
	Load() ([]byte, error)
	// Save replaces what is there, empty for nothing. It is durable when Save returns nil.
	Save([]byte) error
}

const (
	// directoryPatience is how long exporters wait for a directory that does not answer.
	directoryPatience = 5 * time.Second
	// Bounds of what waits for the directory; beyond them exporters wait.
	maxWaitingNames = 1 << 17
	maxWaitingRuns  = 1 << 14
	maxWaitingText  = 64 << 20 // bytes
)

var errBacklog = errors.New("too many names and runs wait for the store")

// backlog tells the directory of names and runs. While the directory is away they wait on
// disk, so that rows need no answer of it: names are then those of whoever described them
// first, until the directory decides. Safe for concurrent use.
type backlog struct {
	names    *registry
	keeper   Keeper // nil: exporters wait for the directory
	logger   *slog.Logger
	patience time.Duration
	disputed func(exporter string, refused []refusal) // names that the directory has otherwise
	wake     chan struct{}

	mu sync.Mutex
	waiting
	unsaved bool // the disk has not all of it

	failing quiet // of run alone
}

// waiting is what the directory has not been told.
type waiting struct {
	Epochs []waitingEpoch
	Names  []fabric.Name // each once
	Runs   []Run
}

type waitingEpoch struct {
	Epoch uint64
	Text  string
}

func (w *waiting) len() int { return len(w.Epochs) + len(w.Names) + len(w.Runs) }

// load goes on with what an earlier collector has left. What cannot be read is in the log,
// and in the way of nothing: exporters describe names again.
func (b *backlog) load() {
	if b.keeper == nil {
		return
	}
	text, err := b.keeper.Load()
	if err == nil && text != nil {
		err = json.Unmarshal(text, &b.waiting)
	}
	if err != nil {
		b.waiting = waiting{}
		b.logger.Error("names of exporters that an earlier collector left cannot be read", slog.String("error", err.Error()))
	}
	b.names.hold(announcement{names: b.Names})
	if b.len() > 0 {
		b.wake <- struct{}{}
	}
}

// announce returns nil when the directory has what is announced, or the disk does.
func (b *backlog) announce(ctx context.Context, list []announcement) error {
	if b.keeper == nil {
		return b.names.write(ctx, list)
	}
	b.mu.Lock()
	behind := b.len() > 0
	b.mu.Unlock()
	if !behind {
		short, cancel := context.WithTimeout(ctx, b.patience)
		defer cancel()
		if err := b.names.write(short, list); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return b.keep(list)
}

// keep has announcements wait on disk.
func (b *backlog) keep(list []announcement) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := 0
	for i := range b.Epochs {
		text += len(b.Epochs[i].Text)
	}
	if len(b.Names) > maxWaitingNames || len(b.Runs) > maxWaitingRuns || text > maxWaitingText {
		return errBacklog
	}
	before := b.len()
	for _, a := range list {
		if a.text != "" && !slices.ContainsFunc(b.Epochs, func(e waitingEpoch) bool { return e.Epoch == a.epoch }) {
			b.Epochs = append(b.Epochs, waitingEpoch{a.epoch, a.text})
		}
		b.Names = append(b.Names, b.names.hold(a)...)
		for _, r := range a.runs {
			if !slices.Contains(b.Runs, r) {
				b.Runs = append(b.Runs, r)
			}
		}
	}
	if b.len() == before && !b.unsaved {
		return nil
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return b.save()
}

// save puts what waits onto the disk. The caller holds mu.
func (b *backlog) save() error {
	var text []byte
	var err error
	if b.len() > 0 {
		if text, err = json.Marshal(&b.waiting); err != nil {
			return fmt.Errorf("encode names: %w", err)
		}
	}
	err = b.keeper.Save(text)
	b.unsaved = err != nil
	return err
}

// run tells the directory what waits, until the context ends.
func (b *backlog) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		}
		for pause := firstPause; ; pause = min(2*pause, longestPause) {
			err := b.drain(ctx)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				break
			}
			if line, say := b.failing.wrong(time.Now(), slog.String("error", err.Error())); say {
				b.logger.Warn("names and runs of exporters wait on disk for the store", line...)
			}
			if !sleep(ctx, pause) {
				return
			}
		}
		if b.failing.well() {
			b.logger.Warn("the store has the names and runs of exporters that waited")
		}
	}
}

// drain tells the directory what waits at this moment.
func (b *backlog) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	b.mu.Lock()
	w := b.waiting
	b.mu.Unlock()
	list := []announcement{{runs: w.Runs}}
	for _, e := range w.Epochs {
		list = append(list, announcement{epoch: e.Epoch, text: e.Text})
	}
	of := map[string]int{}
	for _, n := range b.names.foreign(w.Names) {
		at, known := of[n.Exporter]
		if !known {
			at = len(list)
			of[n.Exporter] = at
			list = append(list, announcement{refused: new([]refusal)})
		}
		list[at].names = append(list[at].names, n)
	}
	if err := b.names.write(ctx, list); err != nil {
		return err
	}
	for exporter, at := range of {
		b.disputed(exporter, *list[at].refused)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Epochs, b.Names, b.Runs = slices.Clone(b.Epochs[len(w.Epochs):]), slices.Clone(b.Names[len(w.Names):]), slices.Clone(b.Runs[len(w.Runs):])
	return b.save()
}
