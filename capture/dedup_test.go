package capture

import (
	"testing"
	"time"
)

// TestDedup checks that only a frame that is equal in all parts counts as seen, and only within the
// time.
func TestDedup(t *testing.T) {
	t.Parallel()
	const ms = int64(time.Millisecond)
	frame := func(at int64, data string, change func(*Frame)) Frame {
		f := Frame{Data: []byte(data), TimeNS: at, WireLen: 100}
		if change != nil {
			change(&f)
		}
		return f
	}
	untimed := func(f *Frame) { f.NoTime = true }
	for _, test := range []struct {
		name   string
		frames []Frame
		want   []bool
	}{
		{"the same within the time", []Frame{frame(0, "a", nil), frame(ms, "a", nil), frame(2*ms, "a", nil)}, []bool{false, true, true}},
		{"later", []Frame{frame(0, "a", nil), frame(ms+1, "a", nil)}, []bool{false, false}},
		{"other bytes", []Frame{frame(0, "a", nil), frame(0, "b", nil)}, []bool{false, false}},
		{"another length", []Frame{frame(0, "a", nil), frame(0, "a", func(f *Frame) { f.WireLen++ })}, []bool{false, false}},
		{"another stripped tag", []Frame{frame(0, "a", nil), frame(0, "a", func(f *Frame) { f.TPID, f.TCI = 0x8100, 7 })}, []bool{false, false}},
		{"captured out of order", []Frame{frame(ms, "a", nil), frame(ms/2, "a", nil)}, []bool{false, true}},
		{"without a time", []Frame{frame(0, "a", untimed), frame(0, "a", untimed), frame(0, "a", nil), frame(0, "a", untimed)}, []bool{false, false, false, false}},
		{"a clock that is set back", []Frame{frame(9*ms, "a", nil), frame(0, "a", nil), frame(ms, "a", nil)}, []bool{false, false, true}},
	} {
		d := NewDedup(time.Millisecond)
		for i := range test.frames {
			if got := d.Seen(&test.frames[i]); got != test.want[i] {
				t.Errorf("%s: frame %d: seen %t", test.name, i, got)
			}
		}
	}
}

// TestDedupBounded checks that memory does not grow with the number of frames within the time, and
// that a steady stream allocates nothing.
func TestDedupBounded(t *testing.T) {
	d := NewDedup(time.Hour)
	data := make([]byte, 8)
	n := 0
	add := func() {
		n++
		data[0], data[1], data[2] = byte(n), byte(n>>8), byte(n>>16)
		d.Seen(&Frame{Data: data, TimeNS: int64(n)})
	}
	for range 4 * maxRecent {
		add()
	}
	if places := len(d.recent) + len(d.spare); places > 8*maxRecent {
		t.Errorf("remembers %d frames in %d places", d.used, places)
	}
	if allocs := testing.AllocsPerRun(10_000, add); allocs > 0 {
		t.Errorf("%g allocations a frame", allocs)
	}
}
