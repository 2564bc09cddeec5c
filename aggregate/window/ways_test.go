package window_test

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// pathResolver has four ways; each flow takes another one every half second.
type pathResolver struct {
	fakeResolver
	calls *int
}

const halfSecond = int64(500 * time.Millisecond)

func wayOf(srcPort uint16, ns int64) uint32 { return uint32(int64(srcPort)+ns/halfSecond) % 4 }

func (pathResolver) HasWays() bool { return true }

func (w pathResolver) Way(f *flow.Flow, ns int64) (way uint32, from, until int64) {
	*w.calls++
	from = ns - ns%halfSecond
	return wayOf(f.SrcPort, ns), from, from + halfSecond
}

// wayLMs keeps the speed of a locator's location on another way.
const wayLMs = 99

func (pathResolver) RecordSighting(uint32, *flow.Flow, int64) {}

func (w pathResolver) LocateOn(way uint32, l csig.Layout, t uint8, lm uint16, src, dst netip.Addr) (id aggregate.LocationID, capacity uint64, by aggregate.Evidence) {
	id, capacity = w.Locate(l, t, lm+uint16(wayLMs*way), src, dst)
	return id, capacity, evidenceOf(way)
}

// evidenceOf returns the evidence of a way, none for every second one.
func evidenceOf(way uint32) aggregate.Evidence { return aggregate.Evidence(way % 2 * way) }

// TestWays: the location that a locator names on the way of a flow at a time is counted as if the
// locator named it, for tags and for reflections of the flow.
func TestWays(t *testing.T) {
	t.Parallel()
	sequential(t)
	obs := randomObservations(rand.New(rand.NewPCG(1, 9)), 20_000)
	named := make([]decode.Observation, 0, len(obs))
	evidence := make(map[aggregate.LocationID]aggregate.Evidence)
	kept := obs[:0]
	for _, o := range obs {
		if o.Tag.Layout.Format != csig.Wide || o.Kind != decode.Tag && o.Kind != decode.Reflection {
			continue // their locators have room for the ways
		}
		o.Tag.LM, o.SrcPort, o.DstPort = o.Tag.LM%64, uint16(len(kept)%16), 7
		kept = append(kept, o)
		port := o.SrcPort
		if o.Kind == decode.Reflection {
			port = o.DstPort
		}
		if o.Flags&decode.HasAddrs != 0 && o.TimeNS > 0 {
			way := wayOf(port, o.TimeNS)
			o.Tag.LM += uint16(wayLMs * way)
			evidence[aggregate.LocationID(5000+uint64(o.Tag.LM))] = evidenceOf(way)
		}
		named = append(named, o)
	}
	if len(kept) < 1000 {
		t.Fatalf("%d wide observations: expected more", len(kept))
	}
	calls := 0
	rows := func(r aggregate.Resolver, obs []decode.Observation, batch int) map[rowKey]*rowSums {
		var sink collector
		s, err := window.NewShard(window.Config{Domain: defaultDomain(t), Resolver: r, Tap: window.Tap{Tags: true, Reflections: false}}, &sink)
		if err != nil {
			t.Fatal(err)
		}
		run(t, s, obs, batch)
		return sink.rows
	}
	want := rows(fakeResolver{}, named, 256)
	seen := aggregate.Evidence(0)
	for k, sums := range want {
		sums.evidence = uint8(evidence[k.location])
		seen |= evidence[k.location]
	}
	if seen != evidenceOf(1)|evidenceOf(3) {
		t.Errorf("evidence %d in rows: expected that of all ways", seen)
	}
	for _, batch := range []int{1, 256, 1000} {
		if got := rows(pathResolver{calls: &calls}, kept, batch); !reflect.DeepEqual(got, want) {
			t.Errorf("batches of %d: %d rows on ways differ from the %d of their locators", batch, len(got), len(want))
		}
	}
	if len(want) < 10 || calls == 0 {
		t.Errorf("%d rows, %d calls: expected more", len(want), calls)
	}
}

// TestReflectionsOnWays: a reflection is on the way of the packets that it reflects.
func TestReflectionsOnWays(t *testing.T) {
	t.Parallel()
	calls := 0
	var sink collector
	s, err := window.NewShard(window.Config{Domain: defaultDomain(t), Resolver: pathResolver{calls: &calls}, Tap: window.Tap{Reflections: true}}, &sink)
	if err != nil {
		t.Fatal(err)
	}
	o := decode.Observation{Kind: decode.Reflection, Flags: decode.HasAddrs, TimeNS: benchStart, SrcPort: 1, DstPort: 2, Bytes: 64}
	setAddr(&o.Src, 1, 1)
	setAddr(&o.Dst, 2, 1)
	o.Tag = csig.Tag{Layout: csig.Layout{Format: csig.Compact, Profile: csig.UEC050}, S: 4, LM: 1}
	run(t, s, []decode.Observation{o}, 1)
	want := aggregate.LocationID(5000 + 1 + wayLMs*uint64(wayOf(2, benchStart)))
	for k := range sink.rows {
		if k.location != want {
			t.Errorf("location %d, want %d: the way of the flow from port 2", k.location, want)
		}
	}
	if len(sink.rows) == 0 {
		t.Error("nothing is stored")
	}
}

// TestWaysDoNotAllocate: known flows on known ways need no allocation, and no call.
func TestWaysDoNotAllocate(t *testing.T) {
	sequential(t)
	calls := 0
	s, err := window.NewShard(window.Config{Domain: defaultDomain(t), Resolver: pathResolver{calls: &calls}, Tap: window.Tap{Tags: true}}, new(discard))
	if err != nil {
		t.Fatal(err)
	}
	tr := fabricTraffic(4096, csig.Compact)
	batch := tr.next(0)
	add := func() {
		if err := s.Add(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	add()
	calls = 0
	// Two flows that share a slot, which happens by chance, are looked up again and again.
	if n := testing.AllocsPerRun(20, add); n != 0 || calls > 21*40 {
		t.Errorf("%v allocations and %d calls in 21 batches of flows that are known", n, calls)
	}
}
