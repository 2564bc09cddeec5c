package fabric

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
)

// Kinds of locations.
const (
	KindPort     = "port"     // one egress port that the evidence forces
	KindSet      = "set"      // several ports between which the evidence does not decide
	KindRaw      = "raw"      // a value of locator metadata without a layout or topology
	KindUnknown  = "unknown"  // metadata that fits no port, or none on the path
	KindOverflow = "overflow" // everything past a bound on the number of locations
)

// Level is the granularity of a location.
type Level uint8

// The levels, from the finest. A port belongs to the set of its device's ports with its
// orientation, that set to the device, the device to its stage. LevelFarEnd is different: a port
// belongs to all ports that face the same device or host.
const (
	LevelLocation Level = iota // as resolved
	LevelSet
	LevelDevice
	LevelStage
	LevelFarEnd
	numLevels
)

var levelNames = [numLevels]string{"location", "set", "device", "stage", "far_end"}

// String returns the name used in queries.
func (l Level) String() string {
	if l < numLevels {
		return levelNames[l]
	}
	return fmt.Sprintf("level_%d", uint8(l))
}

// Levels returns all levels, in order.
func Levels() []Level {
	return []Level{LevelLocation, LevelSet, LevelDevice, LevelStage, LevelFarEnd}
}

// ParseLevel reads a Level's name.
func ParseLevel(s string) (Level, error) {
	if l := slices.Index(levelNames[:], s); l >= 0 {
		return Level(l), nil
	}
	return 0, fmt.Errorf("parse level %q: expected location, set, device, stage or far_end", s)
}

// maxCandidates bounds the candidates that a Location lists.
const maxCandidates = 64

// Location says where a bottleneck is, as exactly as the evidence gives it.
type Location struct {
	ID   aggregate.LocationID
	Name string // unique; for people
	Kind string // KindPort, KindSet, ...

	// Common to all candidates; empty or 0 if they differ.
	Device, Stage, Orientation string
	Peer                       string // device or host that they face
	Capacity                   uint64 // kbit/s

	Candidates     []string // names of ports, ascending, the first 64; read-only
	CandidateCount int

	// The locations to which this one belongs at the coarser levels; itself if it belongs to none.
	// FarEnd is 0 if an earlier version described the location.
	Set, DeviceLoc, StageLoc, FarEnd aggregate.LocationID
}

// At returns the location of the level to which l belongs.
func (l *Location) At(level Level) aggregate.LocationID {
	switch level {
	case LevelSet:
		return l.Set
	case LevelDevice:
		return l.DeviceLoc
	case LevelStage:
		return l.StageLoc
	case LevelFarEnd:
		return cmp.Or(l.FarEnd, l.ID)
	}
	return l.ID
}

// apart returns a location that belongs to no other.
func apart(kind, name string) *Location {
	id := LocationIDOf(kind, name)
	return &Location{ID: id, Kind: kind, Name: name, Set: id, DeviceLoc: id, StageLoc: id, FarEnd: id}
}

// portLocations are the locations of a port and those above it.
type portLocations struct {
	port, set, device, stage, farEnd aggregate.LocationID
}

// portLocations computes the identities of a port's locations.
func (t *topology) portLocations(i int32) portLocations {
	p := &t.ports[i]
	c := trait{device: p.device, stage: t.devices[p.device].stage, orientation: p.orientation}
	at := portLocations{
		port:   LocationIDOf(KindPort, p.name),
		set:    t.classID(&c, byOrientation),
		device: t.classID(&c, 0),
		stage:  t.classID(&trait{device: none, stage: c.stage}, 0),
	}
	at.farEnd = at.port
	if p.peerDevice != none || p.peerHost != none && len(t.hosts[p.peerHost].ports) > 1 {
		at.farEnd = LocationIDOf(KindSet, farEndPrefix+p.peer)
	}
	return at
}

