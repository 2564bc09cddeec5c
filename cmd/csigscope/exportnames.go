package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/csigscope/csigscope/ingest"
)

// describer tells collectors what the numbers in blocks stand for.
type describer struct {
	client *ingest.Client
	logger *slog.Logger

	mu        sync.Mutex
	networks  []*network
	described map[uint64]int // how many names are told, by epoch
}

// describeEvery is how often names that appeared are told.
const describeEvery = 5 * time.Second

// use implements namesWriter.
func (d *describer) use(n *network) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.networks) > 0 && d.networks[len(d.networks)-1] == n {
		return
	}
	d.describe() // what is let go of
	if d.networks = append(d.networks, n); len(d.networks) > recentNetworks {
		d.networks = d.networks[1:]
	}
	d.describe()
}

// describe tells what was not told. The caller holds the lock.
func (d *describer) describe() {
	for _, n := range d.networks {
		groups, locations := n.fabric.Groups(), n.fabric.Locations()
		names := len(groups) + len(locations)
		if told, known := d.described[n.epoch]; known && told == names {
			continue
		}
		if err := d.client.Describe(ingest.Description{Text: n.text, Groups: groups, Locations: locations}); err != nil {
			d.logger.Error("names are not told yet", slog.String("error", err.Error()))
			continue
		}
		d.described[n.epoch] = names
	}
}

// tell describes what was not described, without waiting for its time.
func (d *describer) tell() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.describe()
}

// run implements namesWriter.
func (d *describer) run(ctx context.Context) error {
	for more := true; more; {
		more = sleepFor(ctx, describeEvery)
		d.tell()
	}
	return nil
}
