package finding

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestTaps: faults of a tap itself are found from its frames, but similar frames without a fault
// are not.
func TestTaps(t *testing.T) {
	t.Parallel()
	const ms = int64(time.Millisecond)
	type show func(tap string, f Frame)
	// steady gives 1000 frames to each of two taps, 1 ms apart: a second of TCP with its
	// acknowledgements at the other tap.
	steady := func(change func(tap string, n int, f *Frame) (captured bool)) func(show) {
		return func(to show) {
			for n := range 1000 {
				for _, tap := range []string{"a", "b"} {
					f := Frame{TimeNS: int64(n+1) * ms, Number: uint64(n + 1), Untagged: n%2 == 0}
					f.Flow, f.End, f.Sent = uint64(len(tap)), uint32(1000*n), uint64(n)+1<<40
					if tap == "b" {
						f = Frame{TimeNS: f.TimeNS, Number: f.Number, AckedFlow: f.Flow, Ack: f.End, Acked: f.Sent}
					}
					if change == nil || change(tap, n, &f) {
						to(tap, f)
					}
				}
			}
		}
	}
	for _, test := range []struct {
		name string
		show func(show)
		want string
	}{
		{"nothing", steady(nil), ""},
		{"frames twice", steady(func(tap string, n int, f *Frame) bool {
			f.Repeated = tap == "a" && n%10 == 0
			f.Content = uint64(n)
			return true
		}), "duplicate-frames a"},
		{"equal frames of a sender", steady(func(_ string, n int, f *Frame) bool { f.Repeated = n > 0; f.Content = 7; return true }), ""},
		{"equal frames of thirty senders", steady(func(_ string, n int, f *Frame) bool { f.Repeated = n%30 > 0; f.Content = uint64(n / 30); return true }), ""},
		{"a few frames twice", steady(func(tap string, n int, f *Frame) bool {
			f.Repeated = tap == "a" && n < 10
			f.Content = uint64(n)
			return true
		}), ""},
		{"a clock is set back", steady(func(tap string, n int, f *Frame) bool {
			if tap == "a" && n > 500 {
				f.TimeNS -= 400 * ms
			}
			return true
		}), "clock-set a"},
		{"a clock is set back while a sender repeats frames", steady(func(tap string, n int, f *Frame) bool {
			if f.Content = uint64(n); n%5 == 0 {
				f.Content = 1 << 20
			}
			if f.Repeated = n == 500; n <= 500 {
				f.TimeNS += 3600_000 * ms
			}
			return tap == "a"
		}), "clock-set a"},
		{"frames out of order", steady(func(tap string, n int, f *Frame) bool {
			if tap == "a" && n%20 == 19 {
				f.TimeNS -= min(200*ms, f.TimeNS-1)
			}
			return true
		}), ""},
		{"a clock is set ahead", steady(func(tap string, n int, f *Frame) bool {
			if tap == "a" && n > 10 {
				f.TimeNS += 4000 * ms
			}
			if f.TimeNS *= 6; tap == "a" && n > 10 {
				f.TimeNS -= 5 * 4000 * ms
			}
			return true
		}), "clock-set a"},
		{"a tap has no traffic for a time", steady(func(tap string, n int, f *Frame) bool {
			f.TimeNS, f.Acked = 6*f.TimeNS, 0
			return tap == "b" || n < 10 || n > 800
		}), ""},
		{"all taps have none", steady(func(_ string, n int, f *Frame) bool {
			if n > 10 {
				f.TimeNS += 4000 * ms
			}
			return true
		}), ""},
		{"a tap loses frames", steady(func(tap string, n int, _ *Frame) bool { return tap == "b" || n%20 > 0 }), "tap-loss a"},
		{"a tap captures tags alone", steady(func(tap string, n int, f *Frame) bool {
			f.Untagged = tap == "b"
			return tap == "b" || n%20 > 0
		}), ""},
		{"the network loses them", steady(func(_ string, n int, _ *Frame) bool { return n%20 > 0 }), ""},
		{"a tap that begins later", steady(func(tap string, n int, _ *Frame) bool { return tap == "b" || n > 500 }), ""},
	} {
		d, err := New(configured(t, ports{}, nil))
		if err != nil {
			t.Fatal(err)
		}
		test.show(func(tap string, f Frame) { d.Frame(&Tap{Name: tap}, &f) })
		got := ""
		for _, f := range d.Findings() {
			got += f.Kind.String() + " " + f.Subject
			if f.Count == 0 || f.Of < f.Count {
				t.Errorf("%s: %+v", test.name, f)
			}
		}
		if got != test.want {
			t.Errorf("%s: found %q, want %q", test.name, got, test.want)
		}
	}
}

