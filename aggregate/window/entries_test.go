package window

import (
	"context"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

func TestTable32(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var table table32
	for round := range 20 {
		want := map[uint32]uint64{}
		for range 1 << (round % 12) {
			key := r.Uint32N(1 << (4 + round))
			slot, found := table.at(key)
			if *slot != want[key] {
				t.Fatalf("key %d: %d, expected %d", key, *slot, want[key])
			}
			if _, ok := want[key]; ok != found {
				t.Fatalf("key %d: found %v", key, found)
			}
			*slot += uint64(key | 1)
			want[key] += uint64(key | 1)
		}
		if table.n != len(want) {
			t.Fatalf("%d keys, expected %d", table.n, len(want))
		}
		table.reset()
		for _, s := range table.slots {
			if s.key != 0 {
				t.Fatal("reset left a key behind")
			}
		}
	}
}

// recordedBlock keeps the sums of the last block's only row.
type recordedBlock struct{ rows, observations, dist []uint64 }

func (r *recordedBlock) WriteBlock(_ context.Context, b *aggregate.Block) error {
	r.rows = append(r.rows, uint64(b.Len()))
	r.observations = append(r.observations, b.Observations[0])
	r.dist = append(r.dist, b.DistCount[0])
	return nil
}

// oneGroup is never called.
type oneGroup struct{ aggregate.Resolver }

// Counts do not end at 32 bits, nor do those of 256 observations each.
func TestCountsPast32Bits(t *testing.T) {
	domain := testDomain(t)
	for _, l := range []csig.Layout{{Format: csig.Compact, Profile: csig.UEC050}, {Format: csig.Wide, Profile: csig.UEC050}} {
		var sink recordedBlock
		s, err := NewShard(Config{Domain: domain, Resolver: oneGroup{}, Tap: Tap{Tags: true, Weight: 4}}, &sink)
		if err != nil {
			t.Fatal(err)
		}
		// Untouched and without addresses, so that the resolver is not needed.
		o := decode.Observation{TimeNS: 5e9, Kind: decode.Tag, Bytes: 1, Tag: csig.Tag{Layout: l, S: l.MaxS()}}
		obs := []decode.Observation{o, o}
		add := func() {
			if err := s.Add(context.Background(), obs); err != nil {
				t.Fatal(err)
			}
		}
		add()
		const jump, carries = math.MaxUint32 - 5, math.MaxUint32 - 1
		w := s.levels[0].open[0]
		if l.Format == csig.Wide {
			w.wide[0].count += jump
			bucket := uint32(csig.DistIndex(l.MaxS()))
			for range jump % 256 {
				w.dist.count(0, bucket)
			}
			w.dist.carry(&w.dist.entries[0], bucket, jump/256)
		} else {
			w.carry(0, 31, carries)
			w.compact[0].hist[31] = 255 - 2
		}
		add()
		add()
		if err := s.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		want := uint64(jump+6) * 4
		if l.Format == csig.Compact {
			want = (carries<<8 + 253 + 4) * 4
		}
		for i := range 2 { // the second and the minute
			if sink.rows[i] != 1 || sink.observations[i] != want || sink.dist[i] != want {
				t.Errorf("%s: %d rows with %d observations, distribution %d, expected %d",
					l, sink.rows[i], sink.observations[i], sink.dist[i], want)
			}
		}
	}
}

// Each series has an entry of its own in each window, with its heavy codes, whether it came before
// or after the others of its page.
func TestPages(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	table := newSeriesTable(newSignalInfos(testDomain(t)), 1000)
	var windows [2]entries
	want := map[[2]uint32]uint64{}
	for round := range 3 {
		for i := range 2000 {
			id := r.Uint32N(uint32(min(len(table.list)+1, 200)))
			if int(id) == len(table.list) {
				table.insert(seriesKey{loc: aggregate.LocationID(id), heavyLo: id % 30, heavyHi: 29, signalIndex: uint8(id%2) * 32}, uint64(id)<<32)
				for w := range windows {
					windows[w].know(id, &table.list[id])
				}
			}
			w := uint32(i % 2)
			n := uint64(r.Uint32N(3000))
			it := pendingItem{code: id % 30}
			s := &table.list[id]
			if s.wide {
				it.code = itemWide | itemCount
				it.entry = windows[w].wideOf(id, &table)
				if e := &windows[w].wide[it.entry]; e.heavyLo != s.heavyLo || e.heavyHi != s.heavyHi {
					t.Fatalf("series %d: heavy codes %d to %d", id, e.heavyLo, e.heavyHi)
				}
			} else {
				it.entry = windows[w].compactOf(id, &table)
				if windows[w].compact[it.entry].heavy != s.heavyMask {
					t.Fatalf("series %d: heavy codes %x", id, windows[w].compact[it.entry].heavy)
				}
			}
			windows[w].countMany(&it, n, 1)
			want[[2]uint32{w, id}] += n
		}
		for w := range windows {
			got := map[[2]uint32]uint64{}
			for entry, id := range windows[w].eachCompact {
				got[[2]uint32{uint32(w), id}] += windows[w].total(entry)
			}
			for entry, id := range windows[w].eachWide {
				got[[2]uint32{uint32(w), id}] += windows[w].wide[entry].count
			}
			for k, n := range want {
				if k[0] == uint32(w) && got[k] != n {
					t.Fatalf("round %d: window and series %d have %d observations, expected %d", round, k, got[k], n)
				}
			}
			windows[w].reset()
		}
		clear(want)
	}
}

func testDomain(t *testing.T) *csig.Domain {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	return domain
}

func TestKeyCacheStaysBounded(t *testing.T) {
	keys := newKeyCache(4096)
	for i := range uint64(20000) {
		if _, ok := keys.find(i + 1); ok {
			t.Fatalf("key %d was there before", i)
		}
		keys.put(keySlot{key: i + 1, series: uint32(i)})
		if at, ok := keys.find(i + 1); !ok || keys.slots[at].series != uint32(i) {
			t.Fatalf("key %d is not where it was put", i)
		}
	}
	if len(keys.slots) > 4096 || keys.resets == 0 {
		t.Errorf("%d slots, %d resets", len(keys.slots), keys.resets)
	}
}

// oneLocation has a location for each locator metadata value.
type oneLocation struct{}

func (oneLocation) Group(netip.Addr) aggregate.GroupID { return 1000 }

func (oneLocation) Locate(_ csig.Layout, _ uint8, lm uint16, _, _ netip.Addr) (aggregate.LocationID, uint64) {
	return aggregate.LocationID(5000 + uint64(lm)), 0
}

type noSink struct{}

func (noSink) WriteBlock(context.Context, *aggregate.Block) error { return nil }

// TestShortWindowsSortLittle: short windows close without a pass over all series, although each
// has a new one and later series are known when it closes.
func TestShortWindowsSortLittle(t *testing.T) {
	s, err := NewShard(Config{
		Domain: testDomain(t), Resolver: oneLocation{}, Tap: TapAt("", 1), Resolutions: []time.Duration{time.Millisecond, time.Second},
	}, noSink{})
	if err != nil {
		t.Fatal(err)
	}
	var passes, sorted int
	for i := range 8000 { // windows of 1 s close, with a pass, at 3 s and every second from then on
		o := decode.Observation{
			TimeNS: int64(i+1) * int64(time.Millisecond), Kind: decode.Tag, Flags: decode.HasAddrs, Bytes: 100,
			Tag: csig.Tag{Layout: csig.Layout{Format: csig.Wide, Profile: csig.UEC050}, T: 1, S: 9, LM: uint16(i + 1)},
		}
		if err := s.Add(t.Context(), []decode.Observation{o}); err != nil {
			t.Fatal(err)
		}
		if n := len(s.series.order); n != sorted {
			passes, sorted = passes+1, n
		}
	}
	if passes == 0 || passes > 20 {
		t.Errorf("%d passes over all series, want one each second", passes)
	}
}