// farEndPrefix begins the name of the set of ports that face a device or host. A single link to a
// host has no such set.
const farEndPrefix = "into "

func (t *topology) classID(c *trait, a aspects) aggregate.LocationID {
	return LocationIDOf(KindSet, t.label(c, a))
}

// addAncestors registers the locations above ports: directions of devices, devices and stages.
func (f *Fabric) addAncestors() {
	t := f.topo
	f.locationsOf = make([]portLocations, len(t.ports))
	f.portAt = make(map[aggregate.LocationID]int32, len(t.ports))
	for i := range t.ports {
		f.locationsOf[i] = t.portLocations(int32(i))
		f.portAt[f.locationsOf[i].port] = int32(i)
	}
	for i := range t.devices {
		f.addDevice(int32(i))
	}
	for stage, ports := range t.stages {
		l := f.class(&trait{device: none, stage: stage}, 0, ports)
		f.known.add(l)
		// The set of all ports of one orientation is named with it: "spine down", not "spine".
		if len(ports) > 1 && l.Orientation == "" {
			f.resolve.answers.name(ports, l)
		}
	}
	f.addFarEnds()
	f.resolve.answers.seal()
}

// addFarEnds registers the ports that face each device, and each host with several links.
func (f *Fabric) addFarEnds() {
	facing := make(map[aggregate.LocationID][]int32)
	for i := range f.locationsOf {
		if at := &f.locationsOf[i]; at.farEnd != at.port {
			facing[at.farEnd] = append(facing[at.farEnd], int32(i))
		}
	}
	for _, ports := range facing {
		f.known.add(f.setLocation(farEndPrefix+f.topo.ports[ports[0]].peer, ports))
	}
}

// addDevice registers a device after its directions, so that their names have priority for the same
// ports.
func (f *Fabric) addDevice(i int32) {
	d := &f.topo.devices[i]
	byDirection := map[string][]int32{}
	for _, p := range d.ports {
		o := f.topo.ports[p].orientation
		byDirection[o] = append(byDirection[o], p)
	}
	add := func(c trait, a aspects, ports []int32) {
		l := f.class(&c, a, ports)
		f.known.add(l)
		if len(ports) > 1 {
			f.resolve.answers.name(ports, l)
		}
	}
	for o, ports := range byDirection {
		add(trait{device: i, stage: d.stage, orientation: o}, byOrientation, ports)
	}
	if len(d.ports) > 0 {
		add(trait{device: i, stage: d.stage}, 0, d.ports)
	}
}

// class returns the location of all ports of one kind.
func (f *Fabric) class(c *trait, a aspects, ports []int32) *Location {
	return f.setLocation(f.topo.label(c, a), ports)
}

func (f *Fabric) setLocation(name string, ports []int32) *Location {
	l := apart(KindSet, name)
	id := l.ID
	f.describeInto(l, ports)
	c := f.topo.traitOf(ports)
	at := &f.locationsOf[ports[0]]
	if c.stage != "" {
		l.StageLoc = at.stage
	}
	if c.device != none {
		l.DeviceLoc = at.device
	}
	// A device does not belong to one of its directions, even if it has no other.
	if c.device != none && c.orientation != "" && id != at.device {
		l.Set = at.set
	}
	if id == at.stage {
		l.Set, l.DeviceLoc = id, id
	}
	if c.peer != "" && at.farEnd != at.port {
		l.FarEnd = at.farEnd
	}
	return l
}

// describeInto sets the common attributes of the candidates, and their names.
func (f *Fabric) describeInto(l *Location, ports []int32) {
	c := f.topo.traitOf(ports)
	if c.device != none {
		l.Device = f.topo.devices[c.device].name
	}
	l.Stage, l.Orientation, l.Peer, l.Capacity = c.stage, c.orientation, c.peer, c.speed
	l.Candidates = f.topo.portNames(ports[:min(len(ports), maxCandidates)])
	l.CandidateCount = len(ports)
}

