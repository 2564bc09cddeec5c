package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
)

const (
	// namesEvery is how often names that appeared are written.
	namesEvery = 2 * time.Second
	firstNames = 100 * time.Millisecond
	// lastNames is how long the last names may take when the process ends.
	lastNames = 5 * time.Second
)

// namer writes what the numbers in rows stand for, beside the rows: a server that is away
// keeps no row waiting for a name.
type namer struct {
	store  *store.Store
	logger *slog.Logger
	rings  func() []ringSource

	mu       sync.Mutex
	networks []*network // those under which rows may come, the latest last

	texts     map[uint64]bool // epochs that are written
	runs      map[aggregate.Source]bool
	groups    map[uint64]int // how many are written, by epoch
	locations map[uint64]int
}

// ringSource is a ring and the identity of its rows.
type ringSource struct {
	name   string
	source aggregate.Source
}

func newNamer(db *store.Store, logger *slog.Logger, rings func() []ringSource) *namer {
	return &namer{
		store: db, logger: logger, rings: rings, texts: make(map[uint64]bool), runs: make(map[aggregate.Source]bool),
		groups: make(map[uint64]int), locations: make(map[uint64]int),
	}
}

// use names what rows under a network mean, from now on. Rows under the one before may
// still come.
func (n *namer) use(net *network) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.networks) > 0 && n.networks[len(n.networks)-1] == net {
		return
	}
	if n.networks = append(n.networks, net); len(n.networks) > 2 {
		n.networks = n.networks[1:]
	}
}

// run writes names until ctx ends, and the last ones then.
func (n *namer) run(ctx context.Context) error {
	ticker := time.NewTicker(namesEvery)
	defer ticker.Stop()
	for len(n.rings()) == 0 && sleepFor(ctx, firstNames) { // runs come first, and are known then
		continue
	}
	for {
		if err := n.write(ctx); err != nil && ctx.Err() == nil {
			n.logger.Warn("names are not written yet", slog.String("error", err.Error()))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastNames)
			defer cancel()
			if err := n.write(last); err != nil {
				n.logger.Warn("names are not written", slog.String("error", err.Error()))
			}
			return nil
		}
	}
}

// sleepFor is false when ctx ended.
func sleepFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// write writes what has not been written.
func (n *namer) write(ctx context.Context) error {
	n.mu.Lock()
	networks := n.networks
	n.mu.Unlock()
	var failed []error
	for _, r := range n.rings() {
		if !n.runs[r.source] {
			err := n.store.BeginRun(ctx, store.Run{Source: r.source, Mode: store.RunLive, Name: r.name})
			n.runs[r.source] = err == nil
			failed = append(failed, err)
		}
	}
	for _, net := range networks {
		failed = append(failed, n.writeNetwork(ctx, net))
	}
	return errors.Join(failed...)
}

func (n *namer) writeNetwork(ctx context.Context, net *network) error {
	if !n.texts[net.epoch] {
		if err := n.store.WriteEpoch(ctx, net.epoch, net.text); err != nil {
			return err
		}
		n.texts[net.epoch] = true
	}
	if groups := net.fabric.Groups(); len(groups) != n.groups[net.epoch] {
		if err := n.store.WriteGroups(ctx, groups); err != nil {
			return err
		}
		n.groups[net.epoch] = len(groups)
	}
	if locations := net.fabric.Locations(); len(locations) != n.locations[net.epoch] {
		if err := n.store.WriteLocations(ctx, locations); err != nil {
			return err
		}
		n.locations[net.epoch] = len(locations)
	}
	return nil
}
