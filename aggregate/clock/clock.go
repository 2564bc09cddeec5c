package clock

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
)

// Pair is one event with the timestamps of the two taps, each by its own clock, Unix ns.
type Pair struct {
	A, B int64
	// Kind groups events of one direction that take equally long without queueing, such as packets
	// of one length on paths of one length. Unnecessary kinds, or too few, make only the drift less
	// exact.
	Kind uint32
}

// Options are prior knowledge. The zero value has none.
type Options struct {
	// Error is the largest error of a pair's timestamps, both taps together, in either direction.
	Error time.Duration
	// Forward and Backward are the minimum delays from A to B and from B to A: cables, and
	// transmission at each hop. An unknown part of them widens the bound, and half of their
	// difference is an error of the offset.
	Forward, Backward time.Duration
	// MaxDrift is the largest relative drift of the clocks, in ppb; 0 means 1,000,000.
	MaxDrift float64
}

const (
	defaultMaxDrift = 1e6 // ppb: 1 ms in a second, ten times the drift of bad quartz
	minPairs        = 3
	maxPairs        = 1 << 22 // take some seconds and 200 MB
)

// Errors of Between.
var (
	ErrTooFew       = errors.New("expected at least 3 packets of one direction, at different times")
	ErrInconsistent = errors.New("no steady drift explains the packets: a clock was set, packets were matched wrongly, or timestamps are less exact than stated")
)

// Relation describes B's clock relative to A's. It can be copied and is safe for concurrent use.
type Relation struct {
	// At is the instant of Offset, on A's clock, Unix ns: the middle of the packets.
	At int64
	// Offset is B's clock minus A's at that instant, in ns.
	Offset float64
	// Drift is the gain of B's clock, in ns per second of A's clock (ppb).
	Drift float64
	// DriftLow and DriftHigh bound the true drift.
	DriftLow, DriftHigh float64
	// DriftError is the standard error of Drift, in ppb, as estimated from the packets: +Inf if
	// they are too few.
	DriftError float64
	// Queued says that too few packets met no queue. Then Drift and DriftError assume that queues
	// were as long at the end as at the beginning; the bound never does.
	Queued bool
	// OneWay says that all packets went in one direction. Then the offset is bounded on one side,
	// the other being infinite, and only Options.MaxDrift bounds the drift.
	OneWay bool
	// RoundTrip is the least time of both directions together that fits all packets, in ns, minus
	// the error of the timestamps; 0 if OneWay. It may be negative, by at most twice that error.
	RoundTrip float64

	base    float64 // ns, subtracted from the values of lines
	corners []line  // of the lines that fit; nil if OneWay
	side    direction
	edge    []point // if OneWay: no line passes these, widened
}

// direction of packets.
type direction int

const (
	forward  direction = 1  // A first
	backward direction = -1 // B first
)

// Bound returns the range of the offset at an instant on A's clock, if the clocks drift steadily
// and Options hold. Away from At it widens with the uncertainty of the drift.
func (r *Relation) Bound(a int64) (low, high float64) {
	x := seconds(a, r.At)
	if r.OneWay {
		return r.boundOneWay(x)
	}
	low, high = math.Inf(1), math.Inf(-1)
	for _, l := range r.corners {
		v := l.at(x) + r.base
		low, high = min(low, v), max(high, v)
	}
	return low, high
}

// boundOneWay returns the bound of the nearest packets under the fastest possible drift.
func (r *Relation) boundOneWay(x float64) (low, high float64) {
	limit := math.Inf(int(r.side))
	for _, p := range r.edge {
		v := p.y + float64(r.side)*math.Abs(x-p.x)*r.DriftHigh
		if r.side == forward {
			limit = min(limit, v)
		} else {
			limit = max(limit, v)
		}
	}
	if r.side == forward {
		return math.Inf(-1), limit + r.base
	}
	return limit + r.base, math.Inf(1)
}

// ToA returns A's clock when B's clock shows b, both Unix ns.
func (r *Relation) ToA(b int64) int64 {
	since := float64(b-r.At) - r.Offset // on B's clock, since At
	return r.At + int64(math.Round(since/(1+r.Drift/1e9)))
}

