package window

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

func TestTable32(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var table table32
	for round := range 20 {
		want := map[uint32]uint32{}
		for range 1 << (round % 12) {
			key := r.Uint32N(1 << (4 + round))
			slot, found := table.at(key)
			if *slot != want[key] {
				t.Fatalf("key %d: %d, expected %d", key, *slot, want[key])
			}
			if _, ok := want[key]; ok != found {
				t.Fatalf("key %d: found %v", key, found)
			}
			*slot += key | 1
			want[key] += key | 1
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

// A count that reaches its largest value continues in a second entry, and both make one row.
func TestCountsPast32Bits(t *testing.T) {
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
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
		const jump = math.MaxUint32 - 5
		w := s.levels[0].open[0]
		if l.Format == csig.Wide {
			w.wide[0].count += jump
			bucket := uint32(csig.DistIndex(l.MaxS()))
			for range jump % 256 {
				w.dist.count(0, bucket)
			}
			w.dist.carry(&w.dist.entries[0], bucket, jump/256)
		} else {
			w.carry(0, 31, maxCarried-1)
			w.compact[0].hist[31] = 255 - 2
		}
		add()
		add()
		if n := len(w.compact) + len(w.wide); n != 2 {
			t.Fatalf("%s: %d entries, expected 2", l, n)
		}
		if err := s.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		want := uint64(jump+6) * 4
		if l.Format == csig.Compact {
			want = ((maxCarried-1)<<8 + 253 + 4) * 4
		}
		for i := range 2 { // the second and the minute
			if sink.rows[i] != 1 || sink.observations[i] != want || sink.dist[i] != want {
				t.Errorf("%s: %d rows with %d observations, distribution %d, expected %d",
					l, sink.rows[i], sink.observations[i], sink.dist[i], want)
			}
		}
	}
}

func TestGenerationsWrap(t *testing.T) {
	l := level{res: 10, gen: math.MaxUint32 - 1, refs: make([]entryRef, 1)}
	a := l.begin(0, 20, false)
	e := l.entry(a, 0, new(series))
	a.compact[e].bytes = 7
	b := l.begin(10, 30, false)
	if b.gen == 0 || b.gen == a.gen {
		t.Fatalf("generations %d and %d", a.gen, b.gen)
	}
	if got := l.entry(b, 0, new(series)); b.compact[got].bytes != 0 {
		t.Error("a new window has the entry of an old one")
	}
	if got := l.entry(a, 0, new(series)); got != e || len(a.compact) != 1 {
		t.Error("an old window lost its entry")
	}
}

func TestKeyCacheStaysBounded(t *testing.T) {
	keys := newKeyCache(4096)
	for i := range uint64(20000) {
		if _, ok := keys.find(i + 1); ok {
			t.Fatalf("key %d was there before", i)
		}
		keys.put(i+1, keySeries{series: uint32(i)})
		if at, ok := keys.find(i + 1); !ok || keys.series[at].series != uint32(i) {
			t.Fatalf("key %d is not where it was put", i)
		}
	}
	if len(keys.slots) > 4096 || keys.resets == 0 {
		t.Errorf("%d slots, %d resets", len(keys.slots), keys.resets)
	}
}
