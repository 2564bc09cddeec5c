package report

import (
	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// VerdictOf exports verdictOf to tests.
var VerdictOf = verdictOf

// Ramps exports the stops of both themes to tests.
var Ramps = map[string][]stop{"dark": darkRamp, "light": lightRamp}

// Severity exports domain.severity to tests.
func Severity(s csig.Signal, cells []aggregate.CellStats, capacity, v float64) float64 {
	d := domainOf(s, cells, capacity)
	return d.severity(v)
}
