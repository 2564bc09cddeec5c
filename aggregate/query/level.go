package query

import "fmt"

// Level is the grain at which the mode of the bottleneck is taken. Locations nest:
// a port lies in a set of ports, a set in a device, a device in a stage.
type Level uint8

// The levels. LevelLocation takes locations as they were resolved.
const (
	LevelLocation Level = iota
	LevelSet
	LevelDevice
	LevelStage

	numLevels
)

var levelNames = [numLevels]string{"location", "set", "device", "stage"}

// String is location, set, device or stage.
func (l Level) String() string {
	if l < numLevels {
		return levelNames[l]
	}
	return fmt.Sprintf("level_%d", uint8(l))
}

// ParseLevel reads a level's name.
func ParseLevel(name string) (Level, error) {
	for l, n := range levelNames {
		if n == name {
			return Level(l), nil
		}
	}
	return 0, fmt.Errorf("parse level %q: expected location, set, device or stage", name)
}

// Levels are all levels, the finest first.
func Levels() []Level { return []Level{LevelLocation, LevelSet, LevelDevice, LevelStage} }
