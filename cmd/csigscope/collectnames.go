package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/live"
	"github.com/csigscope/csigscope/aggregate/store"
)

const (
	// namesEvery is how often names that appeared are written.
	namesEvery = 2 * time.Second
	firstNames = 100 * time.Millisecond
	// recentNetworks are those that rows may still come under, of maxNetworks whose names
	// wait to be written.
	recentNetworks = 2
	maxNetworks    = 64
	// lastNames is how long the last names may take when the process ends.
	lastNames = 10 * time.Second
)

// namer writes what the numbers in rows stand for, beside the rows: a server that is away
// keeps no row waiting for a name.
type namer struct {
	store  *store.Store
	logger *slog.Logger

	mu       sync.Mutex
	met      map[aggregate.Source]string // of rows, until its run has ended; by name of the tap
	under    map[aggregate.Source]bool   // of rows that may come
	taps     map[uint64]string           // by producer
	networks []*network                  // the latest last

	texts     map[uint64]bool           // epochs that are written
	runs      map[aggregate.Source]bool // that have begun
	ending    bool                      // no more rows come
	groups    map[uint64]int            // how many are written, by epoch
	locations map[uint64]int
}

func newNamer(db *store.Store, logger *slog.Logger) *namer {
	return &namer{
		store: db, logger: logger, met: make(map[aggregate.Source]string), taps: make(map[uint64]string), texts: make(map[uint64]bool),
		runs: make(map[aggregate.Source]bool), groups: make(map[uint64]int), locations: make(map[uint64]int),
	}
}

// see is told at each checkpoint which rows it has, and which may come.
func (n *namer) see(written map[aggregate.Source]bool, states []live.State) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.under = make(map[aggregate.Source]bool, len(states))
	for i := range states {
		n.taps[states[i].Source.Producer] = states[i].Name
		n.under[states[i].Source] = true
		n.met[states[i].Source] = states[i].Name
	}
	for source := range written {
		n.met[source] = n.taps[source.Producer]
	}
}

// sources are those that were met, and those of them that rows may still come from.
func (n *namer) sources() (met map[aggregate.Source]string, under map[aggregate.Source]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.met), n.under
}

// use names what rows under a network mean, from now on. Rows under the one before may
// still come.
func (n *namer) use(net *network) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.networks) > 0 && n.networks[len(n.networks)-1] == net {
		return
	}
	if n.networks = append(n.networks, net); len(n.networks) > maxNetworks {
		n.logger.Error("a configuration's names are given up: too many wait to be written", slog.String("epoch", fmt.Sprintf("%016x", n.networks[0].epoch)))
		n.networks = n.networks[1:]
	}
}

// run writes names until ctx ends, and the last ones then.
func (n *namer) run(ctx context.Context) error {
	ticker := time.NewTicker(namesEvery)
	defer ticker.Stop()
	for sleepFor(ctx, firstNames) { // runs come first, and are known at the first checkpoint
		if met, _ := n.sources(); len(met) > 0 {
			break
		}
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
			n.ending = true
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
	networks := slices.Clone(n.networks)
	n.mu.Unlock()
	met, under := n.sources()
	failed := []error{n.beginRuns(ctx, met)}
	for i, net := range networks {
		err := n.writeNetwork(ctx, net)
		if err == nil && i < len(networks)-recentNetworks {
			n.forget(net)
		}
		failed = append(failed, err)
	}
	return errors.Join(append(failed, n.endRuns(ctx, met, under))...)
}

// forget lets go of a network whose names are written, and under which no rows come.
func (n *namer) forget(net *network) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.networks = slices.DeleteFunc(n.networks, func(o *network) bool { return o == net })
	delete(n.groups, net.epoch)
	delete(n.locations, net.epoch)
}

// beginRuns announces runs that rows come from.
func (n *namer) beginRuns(ctx context.Context, met map[aggregate.Source]string) error {
	var list []store.Run
	for source, name := range met {
		if !n.runs[source] {
			list = append(list, store.Run{Source: source, Mode: store.RunLive, Name: name})
		}
	}
	if len(list) == 0 {
		return nil
	}
	if err := n.store.BeginRuns(ctx, list); err != nil {
		return err
	}
	for _, r := range list {
		n.runs[r.Source] = true
	}
	return nil
}

// endRuns ends those that no more rows come from: under another configuration a tap's rows
// are another run.
func (n *namer) endRuns(ctx context.Context, met map[aggregate.Source]string, under map[aggregate.Source]bool) error {
	for source, name := range met {
		if !n.runs[source] || under[source] && !n.ending {
			continue
		}
		if err := n.store.EndRun(ctx, store.Run{Source: source, Mode: store.RunLive, Name: name}); err != nil {
			return err
		}
		delete(n.runs, source)
		n.mu.Lock()
		delete(n.met, source)
		n.mu.Unlock()
	}
	return nil
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

// announcedJournal tells the namer whose rows come before they do.
type announcedJournal struct {
	live.Journal
	names   *namer
	written map[aggregate.Source]bool // since the last checkpoint
}

// WriteBlock implements aggregate.Sink.
func (j *announcedJournal) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	j.written[b.Source] = true
	return j.Journal.WriteBlock(ctx, b)
}

// Commit implements live.Journal.
func (j *announcedJournal) Commit(ctx context.Context, states []live.State) error {
	j.names.see(j.written, states)
	clear(j.written)
	return j.Journal.Commit(ctx, states)
}
