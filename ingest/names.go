package ingest

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/ingest/credential"
	"github.com/csigscope/csigscope/ingest/wire"
)

// Description says what the numbers in blocks stand for.
type Description struct {
	Text      string // the configuration; its xxhash64 is the epoch of the blocks
	Groups    []fabric.Group
	Locations []fabric.Location
}

// Epoch is the configuration's.
func (d *Description) Epoch() uint64 { return xxhash.Sum64String(d.Text) }

// toWire makes a message of it, without what everybody knows.
func (d *Description) toWire() *wire.Description {
	m := &wire.Description{Epoch: d.Epoch(), Text: d.Text}
	for i := range d.Groups {
		if g := &d.Groups[i]; g.ID > aggregate.OverflowGroup {
			m.Groups = append(m.Groups, &wire.Group{
				Id: uint64(g.ID), Name: g.Name, Level: g.Level, Parent: g.Parent, Order: uint32(max(g.Order, 0)),
			})
		}
	}
	for i := range d.Locations {
		if l := &d.Locations[i]; l.ID > aggregate.OverflowLocation {
			m.Locations = append(m.Locations, &wire.Location{
				Id: uint64(l.ID), Name: l.Name, Kind: l.Kind, Device: l.Device, Stage: l.Stage, Orientation: l.Orientation,
				CapacityKbps: l.Capacity, Candidates: l.Candidates[:min(len(l.Candidates), maxCandidates)],
				CandidateCount: uint32(max(l.CandidateCount, 0)),
				Set:            uint64(l.Set), DeviceLocation: uint64(l.DeviceLoc), StageLocation: uint64(l.StageLoc),
			})
		}
	}
	m.Id = descriptionID(m)
	return m
}

// descriptionID is a hash of all but the id. Nobody who knows one description finds
// another with its id.
func descriptionID(m *wire.Description) uint64 {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(&wire.Description{
		Epoch: m.GetEpoch(), Text: m.GetText(), Groups: m.GetGroups(), Locations: m.GetLocations(),
	})
	if err != nil {
		return 0 // no UTF-8: refused everywhere
	}
	sum := sha256.Sum256(text)
	return binary.LittleEndian.Uint64(sum[:8])
}

// Run is one life of an exporter's stream.
type Run struct {
	aggregate.Source
	Exporter, Stream string // for people
}

// Directory is where the collector puts what its blocks mean, and what else is told of
// them. All may be put again, and is durable after that.
type Directory interface {
	WriteEpoch(ctx context.Context, epoch uint64, text string) error
	WriteGroups(context.Context, []fabric.Group) error
	WriteLocations(context.Context, []fabric.Location) error
	// BeginRuns announces live runs before their first blocks.
	BeginRuns(context.Context, []Run) error
	// EndRuns ends runs whose blocks are all in the sink.
	EndRuns(context.Context, []Run) error
	WriteTaps(context.Context, []TapRow) error
	WriteGaps(context.Context, []Gap) error
}

// announcement is what one exporter adds to the directory.
type announcement struct {
	text      string // with epoch
	epoch     uint64
	groups    []fabric.Group
	locations []fabric.Location
	runs      []Run
}

// registry remembers what the directory has. Safe for concurrent use.
type registry struct {
	to     Directory
	logger *slog.Logger

	mu     sync.Mutex
	common []described // descriptions that are what their id says, whoever gave them
	epochs map[uint64]struct{}
	names  map[nameKey]nameEntry
}

type nameKey struct {
	location bool
	id       uint64
}

type nameEntry struct {
	name, content uint64 // hashes: of what must not change, of everything
	own           bool   // the collector's: no exporter changes it
}

const (
	maxNames  = 1 << 19 // that a collector remembers
	maxEpochs = 256     // whose text is known to be in the directory
)

func newRegistry(to Directory, logger *slog.Logger) *registry {
	return &registry{to: to, logger: logger, epochs: map[uint64]struct{}{}, names: map[nameKey]nameEntry{}}
}

