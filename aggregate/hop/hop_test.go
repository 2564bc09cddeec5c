package hop

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// sightings returns n packets at two taps, some time apart, the later with fewer remaining hops.
func sightings(first uint64, n int, delay, offset time.Duration, back bool) (a, b []PacketRecord) {
	rng := rand.New(rand.NewPCG(first, 1))
	for i := range n {
		at := int64(i) * int64(time.Millisecond)
		one := PacketRecord{ID: first + uint64(i), TimeNS: at, Hops: 64, Tagged: true, Tag: csig.Tag{Layout: csig.LayoutAt(0), T: 2, S: 3}}
		two := one
		two.Hops, two.TimeNS = 62, at+int64(delay)+rng.Int64N(int64(50*time.Microsecond))
		if i%4 == 0 {
			two.Tag.S, two.Tag.LM = 9, 7
		}
		if back {
			one, two = two, one
		}
		two.TimeNS += int64(offset)
		a, b = append(a, one), append(b, two)
	}
	return a, b
}

func TestCompare(t *testing.T) {
	t.Parallel()
	const offset, delay = 3 * time.Millisecond, 20 * time.Microsecond
	a, b := sightings(1, 400, delay, offset, false)
	c, d := sightings(10_000, 200, delay, offset, true)
	a, b = append(a, c...), append(b, d...)
	again := a[5]
	again.TimeNS++
	a = append(a, again, PacketRecord{ID: 5_000_000}) // seen twice, and by one tap alone
	same := PacketRecord{ID: 6_000_000, Hops: 60}     // which came first?
	got := Compare(&Tap{Packets: append(a, same)}, &Tap{Packets: append(b, same)}, 0)
	if got.Forward.Packets != 399 || got.Backward.Packets != 200 || got.Unclear != 1 || got.Common() != 600 {
		t.Fatalf("%+v", got)
	}
	if off := time.Duration(got.Clock.Offset) - offset; off.Abs() > 2*time.Microsecond {
		t.Errorf("offset %s, want %s", time.Duration(got.Clock.Offset), offset)
	}
	for _, w := range []Direction{got.Forward, got.Backward} {
		if w.Median < delay || w.Median > delay+50*time.Microsecond || w.P99 < w.Median || w.Longest < w.P99 {
			t.Errorf("delays %+v", w)
		}
		if len(w.Changes) != 1 || w.Changes[0].LM != 7 || w.Changes[0].Count < w.Packets/5 || w.Tagged != w.Packets {
			t.Errorf("changes %+v", w)
		}
	}
	if !strings.HasPrefix(got.String(), "offset 3.0") && !strings.HasPrefix(got.String(), "offset 2.99") {
		t.Error(got)
	}
}

// One direction bounds the offset on one side, and gives no delay.
func TestOneDirection(t *testing.T) {
	t.Parallel()
	a, b := sightings(1, 200, 20*time.Microsecond, time.Second, false)
	got := Compare(&Tap{Packets: a}, &Tap{Packets: b}, 0)
	if got.Clock == nil || !got.Clock.OneWay || got.Forward.Median != 0 || !strings.Contains(got.String(), "unknown") {
		t.Errorf("%+v: %s", got, got)
	}
	if none := Compare(&Tap{}, &Tap{Packets: b}, 0); none.Clock != nil || none.Why == "" || none.Common() != 0 || !strings.HasPrefix(none.String(), "clocks unknown: ") {
		t.Errorf("%+v", none)
	}
}

// Tags and their reflections relate clocks even if no packet passes both taps. Data sent twice,
// reflections of other tags, and repeated ones prove nothing.
func TestReflected(t *testing.T) {
	t.Parallel()
	const offset, way = 3 * time.Millisecond, 40 * time.Microsecond
	rng := rand.New(rand.NewPCG(1, 1))
	var a, b Tap
	for i := range uint64(1000) {
		at := int64(i) * int64(100*time.Microsecond)
		later := at + int64(way) + rng.Int64N(int64(30*time.Microsecond))
		tag := csig.Tag{Layout: csig.LayoutAt(0), S: uint32(i % 7)}
		from, to, shift, shiftTo := &a, &b, int64(0), int64(offset)
		if i%2 == 1 {
			from, to, shift, shiftTo = &b, &a, int64(offset), 0
		}
		from.Tags = append(from.Tags, SegmentTag{Segment: i, Tag: tag, TimeNS: at + shift})
		to.Reflections = append(to.Reflections, SegmentTag{Segment: i, Tag: tag, TimeNS: later + shiftTo}, SegmentTag{Segment: i, Tag: tag, TimeNS: later + shiftTo + int64(time.Millisecond)})
		switch i % 10 {
		case 0: // sent again after it was acknowledged
			from.Tags = append(from.Tags, SegmentTag{Segment: i, Tag: tag, TimeNS: later + shift + int64(time.Second)})
		case 1: // reflected before, from another packet
			to.Reflections = append(to.Reflections, SegmentTag{Segment: i, Tag: csig.Tag{S: 99}, TimeNS: at + shiftTo - int64(time.Second)})
		}
	}
	got := Compare(&a, &b, 0)
	if got.Common() != 0 || !got.Related() || got.Forward.Reflected != 400 || got.Backward.Reflected != 500 {
		t.Fatalf("%+v", got)
	}
	low, high := got.Clock.Bound(got.Clock.At)
	if off := time.Duration(got.Clock.Offset) - offset; off.Abs() > 2*time.Microsecond || low > float64(offset) || high < float64(offset) || high-low > float64(2*way)+2000 {
		t.Errorf("offset %s, %g to %g", time.Duration(got.Clock.Offset), low, high)
	}
	if none := Compare(&Tap{Tags: a.Tags}, &Tap{Tags: b.Tags}, 0); none.Clock != nil || none.Related() {
		t.Errorf("%+v", none)
	}
}
