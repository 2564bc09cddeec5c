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
)

// captures returns observations of several captures, which share some keys.
func captures(n int) [][]decode.Observation {
	list := make([][]decode.Observation, n)
	for i := range list {
		r := rand.New(rand.NewPCG(9, uint64(i)))
		list[i] = randomObservations(r, 500+r.IntN(2000))
		for j := range list[i] {
			list[i][j].Src[14] += byte(i / 2)
			list[i][j].Tag.LM += uint16(i % 3)
		}
	}
	return list
}

// A reset shard gives the same as a new one, whatever came before, also if the budget of keys runs
// out or series are dropped in between.
func TestReset(t *testing.T) {
	sequential(t)
	caps := captures(6)
	for _, maxKeys := range []int{20, 100, 300, 600, 1200, 0} {
		t.Run(fmt.Sprint(maxKeys), func(t *testing.T) {
			cfg := window.Config{
				Tap: window.Tap{Tags: true, Reflections: true}, MaxSeries: maxKeys, FineHeavyOnly: true, Flows: window.FlowLimits{Top: 4, Budget: 16},
				Resolutions: []time.Duration{10 * time.Millisecond, time.Second},
			}
			var got collector
			reused := newShard(t, cfg, &got)
			for i := range 2 * len(caps) {
				obs := caps[i*5%len(caps)]
				source := aggregate.Source{Producer: uint64(i), Incarnation: 2, Epoch: 3}
				if err := reused.Reset(source, uint64(i)<<32); err != nil {
					t.Fatal(err)
				}
				got.blocks = nil
				counts := run(t, reused, obs, 100)

				var want collector
				cfg.Source, cfg.SeqBase = source, uint64(i)<<32
				wantCounts := run(t, newShard(t, cfg, &want), obs, 1000)
				if !reflect.DeepEqual(got.blocks, want.blocks) {
					t.Fatalf("capture %d: %d blocks of a reused shard differ from %d of a new one", i, len(got.blocks), len(want.blocks))
				}
				counts.CacheResets, wantCounts.CacheResets = 0, 0
				if counts != wantCounts {
					t.Fatalf("capture %d: counts %+v, expected %+v", i, counts, wantCounts)
				}
				if maxKeys == 100 && counts.Overflow == 0 {
					t.Fatalf("capture %d spends less than its budget", i)
				}
			}
		})
	}
}

func TestResetRefuses(t *testing.T) {
	ctx := context.Background()
	obs := captures(1)[0]
	s := newShard(t, window.Config{Tap: window.Tap{Tags: true, Reflections: true}}, &collector{})
	if err := s.Add(ctx, obs); err != nil {
		t.Fatal(err)
	}
	if err := s.Reset(aggregate.Source{}, 0); err == nil {
		t.Error("windows are open: expected an error")
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Reset(aggregate.Source{}, 0); err != nil {
		t.Error(err)
	}
	if c := s.Counts(); c != (aggregate.Counts{}) || s.Watermark() != 0 {
		t.Errorf("after a reset: counts %+v, watermark %d", c, s.Watermark())
	}
}

// TestSettingsEqual changes each field of Settings but Decode, which the epoch stands for: a stream must notice it.
func TestSettingsEqual(t *testing.T) {
	of := reflect.TypeFor[window.Settings]()
	for i := range of.NumField() {
		name := of.Field(i).Name
		if name == "Decode" {
			continue
		}
		var s, changed window.Settings
		switch v := reflect.ValueOf(&changed).Elem().Field(i); v.Kind() {
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(1)
		case reflect.Uint64:
			v.SetUint(1)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Interface:
			v.Set(reflect.ValueOf(fakeResolver{}))
		case reflect.Struct:
			for k := range v.NumField() {
				var part window.Settings
				reflect.ValueOf(&part).Elem().Field(i).Field(k).SetInt(1)
				if s.Equal(&part) {
					t.Errorf("settings with another %s.%s are equal", name, v.Type().Field(k).Name)
				}
			}
			v.Field(0).SetInt(1)
		default:
			t.Fatalf("%s is a %s: add a case", name, v.Kind())
		}
		if s.Equal(&changed) {
			t.Errorf("settings with another %s are equal", name)
		}
	}
}
