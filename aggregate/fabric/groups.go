package fabric

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// LevelPrefix is the level of groups that are derived from addresses.
const LevelPrefix = "prefix"

// Bounds of the groups that are derived from addresses. Anybody can forge addresses, so the last
// quarter of the room, and the room of idle prefixes, is reserved for prefixes with persistent
// traffic.
const (
	maxDerived  = 1 << 16
	openDerived = maxDerived / 4 * 3 // become groups as soon as they are seen
	// knocksNeeded is the number of seconds in which a prefix has to be seen to get reserved room,
	// maxKnocking the number of prefixes observed for that.
	knocksNeeded = 3
	maxKnocking  = 1 << 15
	// goneKnocking is the number of seconds without traffic after which an observed prefix may give
	// way to another.
	goneKnocking = 2 * reviseEvery
	// idleSeconds is the time without a row after which a prefix may be forgotten: longer than 1
	// min windows stay open.
	idleSeconds = 120
	// evictionLooks is the number of prefixes that are compared to forget one.
	evictionLooks = 64
	// reviseEvery is the number of seconds after which addresses without a group are looked up
	// again.
	reviseEvery = 2
)

// Group is a set of endpoints, an axis label of the source-destination matrix.
type Group struct {
	ID     aggregate.GroupID
	Name   string
	Level  string // host, rack, pod, cluster, prefix; empty for unknown and overflow
	Parent string // name, empty without
	Order  int    // position in the file, or by address among derived prefixes
}

// derived makes groups of /24 and /64 prefixes as addresses are seen. Safe for concurrent use. Its
// clock is the time of windows, in seconds.
type derived struct {
	mu       sync.RWMutex
	groups   map[netip.Prefix]*derivedGroup
	byID     map[aggregate.GroupID]*derivedGroup
	all      []*derivedGroup // in no order
	hand     int             // position in all where the search for the next one to forget continues
	made     uint64          // number of groups, including forgotten ones
	named    uint64          // those of made whose names are stored
	knocking map[netip.Prefix]knock

	second    int64 // start of the latest window with rows
	revised   int64 // second of the last revision
	outdated  bool  // some result has changed since then
	revision  atomic.Uint64
	fallbacks uint64
	forgotten uint64
}

// derivedGroup is one prefix.
type derivedGroup struct {
	prefix netip.Prefix
	id     aggregate.GroupID
	number uint64 // of made
	last   int64  // second of its latest row, or when it was made
	rows   uint8  // number of seconds with rows, up to knocksNeeded
}

// knock is the state of a prefix without a group.
type knock struct {
	last int64 // second in which it was last seen
	n    uint8 // number of seconds in which it was seen, up to knocksNeeded
}

// Lengths of derived prefixes.
const (
	derivedBits4 = 24
	derivedBits6 = 64
)

// prefixOf returns the prefix that is the group of an address.
func prefixOf(a netip.Addr) (p netip.Prefix, ok bool) {
	if !a.IsValid() {
		return p, false
	}
	bits := derivedBits6
	if a.Is4() {
		bits = derivedBits4
	}
	p, err := a.Prefix(bits)
	return p, err == nil
}

// group returns the group of the prefix that holds a, UnknownGroup if there is no room.
func (d *derived) group(a netip.Addr) aggregate.GroupID {
	p, ok := prefixOf(a)
	if !ok {
		return aggregate.UnknownGroup
	}
	d.mu.RLock()
	g := d.groups[p]
	d.mu.RUnlock()
	if g == nil {
		g = d.admit(p)
	}
	if g == nil {
		return aggregate.UnknownGroup
	}
	return g.id
}

// admit makes a group of a prefix if there is room for it, nil if there is none.
func (d *derived) admit(p netip.Prefix) *derivedGroup {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g := d.groups[p]; g != nil {
		return g
	}
	if len(d.groups) >= openDerived && (!d.persists(p) || len(d.groups) >= maxDerived && !d.forget()) {
		d.fallbacks++
		d.outdated = true
		return nil
	}
	delete(d.knocking, p)
	return d.add(p)
}

// add makes a group of a prefix that has none. The caller holds mu.
func (d *derived) add(p netip.Prefix) *derivedGroup {
	d.made++
	g := &derivedGroup{prefix: p, id: GroupIDOf(p.String()), number: d.made, last: d.second}
	d.groups[p], d.byID[g.id] = g, g
	d.all = append(d.all, g)
	return g
}

