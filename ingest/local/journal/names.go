package journal

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/retry"
)

const (
	// lastNames is the time limit for the last names when the process ends.
	lastNames = 10 * time.Second
	// writeEvery is the interval at which known names are written again.
	writeEvery = 24 * time.Hour
)

// RecentNetworks is the number of recent networks under which rows may still arrive.
const RecentNetworks = 2

// Network is the configuration and the fabric that give the numbers in rows their names. Equal
// networks give the same names.
type Network struct {
	Epoch  uint64 // in rows
	Text   string // configuration whose hash is Epoch
	Fabric *fabric.Fabric
}

// Names writes to a store the names for the numbers in rows, and the beginnings of runs, before the rows that need
// them, and the ends of runs after their last rows. With an outbox, names and beginnings are on
// disk before those rows. It writes all names in use again once a day. Failures are logged and retried in
// the next round. Its methods are safe for concurrent use; Run is called once.
type Names struct {
	store  *store.Store
	logger *slog.Logger

	failing retry.LogThrottle

	mu       sync.Mutex
	networks []*naming                 // latest last
	taps     map[uint64]string         // names by producer
	runs     map[aggregate.Source]bool // runs with rows that have not ended; true once their beginning is written
	killed   []store.Run               // runs of the previous process, until they are ended
	looked   bool                      // runs of earlier processes without marks were searched
}

// naming is a network and the progress of writing its names.
type naming struct {
	Network
	text      bool
	groups    uint64 // number of groups written
	locations map[aggregate.LocationID]bool
}

// NewNames returns Names that has written nothing. It will also end the runs of an earlier
// process, whose marks may be nil.
func NewNames(db *store.Store, earlier []local.Mark, logger *slog.Logger) *Names {
	n := &Names{store: db, logger: logger, taps: make(map[uint64]string), runs: make(map[aggregate.Source]bool)}
	for _, m := range earlier {
		run := store.Run{Source: m.Source, Mode: store.RunLive, Name: m.Name}
		if !m.Closed && !slices.Contains(n.killed, run) {
			n.killed = append(n.killed, run)
		}
	}
	return n
}

// Use implements agent.Names.
func (n *Names) Use(net Network) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.networks) > 0 && n.networks[len(n.networks)-1].Network == net {
		return
	}
	n.networks = append(n.networks, &naming{Network: net, locations: make(map[aggregate.LocationID]bool)})
	n.logFailure(n.describe(context.Background()))
}

// Begin is for Config.Begin: it writes the names and the beginnings of runs that a round needs.
func (n *Names) Begin(wrote map[aggregate.Source]bool, marks []local.Mark) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range marks {
		n.taps[marks[i].Source.Producer] = marks[i].Name
		n.meet(marks[i].Source)
	}
	for source := range wrote {
		n.meet(source)
	}
	n.logFailure(n.begin(context.Background()))
}

// End is for Config.End: it ends runs without further rows. A new configuration starts a new
// run of a tap.
func (n *Names) End(ctx context.Context, marks []local.Mark) {
	under := make(map[aggregate.Source]bool, len(marks))
	for i := range marks {
		under[marks[i].Source] = true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.logFailure(n.end(ctx, under))
}

func (n *Names) meet(source aggregate.Source) {
	if _, known := n.runs[source]; !known {
		n.runs[source] = false
	}
}

// Run writes the names in use once a day until ctx ends, since the store forgets unused names.
// It then ends all runs, since no more rows will arrive. Failures are logged, and it returns
// nil.
func (n *Names) Run(ctx context.Context) error {
	tick := time.Tick(writeEvery)
	for ctx.Err() == nil {
		select {
		case <-tick:
			n.writeAgain(ctx)
		case <-ctx.Done():
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastNames)
	defer cancel()
	n.mu.Lock()
	defer n.mu.Unlock()
	err := n.begin(last)
	if err == nil {
		err = n.end(last, nil)
	}
	n.logFailure(err)
	return nil
}

// writeAgain writes the names of all recent networks.
func (n *Names) writeAgain(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, net := range n.networks {
		net.groups = 0
		clear(net.locations)
	}
	n.logFailure(n.describe(ctx))
}

// logFailure logs a failure at a limited rate.
func (n *Names) logFailure(err error) {
	if err != nil {
		n.failing.Log(n.logger, slog.LevelError, time.Now(), "cannot write names or runs, trying again", slog.String("error", err.Error()))
	}
}

// begin writes pending names and beginnings of runs.
func (n *Names) begin(ctx context.Context) error {
	return errors.Join(n.describe(ctx), n.beginRuns(ctx))
}

// end ends all runs except those that may get more rows.
func (n *Names) end(ctx context.Context, under map[aggregate.Source]bool) error {
	if err := n.endEarlier(ctx, under); err != nil {
		return err
	}
	var over []store.Run
	for source, begun := range n.runs {
		if begun && !under[source] {
			over = append(over, n.runOf(source))
		}
	}
	if err := n.store.EndRuns(ctx, over); err != nil {
		return err
	}
	for _, r := range over {
		delete(n.runs, r.Source)
	}
	return nil
}

func (n *Names) runOf(source aggregate.Source) store.Run {
	return store.Run{Source: source, Mode: store.RunLive, Name: n.taps[source.Producer]}
}

func (n *Names) beginRuns(ctx context.Context) error {
	var list []store.Run
	for source, begun := range n.runs {
		if !begun {
			list = append(list, n.runOf(source))
		}
	}
	if err := n.store.BeginRuns(ctx, list); err != nil {
		return err
	}
	for _, r := range list {
		n.runs[r.Source] = true
	}
	return nil
}

// endEarlier ends the runs of earlier processes: those with marks, and those of this process's
// taps that the store lists.
func (n *Names) endEarlier(ctx context.Context, under map[aggregate.Source]bool) error {
	// An earlier process may have been killed before it wrote their beginnings.
	if err := errors.Join(n.store.BeginRuns(ctx, n.killed), n.store.EndKilled(ctx, n.killed)); err != nil {
		return err
	}
	n.killed = nil
	if n.looked || len(under) == 0 {
		return nil
	}
	var current []store.Run
	for source := range under {
		current = append(current, n.runOf(source))
	}
	err := n.store.EndEarlier(ctx, current)
	n.looked = err == nil
	return err
}

// describe writes new names of networks, oldest network first, and drops networks under which
// no more rows arrive.
func (n *Names) describe(ctx context.Context) error {
	for _, net := range n.networks {
		if err := net.write(ctx, n.store); err != nil {
			return err
		}
	}
	n.networks = n.networks[max(0, len(n.networks)-RecentNetworks):]
	return nil
}

func (n *naming) write(ctx context.Context, to *store.Store) error {
	if !n.text {
		if err := to.WriteEpoch(ctx, n.Epoch, n.Text); err != nil {
			return err
		}
		n.text = true
	}
	groups, met := n.Fabric.GroupsSince(n.groups)
	if err := to.WriteGroups(ctx, groups); err != nil {
		return err
	}
	n.groups = met
	n.Fabric.Stored(met)
	locations := slices.DeleteFunc(n.Fabric.Locations(), func(l fabric.Location) bool { return n.locations[l.ID] })
	if err := to.WriteLocations(ctx, locations); err != nil {
		return err
	}
	for i := range locations {
		n.locations[locations[i].ID] = true
	}
	return nil
}