// TestRotatedTap: files of one capture count together, but a pause between them is no step of the
// clock. Captures are separate.
func TestRotatedTap(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cut      int // the first frame of the next file of tap a, of 1000
		captures int
		pause    time.Duration // at the 500th frame
		repeats  int           // each so many frames are captured twice
		want     string
	}{
		"frames twice in both files":    {500, 1, 0, 40, "duplicate-frames a in a0.pcap, a1.pcap"},
		"frames twice in two captures":  {500, 2, 0, 60, ""},
		"the clock is set ahead":        {300, 1, time.Minute, 0, "clock-set a in "},
		"a pause between files":         {500, 1, time.Minute, 0, ""},
		"copies on both sides of a cut": {1, 1, 0, 40, "duplicate-frames a in a0.pcap, a1.pcap"},
	} {
		d, err := New(configured(t, ports{}, nil))
		if err != nil {
			t.Fatal(err)
		}
		for n := range 1000 {
			f := Frame{TimeNS: int64(n+1) * int64(2*time.Millisecond), Number: uint64(n + 1), Content: uint64(n)}
			d.Frame(&Tap{Name: "b", File: "b.pcap"}, &f)
			if n >= 500 {
				f.TimeNS += int64(test.pause)
			}
			tap := Tap{Name: "a", File: "a0.pcap"}
			if n >= test.cut {
				tap.File, tap.Capture = "a1.pcap", test.captures-1
			}
			d.Frame(&tap, &f)
			if test.repeats > 0 && n%test.repeats == 0 {
				f.TimeNS, f.Repeated = f.TimeNS+1, true
				d.Frame(&tap, &f)
			}
		}
		got := ""
		for _, f := range d.Findings() {
			var files []string
			for _, p := range f.Packets {
				files = append(files, p.File)
			}
			got += f.Kind.String() + " " + f.Subject + " in " + strings.Join(slices.Compact(files), ", ")
		}
		if got != test.want {
			t.Errorf("%s: found %q, want %q", name, got, test.want)
		}
	}
}

// TestTapBounds: whatever segments taps see, memory for them is bounded.
func TestTapBounds(t *testing.T) {
	t.Parallel()
	d, err := New(configured(t, ports{}, func(c *Config) { c.MaxFlows, c.MaxSubjects = 10, 5 }))
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(3 * maxSegments) {
		id := n*0x9e3779b97f4a7c15 | 1
		d.Frame(&Tap{Name: string(rune('a' + n%20))}, &Frame{Sent: id, Flow: id % 10, Acked: id, AckedFlow: id})
	}
	if len(d.segments.sent) > maxSegments || len(d.segments.acked) > maxSegments || len(d.segments.flows) > 10 || len(d.taps) > 5 {
		t.Errorf("%d and %d segments of %d flows at %d taps", len(d.segments.sent), len(d.segments.acked), len(d.segments.flows), len(d.taps))
	}
}

// TestStrippedClass: names the VLAN or DSCP that flows without their tags share where they arrive, and others do not. Packets
// that are on their way at the end have another VLAN at their senders.
func TestStrippedClass(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.tag = func(_ int, f closFlow, _ *csig.Tag) bool { return f.spine != 2 }
	n.mark = func(f closFlow, _ *decode.Observation) {
		class := Class{VLAN: 10, DSCP: 46}
		if f.spine == 2 && f.src[0] != f.dst[0] {
			class.VLAN = 20
		}
		n.Frame(&Tap{}, &Frame{Class: class})
	}
	n.mesh(90)
	n.Frame(&Tap{}, &Frame{Class: Class{VLAN: 20}})
	for _, f := range meshFlows() {
		o := n.packet(f)
		n.Observe(&Tap{Name: "senders", File: "s.pcap", Place: Sender}, &o)
	}
	list := n.Findings()
	if len(list) != 1 || !strings.Contains(list[0].Evidence, "only they have VLAN 20") || strings.Contains(list[0].Evidence, "DSCP") {
		t.Errorf("%+v", list)
	}
}