// portLocation returns the location of a port. It is made on demand, because a fabric can have a
// million of them.
func (f *Fabric) portLocation(i int32) Location {
	at := &f.locationsOf[i]
	l := Location{
		ID: at.port, Kind: KindPort, Name: f.topo.ports[i].name,
		Set: at.set, DeviceLoc: at.device, StageLoc: at.stage, FarEnd: at.farEnd,
	}
	f.describeInto(&l, []int32{i})
	return l
}

// portName returns the canonical name of a port, "leaf3:up1".
func portName(device, port string) string { return device + ":" + port }

// PortLocationID returns the location of a port of a device.
func PortLocationID(device, port string) aggregate.LocationID {
	return LocationIDOf(KindPort, portName(device, port))
}

// GroupIDOf returns the group of that name.
func GroupIDOf(name string) aggregate.GroupID {
	return aggregate.GroupID(hashName("group:" + name))
}

// LocationIDOf returns the location of that kind and name. Like all identities it depends on names
// alone, so that it is the same in every run and under every configuration with the location, and
// anybody can check it.
func LocationIDOf(kind, name string) aggregate.LocationID {
	if kind == KindOverflow {
		return aggregate.OverflowLocation
	}
	return aggregate.LocationID(hashName(kind + ":" + name))
}

// Check returns an error unless the location's identity matches its kind and name, and each
// location above it is itself or the one of its direction, device, stage or far end.
func (l *Location) Check() error {
	switch l.Kind {
	case KindPort, KindSet, KindRaw, KindUnknown:
	default:
		return fmt.Errorf("location %.64q: kind %.64q: expected %s, %s, %s or %s", l.Name, l.Kind, KindPort, KindSet, KindRaw, KindUnknown)
	}
	if l.ID != LocationIDOf(l.Kind, l.Name) {
		return fmt.Errorf("location %.64q: its id is not that of its kind and name", l.Name)
	}
	above := []struct {
		level Level
		id    aggregate.LocationID
		known bool
		names []string
	}{
		{LevelSet, l.Set, l.Device != "" && l.Orientation != "", []string{l.Device + " " + l.Orientation}},
		{LevelDevice, l.DeviceLoc, l.Device != "", []string{l.Device}},
		{LevelStage, l.StageLoc, l.Stage != "", []string{l.Stage, l.Stage + stageSuffix}},
		{LevelFarEnd, l.At(LevelFarEnd), l.Peer != "", []string{farEndPrefix + l.Peer}},
	}
	for _, at := range above {
		ok := at.id == l.ID
		for _, name := range at.names {
			ok = ok || at.known && at.id == LocationIDOf(KindSet, name)
		}
		if !ok {
			return fmt.Errorf("location %.64q: the %s that it belongs to is not that of its device, orientation, stage and peer", l.Name, at.level)
		}
	}
	return nil
}

// Name is a group or a location, with the source of its description.
type Name struct {
	Group    *Group
	Location *Location // nil for a group
	// Exporter is the source of the description; empty for a fabric file.
	Exporter string
	// Pinned is false if the next exporter's description replaces it.
	Pinned bool
}

// Means reports whether two names of one identity have the same description. It ignores the order
// of groups, which changes with every group that is added to a fabric file.
func (n *Name) Means(o *Name) bool {
	if n.Group != nil {
		g := *n.Group
		g.Order = o.Group.Order
		return g == *o.Group
	}
	a, b := *n.Location, *o.Location
	alike := slices.Equal(a.Candidates, b.Candidates)
	a.Candidates, b.Candidates = nil, nil
	return alike && reflect.DeepEqual(a, b)
}

// hashName never returns the reserved identities 0 and 1.
func hashName(canonical string) uint64 {
	h := xxhash.Sum64String(canonical)
	if h <= 1 {
		return xxhash.Sum64String(canonical + "\x00")
	}
	return h
}
