package fabric

import (
	"fmt"

	"github.com/csigscope/csigscope/aggregate"
)

// Kinds of locations.
const (
	KindPort     = "port"     // one egress port that the evidence forces
	KindSet      = "set"      // several ports among which the evidence does not choose
	KindRaw      = "raw"      // a value of locator metadata without a layout or topology
	KindUnknown  = "unknown"  // metadata that fits no port, or none on the path
	KindOverflow = "overflow" // everything past a bound on the number of locations
)

// Level names how coarse a location is wanted.
type Level uint8

// The levels, from the finest. A port belongs to the set of the ports of its
// device with its orientation, that to its device, that to its stage.
const (
	LevelLocation Level = iota // as resolved
	LevelSet
	LevelDevice
	LevelStage
	numLevels
)

var levelNames = [numLevels]string{"location", "set", "device", "stage"}

// String is the name used in queries.
func (l Level) String() string {
	if l < numLevels {
		return levelNames[l]
	}
	return fmt.Sprintf("level_%d", uint8(l))
}

// Levels are all levels, the finest first.
func Levels() []Level { return []Level{LevelLocation, LevelSet, LevelDevice, LevelStage} }

// ParseLevel reads a Level's name.
func ParseLevel(s string) (Level, error) {
	for l, name := range levelNames {
		if name == s {
			return Level(l), nil
		}
	}
	return 0, fmt.Errorf("parse level %q: expected location, set, device or stage", s)
}

// maxCandidates bounds the candidates that a Location lists.
const maxCandidates = 64

// Location is a place where a bottleneck was, as exactly as the evidence tells.
type Location struct {
	ID   aggregate.LocationID
	Name string // unique; for people
	Kind string // KindPort, KindSet, ...

	// What all candidates share; empty or 0 where they differ.
	Device, Stage, Orientation string
	Capacity                   uint64 // kbit/s

	Candidates     []string // names of ports, ascending, the first 64; read-only
	CandidateCount int

	// The locations that this one belongs to at the coarser levels; itself where it
	// does not fit into one.
	Set, DeviceLoc, StageLoc aggregate.LocationID
}

// At is the location that l belongs to at the level.
func (l *Location) At(level Level) aggregate.LocationID {
	switch level {
	case LevelSet:
		return l.Set
	case LevelDevice:
		return l.DeviceLoc
	case LevelStage:
		return l.StageLoc
	}
	return l.ID
}

// apart makes a location that belongs to no other.
func apart(kind, name string) *Location {
	id := LocationIDOf(kind, name)
	return &Location{ID: id, Kind: kind, Name: name, Set: id, DeviceLoc: id, StageLoc: id}
}
