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
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/ingest/local"
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
// keeps no row waiting for a name. What it has not written when the process ends may wait on
// disk for the next one. Its methods are safe for concurrent use; Run is called once.
type Names struct {
	store  *store.Store
	logger *slog.Logger
	kept   descriptions

	mu       sync.Mutex
	met      map[aggregate.Source]string // of rows, until its run has ended; by name of the tap
	under    map[aggregate.Source]bool   // of rows that may come
	taps     map[uint64]string           // by producer
	networks []Network                   // the latest last
	earlier  []*description              // that other processes have left

	// What follows changes in Run alone.
	runs    map[aggregate.Source]bool // that have begun
	killed  map[aggregate.Source]bool // of processes before this one, whose windows may have been open
	looked  bool                      // for runs of such processes that left no marks
	ending  bool                      // no more rows come
	written map[uint64]extent         // by epoch
}

// extent is how much of a network is written.
type extent struct {
	text      bool
	groups    uint64 // of those that were met
	locations int
}

// NewNames makes one that has written nothing. It ends the runs of an earlier process too,
// whose marks may be nil.
func NewNames(db *store.Store, earlier []local.Mark, logger *slog.Logger) *Names {
	n := &Names{
		store: db, logger: logger, met: make(map[aggregate.Source]string), taps: make(map[uint64]string),
		runs: make(map[aggregate.Source]bool), killed: make(map[aggregate.Source]bool), written: make(map[uint64]extent),
	}
	for _, m := range earlier {
		if !m.Closed {
			n.met[m.Source], n.killed[m.Source] = m.Name, true
		}
	}
	return n
}

// KeepIn has what is not written wait in a place on disk, which stays its owner's until Run
// has returned, and writes what an earlier process has left there. It comes before Use.
func (n *Names) KeepIn(file *checkpoint.File) {
	n.kept = descriptions{file: file, logger: n.logger, bytes: maxDescribed}
	w := n.kept.load()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.earlier = w.networks
	for _, r := range w.runs {
		n.met[r.Source], n.killed[r.Source] = r.Name, true
	}
}

// waiting is what has not been written.
func (n *Names) waiting() (w waiting) {
	n.mu.Lock()
	networks, written := slices.Clone(n.networks), maps.Clone(n.written)
	w.networks = slices.Clone(n.earlier)
	for source, name := range n.met {
		if !n.runs[source] || !n.under[source] || n.ending {
			w.runs = append(w.runs, store.Run{Source: source, Mode: store.RunLive, Name: name})
		}
	}
	n.mu.Unlock()
	slices.SortFunc(w.runs, compareRuns)
	for _, net := range networks {
		if d := describe(net, 0); (extent{true, d.Met, len(d.Locations)}) != written[net.Epoch] {
			w.networks = append(w.networks, d)
		}
	}
	return w
}

// Begin is told of each round before its rows are durable: what these mean is on disk
// before they are, or in the store.
func (n *Names) Begin(wrote map[aggregate.Source]bool, marks []local.Mark) {
	n.see(wrote, marks)
	n.kept.keep(n.waiting)
}

func (n *Names) see(wrote map[aggregate.Source]bool, marks []local.Mark) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.under = make(map[aggregate.Source]bool, len(marks))
	for i := range marks {
		n.taps[marks[i].Source.Producer] = marks[i].Name
		n.under[marks[i].Source] = true
		n.met[marks[i].Source] = marks[i].Name
	}
	for source := range wrote {
		n.met[source] = n.taps[source.Producer]
	}
}

// sources are those that were met, and those of them that rows may still come from.
func (n *Names) sources() (met map[aggregate.Source]string, under map[aggregate.Source]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.met), n.under
}

// Use names what rows under a network mean, from now on: that is on disk when Use returns,
// where it can be. Rows under the one before may still come.
func (n *Names) Use(net Network) {
	if n.add(net) {
		n.kept.keep(n.waiting)
	}
}

// add is false for the network that is in use.
func (n *Names) add(net Network) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.networks) > 0 && n.networks[len(n.networks)-1] == net {
		return false
	}
	if n.networks = append(n.networks, net); len(n.networks) > maxNetworks {
		n.logger.Error("a configuration's names are given up: too many wait to be written", slog.String("epoch", fmt.Sprintf("%016x", n.networks[0].Epoch)))
		n.networks = n.networks[1:]
	}
	return true
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
		if !n.kept.empty() {
			n.kept.keep(n.waiting)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastNames)
			defer cancel()
			n.end()
			if err := n.write(last); err != nil {
				n.logger.Warn("names are not written", slog.String("error", err.Error()))
			}
			n.kept.keep(n.waiting)
			return nil
		}
	}
}

