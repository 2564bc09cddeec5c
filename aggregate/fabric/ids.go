package fabric

import (
	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
)

// PortName is the canonical name of a port, "leaf3:up1".
func PortName(device, port string) string { return device + ":" + port }

// PortLocationID is the location of a port of a device. Like all identities here
// it depends on names alone, so that it is the same in every run and under every
// configuration that has the port.
func PortLocationID(device, port string) aggregate.LocationID {
	return locationID("port:" + PortName(device, port))
}

// GroupIDOf is the group of that name.
func GroupIDOf(name string) aggregate.GroupID {
	return aggregate.GroupID(hashName("group:" + name))
}

// Canonical names of locations begin with their kind. Sets that have a name in the
// topology (a stage, a device, one direction of a device) are identified by it,
// since "leaf3 up" stays the same place when an uplink is added to it; all other
// sets are identified by their members.
func locationID(canonical string) aggregate.LocationID {
	return aggregate.LocationID(hashName(canonical))
}

// hashName never returns the reserved identities 0 and 1.
func hashName(canonical string) uint64 {
	h := xxhash.Sum64String(canonical)
	if h <= 1 {
		return xxhash.Sum64String(canonical + "\x00")
	}
	return h
}
