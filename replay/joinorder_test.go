package replay

import (
	"context"
	"fmt"
	"slices"
	"testing"

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
				chunk := endedChunk{uint64(100 * (at + 1)), []TapCounts{{Name: s.path + ":", Findings: kept}}, nil}
				if at == 1 {
					chunk.taps = nil // nothing was to be read there
				}
				if err := j.end(t.Context(), piece{s, capture.Chunk{Index: at}}, chunk); err != nil {
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
