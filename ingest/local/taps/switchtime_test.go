package taps

import (
	"math"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode"
)

// second is an arbitrary time of reception.
const second = int64(1_700_000_000) * nanosPerSecond

// TestSwitchTime: timestamps of switches become Unix times near reception, or none.
func TestSwitchTime(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, tc := range []struct {
		name     string
		clock    decode.SwitchClock
		switchNS int64
		received int64
		want     int64 // 0: not usable
	}{
		{"UTC", decode.ClockPTP, second - 3*ms, second, second - 3*ms},
		{"TAI", decode.ClockPTP, second + 37*nanosPerSecond - 3*ms, second, second - 3*ms},
		{"ahead", decode.ClockPTP, second + 2*ms, second + ms, second + 2*ms},
		{"of 1970", decode.ClockPTP, 77 * nanosPerSecond, second, 0},
		{"part of the second", decode.ClockNanos, 999 * ms, second + ms, second - ms},
		{"part of the next second", decode.ClockNanos, 1, second - ms, second + 1},
		{"no part of a second", decode.ClockNanos, nanosPerSecond, second, 0},
		{"none", decode.ClockNone, 5, second, 0},
		{"ticks", decode.ClockCustom, 5, second, 0},
	} {
		var c switchTime
		got, ok := c.at(&decode.Session{SwitchClock: tc.clock, SwitchNS: tc.switchNS}, tc.received)
		if ok != (tc.want != 0) || got != tc.want {
			t.Errorf("%s: %d, %t; want %d", tc.name, got-second, ok, tc.want-second)
		}
	}
}

// TestSwitchCounter: a counter without an epoch gives the time between frames despite varying
// delays, its wrap, a slow clock and a restart of the switch.
func TestSwitchCounter(t *testing.T) {
	const us = int64(time.Microsecond)
	var c switchTime
	ticks := int64(1<<32) - 5000 // of 100 ns: it wraps after 0.5 ms
	begun := int64(0)
	for i := range int64(200_000) {
		sent := second + i*100*us // a frame each 100 us by an exact clock
		under := 50*us + (i*7919%23)*10*us
		s := decode.Session{SwitchClock: decode.Clock100ns, SwitchBits: 32, SwitchNS: (ticks + i*1000 - i*1000/20_000) & (1<<32 - 1) * 100} // 50 ppm slow
		got, ok := c.at(&s, sent+under)
		if !ok {
			t.Fatal("a counter is not used")
		}
		if begun == 0 {
			begun = got
		}
		// The error is at most the shortest delay plus the drift until the next such frame.
		if off := got - sent - 50*us; i > 23 && (off < -10*us || off > 5*us) {
			t.Fatalf("frame %d is %d us off", i, off/us)
		}
	}
	at := second + 100*nanosPerSecond
	for _, again := range []int64{0, 1 << 40, math.MaxInt64, 3} { // hostile senders too
		if got, _ := c.at(&decode.Session{SwitchClock: decode.Clock100us, SwitchBits: 64, SwitchNS: again}, at); got != at && at-got > maxSwitchError || got > at {
			t.Errorf("counter %d: %d ns from reception", again, got-at)
		}
	}
}
