package report

import (
	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// Natural is for tests.
var Natural = natural

// Ramps are the stops of both themes, for tests.
var Ramps = map[string][]stop{"dark": darkRamp, "light": lightRamp}

// Severity is for tests.
func Severity(s csig.Signal, cells []aggregate.CellStats, capacity, v float64) float64 {
	d := domainOf(s, cells, capacity)
	return d.severity(v)
}
