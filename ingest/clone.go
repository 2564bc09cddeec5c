package ingest

import (
	"slices"

	"github.com/csigscope/csigscope/aggregate"
)

// cloneBlock copies a block, whose columns belong to somebody else.
func cloneBlock(b *aggregate.Block) *aggregate.Block {
	c := *b
	for _, column := range []*[]uint8{&c.Signal, &c.Kind, &c.Encoding} {
		*column = slices.Clone(*column)
	}
	for _, column := range []*[]uint64{
		&c.SrcGroup, &c.DstGroup, &c.Location, &c.Observations, &c.Bytes, &c.Sum, &c.Min, &c.Max,
		&c.Untouched, &c.Trimmed, &c.Heavy, &c.HeavySum, &c.DistCount,
	} {
		*column = slices.Clone(*column)
	}
	c.DistCode, c.DistEnd = slices.Clone(c.DistCode), slices.Clone(c.DistEnd)
	return &c
}
