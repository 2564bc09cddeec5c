package capture

import (
	"math"
	"testing"
	"time"
)

// second is some time of reception.
const second = int64(1_700_000_000) * nanosPerSecond

// TestSwitchTime: timestamps of switches become Unix times near reception, or none.
func TestSwitchTime(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, tc := range []struct {
		name     string
		clock    SwitchClock
		switchNS int64
		received int64
		want     int64 // 0: cannot be used
	}{
		{"UTC", ClockPTP, second - 3*ms, second, second - 3*ms},
		{"TAI", ClockPTP, second + 37*nanosPerSecond - 3*ms, second, second - 3*ms},
		{"ahead", ClockPTP, second + 2*ms, second + ms, second + 2*ms},
		{"of 1970", ClockPTP, 77 * nanosPerSecond, second, 0},
		{"part of the second", ClockNanos, 999 * ms, second + ms, second - ms},
		{"part of the next second", ClockNanos, 1, second - ms, second + 1},
		{"no part of a second", ClockNanos, nanosPerSecond, second, 0},
		{"none", ClockNone, 5, second, 0},
		{"ticks", ClockCustom, 5, second, 0},
	} {
		var c switchTime
		got, ok := c.at(&Session{SwitchClock: tc.clock, SwitchNS: tc.switchNS}, tc.received)
		if ok != (tc.want != 0) || got != tc.want {
			t.Errorf("%s: %d, %t; want %d", tc.name, got-second, ok, tc.want-second)
		}
	}
}

// TestSwitchCounter: a counter without an epoch tells the time between frames, whatever
// the way does to them, over its wrap, a slow clock and a switch that begins anew.
func TestSwitchCounter(t *testing.T) {
	const us = int64(time.Microsecond)
	var c switchTime
	ticks := int64(1<<32) - 5000 // of 100 ns: it wraps after 0.5 ms
	begun := int64(0)
	for i := range int64(200_000) {
		sent := second + i*100*us // a frame each 100 us by a good clock
		under := 50*us + (i*7919%23)*10*us
		s := Session{SwitchClock: Clock100ns, SwitchBits: 32, SwitchNS: (ticks + i*1000 - i*1000/20_000) & (1<<32 - 1) * 100} // 50 ppm slow
		got, ok := c.at(&s, sent+under)
		if !ok {
			t.Fatal("a counter is not used")
		}
		if begun == 0 {
			begun = got
		}
		// It is known up to the shortest way and what drift adds until the next one.
		if off := got - sent - 50*us; i > 23 && (off < -10*us || off > 5*us) {
			t.Fatalf("frame %d is %d us off", i, off/us)
		}
	}
	at := second + 100*nanosPerSecond
	for _, again := range []int64{0, 1 << 40, math.MaxInt64, 3} { // of hostile senders, too
		if got, _ := c.at(&Session{SwitchClock: Clock100us, SwitchBits: 64, SwitchNS: again}, at); got != at && at-got > maxSwitchError || got > at {
			t.Errorf("counter %d: %d ns from reception", again, got-at)
		}
	}
}

// TestMirrorReaderSwitchTime: the frames of sessions that it is asked for have the time of
// their switch, as far as it has one.
func TestMirrorReaderSwitchTime(t *testing.T) {
	for _, mirror := range mirrorCases {
		packet := unhex(t, append(mirror.outer, mirrored)...)
		_, session, m := onlyERSPAN.Unwrap(&Frame{Data: packet, WireLen: uint32(len(packet))})
		if m != MirrorOK {
			t.Fatal(m)
		}
		for _, asked := range []bool{false, true} {
			r := NewMirrorReader(&batches{from: second, list: [][][]byte{{packet, packet}}}, MirrorConfig{
				Mirrors: everyMirror, SwitchTime: func(k SessionKey) bool { return asked && k == session.Key() },
			})
			var b Batch
			if err := r.ReadBatch(&b); err != nil || b.N != 2 {
				t.Fatalf("%d frames, %v", b.N, err)
			}
			want, at := SessionCounters{Name: session.Key().String(), Frames: 2}, second+1
			if session.Sequenced {
				want.Lost = r.Counters().Lost
			}
			switch {
			case !asked:
			case session.SwitchClock == ClockPTP:
				want.SwitchTimes, at = 2, session.SwitchNS
			case session.SwitchClock == ClockNanos:
				want.SwitchTimes, at = 2, second+session.SwitchNS
			case session.SwitchClock == Clock100us || session.SwitchClock == Clock100ns:
				want.SwitchTimes, at = 2, second // no time passes between the two
			default:
				want.Unusable = 2
			}
			if got := r.Sessions()[1]; got != want || b.Frames[1].TimeNS != at {
				t.Errorf("%s, asked %t: %+v, want %+v; time %d, want %d", mirror.name, asked, got, want, b.Frames[1].TimeNS-second, at-second)
			}
		}
	}
}
