package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/ingest/edge"
)

const (
	// namesFresh is how long names are kept before they are read again.
	namesFresh = 5 * time.Second
	// namesAgain is the minimum of that after an id without a name has come up.
	namesAgain = 500 * time.Millisecond
)

// names are the names of groups and locations at one time. They never change.
type names struct {
	version     uint64
	groups      []fabric.Group
	locations   map[aggregate.LocationID]*fabric.Location
	group       map[aggregate.GroupID]string
	ids         map[string][]aggregate.GroupID // by name, of the group and all below it
	locationIDs map[string][]aggregate.LocationID
	quotedG     map[aggregate.GroupID][]byte // as JSON
	quotedL     map[aggregate.LocationID][]byte
	lacking     error // why the store's names are missing; nil if they are included
}

// namesCache re-reads names from time to time. While one request reads them, others continue with
// the previous ones.
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

// get returns names that are not too old.
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

// keep replaces the names if they have changed. The caller holds mu.
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

// knowing returns names that include all groups and locations of an answer, as far as the catalog
// has them.
func (c *namesCache) knowing(ctx context.Context, know func(*names) bool) (*names, error) {
	n, err := c.get(ctx)
	if err != nil || know(n) {
		return n, err
	}
	return c.noOlderThan(ctx, namesAgain)
}

// knowingCell returns n if it has the names of a cell, else names that include them as far as the catalog
// has them.
func (c *namesCache) knowingCell(ctx context.Context, n *names, cell *aggregate.CellStats) (*names, error) {
	if n.knowCell(cell) {
		return n, nil
	}
	return c.noOlderThan(ctx, namesAgain)
}

func (n *names) know(cells []aggregate.CellStats) bool {
	for i := range cells {
		if !n.knowCell(&cells[i]) {
			return false
		}
	}
	return true
}

func (n *names) knowCell(c *aggregate.CellStats) bool {
	return n.group[c.Src] != "" && n.group[c.Dst] != "" && (c.ModeCount == 0 || n.knowLocation(c.Mode))
}

func (n *names) knowLocation(id aggregate.LocationID) bool {
	return n.locations[id] != nil || id <= aggregate.OverflowLocation
}

func (n *names) same(groups []fabric.Group, locations []fabric.Location) bool {
	for i := range locations {
		if !reflect.DeepEqual(n.locations[locations[i].ID], &locations[i]) {
			return false
		}
	}
	return slices.Equal(n.groups, groups)
}

