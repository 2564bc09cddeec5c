package hop

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// way are sightings of n packets at two taps, some time apart, the later with fewer hops to
// go.
func sightings(first uint64, n int, delay, offset time.Duration, back bool) (a, b []Sighting) {
	rng := rand.New(rand.NewPCG(first, 1))
	for i := range n {
		at := int64(i) * int64(time.Millisecond)
		one := Sighting{ID: first + uint64(i), TimeNS: at, Hops: 64, Tagged: true, Tag: csig.Tag{Layout: csig.LayoutAt(0), T: 2, S: 3}}
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
	a = append(a, again, Sighting{ID: 5_000_000}) // seen twice, and by one tap alone
	same := Sighting{ID: 6_000_000, Hops: 60}     // which came first?
	got := Compare(append(a, same), append(b, same), 0)
	if got.Forward.Packets != 399 || got.Backward.Packets != 200 || got.Unclear != 1 || got.Common() != 600 {
		t.Fatalf("%+v", got)
	}
	if off := time.Duration(got.Clock.Offset) - offset; off.Abs() > 2*time.Microsecond {
		t.Errorf("offset %s, want %s", time.Duration(got.Clock.Offset), offset)
	}
	for _, w := range []Way{got.Forward, got.Backward} {
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
	got := Compare(a, b, 0)
	if got.Clock == nil || !got.Clock.OneWay || got.Forward.Median != 0 || !strings.Contains(got.String(), "unknown") {
		t.Errorf("%+v: %s", got, got)
	}
	if none := Compare(nil, b, 0); none.Clock != nil || none.Why == "" || none.Common() != 0 || !strings.HasPrefix(none.String(), "clocks: ") {
		t.Errorf("%+v", none)
	}
}
