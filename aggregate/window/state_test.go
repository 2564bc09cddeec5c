package window_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/window"
)

// stateConfigs differ in what a state holds: levels, weights, spent budgets, heavy cells
// alone, no reflections, lateness without windows that stay open.
func stateConfigs(t testing.TB) []window.Config {
	ms := time.Millisecond
	source := aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}
	list := []window.Config{
		{Tap: window.Tap{Tags: true, Reflections: true}},
		{Tap: window.Tap{Tags: true, Reflections: true, Weight: 7}, MaxKeys: 40, Flows: window.FlowLimits{Top: 2, Budget: 7}, Resolutions: []time.Duration{10 * ms, time.Second, time.Minute}},
		{Tap: window.Tap{Tags: true, Reflections: true}, FineHeavyOnly: true, MaxKeys: 120, Resolutions: []time.Duration{ms, 10 * ms, time.Second}},
		{Tap: window.Tap{Tags: true}, LocateUntouched: true, Flows: window.FlowLimits{Top: 5}, Horizon: time.Minute, MaxAhead: 10 * time.Second},
		{Tap: window.Tap{Reflections: true}, Lateness: []time.Duration{1}, Resolutions: []time.Duration{100 * ms}},
	}
	for i := range list {
		list[i].Source, list[i].SeqBase, list[i].Domain, list[i].Resolver = source, uint64(i)<<40, domainWithTypes(t), fakeResolver{}
	}
	return list
}

// restored is a shard made of another's state.
func restored(t testing.TB, s *window.Shard, cfg window.Config, sink aggregate.Sink) *window.Shard {
	t.Helper()
	state, err := s.AppendState([]byte("before"))
	if err != nil {
		t.Fatal(err)
	}
	state = bytes.TrimPrefix(state, []byte("before"))
	twin, err := window.RestoreShard(cfg, sink, state)
	if err != nil {
		t.Fatal(err)
	}
	again, err := twin.AppendState(nil)
	if err != nil || !bytes.Equal(state, again) {
		t.Fatalf("a restored shard has another state: %d bytes, %d before, %v", len(again), len(state), err)
	}
	return twin
}

// A shard that is restored from its state again and again, at any moment, writes what
// one writes that was never interrupted, and counts the same.
func TestStateTwin(t *testing.T) {
	sequential(t)
	for i, cfg := range stateConfigs(t) {
		for seed := range uint64(4) {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			obs := randomObservations(rng, 3000)
			var want, got collector
			calm, shard := newShard(t, cfg, &want), newShard(t, cfg, &got)
			if seed%2 == 1 { // with series left over from another capture
				for s, sink := range map[*window.Shard]*collector{calm: &want, shard: &got} {
					run(t, s, captures(1)[0], 100)
					if err := s.Reset(cfg.Source, cfg.SeqBase); err != nil {
						t.Fatal(err)
					}
					sink.blocks = nil
				}
			}
			ctx := context.Background()
			interruptions := 0
			for left := obs; len(left) > 0; {
				n := min(len(left), 1+rng.IntN(40))
				if err := errors.Join(calm.Add(ctx, left[:n]), shard.Add(ctx, left[:n])); err != nil {
					t.Fatal(err)
				}
				if left = left[n:]; rng.IntN(8) == 0 {
					interruptions++
					shard = restored(t, shard, cfg, &got)
				}
				if rng.IntN(30) == 0 {
					now := calm.Watermark() + rng.Int64N(int64(2*time.Second))
					if err := errors.Join(calm.AdvanceTo(ctx, now), shard.AdvanceTo(ctx, now)); err != nil {
						t.Fatal(err)
					}
				}
				if calm.Watermark() != shard.Watermark() || len(want.blocks) != len(got.blocks) {
					t.Fatalf("after %d interruptions: watermark %d and %d blocks, expected %d and %d",
						interruptions, shard.Watermark(), len(got.blocks), calm.Watermark(), len(want.blocks))
				}
			}
			wantCounts, counts := run(t, calm, nil, 1), run(t, shard, nil, 1)
			wantCounts.CacheResets, counts.CacheResets = 0, 0
			if counts != wantCounts {
				t.Errorf("config %d, seed %d: counts %+v, expected %+v", i, seed, counts, wantCounts)
			}
			if !reflect.DeepEqual(got.blocks, want.blocks) || len(want.blocks) < 10 {
				t.Fatalf("config %d, seed %d: %d blocks differ from %d", i, seed, len(got.blocks), len(want.blocks))
			}
			if cfg.MaxKeys == 40 && counts.Overflow == 0 || i == 0 && (counts.Late == 0 || counts.Deltas == 0 || counts.Rejected[aggregate.RejectFuture] == 0) {
				t.Errorf("config %d, seed %d: the traffic is too tame: %+v", i, seed, counts)
			}
		}
	}
}

