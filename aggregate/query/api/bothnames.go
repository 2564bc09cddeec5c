package api

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
)

const (
	// storePatience is how long a request waits for names of the store.
	storePatience = time.Second
	// storeTimeout bounds the reading of names, which goes on behind the requests.
	storeTimeout = 30 * time.Second
)

// BothNames names the groups and locations of the fabric in use, and those that exporters
// have described in a store. While the store is slow or away, the names that were read last
// stay. Until they were read once, the error is query.ErrUnavailable; beside a list, it says
// that the list holds the fabric's names alone. It is safe for concurrent use.
type BothNames struct {
	Fabric func() *fabric.Fabric // in use; nil: the store alone has names
	Stored Catalog               // nil where there are no exporters

	groups    remembered[fabric.Group]
	locations remembered[fabric.Location]
}

// Groups implements Catalog.
func (n *BothNames) Groups(ctx context.Context) ([]fabric.Group, error) {
	var list []fabric.Group
	if n.Fabric != nil {
		list = append([]fabric.Group{}, n.Fabric().Groups()...)
	}
	if n.Stored == nil {
		return list, nil
	}
	others, err := n.groups.get(ctx, n.Stored.Groups)
	return beside(list, others, func(g *fabric.Group) aggregate.GroupID { return g.ID }), err
}

// Prefixes are those of groups, as far as the fabric in use knows them.
func (n *BothNames) Prefixes() map[aggregate.GroupID][]netip.Prefix { return n.Fabric().Prefixes() }

// Locations implements Catalog.
func (n *BothNames) Locations(ctx context.Context) ([]fabric.Location, error) {
	var list []fabric.Location
	if n.Fabric != nil {
		list = append([]fabric.Location{}, n.Fabric().Locations()...)
	}
	if n.Stored == nil {
		return list, nil
	}
	others, err := n.locations.get(ctx, n.Stored.Locations)
	return beside(list, others, func(l *fabric.Location) aggregate.LocationID { return l.ID }), err
}

// remembering gives a catalog that the names which were read last stay in.
func remembering(c Catalog) Catalog {
	if _, ok := c.(*BothNames); ok {
		return c
	}
	return &BothNames{Stored: c}
}

// beside adds to the list the others that it lacks.
func beside[T any, ID comparable](list, others []T, id func(*T) ID) []T {
	known := make(map[ID]bool, len(list))
	for i := range list {
		known[id(&list[i])] = true
	}
	for i := range others {
		if !known[id(&others[i])] {
			list = append(list, others[i])
		}
	}
	return list
}

// remembered is the list that was read last. It is safe for concurrent use.
type remembered[T any] struct {
	mu      sync.Mutex
	list    []T
	known   bool
	err     error         // of the last reading
	reading chan struct{} // closed when the present one ends; nil without one
}

// get reads the list. A reading that takes longer than storePatience goes on without the
// caller, who gets the last list, as after one that failed.
func (r *remembered[T]) get(ctx context.Context, read func(context.Context) ([]T, error)) ([]T, error) {
	done := r.read(ctx, read)
	patience := time.NewTimer(storePatience)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.known:
		return r.list, nil
	case r.reading != nil, errors.Is(r.err, context.DeadlineExceeded):
		return nil, fmt.Errorf("%w: it has yet to tell its names", query.ErrUnavailable)
	}
	return nil, r.err
}

// read begins a reading, unless one is at work, and gives the channel that its end closes.
func (r *remembered[T]) read(ctx context.Context, read func(context.Context) ([]T, error)) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reading != nil {
		return r.reading
	}
	done := make(chan struct{})
	r.reading = done
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		list, err := read(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.err = err; err == nil {
			r.list, r.known = list, true
		}
		r.reading = nil
		close(done)
	}()
	return done
}