func seconds(a, since int64) float64 { return float64(a-since) / 1e9 }

// Between estimates the relation of two clocks from the packets that passed A first and those that
// passed B first, in any order; either may be empty. It only reads the slices and does not keep
// them. Errors wrap ErrTooFew or ErrInconsistent, except for more than 4,194,304 packets in all,
// and for invalid options.
func Between(forwards, backwards []Pair, o Options) (*Relation, error) {
	if len(forwards)+len(backwards) > maxPairs {
		return nil, fmt.Errorf("relate clocks: %d packets: expected at most %d", len(forwards)+len(backwards), maxPairs)
	}
	if o.Error < 0 || o.Forward < 0 || o.Backward < 0 || !(o.MaxDrift >= 0) {
		return nil, fmt.Errorf("relate clocks: options %+v: expected nothing below 0", o)
	}
	o.MaxDrift = cmp.Or(o.MaxDrift, defaultMaxDrift)
	r := &Relation{At: middle(forwards, backwards)}
	var first int64
	if len(forwards) > 0 {
		first = forwards[0].B - forwards[0].A
	} else if len(backwards) > 0 {
		first = backwards[0].B - backwards[0].A
	}
	r.base = float64(first)
	up := newEdge(forwards, r.At, first, float64(o.Forward), forward)
	down := newEdge(backwards, r.At, first, float64(o.Backward), backward)
	switch {
	case up.wide() && down.wide():
		return r, r.twoWays(up, down, &o)
	case up.wide():
		r.oneWay(up, &o)
	case down.wide():
		r.oneWay(down, &o)
	default:
		return nil, fmt.Errorf("relate clocks by %d and %d packets: %w", len(forwards), len(backwards), ErrTooFew)
	}
	return r, nil
}

// middle returns the time half way between the first and the last packet on A's clock.
func middle(lists ...[]Pair) int64 {
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	for _, list := range lists {
		for _, p := range list {
			low, high = min(low, p.A), max(high, p.A)
		}
	}
	if low > high {
		return 0
	}
	return low + int64(uint64(high-low)/2)
}

// oneWay takes the envelope as the offset: it assumes that the least delay is the known one, and
// that the most favorable timestamps are right.
func (r *Relation) oneWay(e *hull, o *Options) {
	r.OneWay, r.side = true, e.side
	r.DriftLow, r.DriftHigh = -o.MaxDrift, o.MaxDrift
	r.refine(o, e)
	r.Offset = e.touch(r.Drift) + r.base
	for _, p := range e.hull {
		p.y += float64(e.side) * float64(o.Error)
		r.edge = append(r.edge, p)
	}
}

// twoWays takes the middle of the band between both envelopes, along the slope that is closest to
// the packets of both.
func (r *Relation) twoWays(up, down *hull, o *Options) error {
	slack := float64(o.Error)
	r.corners = fitting(up.hull, down.hull, slack, o.MaxDrift)
	if len(r.corners) == 0 {
		widest := highest(o.MaxDrift, []*hull{up, down}, func(slope float64) float64 { return up.touch(slope) - down.touch(slope) })
		needed := (down.touch(widest) - up.touch(widest)) / 2 // of both taps together
		return fmt.Errorf("%w (errors of %s at each tap would explain them)", ErrInconsistent, time.Duration(math.Ceil(needed/2)))
	}
	r.DriftLow, r.DriftHigh = math.Inf(1), math.Inf(-1)
	for _, l := range r.corners {
		r.DriftLow, r.DriftHigh = min(r.DriftLow, l.slope), max(r.DriftHigh, l.slope)
	}
	r.refine(o, up, down)
	above, below := up.touch(r.Drift), down.touch(r.Drift)
	low, high := r.Bound(r.At)
	r.Offset = min(max((above+below)/2+r.base, low), high)
	r.RoundTrip = above - below + float64(o.Forward+o.Backward)
	return nil
}
