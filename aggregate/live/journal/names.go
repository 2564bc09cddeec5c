package journal

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
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/live"
	"github.com/csigscope/csigscope/aggregate/store"
)

const (
	// namesEvery is how often names that appeared are written.
	namesEvery = 2 * time.Second
	firstNames = 100 * time.Millisecond
	// maxNetworks are those whose names wait to be written.
	maxNetworks = 64
	// lastNames is how long the last names may take when the process ends.
	lastNames = 10 * time.Second
)

// RecentNetworks is under how many networks, the latest ones, rows may still come.
const RecentNetworks = 2

// Network is what rows are made under: the configuration and the fabric by which their
// numbers have names. Networks that are equal mean the same by them.
type Network struct {
	Epoch  uint64 // that rows name
	Text   string // what Epoch is the hash of
	Fabric *fabric.Fabric
}

// Names writes what the numbers in rows stand for, beside the rows: a server that is away
// keeps no row waiting for a name. Its methods are safe for concurrent use; Run
// is called once.
type Names struct {
	store  *store.Store
	logger *slog.Logger

	mu       sync.Mutex
	met      map[aggregate.Source]string // of rows, until its run has ended; by name of the tap
	under    map[aggregate.Source]bool   // of rows that may come
	taps     map[uint64]string           // by producer
	networks []Network                   // the latest last

	texts     map[uint64]bool           // epochs that are written
	runs      map[aggregate.Source]bool // that have begun
	ending    bool                      // no more rows come
	groups    map[uint64]int            // how many are written, by epoch
	locations map[uint64]int
}

// NewNames makes one that has written nothing, for the rows of earlier processes, which may
// be nil, as well: runs of theirs that do not go on end.
func NewNames(db *store.Store, earlier []live.State, logger *slog.Logger) *Names {
	n := &Names{
		store: db, logger: logger, met: make(map[aggregate.Source]string), taps: make(map[uint64]string), texts: make(map[uint64]bool),
		runs: make(map[aggregate.Source]bool), groups: make(map[uint64]int), locations: make(map[uint64]int),
	}
	n.see(nil, earlier)
	return n
}

// see is told at each checkpoint which rows it has, and which may come.
func (n *Names) see(written map[aggregate.Source]bool, states []live.State) {
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
func (n *Names) sources() (met map[aggregate.Source]string, under map[aggregate.Source]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.met), n.under
}

// Use names what rows under a network mean, from now on. Rows under the one before may
// still come.
func (n *Names) Use(net Network) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.networks) > 0 && n.networks[len(n.networks)-1] == net {
		return
	}
	if n.networks = append(n.networks, net); len(n.networks) > maxNetworks {
		n.logger.Error("a configuration's names are given up: too many wait to be written", slog.String("epoch", fmt.Sprintf("%016x", n.networks[0].Epoch)))
		n.networks = n.networks[1:]
	}
}

// Run writes names until ctx ends, and the last ones then, for 10 s at most. It returns nil:
// what cannot be written is in the log, and tried again.
func (n *Names) Run(ctx context.Context) error {
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
func (n *Names) write(ctx context.Context) error {
	n.mu.Lock()
	networks := slices.Clone(n.networks)
	n.mu.Unlock()
	met, under := n.sources()
	failed := []error{n.beginRuns(ctx, met)}
	for i, net := range networks {
		err := n.writeNetwork(ctx, net)
		if err == nil && i < len(networks)-RecentNetworks {
			n.forget(net)
		}
		failed = append(failed, err)
	}
	return errors.Join(append(failed, n.endRuns(ctx, met, under))...)
}

// forget lets go of a network whose names are written, and under which no rows come.
func (n *Names) forget(net Network) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.networks = slices.DeleteFunc(n.networks, func(o Network) bool { return o == net })
	delete(n.groups, net.Epoch)
	delete(n.locations, net.Epoch)
}

// beginRuns announces runs that rows come from.
func (n *Names) beginRuns(ctx context.Context, met map[aggregate.Source]string) error {
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
func (n *Names) endRuns(ctx context.Context, met map[aggregate.Source]string, under map[aggregate.Source]bool) error {
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

func (n *Names) writeNetwork(ctx context.Context, net Network) error {
	if !n.texts[net.Epoch] {
		if err := n.store.WriteEpoch(ctx, net.Epoch, net.Text); err != nil {
			return err
		}
		n.texts[net.Epoch] = true
	}
	if groups := net.Fabric.Groups(); len(groups) != n.groups[net.Epoch] {
		if err := n.store.WriteGroups(ctx, groups); err != nil {
			return err
		}
		n.groups[net.Epoch] = len(groups)
	}
	if locations := net.Fabric.Locations(); len(locations) != n.locations[net.Epoch] {
		if err := n.store.WriteLocations(ctx, locations); err != nil {
			return err
		}
		n.locations[net.Epoch] = len(locations)
	}
	return nil
}

// Announce is a journal that tells the names whose rows come before they do.
func (n *Names) Announce(j live.Journal) live.Journal {
	return &announced{j, n, make(map[aggregate.Source]bool)}
}

type announced struct {
	live.Journal
	names   *Names
	written map[aggregate.Source]bool // since the last checkpoint
}

// WriteBlock implements aggregate.Sink.
func (j *announced) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	j.written[b.Source] = true
	return j.Journal.WriteBlock(ctx, b)
}

// Commit implements live.Journal.
func (j *announced) Commit(ctx context.Context, states []live.State) error {
	j.names.see(j.written, states)
	clear(j.written)
	return j.Journal.Commit(ctx, states)
}