// smallState is that of a shard with windows open at every level, something that waits
// and reflections.
func smallState(t testing.TB, cfg window.Config, sink aggregate.Sink) []byte {
	s := newShard(t, cfg, sink)
	rng := rand.New(rand.NewPCG(3, 3))
	ahead := at(2 * time.Hour)
	if err := s.Add(context.Background(), append(randomObservations(rng, 40), ahead)); err != nil {
		t.Fatal(err)
	}
	state, err := s.AppendState(nil)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// A state that is cut, longer, of other settings or of a shard that has failed is an
// error.
func TestStateRefused(t *testing.T) {
	sequential(t)
	cfg := stateConfigs(t)[1]
	state := smallState(t, cfg, &collector{})
	refused := func(cfg window.Config, state []byte, what string) {
		t.Helper()
		if s, err := window.RestoreShard(cfg, &collector{}, state); !errors.Is(err, aggregate.ErrState) || s != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if len(state) > 10<<10 {
		t.Fatalf("%d bytes of state are too many to cut at each", len(state))
	}
	for n := range state {
		refused(cfg, state[:n], "cut")
	}
	refused(cfg, append(bytes.Clone(state), 0), "with a byte more")
	newer := bytes.Clone(state)
	newer[0]++
	refused(cfg, newer, "newer")
	for _, change := range []func(*window.Config){
		func(c *window.Config) { c.Source.Producer++ },
		func(c *window.Config) { c.SeqBase++ },
		func(c *window.Config) { c.Weight++ },
		func(c *window.Config) { c.Reflections = false },
		func(c *window.Config) { c.MaxKeys++ },
		func(c *window.Config) { c.Flows.Top++ },
		func(c *window.Config) { c.Resolutions = c.Resolutions[1:] },
		func(c *window.Config) { c.Domain = defaultDomain(t) },
	} {
		other := cfg
		change(&other)
		refused(other, state, "of other settings")
	}
	failed := newShard(t, cfg, failingSink{errSink})
	if err := failed.Add(t.Context(), captures(1)[0]); err == nil {
		t.Fatal("the sink did not fail")
	}
	if _, err := failed.AppendState(nil); !errors.Is(err, errSink) {
		t.Errorf("the state of a shard that has failed: %v", err)
	}
}

var errSink = errors.New("sink")

// FuzzRestoreShard checks that whatever is taken for a state breaks nothing, neither
// when it is restored nor afterwards.
func FuzzRestoreShard(f *testing.F) {
	configs := stateConfigs(f)
	for i, cfg := range configs {
		f.Add(uint8(i), smallState(f, cfg, &collector{}))
		empty, err := newShard(f, cfg, &collector{}).AppendState(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), empty)
	}
	more := randomObservations(rand.New(rand.NewPCG(4, 4)), 200)
	f.Fuzz(func(t *testing.T, i uint8, state []byte) {
		cfg := configs[int(i)%len(configs)]
		s, err := window.RestoreShard(cfg, &collector{}, state)
		if err != nil {
			if !errors.Is(err, aggregate.ErrState) {
				t.Fatal(err)
			}
			return
		}
		if err := s.Add(context.Background(), more); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}

// A block comes back as it was, in memory that held another one, and what is cut does
// not.
func TestBlockBinary(t *testing.T) {
	var sink collector
	cfg := stateConfigs(t)[0]
	cfg.Flows.Top = 3
	run(t, newShard(t, cfg, &sink), randomObservations(rand.New(rand.NewPCG(1, 5)), 2000), 100)
	sink.blocks = append(sink.blocks, aggregate.Block{Resolution: 1})
	var got aggregate.Block
	for i := range sink.blocks {
		b, err := sink.blocks[i].AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		want := sink.blocks[i].Clone()
		if have := got.Clone(); !reflect.DeepEqual(have, want) && want.Len() > 0 || have.Source != want.Source || have.Len() != want.Len() {
			t.Fatalf("block %d: got %+v, expected %+v", i, have, want)
		}
		step := 1 + len(b)/1000 // at each byte of small blocks, seldom in large ones
		for n := 0; n < len(b); n += step {
			if err := got.UnmarshalBinary(b[:n]); !errors.Is(err, aggregate.ErrState) || got.Len() > 0 {
				t.Fatalf("%d of %d bytes: %v", n, len(b), err)
			}
		}
	}
}

func FuzzBlockBinary(f *testing.F) {
	var sink collector
	run(f, newShard(f, window.Config{Tap: window.Tap{Tags: true, Reflections: true}, Flows: window.FlowLimits{Top: 3}}, &sink), randomObservations(rand.New(rand.NewPCG(1, 6)), 50), 100)
	for i := range sink.blocks {
		b, _ := sink.blocks[i].AppendBinary(nil)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var b, again aggregate.Block
		if b.UnmarshalBinary(in) != nil {
			return
		}
		out, _ := b.AppendBinary(nil)
		if err := again.UnmarshalBinary(out); err != nil {
			t.Fatal(err)
		}
		_ = table.New(table.Bounds{Resolution: time.Duration(b.Resolution), Rows: 10}).WriteBlock(context.Background(), &b)
	})
}

// A table that is restored in the middle says what an undisturbed one says.
func TestTableState(t *testing.T) {
	var sink collector
	run(t, newShard(t, stateConfigs(t)[0], &sink), randomObservations(rand.New(rand.NewPCG(1, 7)), 4000), 100)
	for _, maxKeys := range []int{10, 100000} {
		bounds := table.Bounds{Resolution: time.Second, Rows: maxKeys}
		calm, s := table.New(bounds), table.New(bounds)
		for i := range sink.blocks {
			_, _ = calm.WriteBlock(t.Context(), &sink.blocks[i]), s.WriteBlock(t.Context(), &sink.blocks[i])
			if i%10 != 5 {
				continue
			}
			state := s.AppendState(nil)
			s = table.New(bounds)
			if err := s.RestoreState(state); err != nil {
				t.Fatal(err)
			}
			for n := i; n < len(state); n += 97 {
				if err := table.New(bounds).RestoreState(state[:n]); !errors.Is(err, aggregate.ErrState) {
					t.Fatalf("%d of %d bytes: %v", n, len(state), err)
				}
			}
			if err := table.New(table.Bounds{Resolution: time.Minute, Rows: maxKeys}).RestoreState(state); !errors.Is(err, aggregate.ErrState) {
				t.Fatalf("of another resolution: %v", err)
			}
		}
		if !bytes.Equal(s.AppendState(nil), calm.AppendState(nil)) || len(calm.Total().Signals()) < 3 {
			t.Error("a restored table differs")
		}
		for _, sig := range calm.Total().Signals() {
			if !reflect.DeepEqual(s.Total().Cells(sig, nil), calm.Total().Cells(sig, nil)) {
				t.Errorf("%s: other cells", sig)
			}
		}
	}
}
