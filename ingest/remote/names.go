package remote

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/wire"
)

// Description gives the numbers in blocks their meaning.
type Description struct {
	Text      string // the configuration; its xxhash64 is the epoch of the blocks
	Groups    []fabric.Group
	Locations []fabric.Location
}

// Epoch returns the hash of the configuration.
func (d *Description) Epoch() uint64 { return xxhash.Sum64String(d.Text) }

// toWire converts it to a message, without the predefined groups and locations.
func (d *Description) toWire() *wire.Description {
	m := &wire.Description{Epoch: d.Epoch(), Text: d.Text}
	for i := range d.Groups {
		if g := &d.Groups[i]; g.ID > aggregate.OverflowGroup {
			m.Groups = append(m.Groups, groupToWire(g))
		}
	}
	for i := range d.Locations {
		if l := &d.Locations[i]; l.ID > aggregate.OverflowLocation {
			m.Locations = append(m.Locations, locationToWire(l))
		}
	}
	m.Id = descriptionID(m)
	return m
}

func groupToWire(g *fabric.Group) *wire.Group {
	return &wire.Group{Id: uint64(g.ID), Name: g.Name, Level: g.Level, Parent: g.Parent, Order: uint32(max(g.Order, 0))}
}

func groupOf(g *wire.Group) *fabric.Group {
	return &fabric.Group{ID: aggregate.GroupID(g.GetId()), Name: g.GetName(), Level: g.GetLevel(), Parent: g.GetParent(), Order: int(g.GetOrder())}
}

func locationToWire(l *fabric.Location) *wire.Location {
	return &wire.Location{
		Id: uint64(l.ID), Name: l.Name, Kind: l.Kind, Device: l.Device, Stage: l.Stage, Orientation: l.Orientation,
		CapacityKbps: l.Capacity, Candidates: l.Candidates[:min(len(l.Candidates), maxCandidates)],
		CandidateCount: uint32(max(l.CandidateCount, 0)),
		Set:            uint64(l.Set), DeviceLocation: uint64(l.DeviceLoc), StageLocation: uint64(l.StageLoc),
		Peer: l.Peer, FarEnd: uint64(l.FarEnd),
	}
}

func locationOf(l *wire.Location) *fabric.Location {
	return &fabric.Location{
		ID: aggregate.LocationID(l.GetId()), Name: l.GetName(), Kind: l.GetKind(), Device: l.GetDevice(), Stage: l.GetStage(),
		Orientation: l.GetOrientation(), Capacity: l.GetCapacityKbps(), Candidates: l.GetCandidates(),
		CandidateCount: int(l.GetCandidateCount()), Set: aggregate.LocationID(l.GetSet()),
		DeviceLoc: aggregate.LocationID(l.GetDeviceLocation()), StageLoc: aggregate.LocationID(l.GetStageLocation()),
		Peer: l.GetPeer(), FarEnd: aggregate.LocationID(l.GetFarEnd()),
	}
}

// descriptionID returns a hash of everything except the id. Given one description, nobody can
// find another with the same id.
func descriptionID(m *wire.Description) uint64 {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(&wire.Description{
		Epoch: m.GetEpoch(), Text: m.GetText(), Groups: m.GetGroups(), Locations: m.GetLocations(),
	})
	if err != nil {
		return 0 // invalid UTF-8: refused everywhere
	}
	sum := sha256.Sum256(text)
	return binary.LittleEndian.Uint64(sum[:8])
}

// Run is one incarnation of an exporter's stream.
type Run struct {
	aggregate.Source
	Exporter, Stream string // for display
}

// Directory stores the meaning of the collector's blocks and exporters' records. All of it may
// be written repeatedly, and is durable after a call returns: a store that is down delays
// nobody.
type Directory interface {
	WriteEpoch(ctx context.Context, epoch uint64, text string) error
	// PinNames writes names, except those with another pinned description: the directory
	// decides which descriptions hold, across restarts and among the collectors of one store.
	// It may decide later.
	PinNames(context.Context, []fabric.Name) error
	// NotifyContested registers a function that is called for each refused name, with the held
	// one; several goroutines may call it.
	NotifyContested(func(refused, held fabric.Name))
	// Names returns the stored descriptions of these groups and locations, pinned or not. It
	// queries the store.
	Names(context.Context, []aggregate.GroupID, []aggregate.LocationID) ([]fabric.Name, error)
	// BeginRuns announces live runs before their first blocks.
	BeginRuns(context.Context, []Run) error
	// EndRuns ends runs whose blocks are all in the sink.
	EndRuns(context.Context, []Run) error
	// EndEarlier ends earlier, unended runs of the same streams: an exporter's stream has one
	// incarnation at a time.
	EndEarlier(context.Context, []Run) error
	WriteTaps(context.Context, []TapRow) error
	WriteGaps(context.Context, []Gap) error
	// WriteFindings writes the collector's own findings about exporters. A repeated finding
	// with a larger count replaces the earlier one.
	WriteFindings(context.Context, []Finding) error
}

