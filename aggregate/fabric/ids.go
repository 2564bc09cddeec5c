package fabric

import (
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
)

// PortName is the canonical name of a port, "leaf3:up1".
func PortName(device, port string) string { return device + ":" + port }

// PortLocationID is the location of a port of a device.
func PortLocationID(device, port string) aggregate.LocationID {
	return LocationIDOf(KindPort, PortName(device, port))
}

// GroupIDOf is the group of that name.
func GroupIDOf(name string) aggregate.GroupID {
	return aggregate.GroupID(hashName("group:" + name))
}

// LocationIDOf is the location of that kind and name. Like all identities it depends on
// names alone, so that it is the same in every run and under every configuration that has
// the location, and anybody can check it.
func LocationIDOf(kind, name string) aggregate.LocationID {
	if kind == KindOverflow {
		return aggregate.OverflowLocation
	}
	return aggregate.LocationID(hashName(kind + ":" + name))
}

// Check returns an error unless the location's identity is that of its kind and name, and
// each location above it is itself or that of its direction, device or stage.
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
	}
	for _, at := range above {
		ok := at.id == l.ID
		for _, name := range at.names {
			ok = ok || at.known && at.id == LocationIDOf(KindSet, name)
		}
		if !ok {
			return fmt.Errorf("location %.64q: the %s that it belongs to is not that of its device, orientation and stage", l.Name, at.level)
		}
	}
	return nil
}

// Name is a group or a location, and whose description of it holds.
type Name struct {
	Group    *Group
	Location *Location // nil for a group
	// Exporter described it; it is empty for a fabric file.
	Exporter string
	// Pinned is false when the next exporter's description replaces it.
	Pinned bool
}

// hashName never returns the reserved identities 0 and 1.
func hashName(canonical string) uint64 {
	h := xxhash.Sum64String(canonical)
	if h <= 1 {
		return xxhash.Sum64String(canonical + "\x00")
	}
	return h
}
