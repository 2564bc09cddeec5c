package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/model"
)

const (
	// namesFresh is how long names are kept before they are read again.
	namesFresh = 5 * time.Second
	// namesAgain is how long at least, where a number without a name has come up.
	namesAgain = 500 * time.Millisecond
)

// names are the names of groups and locations at one time. It never changes.
type names struct {
	version   uint64
	groups    []fabric.Group
	locations map[aggregate.LocationID]*fabric.Location
	group     map[aggregate.GroupID]string
	ids       map[string][]aggregate.GroupID // by name, of the group and all below it
	placeIDs  map[string][]aggregate.LocationID
	quotedG   map[aggregate.GroupID][]byte // as JSON
	quotedL   map[aggregate.LocationID][]byte
	lacking   error // why names of the store are not among them; nil where they are
}

// namesCache reads names now and then. While one asker reads them, others go on with those
// before.
type namesCache struct {
	catalog Catalog
	now     func() time.Time
	current atomic.Pointer[readNames]

	mu      sync.Mutex // held while names are read
	version uint64
}

// readNames are names and when they were read.
type readNames struct {
	*names
	at time.Time
}

func (r *readNames) fresh(now time.Time, age time.Duration) bool {
	if r.lacking != nil {
		age = namesAgain
	}
	return now.Sub(r.at) < age
}

// get gives names that are not old.
func (c *namesCache) get(ctx context.Context) (*names, error) { return c.noOlderThan(ctx, namesFresh) }

func (c *namesCache) noOlderThan(ctx context.Context, age time.Duration) (*names, error) {
	last := c.current.Load()
	switch {
	case last == nil:
		c.mu.Lock()
	case last.fresh(c.now(), age) || !c.mu.TryLock():
		return last.names, nil
	}
	defer c.mu.Unlock()
	if last = c.current.Load(); last != nil && last.fresh(c.now(), age) {
		return last.names, nil
	}
	groups, err := c.catalog.Groups(ctx)
	if err == nil || groups != nil {
		var locations []fabric.Location
		var failed error
		locations, failed = c.catalog.Locations(ctx)
		err = errors.Join(err, failed)
		if err == nil || locations != nil {
			return c.keep(last, groups, locations, err), nil
		}
	}
	return nil, fmt.Errorf("read names: %w", err)
}

// keep puts names in place of the last ones, where they differ. The caller holds mu.
func (c *namesCache) keep(last *readNames, groups []fabric.Group, locations []fabric.Location, lacking error) *names {
	next := &readNames{at: c.now()}
	if last != nil && (last.lacking == nil) == (lacking == nil) &&
		len(last.groups) == len(groups) && len(last.locations) == len(locations) && last.same(groups, locations) {
		next.names = last.names
	} else {
		c.version++
		next.names = newNames(c.version, groups, locations)
		next.lacking = lacking
	}
	c.current.Store(next)
	return next.names
}

// knowing gives names that know all groups and locations of cells, as far as the catalog
// does.
func (c *namesCache) knowing(ctx context.Context, cells []aggregate.CellStats) (*names, error) {
	n, err := c.get(ctx)
	if err != nil || n.know(cells) {
		return n, err
	}
	return c.noOlderThan(ctx, namesAgain)
}

func (n *names) know(cells []aggregate.CellStats) bool {
	for i := range cells {
		c := &cells[i]
		if n.group[c.Src] == "" || n.group[c.Dst] == "" || c.ModeCount > 0 && n.locations[c.Mode] == nil {
			return false
		}
	}
	return true
}

func (n *names) same(groups []fabric.Group, locations []fabric.Location) bool {
	for i := range locations {
		l := &locations[i]
		if have := n.locations[l.ID]; have == nil || have.Name != l.Name || have.Set != l.Set || have.DeviceLoc != l.DeviceLoc || have.StageLoc != l.StageLoc {
			return false
		}
	}
	return slices.Equal(n.groups, groups)
}

func newNames(version uint64, groups []fabric.Group, locations []fabric.Location) *names {
	n := &names{
		version: version, groups: groups,
		locations: make(map[aggregate.LocationID]*fabric.Location, len(locations)),
		group:     make(map[aggregate.GroupID]string, len(groups)),
		ids:       make(map[string][]aggregate.GroupID, len(groups)),
		placeIDs:  make(map[string][]aggregate.LocationID, len(locations)),
		quotedG:   make(map[aggregate.GroupID][]byte, len(groups)),
		quotedL:   make(map[aggregate.LocationID][]byte, len(locations)),
	}
	parents := make(map[string]string, len(groups))
	for _, g := range groups {
		parents[g.Name] = g.Parent
	}
	for _, g := range groups {
		n.group[g.ID], n.quotedG[g.ID] = g.Name, quote(g.Name)
		name := g.Name
		for range 8 { // levels of a hierarchy, which may be a circle in a damaged store
			if name == "" {
				break
			}
			n.ids[name] = append(n.ids[name], g.ID)
			name = parents[name]
		}
	}
	for i := range locations {
		l := &locations[i]
		n.locations[l.ID], n.quotedL[l.ID] = l, quote(l.Name)
		n.placeIDs[l.Name] = append(n.placeIDs[l.Name], l.ID)
	}
	return n
}

func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`)
	}
	return b
}

// groupName is the group's name, or its number where it has none.
func (n *names) groupName(id aggregate.GroupID) string {
	if name, ok := n.group[id]; ok {
		return name
	}
	switch id {
	case aggregate.UnknownGroup:
		return "unknown"
	case aggregate.OverflowGroup:
		return "overflow"
	}
	return fmt.Sprintf("group %016x", uint64(id))
}

func (n *names) locationName(id aggregate.LocationID) string {
	if l, ok := n.locations[id]; ok {
		return l.Name
	}
	if id == aggregate.OverflowLocation {
		return "other locations"
	}
	return fmt.Sprintf("location %016x", uint64(id))
}

func (n *names) appendGroup(b []byte, id aggregate.GroupID) []byte {
	if q, ok := n.quotedG[id]; ok {
		return append(b, q...)
	}
	return append(b, quote(n.groupName(id))...)
}

func (n *names) appendLocation(b []byte, id aggregate.LocationID) []byte {
	if q, ok := n.quotedL[id]; ok {
		return append(b, q...)
	}
	return append(b, quote(n.locationName(id))...)
}

// at maps locations to those that they belong to at the level; nil where they stay.
func (n *names) at(level fabric.Level) func(aggregate.LocationID) aggregate.LocationID {
	if level == fabric.LevelLocation {
		return nil
	}
	return func(id aggregate.LocationID) aggregate.LocationID {
		if l, ok := n.locations[id]; ok {
			return l.At(level)
		}
		return id
	}
}

func (n *names) place(id aggregate.LocationID) model.Place {
	l, ok := n.locations[id]
	if !ok {
		return model.Place{Location: n.locationName(id), Kind: fabric.KindUnknown}
	}
	return model.Place{
		Location: l.Name, Kind: l.Kind, Device: l.Device, Stage: l.Stage, Orientation: l.Orientation,
		CapacityBPS: l.Capacity * 1000, Candidates: l.Candidates, CandidateCount: l.CandidateCount,
	}
}
