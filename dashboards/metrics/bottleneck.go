package metrics

import (
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
)

// NewBottlenecks exports the worst locations of each signal, at most top of them, with
// their share of all heavy observations. place names locations.
//
// A location that leaves the worst ones has no number any more, so that alerts on it end.
func NewBottlenecks(now func() time.Time, top int, place func(aggregate.LocationID) string, read func(now int64, top int) []table.SignalBottlenecks) *Collector {
	c := new(Collector)
	heavy := c.gauge("heavy_ratio", "Share of a signal's observations of the last minute that were heavily loaded.", "signal", "source")
	share := c.gauge("bottleneck_heavy_ratio", "Share of a signal's heavy observations of the last minute that name the location as the bottleneck; the worst locations alone.", "signal", "source", "location")
	c.read = func(to emit) {
		for _, s := range read(now().UnixNano(), top) {
			if s.Observations == 0 {
				continue
			}
			signal, kind := s.Signal.String(), s.Kind.String()
			to(heavy, float64(s.Heavy)/float64(s.Observations), signal, kind)
			for _, l := range s.Locations {
				to(share, float64(l.Heavy)/float64(s.Heavy), signal, kind, place(l.Location))
			}
		}
	}
	return c
}
