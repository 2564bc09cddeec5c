package handover

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/csigscope/csigscope/ingest/local/journal"
	"github.com/csigscope/csigscope/ingest/remote"
)

// describeEvery is how often names that appeared are told.
const describeEvery = 5 * time.Second

// Describer tells collectors what the numbers in blocks stand for. It is safe for
// concurrent use; Run is called once.
type Describer struct {
	client *remote.Client
	logger *slog.Logger

	mu        sync.Mutex
	networks  []journal.Network
	described map[uint64]uint64 // how many names had been met when they were told, by epoch
}

// NewDescriber makes one that has told nothing. The client stays its owner's.
func NewDescriber(client *remote.Client, logger *slog.Logger) *Describer {
	return &Describer{client: client, logger: logger, described: make(map[uint64]uint64)}
}

// Use tells what rows under a network mean, from now on. Rows under the one before may
// still come.
func (d *Describer) Use(n journal.Network) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.networks) > 0 && d.networks[len(d.networks)-1] == n {
		return
	}
	d.describe() // what is let go of
	if d.networks = append(d.networks, n); len(d.networks) > journal.RecentNetworks {
		d.networks = d.networks[1:]
	}
	d.describe()
}

// describe tells what was not told. The caller holds the lock.
func (d *Describer) describe() {
	for _, n := range d.networks {
		groups, met := n.Fabric.GroupsSince(0)
		locations := n.Fabric.Locations()
		names := met + uint64(len(locations))
		if told, known := d.described[n.Epoch]; known && told == names {
			continue
		}
		if err := d.client.Describe(remote.Description{Text: n.Text, Groups: groups, Locations: locations}); err != nil {
			d.logger.Error("names are not told yet", slog.String("error", err.Error()))
			continue
		}
		d.described[n.Epoch] = names
		n.Fabric.Stored(met)
	}
}

// tell describes what was not described, without waiting for its time.
func (d *Describer) tell() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.describe()
}

// Run tells names as they appear, until ctx ends, and the last ones then. It returns nil:
// what cannot be told is in the log, and tried again.
func (d *Describer) Run(ctx context.Context) error {
	ticker := time.NewTicker(describeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			d.tell()
			return nil
		case <-ticker.C:
			d.tell()
		}
	}
}
