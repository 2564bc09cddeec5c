package bpf

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture/livetest"
)

var tagged = livetest.Tagged(livetest.Plain(1, 2, 100), 0x99002b85)

// TestOffsetOf: the offset of TAI is a whole number of seconds, and is not taken from readings far apart.
func TestOffsetOf(t *testing.T) {
	const s, ms, last = int64(time.Second), int64(time.Millisecond), 37 * time.Second
	for _, tc := range []struct {
		name               string
		before, tai, after int64
		want               time.Duration
	}{
		{"none", 100 * s, 100*s + 100, 100*s + 200, 0},
		{"set", 100 * s, 138*s + 100, 100*s + 200, 38 * time.Second},
		{"a short pause before TAI", 100 * s, 138*s + 400*ms, 100*s + 401*ms, 38 * time.Second},
		{"a short pause after TAI", 100 * s, 138 * s, 100*s + 400*ms, 38 * time.Second},
		{"a long pause before TAI", 100 * s, 139 * s, 101 * s, last},
		{"a long pause after TAI", 100 * s, 138 * s, 101 * s, last},
		{"set back between", 100 * s, 138 * s, 90 * s, last},
	} {
		if got := offsetOf(tc.before, tc.tai, tc.after, last); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestTAIChanges: windows have the right time when the kernel's offset of TAI changes, in the buffer in use then too.
func TestTAIChanges(t *testing.T) {
	onOneProcessor(t) // each remembers its window
	set := settingsOf(t, nil)
	set.Resolutions = []time.Duration{time.Second, time.Minute}
	c := loaded(t, set, window.TapAt("receiver", 1), 1<<10)
	for reading, ahead := range []time.Duration{0, 37 * time.Second, 0, -37 * time.Second, 0, time.Hour} {
		// That TAI goes ahead is the same to the program as an offset that is too small.
		c.tai -= ahead
		if err := c.collection.Variables["tai_offset"].Set(uint64(c.tai)); err != nil {
			t.Fatal(err)
		}
		began := time.Now().Truncate(time.Second)
		if _, err := c.program.Run(&ebpf.RunOptions{Data: tagged}); err != nil {
			t.Fatal(err)
		}
		left, _, err := c.swap(false)
		if err != nil {
			t.Fatal(err)
		}
		list, err := c.drain(left)
		if err != nil || len(list) != 1 {
			t.Fatalf("reading %d: %d counts, %v", reading, len(list), err)
		}
		if at := list[0].TimeNS; at < began.UnixNano() || at > c.swapped {
			t.Errorf("reading %d: the window begins at %s, now %s", reading, time.Unix(0, at), time.Unix(0, c.swapped))
		}
	}
}