func newNames(version uint64, groups []fabric.Group, locations []fabric.Location) *names {
	n := &names{
		version: version, groups: groups,
		locations:   make(map[aggregate.LocationID]*fabric.Location, len(locations)),
		group:       make(map[aggregate.GroupID]string, len(groups)),
		ids:         make(map[string][]aggregate.GroupID, len(groups)),
		locationIDs: make(map[string][]aggregate.LocationID, len(locations)),
		quotedG:     make(map[aggregate.GroupID][]byte, len(groups)),
		quotedL:     make(map[aggregate.LocationID][]byte, len(locations)),
	}
	parents := make(map[string]string, len(groups))
	for _, g := range groups {
		parents[g.Name] = g.Parent
	}
	for _, g := range groups {
		n.group[g.ID], n.quotedG[g.ID] = g.Name, quote(g.Name)
		name := g.Name
		for range 8 { // levels of a hierarchy, which may be circular in a damaged store
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
		n.locationIDs[l.Name] = append(n.locationIDs[l.Name], l.ID)
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

// groupName is the group's name, or its number if it has none.
func (n *names) groupName(id aggregate.GroupID) string {
	if name, ok := n.group[id]; ok {
		return text(name)
	}
	return id.Placeholder()
}

func (n *names) locationName(id aggregate.LocationID) string {
	if l, ok := n.locations[id]; ok {
		return text(l.Name)
	}
	return id.Placeholder()
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

// at maps locations to those above them at the level; nil if they stay.
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

func (n *names) wirePlace(id aggregate.LocationID) *wire.Place {
	l, ok := n.locations[id]
	if !ok {
		return &wire.Place{Location: n.locationName(id), Kind: wire.LocationKind_LOCATION_KIND_UNKNOWN}
	}
	return &wire.Place{
		Location: text(l.Name), Kind: kindOf(l), Device: text(l.Device), Stage: text(l.Stage), Orientation: text(l.Orientation),
		CapacityBps: l.Capacity * 1000, Candidates: texts(l.Candidates), CandidateCount: uint32(l.CandidateCount),
	}
}

const (
	// storePatience is how long a request waits for the store's names.
	storePatience = time.Second
	// storeTimeout bounds the reading of names, which continues in the background.
	storeTimeout = 30 * time.Second
)

// formerFabrics is the number of replaced fabrics whose names are kept.
const formerFabrics = 4

// BothNames is a Catalog of the groups and locations of the fabric in use, those that exporters have described in a store,
// and those of the last replaced fabrics. While the store is slow or unreachable, it keeps the names read last. Until they
// were read once, the error is query.ErrUnavailable, and a list beside it has only the names of fabrics. It is safe for
// concurrent use.
type BothNames struct {
	Fabric func() *fabric.Fabric // in use; nil: only the store has names
	Stored Catalog               // nil without exporters

	mu              sync.Mutex
	formerGroups    [][]fabric.Group // of replaced fabrics, the latest first
	formerLocations [][]fabric.Location

	patience  time.Duration // how long a request waits for Stored; 0: storePatience
	groups    remembered[fabric.Group]
	locations remembered[fabric.Location]
}

// Replaced keeps the names of a fabric that another one replaces: rows in memory still refer to them.
func (n *BothNames) Replaced(f *fabric.Fabric) {
	groups, locations := f.Groups(), f.Locations()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.formerGroups, n.formerLocations = latest(groups, n.formerGroups), latest(locations, n.formerLocations)
}

// latest returns the last formerFabrics lists.
func latest[T any](list []T, earlier [][]T) [][]T {
	return slices.Concat([][]T{list}, earlier[:min(len(earlier), formerFabrics-1)])
}

// Groups implements Catalog.
func (n *BothNames) Groups(ctx context.Context) ([]fabric.Group, error) {
	n.mu.Lock()
	former := n.formerGroups
	n.mu.Unlock()
	return n.groupsOf(ctx, former)
}

// GroupsInUse returns the groups without those of replaced fabrics: addresses no longer belong to them.
func (n *BothNames) GroupsInUse(ctx context.Context) ([]fabric.Group, error) {
	return n.groupsOf(ctx, nil)
}

func (n *BothNames) groupsOf(ctx context.Context, former [][]fabric.Group) ([]fabric.Group, error) {
	return both(ctx, n, former, (*fabric.Fabric).Groups, &n.groups, Catalog.Groups, func(g *fabric.Group) aggregate.GroupID { return g.ID })
}

// Prefixes returns the known prefixes of groups in the fabric in use.
func (n *BothNames) Prefixes() map[aggregate.GroupID][]netip.Prefix { return n.Fabric().Prefixes() }

// Locations implements Catalog.
func (n *BothNames) Locations(ctx context.Context) ([]fabric.Location, error) {
	n.mu.Lock()
	former := n.formerLocations
	n.mu.Unlock()
	return both(ctx, n, former, (*fabric.Fabric).Locations, &n.locations, Catalog.Locations, func(l *fabric.Location) aggregate.LocationID { return l.ID })
}

// both returns the list of the fabric in use, then the names that only the list read last from the catalog has, then those
// that only former lists have. It leaves out a former list that could exceed maxLocations.
func both[T any, ID comparable](ctx context.Context, n *BothNames, former [][]T, own func(*fabric.Fabric) []T, last *remembered[T], read func(Catalog, context.Context) ([]T, error), id func(*T) ID) (list []T, err error) {
	known := make(map[ID]bool)
	add := func(names []T) {
		for i := range names {
			if k := id(&names[i]); !known[k] {
				known[k] = true
				list = append(list, names[i])
			}
		}
	}
	if n.Fabric != nil {
		list = []T{}
		add(own(n.Fabric()))
	}
	if n.Stored != nil {
		var others []T
		others, err = last.get(ctx, n.patience, func(ctx context.Context) ([]T, error) { return read(n.Stored, ctx) })
		add(others)
	}
	for _, names := range former {
		if len(list)+len(names) <= maxLocations {
			add(names)
		}
	}
	return list, err
}

// remembering wraps a catalog so that the last names read stay available.
func remembering(c Catalog, patience time.Duration) Catalog {
	if _, ok := c.(*BothNames); ok {
		return c
	}
	return &BothNames{Stored: c, patience: patience}
}

// remembered is the last list read. It is safe for concurrent use.
type remembered[T any] struct {
	mu      sync.Mutex
	list    []T
	known   bool
	err     error         // of the last reading
	reading chan struct{} // closed when the current reading ends; nil without one
}

// get reads the list. If a reading takes longer than the patience, or fails, the caller gets the
// previous list; a slow reading continues in the background.
func (r *remembered[T]) get(ctx context.Context, patience time.Duration, read func(context.Context) ([]T, error)) ([]T, error) {
	list, err := r.readOrKeep(ctx, patience, read)
	if _, limited := errors.AsType[*edge.LimitError](err); limited && edge.BudgetOf(ctx).Check() == nil {
		list, err = r.readOrKeep(ctx, patience, read) // the refusal was for another client, which read first
	}
	return list, err
}

func (r *remembered[T]) readOrKeep(ctx context.Context, wait time.Duration, read func(context.Context) ([]T, error)) ([]T, error) {
	done := r.read(ctx, read)
	select {
	case <-done:
	case <-time.After(cmp.Or(wait, storePatience)):
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.known:
		return r.list, nil
	case r.reading != nil, errors.Is(r.err, context.DeadlineExceeded):
		return nil, fmt.Errorf("%w: its names are not read yet", query.ErrUnavailable)
	}
	return nil, r.err
}

// read starts a reading, unless one is running, and returns the channel that it closes at its
// end.
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
		var list []T
		err := recovering(func() (err error) {
			list, err = read(ctx)
			return err
		})
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

// maxLocations bounds the listed locations.
const maxLocations = 100_000

func (a *API) fabric(ctx context.Context, _ *table.State, _ *wire.FabricRequest) (*answer, error) {
	n, err := a.names.get(ctx)
	if err != nil {
		return nil, err
	}
	out := &wire.FabricResponse{Name: text(a.Fabric)}
	for _, g := range n.groups {
		out.Groups = append(out.Groups, &wire.Group{Name: text(g.Name), Level: text(g.Level), Parent: text(g.Parent)})
	}
	if len(n.locations) > maxLocations {
		return nil, &refused{
			status: http.StatusUnprocessableEntity,
			detail: fmt.Sprintf("there are %d locations, at most %d are listed: see the fabric file", len(n.locations), maxLocations),
		}
	}
	for id := range n.locations {
		out.Locations = append(out.Locations, n.wirePlace(id))
	}
	slices.SortFunc(out.Locations, func(x, y *wire.Place) int { return cmp.Compare(x.Location, y.Location) })
	return of(nil, out)
}

// storedExtent returns the extent of the store, nil if there is no store or it is empty.
func (a *API) storedExtent(ctx context.Context) (*wire.Stored, error) {
	if a.Reader == nil {
		return nil, nil
	}
	e, err := a.Reader.Extent(ctx)
	if err != nil || e.Empty() {
		return nil, err
	}
	out := &wire.Stored{First: timestamppb.New(e.First), Last: timestamppb.New(e.Last)}
	for _, s := range e.Signals {
		out.Signals = append(out.Signals, s.FullName())
	}
	return out, nil
}

// maxMissing bounds the missing producers in a health answer.
const maxMissing = 100

func (a *API) health(ctx context.Context, _ *table.State, _ *wire.HealthRequest) (*answer, error) {
	brief := ctx
	if a.Memory != nil { // which answers without the store
		var cancel context.CancelFunc
		brief, cancel = context.WithTimeout(ctx, storePatience)
		defer cancel()
	}
	stored, err := a.storedExtent(brief)
	now := a.Now()
	out := &wire.HealthResponse{Source: "store", AsOf: timestamppb.New(now), Watchers: uint64(a.watchers.Load()), Stored: stored}
	if a.Memory == nil {
		out.First, out.Last, out.Signals = stored.GetFirst(), stored.GetLast(), stored.GetSignals()
		if stored != nil {
			out.AgeS = age(out.Last.AsTime(), now)
		}
		return &answer{content{value: out}, nil}, err
	}
	s, counts := a.Memory.State(), a.Memory.Counts()
	out.Source, out.Revision, out.Windows, out.ResolutionS = "memory", token(s), uint64(len(s.Windows)), s.Resolution.Seconds()
	out.OldBlocks, out.DroppedWindows = counts.OldBlocks, counts.DroppedWindows
	out.RepeatedBlocks, out.AheadBlocks, out.CrowdedBlocks = counts.RepeatedBlocks, counts.AheadBlocks, counts.CrowdedBlocks
	missing := s.Coverage.Silent[:min(len(s.Coverage.Silent), maxMissing)]
	for _, p := range missing {
		out.MissingProducers = append(out.MissingProducers, text(p.Name))
	}
	if a.Down != nil {
		out.DownProducers = texts(a.Down(missing))
	}
	out.AgeS, out.ExpectedProducers, out.PresentProducers = ageOf(s.Coverage, now), uint64(s.Coverage.Expected), uint64(s.Coverage.Present())
	for _, signal := range s.Signals() {
		out.Signals = append(out.Signals, signal.FullName())
	}
	if w := s.Newest(); w != nil {
		out.First, out.Last = timestamppb.New(s.Windows[0].Start), timestamppb.New(w.End)
		out.CompletenessRatio, out.Producers = w.Completeness(), uint64(w.Producers)
	}
	return of(nil, out)
}
