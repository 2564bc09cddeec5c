package aggregate

import (
	"fmt"

	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Rejection is the reason why an observation was not aggregated.
type Rejection uint8

// The reasons.
const (
	// RejectOrphan is a tag in a place where no tag belongs, or a reflection in a mirror
	// session that the tap does not hold.
	RejectOrphan Rejection = iota
	// RejectPlace is a kind that does not count at the tap's place.
	RejectPlace
	// RejectRepeat is a reflection with the same fields as the flow's last one that acknowledges
	// nothing new: the same measurement.
	RejectRepeat
	// RejectFuture is a time far ahead of the watermark that later observations
	// contradicted, or a live one that is more than MaxAhead ahead of the host's clock.
	RejectFuture
	// RejectNoTime is an observation of a capture without times.
	RejectNoTime
	// RejectInvalid is an observation that no decoder makes: an unknown layout or kind, or a time
	// outside the years 1970 to 2105.
	RejectInvalid

	// NumRejections bounds every Rejection.
	NumRejections
)

var rejectionNames = [NumRejections]string{"orphan", "place", "repeat", "future", "no_time", "invalid"}

// String returns the reason's name in metrics and reports, in snake case.
func (r Rejection) String() string {
	if r < NumRejections {
		return rejectionNames[r]
	}
	return fmt.Sprintf("rejection_%d", uint8(r))
}

var rejectionWords = [NumRejections]string{
	"tags and reflections where none belong", "tags at taps that are not at receivers", "reflections that were sent again: each counts once",
	"times far ahead of all others, or of the clock", "packets without a time", "unknown layouts or kinds, or impossible times",
}

// About explains the reason in a few words, for people.
func (r Rejection) About() string {
	if r < NumRejections {
		return rejectionWords[r]
	}
	return ""
}

// Counts account for every observation given to a shard. All but the last group are weighted
// observations, counted once, at the finest resolution.
//
// After Flush, In == Stored + Late + Overflow + the sum of Rejected.
type Counts struct {
	In       uint64
	Stored   uint64 // in closed windows, in rows of their own key
	Overflow uint64 // in closed windows, in overflow rows
	Late     uint64 // further behind the watermark than window.Config.Horizon
	Rejected [NumRejections]uint64

	// Parts of Stored and Overflow.
	Untouched uint64
	Trimmed   uint64
	Unknown   uint64 // of signals without a table
	BySignal  [csig.NumSignals]uint64

	Blocks, Rows        uint64 // written, all resolutions
	Deltas              uint64 // windows reopened after they had closed
	ReflectionEvictions uint64 // flows forgotten before their reflection could repeat
	CacheResets         uint64 // look-up caches emptied because they were full or groups had changed
	FlowsForgotten      uint64 // by windows whose flow budget was used up, or that closed before a sample: their counts are in the rest
}

// Merge adds the counts of another shard.
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

// MaxWeight bounds the number of packets that one observation stands for, so that weighted counts
// of a window fit 64 bits.
const MaxWeight = 1 << 30

// CheckWeight returns an error if the weight is above MaxWeight.
func CheckWeight(n uint64) error {
	if n > MaxWeight {
		return fmt.Errorf("weight %d: expected at most %d", n, MaxWeight)
	}
	return nil
}

// CellKey names a cell of one signal and one kind of observations.
type CellKey struct {
	Signal   csig.Signal
	Kind     decode.Kind
	Src, Dst GroupID
}

// ID returns the cell without its signal.
func (k CellKey) ID() CellID { return CellID{k.Src, k.Dst, k.Kind} }

// Evidence is a bit set of the path evidence that located observations more closely than their
// locators: none if the locators alone decided. Sums of rows have the bits of all.
//
// Two other sources are no evidence. The tags of one flow fit one path, but that leaves each set of
// ports unchanged. For compact locators name classes of ports by their position in the fabric, and
// every port of one class shares a shortest path with some port of each other class on the pair's
// paths (in all 7,736 pairs of sets of all pairs of groups, in all fabrics of the emitter). And flows
// with different values in a fine window passed different ports, but that does not show which flow
// passed which port.
type Evidence uint8

// The kinds of evidence.
const (
	ByPathTable Evidence = 1 << iota // the path table
	ByECMP                           // the hashes of the switches
	ByTap                            // taps in the middle of the fabric saw the flows

	// AllEvidence has all bits.
	AllEvidence = ByPathTable | ByECMP | ByTap
)

// EvidenceNames are the names of the bits, the lowest first.
var EvidenceNames = [...]string{"path", "ecmp", "tap"}

// Words calls yield with the names of the set bits, or with "locator" for none.
func (e Evidence) Words(yield func(string) bool) {
	if e == 0 {
		yield("locator")
		return
	}
	for i, name := range EvidenceNames {
		if e>>i&1 != 0 && !yield(name) {
			return
		}
	}
}

// Sums holds a row's counts: observations; samples (untrimmed observations, without the weight);
// observations that no threshold judges (such as min ABW without the capacity of the port); and the
// sums and extremes of their values in stored units. Min and Max are 0 while Measured, the number
// of values, is 0. Evidence is the union over the observations. Merging is associative and
// commutative; totals saturate.
type Sums struct {
	Observations, Samples, Bytes, Measured, Sum, Min, Max uint64
	Untouched, Trimmed, Unjudged, Heavy, HeavySum         uint64
	Evidence                                              Evidence
}

// AddValues adds n values between lo and hi whose sum is sum.
func (s *Sums) AddValues(n, lo, hi, sum uint64) {
	if s.Measured == 0 || lo < s.Min {
		s.Min = lo
	}
	s.Max = max(s.Max, hi)
	s.Measured = AddSat(s.Measured, n)
	s.Sum = AddSat(s.Sum, sum)
}

// Merge adds another row's counts.
func (s *Sums) Merge(o *Sums) {
	if o.Measured > 0 {
		s.AddValues(o.Measured, o.Min, o.Max, o.Sum)
	}
	s.Observations = AddSat(s.Observations, o.Observations)
	s.Samples = AddSat(s.Samples, o.Samples)
	s.Unjudged = AddSat(s.Unjudged, o.Unjudged)
	s.Bytes = AddSat(s.Bytes, o.Bytes)
	s.Untouched = AddSat(s.Untouched, o.Untouched)
	s.Trimmed = AddSat(s.Trimmed, o.Trimmed)
	s.Heavy = AddSat(s.Heavy, o.Heavy)
	s.HeavySum = AddSat(s.HeavySum, o.HeavySum)
	s.Evidence |= o.Evidence
}

// AddSat adds. A sum beyond 64 bits stays at the largest value instead of wrapping, in whatever
// order totals are merged.
func AddSat(a, b uint64) uint64 { return flow.AddSat(a, b) }

// MulSat multiplies, and saturates like AddSat.
func MulSat(a, b uint64) uint64 { return flow.MulSat(a, b) }

// NotWatched is greater than every code: it watches no value of a series.
const NotWatched uint32 = 1 << 30

// Watched is an observation with the reason for watching it. One may be in a list twice, with
// different reasons.
type Watched struct {
	*decode.Observation
	Why      WatchReason
	Location LocationID // of WatchedValue
}

// WatchReason is why an observation is watched.
type WatchReason uint8

// The reasons.
const (
	WatchedSource   WatchReason = iota // its source is unusual
	WatchedValue                       // its value is unusual for its location
	WatchedReserved                    // reserved bits are set
	WatchedOrphan                      // RejectOrphan applies
	WatchedSent                        // a value that is not the initial one, at a sender's tap
	WatchedLength                      // it is the longest so far, or has D and is about as long
)
