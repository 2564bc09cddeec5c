package window_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// totalsBySignal adds rows up over everything but signal, kind, encoding and resolution.
func totalsBySignal(c *collector) map[rowKey]rowSums {
	sums := map[rowKey]*rowSums{}
	for k, s := range c.rows {
		k.src, k.dst, k.location, k.start = 0, 0, 0, 0
		if sums[k] == nil {
			sums[k] = &rowSums{dist: map[uint16]uint64{}}
		}
		sums[k].add(k, s)
	}
	out := map[rowKey]rowSums{}
	for k, s := range sums {
		out[k] = *s
	}
	return out
}

// Past the budget every total stays exact, and cells with their own row are still right or missing,
// never wrong.
func TestOverflow(t *testing.T) {
	obs := randomObservations(rand.New(rand.NewPCG(5, 5)), 4000)
	var all, few collector
	cfg := window.Config{Tap: window.Tap{Tags: true, Reflections: true, Weight: 2}}
	run(t, newShard(t, cfg, &all), obs, 256)
	cfg.MaxSeries = 40
	s := newShard(t, cfg, &few)
	c := run(t, s, obs, 256)
	if c.Overflow == 0 || c.Stored == 0 {
		t.Fatalf("counts %+v, expected some of both", c)
	}
	if got, want := totalsBySignal(&few), totalsBySignal(&all); !reflect.DeepEqual(got, want) {
		t.Errorf("totals with overflow\n%v, expected\n%v", got, want)
	}
	var overflow uint64
	for k, sums := range few.rows {
		if k.src == aggregate.OverflowGroup {
			if k.dst != aggregate.OverflowGroup || k.location != aggregate.OverflowLocation {
				t.Errorf("overflow row %+v keeps a part of its key", k)
			}
			if k.resolution == int64(time.Second) {
				overflow += sums.observations
			}
		}
	}
	if overflow != c.Overflow {
		t.Errorf("%d observations in overflow rows, counted %d", overflow, c.Overflow)
	}
}