// persists records that a prefix without a group was seen, and reports whether it was seen in
// several seconds.
func (d *derived) persists(p netip.Prefix) bool {
	k, known := d.knocking[p]
	if !known && len(d.knocking) >= maxKnocking {
		return false
	}
	if !known || k.last < d.second {
		k.n = min(k.n+1, knocksNeeded)
	}
	k.last = d.second
	d.knocking[p] = k
	return k.n >= knocksNeeded
}

// forget makes room for another prefix. Among some that have been idle for long and whose names are
// stored, it drops one that was never persistent, else the one that was idle for longest.
func (d *derived) forget() bool {
	victim := -1
	worse := func(a, b *derivedGroup) bool {
		if once := a.rows < knocksNeeded; once != (b.rows < knocksNeeded) {
			return once
		}
		return a.last < b.last
	}
	for range evictionLooks {
		d.hand = (d.hand + 1) % len(d.all)
		g := d.all[d.hand]
		if g.number <= d.named && d.second-g.last >= idleSeconds && (victim < 0 || worse(g, d.all[victim])) {
			victim = d.hand
		}
	}
	if victim < 0 {
		return false
	}
	g, last := d.all[victim], len(d.all)-1
	delete(d.groups, g.prefix)
	delete(d.byID, g.id)
	d.all[victim], d.all[last] = d.all[last], nil
	d.all = d.all[:last]
	d.forgotten++
	d.outdated = true // some shard may remember it
	return true
}

// inRows records that a window starting at a second has rows of groups.
func (d *derived) inRows(second int64, ids []uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.second == 0 { // those of an earlier process have been in use until now
		for _, g := range d.all {
			g.last = second
		}
	}
	for i, id := range ids {
		if i > 0 && id == ids[i-1] {
			continue
		}
		if g := d.byID[aggregate.GroupID(id)]; g != nil && (g.rows == 0 || second > g.last) {
			g.last, g.rows = max(g.last, second), min(g.rows+1, knocksNeeded)
		}
	}
	if second <= d.second {
		return
	}
	d.second = second
	if d.outdated && second-d.revised >= reviseEvery {
		d.outdated, d.revised = false, second
		d.revision.Add(1)
		if len(d.knocking) >= maxKnocking {
			maps.DeleteFunc(d.knocking, func(_ netip.Prefix, k knock) bool { return second-k.last > goneKnocking })
		}
	}
}

// since returns the groups that were made after the first n, in the order of addresses, and the
// number of groups made.
func (d *derived) since(n uint64) (groups []Group, made uint64) {
	d.mu.RLock()
	var list []*derivedGroup // prefixes, identities and numbers never change
	for _, g := range d.all {
		if g.number > n {
			list = append(list, g)
		}
	}
	made = d.made
	d.mu.RUnlock()
	slices.SortFunc(list, func(x, y *derivedGroup) int { return x.prefix.Addr().Compare(y.prefix.Addr()) })
	for _, g := range list {
		groups = append(groups, Group{ID: g.id, Name: g.prefix.String(), Level: LevelPrefix, Order: orderOf(g.prefix.Addr())})
	}
	return groups, made
}

// orderOf orders prefixes by address, IPv4 first, the same for every producer. Of IPv6 prefixes it
// uses 24 bits.
func orderOf(a netip.Addr) int {
	if a.Is4() {
		b := a.As4()
		return int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	}
	b := a.As16()
	return 1<<24 | int(b[0])<<16 | int(b[1])<<8 | int(b[2])
}

// reservedOrder is behind all other groups.
const reservedOrder = 1 << 25

// Group returns the group with the longest prefix that holds the address, UnknownGroup if there is
// none. A fabric without groups derives /24 and /64 prefixes; if there is no room for another one,
// the result is UnknownGroup as well. Group may be called from several goroutines.
func (f *Fabric) Group(a netip.Addr) aggregate.GroupID {
	a = canonicalAddr(a)
	if len(f.topo.groups) == 0 {
		return f.derived.group(a)
	}
	if g := f.topo.groupOf(a); g != none {
		return f.topo.groups[g].id
	}
	return aggregate.UnknownGroup
}

// InRows records that rows of a window name these groups, so that they are not forgotten; start is
// the window's start, Unix ns. It implements aggregate.Forgetter and may be called from several
// goroutines.
func (f *Fabric) InRows(start int64, groups []uint64) {
	if len(f.topo.groups) == 0 {
		f.derived.inRows(start/1e9, groups)
	}
}

// Revision changes when the group of an address may have changed. It implements
// aggregate.Forgetter.
func (f *Fabric) Revision() uint64 { return f.derived.revision.Load() }

