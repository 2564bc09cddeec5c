// Package tabletest makes blocks of closed windows for tests.
//
// It knows how a block's columns belong together. It must never be used outside of tests.
package tabletest

import (
	"math/rand/v2"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// FirstGroup and FirstLocation are the first identities in blocks.
const (
	FirstGroup    = 1 << 60
	FirstLocation = 3 << 60
)

// Locations is the number of locations.
const Locations = 12

// Block returns a block of a 1 s window: that many cells of a square matrix, each with tags at two
// locations and sometimes a reflection, for each of the signals.
func Block(rng *rand.Rand, producer uint64, start time.Time, cells int, signals ...csig.Signal) *aggregate.Block {
	side := 1
	for side*side < cells {
		side++
	}
	b := &aggregate.Block{Source: aggregate.Source{Producer: producer + 1}, Resolution: int64(time.Second), WindowStart: start.UnixNano()}
	b.Seq = uint64(start.Unix())
	for _, s := range signals {
		for i := range cells {
			src, dst := uint64(FirstGroup+i/side), uint64(FirstGroup+i%side)
			at := uint64(FirstLocation + rng.IntN(Locations-1))
			row(rng, b, s, decode.Tag, src, dst, at)
			row(rng, b, s, decode.Tag, src, dst, at+1)
			if i%3 == 0 {
				row(rng, b, s, decode.Reflection, src, dst, at)
			}
		}
	}
	return b
}

// row adds a row whose distribution counts the observations with a value.
func row(rng *rand.Rand, b *aggregate.Block, s csig.Signal, k decode.Kind, src, dst, at uint64) {
	n := 5 + rng.Uint64N(40)
	trimmed := rng.Uint64N(3)
	valued := n - trimmed
	heavy := rng.Uint64N(valued + 1)
	value := 1 + rng.Uint64N(900_000)
	b.Signal = append(b.Signal, uint8(s))
	b.Kind = append(b.Kind, uint8(k))
	b.Encoding = append(b.Encoding, 0)
	b.SrcGroup, b.DstGroup, b.Location = append(b.SrcGroup, src), append(b.DstGroup, dst), append(b.Location, at)
	b.Observations, b.Samples, b.Bytes = append(b.Observations, n), append(b.Samples, valued), append(b.Bytes, n*1500)
	b.Sum = append(b.Sum, value*valued)
	b.Min, b.Max = append(b.Min, value/2), append(b.Max, value*2)
	unjudged := uint64(0)
	if at%5 == 0 {
		unjudged = valued - heavy
	}
	b.Unjudged = append(b.Unjudged, unjudged)
	b.Untouched, b.Trimmed = append(b.Untouched, 0), append(b.Trimmed, trimmed)
	b.Heavy, b.HeavySum = append(b.Heavy, heavy), append(b.HeavySum, heavy*value)
	b.Evidence = append(b.Evidence, uint8(n%8))
	b.DistCode, b.DistCount = append(b.DistCode, uint16(rng.IntN(32))), append(b.DistCount, valued)
	b.DistEnd = append(b.DistEnd, uint32(len(b.DistCode)))
}

// Still is a stopped clock at 2033-05-18, for memories whose tests write windows of the past at any
// pace. With a running clock, a producer that a busy machine delays for seconds would no longer be
// present, and windows would become final early.
func Still() time.Time { return time.Unix(2e9, 0) }
