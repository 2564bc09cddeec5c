package metrics

import (
	"maps"
	"slices"
	"time"
)

// Tap describes one place where frames are captured, with all of its rings. Counters start when it
// is opened and continue when a link goes down and comes back.
type Tap struct {
	Name string
	Up   bool // the interface exists and its link is up

	Frames, Bytes  uint64 // delivered
	Dropped        uint64 // dropped by the kernel for lack of room
	Freezes        uint64 // times that a ring was full
	Stripped       uint64 // frames whose outermost tag came beside them
	SuperFrames    uint64 // frames that the kernel had merged: counts and sizes are wrong
	HardwareStamps uint64 // frames with the time of the network card
	Restamped      uint64 // frames whose hardware time was wrong
	Odd            uint64 // packets that the program in the kernel did not read
	Unsampled      uint64 // heavy observations that it could not sample
	Malformed      uint64 // blocks of a ring that contradict themselves
	Downs, Ups     uint64 // changes of the link
	Reopens        uint64 // rings opened again

	// LastFrame is the capture time of the last frame; zero if there is none.
	LastFrame time.Time
	// ClockOffset is how far the tap's times are ahead of the machine's clock; 0 if they are not.
	ClockOffset time.Duration
}

// NewTaps exports the taps' counters.
func NewTaps(read func() []Tap) *Collector {
	c := new(Collector)
	named := new(first)
	up := c.gauge("tap_up", "1 while the interface is there and its link is up, else 0.", "tap")
	last := c.gauge("tap_last_frame_timestamp_seconds", "Capture time of the last frame. Absent before the first one.", "tap")
	offset := c.gauge("tap_clock_offset_seconds", "How far the tap's times are ahead of the machine's clock. Absent unless they are ahead: a clock that is behind shows as watermark lag.", "tap")
	counters := []struct {
		*family
		of func(*Tap) *uint64
	}{
		{c.counter("tap_frames_total", "Frames captured: those that may have a tag or a reflection, unless the tap is unfiltered.", "tap"), func(t *Tap) *uint64 { return &t.Frames }},
		{c.counter("tap_bytes_total", "Bytes captured, as on the wire.", "tap"), func(t *Tap) *uint64 { return &t.Bytes }},
		{c.counter("tap_kernel_drops_total", "Frames that the kernel dropped because the ring was full.", "tap"), func(t *Tap) *uint64 { return &t.Dropped }},
		{c.counter("tap_ring_freezes_total", "Times that a ring was full.", "tap"), func(t *Tap) *uint64 { return &t.Freezes }},
		{c.counter("tap_stripped_frames_total", "Frames whose outermost VLAN or CSIG tag the kernel had stripped, and delivered separately.", "tap"), func(t *Tap) *uint64 { return &t.Stripped }},
		{c.counter("tap_super_frames_total", "Frames that receive offload (GRO, LRO) merged: packet counts and sizes are wrong, signals are right.", "tap"), func(t *Tap) *uint64 { return &t.SuperFrames }},
		{c.counter("tap_hardware_stamped_frames_total", "Frames with the time of the network card.", "tap"), func(t *Tap) *uint64 { return &t.HardwareStamps }},
		{c.counter("tap_restamped_frames_total", "Frames whose hardware time was more than a second off: they have the system's time instead.", "tap"), func(t *Tap) *uint64 { return &t.Restamped }},
		{c.counter("tap_odd_packets_total", "Packets that a program which counts in the kernel did not read, such as tunnels: a ring takes them where odd_packets says so.", "tap"), func(t *Tap) *uint64 { return &t.Odd }},
		{c.counter("tap_unsampled_observations_total", "Heavy observations that a program which counts in the kernel did not sample, because samples had no budget or no room: no flow has them.", "tap"), func(t *Tap) *uint64 { return &t.Unsampled }},
		{c.counter("tap_malformed_blocks_total", "Blocks of a ring dropped because their lengths contradict each other.", "tap"), func(t *Tap) *uint64 { return &t.Malformed }},
		{c.counter("tap_link_downs_total", "Times that the link went down or away.", "tap"), func(t *Tap) *uint64 { return &t.Downs }},
		{c.counter("tap_link_ups_total", "Times that the link came up again.", "tap"), func(t *Tap) *uint64 { return &t.Ups }},
		{c.counter("tap_reopens_total", "Times that a ring was opened again, because its interface had been created again.", "tap"), func(t *Tap) *uint64 { return &t.Reopens }},
	}
	c.read = func(to emit) {
		var all sums[Tap]
		for _, t := range read() {
			sum := all.at(named.name(t.Name))
			sum.worsen(&t)
			for _, n := range counters {
				*n.of(sum) += *n.of(&t)
			}
		}
		for _, name := range all.order {
			t := all.of[name]
			to(up, flag(t.Up), name)
			if t.ClockOffset != 0 {
				to(offset, t.ClockOffset.Seconds(), name)
			}
			if !t.LastFrame.IsZero() {
				to(last, seconds(t.LastFrame.UnixNano()), name)
			}
			for _, n := range counters {
				to(n.family, float64(*n.of(t)), name)
			}
		}
	}
	return c
}

// worsen takes the worse values of two taps with the same label.
func (t *Tap) worsen(o *Tap) {
	if t.Name == "" { // first use
		t.Name, t.Up, t.LastFrame, t.ClockOffset = o.Name, o.Up, o.LastFrame, o.ClockOffset
		return
	}
	t.Up = t.Up && o.Up
	if o.LastFrame.Before(t.LastFrame) {
		t.LastFrame = o.LastFrame
	}
	if o.ClockOffset.Abs() > t.ClockOffset.Abs() {
		t.ClockOffset = o.ClockOffset
	}
}

// Mirror is an address that receives mirror sessions from switches: a tap with sessions.
type Mirror struct {
	Name     string            // of the tap
	Packets  map[string]uint64 // by result of unwrapping, a fixed set
	Excess   uint64            // frames of sessions beyond the maximum
	Sessions []MirrorSession
}

// MirrorSession is one mirror session of one switch.
type MirrorSession struct {
	Name                  string // of its tap
	Frames, Lost          uint64
	SwitchTimes, Unusable uint64 // frames with the switch's time, and frames whose switch time was unusable
}

// NewMirrors exports the packets of mirror sessions.
func NewMirrors(read func() []Mirror) *Collector {
	c := new(Collector)
	named := new(first)
	packets := c.counter("mirror_packets_total", "Packets that arrived for mirror sessions; the result mirror is a mirrored frame.", "tap", "result")
	excess := c.counter("mirror_excess_frames_total", "Frames of sessions beyond max_sessions, which count together as the mirror itself.", "tap")
	counters := []struct {
		*family
		of func(*MirrorSession) *uint64
	}{
		{c.counter("mirror_session_frames_total", "Frames that switches mirrored in the session.", "session"), func(s *MirrorSession) *uint64 { return &s.Frames }},
		{c.counter("mirror_session_lost_frames_total", "Frames missing in the numbers of the session: lost on the way.", "session"), func(s *MirrorSession) *uint64 { return &s.Lost }},
		{c.counter("mirror_session_switch_times_total", "Frames that have the time of the switch.", "session"), func(s *MirrorSession) *uint64 { return &s.SwitchTimes }},
		{c.counter("mirror_session_unusable_times_total", "Frames with the time of reception instead of the switch's time, which is missing, of no known unit or more than a minute off.", "session"), func(s *MirrorSession) *uint64 { return &s.Unusable }},
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
