package handover

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/csigscope/csigscope/ingest/local/journal"
	"github.com/csigscope/csigscope/ingest/remote"
)

// describeEvery is the interval at which new names are sent.
const describeEvery = 5 * time.Second

// Describer sends the meaning of the numbers in blocks to collectors. It is safe for concurrent
// use; Run is called once.
type Describer struct {
	client *remote.Client
	logger *slog.Logger

	mu       sync.Mutex
	networks []describedNetwork
}

// describedNetwork is a network and the number of its names sent, 0 before. Two networks may have
// the same epoch.
type describedNetwork struct {
	journal.Network
	names uint64
}

// NewDescriber returns a Describer that has sent nothing. The caller keeps ownership of the
// client.
func NewDescriber(client *remote.Client, logger *slog.Logger) *Describer {
	return &Describer{client: client, logger: logger}
}

// Use implements agent.Names.
func (d *Describer) Use(n journal.Network) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.networks) > 0 && d.networks[len(d.networks)-1].Network == n {
		return
	}
	d.describe() // send the names of a network that is about to be dropped
	if d.networks = append(d.networks, describedNetwork{Network: n}); len(d.networks) > journal.RecentNetworks {
		d.networks = d.networks[1:]
	}
	d.describe()
}

// describe sends new names. The caller holds the lock.
func (d *Describer) describe() {
	for i := range d.networks {
		n := &d.networks[i]
		groups, met := n.Fabric.GroupsSince(0)
		locations := n.Fabric.Locations()
		names := met + uint64(len(locations))
		if n.names == names {
			continue
		}
		if err := d.client.Describe(remote.Description{Text: n.Text, Groups: groups, Locations: locations}); err != nil {
			d.logger.Error("cannot write names of groups and locations to the spool, trying again", slog.String("error", err.Error()))
			continue
		}
		n.names = names
		n.Fabric.Stored(met)
	}
}

// sendNew sends new names at once.
func (d *Describer) sendNew() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.describe()
}

// Run sends names as they appear, until ctx ends, and then the last ones. It returns nil:
// failures are logged and retried.
func (d *Describer) Run(ctx context.Context) error {
	tick := time.Tick(describeEvery)
	for {
		select {
		case <-ctx.Done():
			d.sendNew()
			return nil
		case <-tick:
			d.sendNew()
		}
	}
}
