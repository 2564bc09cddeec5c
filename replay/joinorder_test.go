package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/capture"
)

// TestJoinerOrder checks that chunks are passed on and numbered in their own order, in whatever
// order they end.
func TestJoinerOrder(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}, {2, 3, 0, 1}} {
		var got []string
		a, b := &source{path: "a"}, &source{path: "b"}
		j := newJoiner(&Config{Taps: func(_ context.Context, list []TapCounts) error {
			for _, l := range list {
				got = append(got, fmt.Sprint(l.Name, l.Findings[0].Packets[0].Number))
			}
			return nil
		}})
		for _, at := range order {
			for _, s := range []*source{a, b} {
				kept := []finding.Finding{{Packets: []finding.Packet{{File: s.path, Number: 5}}}}
				p := piece{s, capture.Chunk{Index: at}}
				section := sectionTaps{taps: []TapCounts{{Name: s.path + ":", Findings: kept}}}
				if at == 1 {
					section.taps = nil // nothing was to be read there
				}
				if err := errors.Join(j.add(t.Context(), p, section), j.end(t.Context(), p, uint64(100*(at+1)))); err != nil {
					t.Fatal(err)
				}
				if kept[0].Packets[0].Number != 5 {
					t.Error("what the worker holds was changed")
				}
			}
		}
		of := func(name string) (list []string) {
			for _, one := range got {
				if one[:1] == name {
					list = append(list, one[2:])
				}
			}
			return list
		}
		if want := []string{"5", "305", "605"}; !slices.Equal(of("a"), want) || !slices.Equal(of("b"), want) {
			t.Errorf("ended in the order %v: %v, want %v each", order, got, want)
		}
	}
}

// TestJoinerWaits: a chunk of many sections does not run ahead of the chunk before it without
// bounds.
func TestJoinerWaits(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]bool{"its turn": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				taken := 0
				j := newJoiner(&Config{Taps: func(_ context.Context, list []TapCounts) error {
					taken += len(list)
					return nil
				}})
				src := &source{path: "a"}
				first, second := piece{src, capture.Chunk{Index: 0}}, piece{src, capture.Chunk{Index: 1}}
				added, ended := 0, make(chan error, 1)
				go func() {
					var err error
					for ; added < maxWaiting && err == nil; added++ {
						err = j.add(ctx, second, sectionTaps{taps: make([]TapCounts, 2)})
					}
					ended <- err
				}()
				synctest.Wait()
				if added != maxWaiting/2 || taken != 0 {
					t.Errorf("%d sections are added, %d taps handed on", added, taken)
				}
				if stop {
					cancel()
				} else if err := errors.Join(j.add(ctx, first, sectionTaps{taps: make([]TapCounts, 1)}), j.end(ctx, first, 1)); err != nil {
					t.Error(err)
				}
				if err := <-ended; errors.Is(err, context.Canceled) != stop || !stop && (err != nil || taken != 1+2*maxWaiting) {
					t.Errorf("%v, %d taps handed on", err, taken)
				}
			})
		})
	}
}
