package taps

import (
	"time"

	"github.com/csigscope/csigscope/decode"
)

const (
	// maxSwitchError is the maximum difference in a frame's TimeNS between a switch's time and that of reception (ns),
	// whatever a sender claims.
	maxSwitchError = int64(500 * time.Millisecond)
	// maxSwitchOffset is the maximum offset of the switch's clock itself. Atomic time (TAI) is
	// 37 s ahead of UTC.
	maxSwitchOffset = 60 * nanosPerSecond
	nanosPerSecond  = int64(time.Second)
	// maxSwitchDrift means that a switch's clock may run slow by one part in maxSwitchDrift.
	maxSwitchDrift = 10_000
)

// switchTime converts the timestamps of one session (draft-foschiano-erspan-03) to comparable
// Unix times. For IEEE 1588 timestamps it takes the subsecond part from the switch and the
// second nearest to reception, so it does not matter whether the switch counts TAI or UTC.
// Counters without a known epoch give the time between frames; the frame with the shortest
// delay anchors them.
type switchTime struct {
	known    bool
	last     int64 // raw timestamp
	ticks    int64 // of the same frame, unwrapped, ns
	offset   int64 // from ticks to Unix ns
	received int64 // Unix ns
}

// at returns the switch's time of a frame (Unix ns), within maxSwitchError of its reception; ok
// is false if it is unknown.
func (t *switchTime) at(s *decode.Session, received int64) (ns int64, ok bool) {
	switch s.SwitchClock {
	case decode.ClockPTP:
		if off := s.SwitchNS - received; off > maxSwitchOffset || off < -maxSwitchOffset {
			return 0, false
		}
		return nearestSecond(s.SwitchNS%nanosPerSecond, received), true
	case decode.ClockNanos:
		if s.SwitchNS >= nanosPerSecond {
			return 0, false
		}
		return nearestSecond(s.SwitchNS, received), true
	case decode.Clock100us:
		return t.follow(s, received, 100_000), true
	case decode.Clock100ns:
		return t.follow(s, received, 100), true
	}
	return 0, false
}

// nearestSecond returns the time nearest to the given one with this subsecond part.
func nearestSecond(part, to int64) int64 {
	d := part - to%nanosPerSecond
	if d > maxSwitchError {
		d -= nanosPerSecond
	} else if d < -maxSwitchError {
		d += nanosPerSecond
	}
	return to + d
}

// follow unwraps a counter whose steps are perTick ns.
func (t *switchTime) follow(s *decode.Session, received, perTick int64) int64 {
	d := s.SwitchNS - t.last
	if wrap := perTick << 32; s.SwitchBits == 32 {
		if d > wrap/2 {
			d -= wrap
		} else if d < -wrap/2 {
			d += wrap
		}
	}
	t.ticks += d
	t.last = s.SwitchNS
	if slept := received - t.received; t.known && slept > 0 {
		t.offset += slept / maxSwitchDrift
	}
	t.received = received
	under := received - t.ticks - t.offset
	if !t.known || under > maxSwitchError || under < -maxSwitchError {
		t.ticks, t.offset, t.known, under = 0, received, true, 0 // first frame, or the switch restarted
	}
	t.offset += min(under, 0)
	return t.ticks + t.offset
}
