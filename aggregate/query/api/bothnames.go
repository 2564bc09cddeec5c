package api

import (
	"context"
	"net/netip"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// storePatience is how long names are waited for that are in the store alone.
const storePatience = time.Second

// BothNames names what the fabric in use knows, and what exporters have described in a
// store. A store that is away keeps nobody from the rest. It is safe for concurrent use.
type BothNames struct {
	Fabric func() *fabric.Fabric // in use
	Stored Catalog               // nil where there are no exporters
}

// Groups implements Catalog.
func (n *BothNames) Groups(ctx context.Context) ([]fabric.Group, error) {
	list := n.Fabric().Groups()
	if n.Stored == nil {
		return list, nil
	}
	return beside(ctx, list, n.Stored.Groups, func(g *fabric.Group) aggregate.GroupID { return g.ID }), nil
}

// Prefixes are those of groups, as far as the fabric in use knows them.
func (n *BothNames) Prefixes() map[aggregate.GroupID][]netip.Prefix { return n.Fabric().Prefixes() }

// Locations implements Catalog.
func (n *BothNames) Locations(ctx context.Context) ([]fabric.Location, error) {
	list := n.Fabric().Locations()
	if n.Stored == nil {
		return list, nil
	}
	return beside(ctx, list, n.Stored.Locations, func(l *fabric.Location) aggregate.LocationID { return l.ID }), nil
}

// beside adds to the list what else can be read in time.
func beside[T any, ID comparable](ctx context.Context, list []T, read func(context.Context) ([]T, error), id func(*T) ID) []T {
	ctx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	others, err := read(ctx)
	if err != nil {
		return list // they are asked for again soon
	}
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