// Groups lists the groups of the file in its order, or the derived ones that are not forgotten, and
// then the unknown and the overflow group.
func (f *Fabric) Groups() []Group {
	groups, _ := f.GroupsSince(0)
	return groups
}

// Names are the names of a fabric, and of its groups at the time of Fabric.Names.
type Names struct {
	*Fabric
	groups map[aggregate.GroupID]string
}

// Names returns the names of locations and of the groups seen.
func (f *Fabric) Names() Names {
	n := Names{f, map[aggregate.GroupID]string{}}
	for _, g := range f.Groups() {
		n.groups[g.ID] = g.Name
	}
	return n
}

// GroupName returns the name of a group, or its number if the name is unknown.
func (n Names) GroupName(id aggregate.GroupID) string {
	if name, ok := n.groups[id]; ok {
		return name
	}
	return id.Placeholder()
}

// GroupsSince lists the groups, as Groups does, that were added after the first n, and the number
// of groups so far: n is 0 or an earlier result.
func (f *Fabric) GroupsSince(n uint64) (groups []Group, met uint64) {
	fixed := f.fixedGroups()
	groups, met = f.derived.since(max(n, fixed) - fixed)
	if met += fixed; n > 0 {
		return groups, met
	}
	for i := range f.topo.groups {
		g := &f.topo.groups[i]
		groups = append(groups, Group{ID: g.id, Name: g.name, Level: g.level, Parent: g.parent, Order: i})
	}
	return append(groups,
		Group{ID: aggregate.UnknownGroup, Name: unknownName, Order: reservedOrder},
		Group{ID: aggregate.OverflowGroup, Name: overflowName, Order: reservedOrder + 1}), met
}

// fixedGroups returns the number of groups that exist from the start, including the unknown and the
// overflow group.
func (f *Fabric) fixedGroups() uint64 { return uint64(len(f.topo.groups)) + 2 }

// Stored says that the names of the groups counted by GroupsSince are stored: from now on derived
// ones can be forgotten without rows losing their names.
func (f *Fabric) Stored(met uint64) {
	f.derived.mu.Lock()
	defer f.derived.mu.Unlock()
	f.derived.named = max(f.derived.named, max(met, f.fixedGroups())-f.fixedGroups())
}

// Prefixes returns the prefixes of the groups of the file, each in the one group to which the file
// assigns it. Derived groups have the name of their prefix.
func (f *Fabric) Prefixes() map[aggregate.GroupID][]netip.Prefix {
	all := make(map[aggregate.GroupID][]netip.Prefix)
	for p, g := range f.topo.prefixes.AllSorted() {
		id := f.topo.groups[g].id
		all[id] = append(all[id], p)
	}
	return all
}

const (
	// watchEvery is the interval at which WatchGroups checks.
	watchEvery = time.Second
	// sayGroups is the minimum interval of its log messages.
	sayGroups = time.Minute
)

// WatchGroups logs when there is no room for prefixes of addresses, or idle ones are forgotten for
// others. It returns when ctx ends.
func WatchGroups(ctx context.Context, inUse func() *Fabric, logger *slog.Logger) {
	tick := time.Tick(watchEvery)
	for w := (groupWatch{}); ; {
		select {
		case <-ctx.Done():
			return
		case now := <-tick:
			f := inUse()
			if unknown, forgotten, ok := w.sinceReport(now, f, f.Counts()); ok {
				logger.Warn("too many prefixes of addresses: new ones count in the group unknown until they send repeatedly",
					slog.Uint64("addresses_looked_up_in_vain", unknown), slog.Uint64("idle_prefixes_forgotten", forgotten),
					slog.String("hint", "groups of a fabric file (--fabric) have no such bound; many sources that appear once are probably forged"))
			}
		}
	}
}

// groupWatch decides when to log. Its zero value is ready.
type groupWatch struct {
	of       *Fabric
	reported Counts
	at       time.Time
}

// sinceReport takes the counts of the fabric in use, and returns those since the last report; ok is false
// if there is nothing to report, or not yet.
func (w *groupWatch) sinceReport(now time.Time, f *Fabric, n Counts) (unknown, forgotten uint64, ok bool) {
	if w.of != f {
		w.of, w.reported = f, Counts{}
	}
	unknown, forgotten = n.GroupFallbacks-w.reported.GroupFallbacks, n.GroupsForgotten-w.reported.GroupsForgotten
	if unknown+forgotten == 0 || !w.at.IsZero() && now.Sub(w.at) < sayGroups {
		return 0, 0, false
	}
	w.reported, w.at = n, now
	return unknown, forgotten, true
}
