package fabric

import (
	"github.com/csigscope/csigscope/aggregate"
)

// placeIDs are the locations of a port and those above it.
type placeIDs struct {
	port, set, device, stage aggregate.LocationID
}

// placesOf computes the identities of a port's locations.
func (t *topology) placesOf(i int32) placeIDs {
	p := &t.ports[i]
	c := trait{device: p.device, stage: t.devices[p.device].stage, orientation: p.orientation}
	return placeIDs{
		port:   LocationIDOf(KindPort, p.name),
		set:    t.classID(&c, byOrientation),
		device: t.classID(&c, 0),
		stage:  t.classID(&trait{device: none, stage: c.stage}, 0),
	}
}

func (t *topology) classID(c *trait, a aspects) aggregate.LocationID {
	return LocationIDOf(KindSet, t.label(c, a))
}

// addPlaces registers what ports belong to: directions of devices, devices and
// stages.
func (f *Fabric) addPlaces() {
	t := f.topo
	f.places = make([]placeIDs, len(t.ports))
	f.portAt = make(map[aggregate.LocationID]int32, len(t.ports))
	for i := range t.ports {
		f.places[i] = t.placesOf(int32(i))
		f.portAt[f.places[i].port] = int32(i)
	}
	for i := range t.devices {
		f.addDevice(int32(i))
	}
	for stage, ports := range t.stages {
		l := f.class(&trait{device: none, stage: stage}, 0, ports)
		f.known.add(l)
		// All ports of one orientation are called so: "spine down", not "spine".
		if len(ports) > 1 && l.Orientation == "" {
			f.resolve.answers.name(ports, l)
		}
	}
	f.resolve.answers.seal()
}

// addDevice registers a device after its directions, whose names come first for the
// same ports.
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

// class is the location of all ports of one kind.
func (f *Fabric) class(c *trait, a aspects, ports []int32) *Location {
	return f.setLocation(f.topo.label(c, a), ports)
}

// setOf is the location of a set of two or more ports, ascending.
func (f *Fabric) setOf(ports []int32) *Location {
	return f.setLocation(f.topo.describe(ports), ports)
}

func (f *Fabric) setLocation(name string, ports []int32) *Location {
	l := apart(KindSet, name)
	id := l.ID
	f.describeInto(l, ports)
	c := f.topo.traitOf(ports)
	at := &f.places[ports[0]]
	if c.stage != "" {
		l.StageLoc = at.stage
	}
	if c.device != none {
		l.DeviceLoc = at.device
	}
	// A device is not below one of its directions, even if it has no other.
	if c.device != none && c.orientation != "" && id != at.device {
		l.Set = at.set
	}
	if id == at.stage {
		l.Set, l.DeviceLoc = id, id
	}
	return l
}

// describeInto fills what the candidates share and who they are.
func (f *Fabric) describeInto(l *Location, ports []int32) {
	c := f.topo.traitOf(ports)
	if c.device != none {
		l.Device = f.topo.devices[c.device].name
	}
	l.Stage, l.Orientation, l.Capacity = c.stage, c.orientation, c.speed
	l.Candidates = f.topo.portNames(ports[:min(len(ports), maxCandidates)])
	l.CandidateCount = len(ports)
}

// portLocation is the location of a port. It is made when it is asked for, since a
// fabric can have a million of them.
func (f *Fabric) portLocation(i int32) Location {
	at := &f.places[i]
	l := Location{
		ID: at.port, Kind: KindPort, Name: f.topo.ports[i].name,
		Set: at.set, DeviceLoc: at.device, StageLoc: at.stage,
	}
	f.describeInto(&l, []int32{i})
	return l
}
