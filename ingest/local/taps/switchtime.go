package taps

import (
	"time"

	"github.com/csigscope/csigscope/decode"
)

// MaxSwitchError is how far a switch's time may be from that of reception in a frame's
// TimeNS: nothing that anybody sends moves a frame further.
const MaxSwitchError = 500 * time.Millisecond

const (
	maxSwitchError = int64(MaxSwitchError)
	// maxSwitchOffset is how far the switch's clock itself may be off. Atomic time (TAI)
	// is 37 s ahead of UTC.
	maxSwitchOffset = 60 * nanosPerSecond
	nanosPerSecond  = int64(time.Second)
	// maxSwitchDrift is one part in how many a switch's clock may run slow.
	maxSwitchDrift = 10_000
)

// switchTime turns the timestamps of one session (draft-foschiano-erspan-03) into Unix
// times that can be compared with others. Where they are of IEEE 1588, the part of the
// second is the switch's and the second is the one nearest to reception: whether the
// switch counts TAI or UTC does not matter. Counters without a known epoch give the time
// between frames; the frame that was the least under way tells when that was.
type switchTime struct {
	known    bool
	last     int64 // timestamp as it came
	ticks    int64 // of the same frame, without wraps, ns
	offset   int64 // from ticks to Unix ns
	received int64 // Unix ns
}

// at is the switch's time of a frame (Unix ns), within maxSwitchError of when it was
// received; ok is false where it cannot be told.
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

// nearestSecond is the time nearest to the one given with this part of a second.
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
		t.ticks, t.offset, t.known, under = 0, received, true, 0 // it began, or began anew
	}
	t.offset += min(under, 0)
	return t.ticks + t.offset
}