// Series without further observations make room for others.
func TestDeadSeries(t *testing.T) {
	var sink collector
	s := newShard(t, window.Config{Tap: window.Tap{Tags: true}, MaxSeries: 100}, &sink)
	ctx := context.Background()
	for minute := range 60 {
		for lm := range 90 {
			o := at(time.Duration(minute) * time.Minute)
			o.Tag.LM = uint16(lm)
			setAddr(&o.Src, uint32(minute/10), 1)
			if err := s.Add(ctx, []decode.Observation{o}); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := run(t, s, nil, 1)
	if c.Overflow == 0 || c.Overflow > c.In/4 {
		t.Errorf("overflow %d of %d: expected only the minutes after a change of sources", c.Overflow, c.In)
	}
	for k, sums := range sink.rows {
		if k.src != aggregate.OverflowGroup && sums.observations != 1 {
			t.Fatalf("row %+v has %d observations, expected 1", k, sums.observations)
		}
	}
}

// Observations that arrive while series are renumbered are counted correctly.
func TestOracleUnderChurn(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	obs := make([]decode.Observation, 40000)
	for i := range obs {
		obs[i] = at(time.Duration(i) * 30 * time.Millisecond)
		o := &obs[i]
		setAddr(&o.Src, uint32(i/4000), r.Uint32N(4))
		setAddr(&o.Dst, r.Uint32N(50), r.Uint32N(4))
		o.Tag.LM, o.Tag.S = uint16(r.Uint32N(8)), r.Uint32N(32)
		if r.IntN(2) == 0 {
			o.Tag.Layout = csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
			o.Tag.S = r.Uint32N(1000)
		}
	}
	checkOracle(t, window.Config{Tap: window.Tap{Tags: true, Weight: 1}, Resolutions: []time.Duration{time.Second, 10 * time.Second}}, obs)
}

func TestFineHeavyOnly(t *testing.T) {
	obs := randomObservations(rand.New(rand.NewPCG(6, 6)), 4000)
	cfg := window.Config{
		Tap:         window.Tap{Tags: true, Reflections: true},
		Resolutions: []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second},
	}
	var full, heavy collector
	run(t, newShard(t, cfg, &full), obs, 256)
	cfg.FineHeavyOnly = true
	run(t, newShard(t, cfg, &heavy), obs, 256)

	cellOf := func(i int, k rowKey) string { return fmt.Sprint(i, k.signal, k.kind, k.src, k.dst) }
	hot := map[string]bool{}
	for i := range full.blocks {
		eachRow(&full.blocks[i], func(k rowKey, s *rowSums) {
			if s.heavy > 0 {
				hot[cellOf(i, k)] = true
			}
		})
	}
	var want collector
	for i := range full.blocks {
		eachRow(&full.blocks[i], func(k rowKey, s *rowSums) {
			if k.resolution >= int64(time.Second) || hot[cellOf(i, k)] {
				want.add(k, s)
			}
		})
	}
	if !reflect.DeepEqual(heavy.rows, want.rows) {
		t.Errorf("%d rows of heavy cells, expected %d", len(heavy.rows), len(want.rows))
	}
	if len(heavy.rows) == len(full.rows) {
		t.Error("every cell is heavy: nothing was tested")
	}
}

func eachRow(b *aggregate.Block, f func(rowKey, *rowSums)) {
	for i := range b.Len() {
		k, s := blockRow(b, i)
		f(k, s)
	}
}

// Rows are sorted by their key and keys are unique within a block.
func TestRowOrder(t *testing.T) {
	var sink collector
	run(t, newShard(t, window.Config{Tap: window.Tap{Tags: true, Reflections: true}, LocateUntouched: true}, &sink),
		randomObservations(rand.New(rand.NewPCG(7, 7)), 4000), 256)
	for i := range sink.blocks {
		if sink.blocks[i].Seq != uint64(i) {
			t.Fatalf("block %d has number %d", i, sink.blocks[i].Seq)
		}
		last := ""
		eachRow(&sink.blocks[i], func(k rowKey, _ *rowSums) {
			key := fmt.Sprintf("%03d %d %d %06d %06d %06d", k.signal, k.kind, k.encoding, k.src, k.dst, k.location)
			if key <= last {
				t.Fatalf("row %s follows %s", key, last)
			}
			last = key
		})
	}
}

func TestConfig(t *testing.T) {
	d := defaultDomain(t)
	for _, test := range []struct {
		name string
		cfg  window.Config
	}{
		{"no domain", window.Config{Resolver: fakeResolver{}}},
		{"no resolver", window.Config{Domain: d}},
		{"too fine", window.Config{Domain: d, Resolver: fakeResolver{}, Resolutions: []time.Duration{time.Microsecond}}},
		{"descending", window.Config{Domain: d, Resolver: fakeResolver{}, Resolutions: []time.Duration{time.Minute, time.Second}}},
		{"no divisor", window.Config{Domain: d, Resolver: fakeResolver{}, Resolutions: []time.Duration{2 * time.Second, 3 * time.Second}}},
		{"nothing complete", window.Config{Domain: d, Resolver: fakeResolver{}, FineHeavyOnly: true, Resolutions: []time.Duration{time.Millisecond}}},
		{"lateness missing", window.Config{Domain: d, Resolver: fakeResolver{}, Lateness: []time.Duration{time.Second}}},
		{"lateness descending", window.Config{Domain: d, Resolver: fakeResolver{}, Lateness: []time.Duration{time.Second, 0}}},
		{"horizon", window.Config{Domain: d, Resolver: fakeResolver{}, Horizon: -1}},
		{"max ahead", window.Config{Domain: d, Resolver: fakeResolver{}, MaxAhead: 1 << 62}},
		{"keys", window.Config{Domain: d, Resolver: fakeResolver{}, MaxSeries: window.MaxSeriesBudget + 1}},
		{"top flows", window.Config{Domain: d, Resolver: fakeResolver{}, Flows: window.FlowLimits{Top: -1}}},
		{"flow budget", window.Config{Domain: d, Resolver: fakeResolver{}, Flows: window.FlowLimits{Top: 10, Budget: 9}}},
		{"weight", window.Config{Domain: d, Resolver: fakeResolver{}, Tap: window.Tap{Weight: 1 << 40}}},
	} {
		if _, err := window.NewShard(test.cfg, &collector{}); err == nil {
			t.Errorf("%s: no error", test.name)
		}
	}
}

// TestAllocs plays traffic until every window, series and cache is known, and expects no allocation
// from then on, including closing windows.
func TestAllocs(t *testing.T) {
	for _, format := range []csig.Format{csig.Compact, csig.Wide} {
		var sink discard
		s := newShard(t, window.Config{
			Tap: window.Tap{Tags: true}, FineHeavyOnly: true, Flows: window.FlowLimits{Top: 20}, Resolutions: []time.Duration{10 * time.Millisecond, time.Second, 10 * time.Second},
		}, &sink)
		tr := fabricTraffic(1<<13, format)
		second := func() {
			for at := 0; at < len(tr.obs); at += 256 {
				if err := s.Add(context.Background(), tr.next(at)); err != nil {
					t.Fatal(err)
				}
			}
			tr.round++
		}
		for range 60 {
			second()
		}
		before := sink.rows
		if n := testing.AllocsPerRun(20, second); n != 0 {
			t.Errorf("%s: %v allocations a second of traffic", format, n)
		}
		if sink.rows == before {
			t.Errorf("%s: no window closed", format)
		}
		if b := s.StateBytes(); b < 1<<16 || b > 1<<28 {
			t.Errorf("%s: state takes %d bytes", format, b)
		}
	}
}
