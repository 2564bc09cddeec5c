package table_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// stretchBlock returns a window of two cells, the first in two rows.
func stretchBlock(ms int64) *aggregate.Block {
	return &aggregate.Block{
		Resolution: int64(time.Millisecond), WindowStart: ms * int64(time.Millisecond),
		Signal:       []uint8{uint8(csig.MaxDelay), uint8(csig.MaxDelay), uint8(csig.MaxDelay)},
		Kind:         []uint8{uint8(decode.Tag), uint8(decode.Tag), uint8(decode.Tag)},
		SrcGroup:     []uint64{1, 1, 3},
		DstGroup:     []uint64{2, 2, 4},
		Location:     []uint64{1, 2, 1},
		Observations: []uint64{5, 7, uint64(100 + ms)},
		Heavy:        []uint64{1, 2, 1 << 40},
	}
}

// held returns all steps of a cell.
func held(s *table.SampledSeries, src, dst aggregate.GroupID) (list []table.SampledStep) {
	for _, start := range s.Starts() {
		list = append(list, s.Of(start, csig.MaxDelay, aggregate.CellID{Src: src, Dst: dst, Kind: decode.Tag})...)
	}
	return list
}

func TestSampledSeries(t *testing.T) {
	t.Parallel()
	s := table.NewSampledSeries(time.Millisecond, 2*time.Millisecond, 70, 4, 1<<20)
	for _, ms := range []int64{-3, 0, 1, 139, 140} {
		if err := s.WriteBlock(t.Context(), stretchBlock(ms)); err != nil {
			t.Fatal(err)
		}
	}
	step := func(ms int64, n, heavy uint64) table.SampledStep {
		return table.SampledStep{Start: ms * int64(time.Millisecond), Observations: n, Heavy: heavy}
	}
	if diff := cmp.Diff([]table.SampledStep{step(-4, 12, 3), step(0, 24, 6), step(138, 12, 3), step(140, 12, 3)}, held(s, 1, 2)); diff != "" {
		t.Error(diff)
	}
	if got := held(s, 3, 4); len(got) != 4 || got[1].Observations != 201 || got[1].Heavy != 1<<32-1 {
		t.Errorf("%+v", got)
	}
	if got := held(s, 1, 4); got != nil {
		t.Errorf("%+v of a cell that was not observed", got)
	}
}

// TestSampledSeriesAreBounded: held steps are within the bounds, spread over the time, and the same
// in whatever order blocks come, also from several goroutines, in the order of the scheduler.
func TestSampledSeriesAreBounded(t *testing.T) {
	t.Parallel()
	const windows = 3000
	ordered := make([]int, windows)
	for i := range ordered {
		ordered[i] = i
	}
	for name, test := range map[string]struct{ limit, least, most int }{
		"by number":  {1 << 20, 2, 4},
		"by memory":  {4000, 1, 2}, // a stretch of both cells takes twice 128 bytes, 2 pointers and 2 pages
		"not at all": {1000, 0, 0},
	} {
		var want []table.SampledStep
		for seed, order := range [][]int{ordered, rand.New(rand.NewPCG(1, 1)).Perm(windows), rand.New(rand.NewPCG(2, 2)).Perm(windows)} {
			s := table.NewSampledSeries(time.Millisecond, time.Millisecond, 100, 4, test.limit)
			each := windows
			if seed > 0 {
				each /= 4
			}
			var writers sync.WaitGroup
			for part := range slices.Chunk(order, each) {
				writers.Go(func() {
					for _, ms := range part {
						if err := s.WriteBlock(t.Context(), stretchBlock(int64(ms))); err != nil {
							t.Error(err)
						}
					}
				})
			}
			writers.Wait()
			starts := s.Starts()
			if n := len(starts); n < test.least || n > test.most || s.Full() != (test.most == 0) {
				t.Errorf("%s: %d stretches", name, n)
			}
			for i := 1; i < len(starts); i++ {
				if starts[i]-starts[i-1] != starts[1]-starts[0] || starts[i]-starts[i-1] < int64(windows/8)*int64(time.Millisecond) {
					t.Errorf("%s: stretches begin at %v", name, starts)
				}
			}
			got := held(s, 1, 2)
			if len(got) != 100*len(starts) {
				t.Errorf("%s: %d steps in %d stretches", name, len(got), len(starts))
			}
			if seed == 0 {
				want = got
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: in another order:\n%s", name, diff)
			}
		}
	}
}

// TestSampledSeriesOfOurTime: numbers of stretches are far from 0, and there may be none left long
// before the largest multiple.
func TestSampledSeriesOfOurTime(t *testing.T) {
	t.Parallel()
	const now = 1_763_000_000_000                            // ms
	for limit, want := range map[int]int{2000: 0, 3000: 1} { // bytes; a stretch of both cells takes 2336
		s := table.NewSampledSeries(time.Millisecond, time.Millisecond, 100, 4, limit)
		if s.Full() {
			t.Error("full before the first block")
		}
		for ms := range int64(1000) {
			if err := s.WriteBlock(t.Context(), stretchBlock(now+ms)); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(s.Starts()); n != want || s.Full() != (want == 0) {
			t.Errorf("%d bytes: %d stretches, want %d, full %t", limit, n, want, s.Full())
		}
	}
}
