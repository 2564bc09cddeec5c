package metrics

import (
	"maps"
	"slices"
)

// A Mirror is an address that switches mirror to: a tap with sessions.
type Mirror struct {
	Name     string            // of the tap
	Packets  map[string]uint64 // by a fixed set of results of unwrapping them
	Excess   uint64            // frames of sessions beyond the bound
	Sessions []MirrorSession
}

// A MirrorSession is what one switch mirrors in one session.
type MirrorSession struct {
	Name                  string // of the tap that it is
	Frames, Lost          uint64
	SwitchTimes, Unusable uint64 // frames with the switch's time, and those whose time could not be used
}

// NewMirrors exports what arrives in mirror sessions.
func NewMirrors(read func() []Mirror) *Collector {
	c := new(Collector)
	named := new(first)
	packets := c.counter("mirror_packets_total", "Packets that arrived for mirror sessions, by what they were; mirror is a mirrored frame.", "tap", "result")
	excess := c.counter("mirror_excess_frames_total", "Frames of sessions beyond max_sessions, which count together as the mirror itself.", "tap")
	counters := []struct {
		*family
		of func(*MirrorSession) *uint64
	}{
		{c.counter("mirror_session_frames_total", "Frames that switches mirrored in the session.", "session"), func(s *MirrorSession) *uint64 { return &s.Frames }},
		{c.counter("mirror_session_lost_frames_total", "Frames missing in the numbers of the session: lost on the way.", "session"), func(s *MirrorSession) *uint64 { return &s.Lost }},
		{c.counter("mirror_session_switch_times_total", "Frames that have the time of the switch.", "session"), func(s *MirrorSession) *uint64 { return &s.SwitchTimes }},
		{c.counter("mirror_session_unusable_times_total", "Frames that were to have the time of the switch and have that of reception: it is missing, of no known unit or more than a minute off.", "session"), func(s *MirrorSession) *uint64 { return &s.Unusable }},
	}
	c.read = func(to emit) {
		var all sums[MirrorSession]
		for _, m := range read() {
			for _, result := range slices.Sorted(maps.Keys(m.Packets)) {
				to(packets, float64(m.Packets[result]), m.Name, result)
			}
			to(excess, float64(m.Excess), m.Name)
			for i := range m.Sessions {
				sum := all.at(named.name(m.Sessions[i].Name))
				for _, n := range counters {
					*n.of(sum) += *n.of(&m.Sessions[i])
				}
			}
		}
		for _, name := range all.order {
			for _, n := range counters {
				to(n.family, float64(*n.of(all.of[name])), name)
			}
		}
	}
	return c
}
