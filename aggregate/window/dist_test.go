package window

import (
	"math/rand/v2"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

func TestAddBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		a, b := rng.Uint64(), rng.Uint64()
		sum, over := addBytes(a, b)
		for i := range 8 {
			n := a>>(8*i)&255 + b>>(8*i)&255
			if sum>>(8*i)&255 != n&255 || over>>(8*i)&255 != n>>8<<7 {
				t.Fatalf("byte %d of %016x + %016x: %016x, over %016x", i, a, b, sum, over)
			}
		}
	}
}

// Entries of two windows, one of them merged into the other, have the counts of a map.
func TestDistribution(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	const entries = 40
	var of [2]distribution
	want := make(map[[2]uint32]uint64)
	for range 3 { // a reset one reuses its memory
		clear(want)
		for w := range of {
			of[w].reset()
			for len(of[w].entries) < entries {
				of[w].addPage()
			}
			for i := range 300_000 {
				entry := rng.Uint32N(entries)
				if i < 16*46 { // the first entries have 1 to 46 observations, in one of the windows more than in the other
					few := [2]uint32{uint32(i) % 16, 15 - uint32(i)%16}[w]
					if entry = uint32(i) % 16; uint32(i)/16 > 3*few {
						continue
					}
				} else if entry < 16 {
					continue
				}
				bucket := uint32(csig.DistIndex(rng.Uint32N(1 << (1 + entry/2))))
				of[w].count(entry, bucket)
				want[[2]uint32{entry, bucket}]++
			}
		}
		for entry := range uint32(entries) {
			of[0].merge(entry, &of[1], entry)
		}
		var dist aggregate.Dist
		var b aggregate.Block
		for entry := range uint32(entries) {
			of[0].addTo(&dist, entry, 3)
			b.AppendDist(&dist)
			got := make(map[uint32]uint64)
			codes, counts := b.Dist(int(entry))
			for i, code := range codes {
				got[uint32(code)] = counts[i]
			}
			for bucket := range uint32(csig.DistIndexes) {
				if n, expected := got[bucket], 3*want[[2]uint32{entry, bucket}]; n != expected {
					t.Fatalf("entry %d, bucket %d: %d observations, expected %d", entry, bucket, n, expected)
				}
			}
		}
	}
}