// announcement is one exporter's addition to the directory.
type announcement struct {
	text  string // with epoch
	epoch uint64
	names []fabric.Name
	runs  []Run
}

// refusal is a refused name and the holder of the valid description.
type refusal struct {
	fabric.Name
	holder string // an exporter; empty for a fabric file
}

// registry caches the content of the directory, so that exporters with equal descriptions cost
// nothing. Only the directory decides which description of a name holds: a name that the
// registry forgot is passed to the directory again, which changes nothing or refuses it. It is
// safe for concurrent use.
type registry struct {
	to     Directory
	logger *slog.Logger

	mu       sync.Mutex
	file     announcement // text and epoch of the collector's own description; empty without a fabric file
	common   []described  // complete descriptions, whose id is their hash, from any exporter
	epochs   map[uint64]struct{}
	own      map[nameKey]uint64 // hashes of the collector's own names, which exporters cannot change and which are never evicted
	names    *fairCache[nameKey, nameEntry]
	disputes *fairCache[disputeKey, *dispute]
}

type nameKey struct {
	location bool
	id       uint64
}

// nameEntry holds the hashes of descriptions that were passed to the directory, or the one that
// the directory holds. Only the latter refuses others.
type nameEntry struct {
	content uint64
	rival   uint64 // another one passed to the directory later; 0: none
	held    bool   // the directory confirmed content
	holder  string // exporter of the held description; empty for a fabric file
}

func (e *nameEntry) given(content uint64) bool { return content == e.content || content == e.rival }

const (
	// maxNames is the maximum number of cached names of exporters, at about 120 bytes each;
	// maxExporterNames is that of one exporter: twice the number of groups that a fabric
	// derives from addresses (fabric.maxDerived).
	maxNames         = 1 << 19
	maxExporterNames = maxNames / 4
	maxEpochs        = 256 // whose text is known to be in the directory
)

func newRegistry(to Directory, logger *slog.Logger) *registry {
	return &registry{
		to: to, logger: logger, epochs: map[uint64]struct{}{}, own: map[nameKey]uint64{},
		names:    newFairCache[nameKey, nameEntry](maxExporterNames, maxNames),
		disputes: newFairCache[disputeKey, *dispute](maxExporterDisputes, maxDisputes),
	}
}

// adopt implements Server.HoldNames.
func (r *registry) adopt(d Description) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.own)
	m := d.toWire()
	r.file = announcement{text: m.GetText(), epoch: m.GetEpoch()}
	r.common = appendRecent(r.common, described{m.GetId(), m.GetEpoch()}, maxKnown)
	r.epochs[m.GetEpoch()] = struct{}{}
	for _, n := range namesOf(m, "") {
		k := nameKeyOf(&n)
		r.own[k] = contentOf(&n)
		r.names.remove(k)
	}
}

func (r *registry) epochOf(id uint64) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return find(r.common, id)
}

// share registers a complete description for all exporters.
func (r *registry) share(m *wire.Description) {
	if m.GetId() == descriptionID(m) {
		r.mu.Lock()
		r.common = appendRecent(r.common, described{m.GetId(), m.GetEpoch()}, maxKnown)
		r.mu.Unlock()
	}
}

// checkDescription rejects invalid descriptions.
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
		if err := locationOf(l).Check(); err != nil {
			return err
		}
		if edge.CheckName(l.GetName()) != nil || !printable(l.GetDevice(), l.GetStage(), l.GetOrientation(), l.GetPeer()) || !printable(l.GetCandidates()...) {
			return fmt.Errorf("location %.64q: expected printable names", l.GetName())
		}
	}
	return nil
}

func printable(list ...string) bool {
	for _, s := range list {
		if !utf8.ValidString(s) || s != "" && edge.CheckName(s) != nil {
			return false
		}
	}
	return true
}

// namesOf returns the names of a description.
func namesOf(m *wire.Description, exporter string) []fabric.Name {
	list := make([]fabric.Name, 0, len(m.GetGroups())+len(m.GetLocations()))
	for _, g := range m.GetGroups() {
		list = append(list, fabric.Name{Group: groupOf(g), Exporter: exporter, Pinned: true})
	}
	for _, l := range m.GetLocations() {
		list = append(list, fabric.Name{Location: locationOf(l), Exporter: exporter, Pinned: true})
	}
	return list
}

