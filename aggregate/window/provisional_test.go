package window_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// announced keeps provisional rows.
type announced []aggregate.Block

func (a *announced) WriteProvisional(p *aggregate.Provisional) {
	*a = append(*a, *(*aggregate.Block)(p).Clone())
}

// TestProvisional: when a window of 1 s has ended, or one of the longest shorter resolution, its
// provisional rows are those that its block will have, even while finer windows still hold some.
// Blocks and counts are the same without.
func TestProvisional(t *testing.T) {
	sequential(t)
	ms := time.Millisecond
	for _, resolutions := range [][]time.Duration{
		{time.Second, time.Minute}, {10 * ms, time.Second, time.Minute}, {10 * ms, 100 * ms, time.Second},
	} {
		for _, format := range []csig.Format{csig.Compact, csig.Wide} {
			t.Run(fmt.Sprint(resolutions, format), func(t *testing.T) {
				cfg := window.Config{
					Domain: domainWithTypes(t), Tap: window.Tap{Tags: true, Weight: 3}, Resolutions: resolutions, FineHeavyOnly: true,
					SeqBase: 5<<aggregate.PartShift | 1, Flows: window.FlowLimits{Top: 5},
				}
				var with, without collector
				var early announced
				traffic := fabricTraffic(3000, format)
				s, plain := newShard(t, cfg, &with), newShard(t, cfg, &without)
				for traffic.round = range 6 {
					for at := 0; at < len(traffic.obs); at += 256 {
						// 11 ms each: windows of 10 ms close 50 ms after their end, not within one.
						for batch := range slices.Chunk(traffic.next(at), 32) {
							if err := s.Add(t.Context(), slices.Clone(batch)); err != nil {
								t.Fatal(err)
							}
							s.WriteProvisional(&early)
							if err := plain.Add(t.Context(), batch); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
				live := []time.Duration{time.Second}
				if fine := aggregate.FineResolution(resolutions); fine > 0 {
					live = []time.Duration{fine, time.Second}
				}
				if next, length := s.NextLive(s.Watermark()), int64(live[0]); next != s.Watermark()-s.Watermark()%length+length {
					t.Errorf("the next window ends at %d, %d after the watermark", next, next-s.Watermark())
				}
				if err := s.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := plain.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(with.blocks, without.blocks) || s.Counts() != plain.Counts() {
					t.Error("provisional rows changed blocks or counts")
				}
				ended := 0
				for i := range with.blocks {
					if b := &with.blocks[i]; slices.Contains(live, time.Duration(b.Resolution)) && b.WindowStart+b.Resolution <= s.Watermark() {
						ended++
					}
				}
				if len(early) != ended || ended < 5 {
					t.Fatalf("%d windows had provisional rows, want those of the %d that ended", len(early), ended)
				}
				for _, got := range early {
					i := slices.IndexFunc(with.blocks, func(b aggregate.Block) bool {
						return b.Resolution == got.Resolution && b.WindowStart == got.WindowStart
					})
					if i < 0 {
						t.Fatalf("no block of %s at %d", time.Duration(got.Resolution), got.WindowStart)
					}
					want := with.blocks[i]
					want.Seq, want.Flows = 5<<aggregate.PartShift, nil
					if !reflect.DeepEqual(got, want) {
						t.Fatalf("window %d: provisional rows differ from its block:\n got %+v\nwant %+v", got.WindowStart, got, want)
					}
				}
			})
		}
	}
}

// TestProvisionalLate: an observation that comes after its window's provisional rows is in its
// block, and a closed window has none.
func TestProvisionalLate(t *testing.T) {
	sequential(t)
	var c collector
	var early announced
	s := newShard(t, window.Config{Domain: domainWithTypes(t), Tap: window.Tap{Tags: true}}, &c)
	for _, at := range []time.Duration{0, 100 * time.Millisecond, 1100 * time.Millisecond, 900 * time.Millisecond, 5 * time.Second, 200 * time.Millisecond, 6 * time.Second} {
		o := fabricTraffic(1, csig.Compact).next(0)
		o[0].TimeNS = benchStart + int64(at)
		if err := s.Add(t.Context(), []decode.Observation{o[0]}); err != nil {
			t.Fatal(err)
		}
		s.WriteProvisional(&early)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	observations := func(list []aggregate.Block, start int64) (all []uint64) {
		for i := range list {
			if list[i].WindowStart == start && list[i].Resolution == int64(time.Second) {
				all = append(all, list[i].Observations...)
			}
		}
		return all
	}
	if got := observations(early, benchStart); !slices.Equal(got, []uint64{2}) {
		t.Errorf("provisional observations %d, want 2, once", got)
	}
	if got := observations(c.blocks, benchStart); !slices.Equal(got, []uint64{3, 1}) {
		t.Errorf("observations in blocks %d, want 3 and a late one", got)
	}
	if got := len(early); got != 2 { // 0 s and 5 s; 1 s was closed when time moved on to 5 s
		t.Errorf("provisional rows of %d windows", got)
	}
}
