package live

import (
	"context"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
)

// hold is the sink of a worker's shards: it keeps what they close until the next barrier.
type hold struct {
	blocks []*aggregate.Block
	rows   int
}

// WriteBlock implements aggregate.Sink. It never fails.
func (h *hold) WriteBlock(_ context.Context, b *aggregate.Block) error {
	h.blocks = append(h.blocks, clone(b))
	h.rows += b.Len()
	return nil
}

// take hands over what is held.
func (h *hold) take() []*aggregate.Block {
	blocks := h.blocks
	h.blocks, h.rows = nil, 0
	return blocks
}

func clone(b *aggregate.Block) *aggregate.Block {
	c := *b
	c.Signal, c.Kind, c.Encoding = slices.Clone(b.Signal), slices.Clone(b.Kind), slices.Clone(b.Encoding)
	c.SrcGroup, c.DstGroup, c.Location = slices.Clone(b.SrcGroup), slices.Clone(b.DstGroup), slices.Clone(b.Location)
	c.Observations, c.Bytes, c.Sum = slices.Clone(b.Observations), slices.Clone(b.Bytes), slices.Clone(b.Sum)
	c.Min, c.Max = slices.Clone(b.Min), slices.Clone(b.Max)
	c.Untouched, c.Trimmed = slices.Clone(b.Untouched), slices.Clone(b.Trimmed)
	c.Heavy, c.HeavySum = slices.Clone(b.Heavy), slices.Clone(b.HeavySum)
	c.DistCode, c.DistCount, c.DistEnd = slices.Clone(b.DistCode), slices.Clone(b.DistCount), slices.Clone(b.DistEnd)
	return &c
}