// end says that no more rows come.
func (n *Names) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ending = true
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
	networks, earlier := slices.Clone(n.networks), slices.Clone(n.earlier)
	n.mu.Unlock()
	met, under := n.sources()
	failed := []error{n.beginRuns(ctx, met)}
	for _, d := range earlier { // before what may give the same groups and locations other properties
		failed = append(failed, n.writeEarlier(ctx, d))
	}
	for i, net := range networks {
		err := n.writeNetwork(ctx, net)
		if err == nil && i < len(networks)-RecentNetworks {
			n.forget(net)
		}
		failed = append(failed, err)
	}
	return errors.Join(append(failed, n.endKilled(ctx, met, under), n.endRuns(ctx, met, under))...)
}

// forget lets go of a network whose names are written, and under which no rows come.
func (n *Names) forget(net Network) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.networks = slices.DeleteFunc(n.networks, func(o Network) bool { return o == net })
	delete(n.written, net.Epoch)
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
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range list {
		n.runs[r.Source] = true
	}
	return nil
}

// endKilled ends the runs of processes before this one: those that left marks, and those
// that the store knows of taps of this one.
func (n *Names) endKilled(ctx context.Context, met map[aggregate.Source]string, under map[aggregate.Source]bool) error {
	var killed, current []store.Run
	for source, name := range met {
		r := store.Run{Source: source, Mode: store.RunLive, Name: name}
		switch {
		case !n.runs[source]:
		case n.killed[source]:
			killed = append(killed, r)
		case under[source]:
			current = append(current, r)
		}
	}
	if err := n.store.EndKilled(ctx, killed); err != nil {
		return err
	}
	n.mu.Lock()
	for _, r := range killed {
		delete(n.runs, r.Source)
		delete(n.met, r.Source)
	}
	n.mu.Unlock()
	if n.looked || len(current) == 0 {
		return nil
	}
	err := n.store.EndEarlier(ctx, current)
	n.looked = err == nil
	return err
}

// endRuns ends those that no more rows come from: under another configuration a tap's rows
// are another run.
func (n *Names) endRuns(ctx context.Context, met map[aggregate.Source]string, under map[aggregate.Source]bool) error {
	for source, name := range met {
		if !n.runs[source] || n.killed[source] || under[source] && !n.ending {
			continue
		}
		if err := n.store.EndRun(ctx, store.Run{Source: source, Mode: store.RunLive, Name: name}); err != nil {
			return err
		}
		n.mu.Lock()
		delete(n.runs, source)
		delete(n.met, source)
		n.mu.Unlock()
	}
	return nil
}

func (n *Names) writeNetwork(ctx context.Context, net Network) error {
	n.mu.Lock()
	has := n.written[net.Epoch]
	n.mu.Unlock()
	err := n.tell(ctx, describe(net, has.groups), &has)
	net.Fabric.Stored(has.groups)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.written[net.Epoch] = has
	return err
}

// writeEarlier writes what another process has left. What is in use is written once more
// then: it may share groups and locations, and is what holds of them.
func (n *Names) writeEarlier(ctx context.Context, d *description) error {
	if err := n.tell(ctx, d, new(extent)); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.earlier = slices.DeleteFunc(n.earlier, func(o *description) bool { return o == d })
	clear(n.written)
	return nil
}

// tell writes what the store does not have of a description.
func (n *Names) tell(ctx context.Context, d *description, has *extent) error {
	if !has.text {
		if err := n.store.WriteEpoch(ctx, d.Epoch, d.Text); err != nil {
			return err
		}
		has.text = true
	}
	if len(d.Groups) > 0 {
		if err := n.store.WriteGroups(ctx, d.Groups); err != nil {
			return err
		}
		has.groups = d.Met
	}
	if len(d.Locations) != has.locations {
		if err := n.store.WriteLocations(ctx, d.Locations); err != nil {
			return err
		}
		has.locations = len(d.Locations)
	}
	return nil
}