// adopt makes a description of the collector's own known. The caller has written it.
func (r *registry) adopt(d *Description) {
	m := d.toWire()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.common = appendRecent(r.common, described{m.GetId(), m.GetEpoch()}, maxKnown)
	r.epochs[m.GetEpoch()] = struct{}{}
	r.record(m.GetGroups(), m.GetLocations(), true)
}

func (r *registry) epochOf(id uint64) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return find(r.common, id)
}

// share makes a description known for all exporters if it is whole.
func (r *registry) share(m *wire.Description) {
	if m.GetId() == descriptionID(m) {
		r.mu.Lock()
		r.common = appendRecent(r.common, described{m.GetId(), m.GetEpoch()}, maxKnown)
		r.mu.Unlock()
	}
}

// checkDescription refuses what cannot be a description.
func checkDescription(m *wire.Description) error {
	if m.GetText() != "" && xxhash.Sum64String(m.GetText()) != m.GetEpoch() {
		return fmt.Errorf("epoch %016x: not the hash of its text", m.GetEpoch())
	}
	for _, g := range m.GetGroups() {
		if fabric.GroupIDOf(g.GetName()) != aggregate.GroupID(g.GetId()) || !printable(g.GetName(), g.GetLevel(), g.GetParent()) {
			return fmt.Errorf("group %.64q: its id is not that of its name, or it has no printable name", g.GetName())
		}
	}
	for _, l := range m.GetLocations() {
		if l.GetId() <= uint64(aggregate.OverflowLocation) || credential.CheckName(l.GetName()) != nil ||
			!printable(l.GetKind(), l.GetDevice(), l.GetStage(), l.GetOrientation()) || !printable(l.GetCandidates()...) {
			return fmt.Errorf("location %.64q: expected an id of its own and printable names", l.GetName())
		}
	}
	return nil
}

func printable(list ...string) bool {
	for _, s := range list {
		if !utf8.ValidString(s) || s != "" && credential.CheckName(s) != nil {
			return false
		}
	}
	return true
}

// fresh counts the names of a description that the directory does not have. It takes
// none of them.
func (r *registry) fresh(m *wire.Description) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range m.GetGroups() {
		if r.compare(groupEntry(g)) == nameNew {
			n++
		}
	}
	for _, l := range m.GetLocations() {
		if r.compare(locationEntry(l)) == nameNew {
			n++
		}
	}
	return n
}

// news is what of a description the directory does not have, and how many names are
// refused because something else has them. It takes the new names: they count against
// maxNames from now on, so that their exporter has to have paid for them.
func (r *registry) news(m *wire.Description) (a announcement, taken int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.epochs[m.GetEpoch()]; !known && m.GetText() != "" {
		a.epoch, a.text = m.GetEpoch(), m.GetText()
	}
	for _, g := range m.GetGroups() {
		switch r.take(groupEntry(g)) {
		case nameNew:
			a.groups = append(a.groups, fabric.Group{
				ID: aggregate.GroupID(g.GetId()), Name: g.GetName(), Level: g.GetLevel(), Parent: g.GetParent(), Order: int(g.GetOrder()),
			})
		case nameTaken:
			taken++
		}
	}
	for _, l := range m.GetLocations() {
		switch r.take(locationEntry(l)) {
		case nameNew:
			a.locations = append(a.locations, locationOf(l))
		case nameTaken:
			taken++
		}
	}
	return a, taken
}

func locationOf(l *wire.Location) fabric.Location {
	return fabric.Location{
		ID: aggregate.LocationID(l.GetId()), Name: l.GetName(), Kind: l.GetKind(), Device: l.GetDevice(), Stage: l.GetStage(),
		Orientation: l.GetOrientation(), Capacity: l.GetCapacityKbps(), Candidates: l.GetCandidates(),
		CandidateCount: int(l.GetCandidateCount()), Set: aggregate.LocationID(l.GetSet()),
		DeviceLoc: aggregate.LocationID(l.GetDeviceLocation()), StageLoc: aggregate.LocationID(l.GetStageLocation()),
	}
}

