package local

import (
	"context"

	"github.com/csigscope/csigscope/aggregate"
)

// hold is the sink of a worker's shards: it keeps what they close until the next barrier.
type hold struct {
	blocks []*aggregate.Block
	rows   int
}

// WriteBlock implements aggregate.Sink. It never fails.
func (h *hold) WriteBlock(_ context.Context, b *aggregate.Block) error {
	h.blocks = append(h.blocks, b.Clone())
	h.rows += b.Len() + len(b.Flows)
	return nil
}

// take hands over what is held.
func (h *hold) take() []*aggregate.Block {
	blocks := h.blocks
	h.blocks, h.rows = nil, 0
	return blocks
}