func nameKeyOf(n *fabric.Name) nameKey {
	if n.Group != nil {
		return nameKey{false, uint64(n.Group.ID)}
	}
	return nameKey{true, uint64(n.Location.ID)}
}

// contentOf returns a hash of a description's content, never 0. It ignores the order of groups,
// which shifts with every group added to a fabric file.
func contentOf(n *fabric.Name) uint64 {
	var m proto.Message
	if n.Group != nil {
		g := groupToWire(n.Group)
		g.Order = 0
		m = g
	} else {
		m = locationToWire(n.Location)
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		text = nil // invalid UTF-8: in no description
	}
	return max(xxhash.Sum64(text), 1)
}

// news returns the parts of an exporter's description that the directory may lack, and the
// refused names.
func (r *registry) news(m *wire.Description, exporter string) (a announcement, refused []refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.epochs[m.GetEpoch()]; !known && m.GetText() != "" {
		a.epoch, a.text = m.GetEpoch(), m.GetText()
	}
	for _, n := range namesOf(m, exporter) {
		k, content := nameKeyOf(&n), contentOf(&n)
		if own, there := r.own[k]; there {
			if own != content {
				refused = append(refused, refusal{Name: n})
			} else {
				r.disputes.remove(disputeKey{k, exporter})
			}
			continue
		}
		switch have := r.names.get(k); {
		case have == nil || !have.held && !have.given(content):
			a.names = append(a.names, n)
		case have.held && have.content != content:
			refused = append(refused, refusal{n, have.holder})
		case have.held:
			r.disputes.remove(disputeKey{k, exporter})
		}
	}
	return a, refused
}

// wrote records that the directory has the text of a description.
func (r *registry) wrote(m *wire.Description) {
	if m.GetText() == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.epochs) >= maxEpochs {
		clear(r.epochs)
	}
	r.epochs[m.GetEpoch()] = struct{}{}
}

// announce writes several announcements to the directory. Readers take the topology from the text that
// was written last, so the collector's own text follows those of exporters: an exporter with another
// fabric file, or with windows from before a change of it, does not replace the topology.
func (r *registry) announce(ctx context.Context, list []announcement) error {
	var runs []Run
	epochs := map[uint64]bool{}
	for _, a := range list {
		if a.text != "" && !epochs[a.epoch] {
			epochs[a.epoch] = true
			if err := r.to.WriteEpoch(ctx, a.epoch, a.text); err != nil {
				return err
			}
		}
		runs = append(runs, a.runs...)
	}
	r.mu.Lock()
	file := r.file
	r.mu.Unlock()
	if len(epochs) > 0 && file.text != "" {
		if err := r.to.WriteEpoch(ctx, file.epoch, file.text); err != nil {
			return err
		}
	}
	if names := r.unpassed(list); len(names) > 0 {
		if err := r.to.PinNames(ctx, names); err != nil {
			return err
		}
		r.given(names)
	}
	if len(runs) > 0 {
		return r.to.BeginRuns(ctx, runs)
	}
	return nil
}

// unpassed returns the names that were not passed to the directory yet, each description of a
// name once.
func (r *registry) unpassed(list []announcement) (names []fabric.Name) {
	type saying struct {
		nameKey
		content uint64
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	chosen := map[saying]struct{}{}
	for _, a := range list {
		for _, n := range a.names {
			s := saying{nameKeyOf(&n), contentOf(&n)}
			if have := r.names.get(s.nameKey); have != nil && have.given(s.content) {
				continue
			}
			if _, there := chosen[s]; !there {
				chosen[s] = struct{}{}
				names = append(names, n)
			}
		}
	}
	return names
}

// given records names passed to the directory, unless it has confirmed a description for them.
func (r *registry) given(list []fabric.Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range list {
		n := &list[i]
		k, content := nameKeyOf(n), contentOf(n)
		switch have := r.names.get(k); {
		case have == nil:
			r.names.put(n.Exporter, k, nameEntry{content: content})
		case !have.held && !have.given(content):
			have.rival = content
		}
	}
}

// hold records the description that the directory holds, for the exporter that asked. The
// caller holds mu.
func (r *registry) hold(exporter string, n *fabric.Name) {
	k := nameKeyOf(n)
	if _, own := r.own[k]; !own {
		r.names.put(exporter, k, nameEntry{content: contentOf(n), held: true, holder: n.Exporter})
	}
}
