package simulation

import (
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// At 1 Gbit/s a byte takes 8000 ps.
func testPort() *port {
	return &port{kbps: uint64(scenario.Gbps), latency: 500, buffer: 3000, transit: true, meter: newMeter(scenario.Raw, 1e9, 0)}
}

func TestPortServesInOrder(t *testing.T) {
	p := testPort()
	var stats truth.PortStats
	for i, now := range []int64{0, 1000, 2000} {
		if ok := p.enqueue(now, &packet{number: uint32(i), length: 1000}, &stats); !ok {
			t.Fatalf("packet %d was dropped", i)
		}
	}
	if p.enqueue(3000, &packet{length: 1000}, &stats) {
		t.Error("a fourth packet fits the buffer of three")
	}
	if stats.MaxQueue != 3000 {
		t.Errorf("longest queue %d, want 3000", stats.MaxQueue)
	}
	for i := range 3 {
		k := p.dequeue(p.nextArrival())
		start := int64(i) * 8_000_000
		if k.number != uint32(i) || k.started != start || k.arrives != start+8_000_000+500 {
			t.Errorf("packet %d: number %d, started %d, arrives %d", i, k.number, k.started, k.arrives)
		}
		if want := []uint32{0, 1000, 0}[i]; k.behind != want {
			t.Errorf("packet %d left %d bytes behind, want %d", i, k.behind, want)
		}
	}
	if p.nextArrival() != never || p.waiting != 0 {
		t.Errorf("an empty port has an arrival at %d and %d bytes", p.nextArrival(), p.waiting)
	}
}

// Trimmed packets leave after the packet on the link and after earlier trimmed ones, and before
// whole packets. Neither kind may use the other's buffer.
func TestPortServesTrimmedPacketsFirst(t *testing.T) {
	p := testPort()
	p.reserve = 250
	var stats truth.PortStats
	enter := func(now int64, number uint32, length uint16, trimmed, want bool) {
		t.Helper()
		if ok := p.enqueue(now, &packet{number: number, length: length, trimmed: trimmed}, &stats); ok != want {
			t.Errorf("packet %d taken: %v, want %v", number, ok, want)
		}
	}
	enter(0, 0, 1000, false, true)
	enter(1000, 1, 1000, false, true)
	enter(2000, 2, 1000, false, true)
	enter(3000, 9, 200, false, false) // whole packets cannot use the reserve
	enter(4000, 3, 100, true, true)
	enter(5000, 4, 100, true, true)
	enter(6000, 9, 100, true, false)       // the reserve is full
	enter(8_000_000, 9, 1000, false, true) // trimmed packets do not use the buffer
	enter(12_000_000, 5, 100, true, true)  // while packet 1 is on the link
	wantStart := map[uint32]int64{0: 0, 3: 8_000_000, 4: 8_800_000, 1: 9_600_000, 5: 17_600_000, 2: 18_400_000, 9: 26_400_000}
	wantBehind := map[uint32]uint32{0: 0, 3: 3100, 4: 3000, 1: 2000, 5: 2000, 2: 1000, 9: 0}
	for _, number := range []uint32{0, 3, 4, 1, 5, 2, 9} {
		k := p.dequeue(p.nextArrival())
		if k.number != number || k.started != wantStart[number] || k.behind != wantBehind[number] {
			t.Errorf("packet %d starts at %d and leaves %d bytes; want packet %d at %d with %d",
				k.number, k.started, k.behind, number, wantStart[number], wantBehind[number])
		}
	}
	if p.nextArrival() != never || p.waiting != 0 || p.reserved != 0 {
		t.Errorf("an empty port holds %d bytes, %d of trimmed packets", p.waiting, p.reserved)
	}
}

func TestPortRingGrowsInOrder(t *testing.T) {
	p := testPort()
	p.buffer = 1 << 20
	var stats truth.PortStats
	next := uint32(0)
	for i := range uint32(200) {
		p.enqueue(0, &packet{number: i, length: 100}, &stats)
		if i%3 == 0 {
			if k := p.dequeue(p.nextArrival()); k.number != next {
				t.Fatalf("head is %d, want %d", k.number, next)
			}
			next++
		}
	}
}

func TestMeter(t *testing.T) {
	tests := []struct {
		name       string
		busy       [][2]int64 // ps
		at         int64
		wantShare  uint64 // ppm available
		wantAnswer uint64 // kbit/s at 1 Gbit/s
	}{
		{"idle before the first interval", nil, 999_999_999, 1e6, 1e6},
		{"an idle interval", nil, 1e9, 1e6, 1e6},
		{"half of the last interval", [][2]int64{{0, 500_000_000}}, 1e9, 500_000, 500_000},
		{"a packet over the boundary", [][2]int64{{900_000_000, 1_200_000_000}}, 1_500_000_000, 900_000, 900_000},
		{"the rest of it", [][2]int64{{900_000_000, 1_200_000_000}}, 2e9, 800_000, 800_000},
		{"a packet over three intervals", [][2]int64{{500_000_000, 2_500_000_000}}, 2_600_000_000, 0, 0},
		{"long ago", [][2]int64{{0, 1e9}}, 5e9, 1e6, 1e6},
		{"all of it", [][2]int64{{0, 400_000_000}, {400_000_000, 1e9}}, 1e9, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMeter(scenario.Raw, 1e9, 0)
			for _, b := range tt.busy {
				m.advance(b[0])
				m.add(b[0], b[1])
			}
			m.advance(tt.at)
			abw, ratio := m.available(uint64(scenario.Gbps))
			if ratio != tt.wantShare || abw != tt.wantAnswer {
				t.Errorf("available %d kbit/s, %d ppm; want %d, %d", abw, ratio, tt.wantAnswer, tt.wantShare)
			}
		})
	}
}

// A hop replaces value and locator metadata together or not at all, and the value moves only in its
// signal's direction.
func TestTransitReplacesBothOrNone(t *testing.T) {
	for _, layout := range []csig.Layout{wideUEC, compactIETF} {
		m := prepare(t, tiny().WithLayout(layout))
		rng := exact.Derive(3)
		replaced := 0
		for range 20_000 {
			number := int32(rng.Below(uint64(len(m.topology.Ports))))
			p := &m.ports[number]
			p.meter.last, p.meter.coded = int64(rng.Below(uint64(p.meter.interval)+1)), false
			index := uint8(rng.Below(uint64(len(m.signals))))
			sig := &m.signals[index]
			before := truth.Tag{
				Code: uint32(rng.Below(uint64(sig.Table.Codes()))), LM: 0x55, Writer: -3, Signal: index, Set: true,
			}
			k := packet{tag: before, started: int64(rng.Below(2e10))}
			behind := int64(rng.Below(p.buffer))
			local := m.local(p, sig, &k, behind)
			m.transit(number, p, &k, behind)
			if sig.Direction.Tighter(local, before.Code) {
				replaced++
				want := truth.Tag{Code: local, LM: sig.Metadata[number], Writer: number, Signal: index, Set: true}
				if k.tag != want {
					t.Fatalf("%s %s: tag is %+v, want %+v", layout, sig.Kind, k.tag, want)
				}
			} else if k.tag != before {
				t.Fatalf("%s %s: %d is not tighter than %d, but the tag changed to %+v", layout, sig.Kind, local, before.Code, k.tag)
			}
		}
		if replaced < 1000 {
			t.Errorf("%s: only %d of 20000 tags were replaced", layout, replaced)
		}
	}
}
