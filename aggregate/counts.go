package aggregate

import (
	"fmt"

	"github.com/csigscope/csigscope/decode/csig"
)

// Rejection is why an observation was not aggregated.
type Rejection uint8

// The reasons.
const (
	// RejectOrphan is a tag in a place where no tag belongs, or a reflection in a mirror
	// session that the tap does not hold.
	RejectOrphan Rejection = iota
	// RejectPlace is a kind that is not terminal where the tap stands.
	RejectPlace
	// RejectRepeat is a reflection that acknowledges nothing new: the same
	// measurement as the one before it.
	RejectRepeat
	// RejectFuture is a time far ahead of the watermark that later observations
	// contradicted.
	RejectFuture
	// RejectNoTime is an observation of a capture without times.
	RejectNoTime
	// RejectInvalid is an observation that no decoder makes: an unknown layout or
	// kind, or a time outside the years 1970 to 2116.
	RejectInvalid

	// NumRejections bounds every Rejection.
	NumRejections
)

var rejectionNames = [NumRejections]string{"orphan", "place", "repeat", "future", "no_time", "invalid"}

// String is the reason as metrics and reports name it, in snake case.
func (r Rejection) String() string {
	if r < NumRejections {
		return rejectionNames[r]
	}
	return fmt.Sprintf("rejection_%d", uint8(r))
}

// Counts is what became of the observations that a shard was given. All but the
// last group are weighted observations, counted once, at the finest resolution.
//
// After Flush, In == Stored + Late + Overflow + the sum of Rejected.
type Counts struct {
	In       uint64
	Stored   uint64 // in closed windows, in rows of their own key
	Overflow uint64 // in closed windows, in overflow rows
	Late     uint64 // older than the horizon
	Rejected [NumRejections]uint64

	// Parts of Stored and Overflow.
	Untouched uint64
	Trimmed   uint64
	Unknown   uint64 // of signals without a table
	BySignal  [csig.NumSignals]uint64

	Blocks, Rows        uint64 // written, all resolutions
	Deltas              uint64 // windows reopened after they had closed
	ReflectionEvictions uint64 // flows forgotten before their reflection could repeat
	CacheResets         uint64 // look-up caches emptied because they were full
	FlowsForgotten      uint64 // by windows whose budget of flows was spent: they are part of all others
}

// Merge adds what another shard counted.
func (c *Counts) Merge(o *Counts) {
	c.In += o.In
	c.Stored += o.Stored
	c.Overflow += o.Overflow
	c.Late += o.Late
	for i, n := range o.Rejected {
		c.Rejected[i] += n
	}
	c.Untouched += o.Untouched
	c.Trimmed += o.Trimmed
	c.Unknown += o.Unknown
	for i, n := range o.BySignal {
		c.BySignal[i] += n
	}
	c.Blocks += o.Blocks
	c.Rows += o.Rows
	c.Deltas += o.Deltas
	c.ReflectionEvictions += o.ReflectionEvictions
	c.CacheResets += o.CacheResets
	c.FlowsForgotten += o.FlowsForgotten
}

// Fields are all counts, in an order that belongs to the version of a shard's state.
func (c *Counts) Fields() []*uint64 {
	list := []*uint64{
		&c.In, &c.Stored, &c.Overflow, &c.Late, &c.Untouched, &c.Trimmed, &c.Unknown,
		&c.Blocks, &c.Rows, &c.Deltas, &c.ReflectionEvictions, &c.CacheResets, &c.FlowsForgotten,
	}
	for i := range c.Rejected {
		list = append(list, &c.Rejected[i])
	}
	for i := range c.BySignal {
		list = append(list, &c.BySignal[i])
	}
	return list
}

// MaxWeight bounds how many packets one observation stands for, so that weighted counts of a
// window have 64 bits.
const MaxWeight = 1 << 30

// CheckWeight says what is wrong with a weight.
func CheckWeight(n uint64) error {
	if n > MaxWeight {
		return fmt.Errorf("weight %d: expected at most %d", n, MaxWeight)
	}
	return nil
}
