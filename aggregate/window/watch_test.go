package window_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// heavyWatch watches sources with odd addresses, all values at one location in three, and those
// from code 10 on at another.
type heavyWatch struct {
	seen    map[string]int
	longest uint32 // packet that expect has seen
}

func (*heavyWatch) Suspicious(a netip.Addr) bool { return a.As16()[15]&1 == 1 }

func (*heavyWatch) SourceBits() (v4, v6 int) { return 32, 128 }

func (*heavyWatch) WatchFrom(_ *csig.Table, at aggregate.LocationID, _ uint64) uint32 {
	return [...]uint32{0, 10, aggregate.NotWatched}[at%3]
}

func (w *heavyWatch) Watched(list []aggregate.Watched) {
	for _, o := range list {
		w.seen[fmt.Sprint(o.Packet, " ", o.Why, " ", o.Location)]++
	}
}

func (*heavyWatch) Closed(*aggregate.Block, uint64) {}

// expect adds the expected notices for an observation. For suspicious sources, the watch gets all
// values that name a location.
func (w *heavyWatch) expect(o *decode.Observation, place string) {
	note := func(why aggregate.WatchReason, at aggregate.LocationID) {
		w.seen[fmt.Sprint(o.Packet, " ", why, " ", at)]++
	}
	if o.Flags&decode.Orphan != 0 {
		note(aggregate.WatchedOrphan, 0)
		return
	}
	if o.Tag.R != 0 {
		note(aggregate.WatchedReserved, 0)
	}
	if o.Kind == decode.Tag && place == "receiver" && (o.Tag.D && 10*o.Bytes >= 9*w.longest || !o.Tag.D && o.Bytes > w.longest) {
		note(aggregate.WatchedLength, 0)
		if !o.Tag.D {
			w.longest = o.Bytes
		}
	}
	valued := o.Tag.S != initialOf(o.Tag.T) && !o.Tag.D
	if place == "sender" {
		if valued {
			note(aggregate.WatchedSent, 0)
		}
		return
	}
	src, _ := o.Addrs()
	strange := w.Suspicious(src)
	if strange {
		note(aggregate.WatchedSource, 0)
	}
	at := aggregate.LocationID(5000 + uint64(o.Tag.LM))
	if valued && (strange || o.Tag.S >= w.WatchFrom(nil, at, 0)) {
		note(aggregate.WatchedValue, at)
	}
}

// initialOf returns the initial value of a compact tag.
func initialOf(t uint8) uint32 {
	if t == 2 {
		return 0
	}
	return 31
}

// strangeTraffic has observations of every kind.
func strangeTraffic(n int) []decode.Observation {
	obs := newTraffic(n, func(r *rand.Rand, i int, o *decode.Observation) {
		setAddr(&o.Src, r.Uint32N(3), r.Uint32N(20))
		setAddr(&o.Dst, r.Uint32N(3), r.Uint32N(4))
		o.Packet, o.Tag.T, o.Tag.LM, o.Tag.S = uint64(i), uint8(r.Uint32N(2)*2), uint16(r.Uint32N(9)), r.Uint32N(32)
		o.Tag.D = r.Uint32N(9) == 0
		if r.Uint32N(50) == 0 {
			o.Tag.R = 1
		}
		if r.Uint32N(50) == 0 {
			o.Flags |= decode.Orphan
		}
	})
	for i := range obs.obs {
		obs.obs[i].TimeNS = obs.times[i]
	}
	return obs.obs
}

// TestWatch: unusual observations are passed once for each reason, whatever the batches, past the
// budget of keys and of all places, and windows are the same as without a watch.
func TestWatch(t *testing.T) {
	obs := strangeTraffic(3000)
	for _, test := range []struct {
		place string
		keys  int
		batch int
	}{{"receiver", 0, 1}, {"receiver", 0, 256}, {"receiver", 7, 100}, {"sender", 0, 256}} {
		want := &heavyWatch{seen: map[string]int{}}
		for i := range obs {
			want.expect(&obs[i], test.place)
		}
		cfg := window.Config{Tap: window.Tap{Tags: test.place == "receiver", Place: test.place}, MaxSeries: test.keys, Resolutions: []time.Duration{100 * time.Millisecond, time.Second}}
		var plain, watched collector
		run(t, newShard(t, cfg, &plain), obs, test.batch)
		got := &heavyWatch{seen: map[string]int{}}
		cfg.Watch = got
		run(t, newShard(t, cfg, &watched), obs, test.batch)
		if diff := cmp.Diff(want.seen, got.seen); diff != "" {
			t.Errorf("%+v: noticed (-want +got):\n%s", test, diff)
		}
		if diff := cmp.Diff(plain.blocks, watched.blocks); diff != "" {
			t.Errorf("%+v: blocks differ:\n%s", test, diff)
		}
	}
}

// TestWatchWaiting: observations that waited because their time was far ahead are passed unchanged.
func TestWatchWaiting(t *testing.T) {
	obs := strangeTraffic(600)
	for i := range obs[300:] {
		obs[300+i].TimeNS += int64(time.Hour)
	}
	want, got := &heavyWatch{seen: map[string]int{}}, &heavyWatch{seen: map[string]int{}}
	for i := range obs {
		want.expect(&obs[i], "receiver")
	}
	var sink collector
	s := newShard(t, window.Config{Tap: window.Tap{Tags: true}, Watch: got}, &sink)
	if c := run(t, s, obs, 256); c.Rejected[aggregate.RejectFuture] != 0 {
		t.Fatalf("rejected %v", c.Rejected)
	}
	if diff := cmp.Diff(want.seen, got.seen); diff != "" {
		t.Errorf("noticed (-want +got):\n%s", diff)
	}
}

// counting is a watch that counts.
type counting struct {
	heavyWatch
	n int
}

func (c *counting) Closed(*aggregate.Block, uint64) {}

func (c *counting) Watched(list []aggregate.Watched) { c.n += len(list) }

// TestWatchAllocs: noticing allocates nothing.
func TestWatchAllocs(t *testing.T) {
	obs, w := strangeTraffic(2048), &counting{}
	var sink discard
	s := newShard(t, window.Config{Tap: window.Tap{Tags: true}, Watch: w}, &sink)
	add := func() {
		for at := 0; at < len(obs); at += 256 {
			if err := s.Add(context.Background(), obs[at:at+256]); err != nil {
				t.Fatal(err)
			}
		}
	}
	add()
	if n := testing.AllocsPerRun(20, add); n != 0 || w.n == 0 {
		t.Errorf("%v allocations, %d noticed", n, w.n)
	}
}