type nameState uint8

const (
	nameKnown nameState = iota
	nameNew
	nameTaken
)

// compare tells what to do with a name. What an id is called never changes; the rest of
// it may, with the configuration, unless it is the collector's own.
func (r *registry) compare(k nameKey, e nameEntry) nameState {
	have, ok := r.names[k]
	switch {
	case !ok && len(r.names) >= maxNames, ok && have.name != e.name:
		return nameTaken
	case ok && (have.own || have.content == e.content):
		return nameKnown
	}
	return nameNew
}

// take is compare, and keeps a new name for who writes it.
func (r *registry) take(k nameKey, e nameEntry) nameState {
	state := r.compare(k, e)
	if _, ok := r.names[k]; state == nameNew && !ok {
		r.names[k] = nameEntry{name: e.name} // nobody else takes it while it is written
	}
	return state
}

func groupEntry(g *wire.Group) (nameKey, nameEntry) {
	return nameKey{false, g.GetId()}, entryOf(g.GetName(), g)
}

func locationEntry(l *wire.Location) (nameKey, nameEntry) {
	return nameKey{true, l.GetId()}, entryOf(l.GetName()+"\x00"+l.GetKind(), l)
}

func entryOf(name string, m proto.Message) nameEntry {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		text = nil
	}
	return nameEntry{name: xxhash.Sum64String(name), content: xxhash.Sum64(text)}
}

// wrote remembers what the directory has now.
func (r *registry) wrote(m *wire.Description) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.GetText() != "" {
		if len(r.epochs) >= maxEpochs {
			clear(r.epochs)
		}
		r.epochs[m.GetEpoch()] = struct{}{}
	}
	r.record(m.GetGroups(), m.GetLocations(), false)
}

func (r *registry) record(groups []*wire.Group, locations []*wire.Location, own bool) {
	put := func(k nameKey, e nameEntry) {
		if e.own = own; own || r.compare(k, e) == nameNew {
			r.names[k] = e
		}
	}
	for _, g := range groups {
		put(groupEntry(g))
	}
	for _, l := range locations {
		put(locationEntry(l))
	}
}

// write puts announcements into the directory, together.
func (r *registry) write(ctx context.Context, list []announcement) error {
	var all announcement
	epochs := map[uint64]bool{}
	for _, a := range list {
		if a.text != "" && !epochs[a.epoch] {
			epochs[a.epoch] = true
			if err := r.to.WriteEpoch(ctx, a.epoch, a.text); err != nil {
				return err
			}
		}
		all.groups = append(all.groups, a.groups...)
		all.locations = append(all.locations, a.locations...)
		all.runs = append(all.runs, a.runs...)
	}
	// Exporters of one fabric say the same.
	all.groups = unique(all.groups, func(g *fabric.Group) uint64 { return uint64(g.ID) })
	all.locations = unique(all.locations, func(l *fabric.Location) uint64 { return uint64(l.ID) })
	if len(all.groups) > 0 {
		if err := r.to.WriteGroups(ctx, all.groups); err != nil {
			return err
		}
	}
	if len(all.locations) > 0 {
		if err := r.to.WriteLocations(ctx, all.locations); err != nil {
			return err
		}
	}
	if len(all.runs) > 0 {
		return r.to.BeginRuns(ctx, all.runs)
	}
	return nil
}

// unique leaves the first of those with the same id.
func unique[T any](list []T, id func(*T) uint64) []T {
	seen := make(map[uint64]struct{}, len(list))
	return slices.DeleteFunc(list, func(v T) bool {
		n := len(seen)
		seen[id(&v)] = struct{}{}
		return len(seen) == n
	})
}
