package aggregate

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// ErrImpossible is wrapped by errors for counts and values that no network can have: more packets
// or bytes than links carry in that time, or a value beyond its unit's maximum.
var ErrImpossible = errors.New("impossible")

// The maximum rates of one tap, including the packets that samples stand for. The largest switch
// forwards 102.4 Tbit/s, 12.8e12 bytes a second, in frames of at least 64 bytes. The bound is a
// third more; one host's link is a hundredth of it.
//
// So a block of a minute has fewer than 2^44 observations of a kind: 2^20 blocks at the bound add
// up within 64 bits, and folding the rows of one block never wraps. Sums over more blocks saturate
// in memory and have 128 bits in the store's views. Sums of values may exceed 64 bits in a single
// row and saturate.
const (
	MaxByteRate   = 1 << 44 // bytes a second
	MaxPacketRate = MaxByteRate / 64
	// MaxFrameBytes is the longest frame: receive offload makes some of up to 512 KiB.
	MaxFrameBytes = 1 << 20
)

// MaxAhead is the largest distance ahead of its own clock at which a host accepts times: of
// packets, whose times network cards and switches may write, and of windows of other hosts. Clocks
// kept by NTP differ by milliseconds, and by some 100 ms after a bad minute. Later times are
// rejected, never changed.
const MaxAhead = 2 * time.Second

// MaxPackets returns the maximum number of packets that one tap can take in during d, which counts
// as at least a second: the packets that a sample stands for are not all in its short window.
func MaxPackets(d time.Duration) uint64 { return MulSat(wholeSeconds(d), MaxPacketRate) }

// MaxBytes is MaxPackets for bytes.
func MaxBytes(d time.Duration) uint64 { return MulSat(wholeSeconds(d), MaxByteRate) }

func wholeSeconds(d time.Duration) uint64 {
	n := uint64(max(d, 0))
	return max(n/uint64(time.Second)+min(n%uint64(time.Second), 1), 1)
}

// traffic is the total of rows of one kind: a packet has at most one tag and one reflection.
type traffic struct{ packets, bytes uint64 }

// trafficByKind is the traffic of tags and of reflections.
type trafficByKind [2]traffic

func (t *trafficByKind) add(kind uint8, packets, bytes uint64) {
	at := &t[kind-uint8(decode.Tag)]
	at.packets, at.bytes = AddSat(at.packets, packets), AddSat(at.bytes, bytes)
}

func (t *trafficByKind) check(window time.Duration) error {
	for _, one := range t {
		if one.packets > MaxPackets(window) || one.bytes > MaxBytes(window) {
			return fmt.Errorf("%w: %d observations of %d bytes in a window of %s: expected at most %d of %d",
				ErrImpossible, one.packets, one.bytes, window, MaxPackets(window), MaxBytes(window))
		}
	}
	return nil
}

// Check returns an error if no aggregator can have made the block's rows and flows; it wraps
// ErrImpossible if some amount is more than networks can have. The columns must have equal length,
// and distributions must be in order.
func (b *Block) Check() error {
	window := time.Duration(b.Resolution)
	var rows, flows trafficByKind
	from := uint32(0)
	for i := range b.Len() {
		if err := b.checkRow(i, b.DistCode[from:b.DistEnd[i]], b.DistCount[from:b.DistEnd[i]]); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		from = b.DistEnd[i]
		rows.add(b.Kind[i], b.Observations[i], b.Bytes[i])
	}
	if err := rows.check(window); err != nil {
		return err
	}
	for i := range b.Flows {
		f := &b.Flows[i]
		if err := f.check(); err != nil {
			return fmt.Errorf("flow %d: %w", i, err)
		}
		flows.add(f.Kind, f.Observations, f.Bytes)
	}
	if err := flows.check(window); err != nil {
		return fmt.Errorf("flows: %w", err)
	}
	return nil
}

func (b *Block) checkRow(i int, codes []uint16, counts []uint64) error {
	signal := csig.Signal(b.Signal[i])
	if err := checkKind(signal, b.Kind[i]); err != nil {
		return err
	}
	if err := checkEncoding(signal, b.Encoding[i], codes); err != nil {
		return err
	}
	counted := uint64(0)
	for _, n := range counts {
		var carry uint64
		if counted, carry = bits.Add64(counted, n, 0); carry != 0 || n == 0 {
			return errors.New("distribution: a count of 0, or too large a sum")
		}
	}
	all, trimmed := b.Observations[i], b.Trimmed[i]
	if all == 0 || trimmed > all || counted != 0 && counted != all-trimmed || b.Untouched[i] > counted {
		return fmt.Errorf("%d observations: contradict their parts, %d trimmed, %d in the distribution and %d untouched",
			all, trimmed, counted, b.Untouched[i])
	}
	if n := b.Samples[i]; n > all-trimmed || MulSat(n, MaxWeight) < all-trimmed {
		return fmt.Errorf("%d samples: contradict %d observations, %d of them trimmed", n, all, trimmed)
	}
	if !signal.HasValue() {
		counted = 0
	}
	if n := b.Unjudged[i]; n > counted || b.Heavy[i] > counted-n {
		return fmt.Errorf("%d observations without a threshold: contradict %d values, %d of them heavy", n, counted, b.Heavy[i])
	}
	if e := Evidence(b.Evidence[i]); e > AllEvidence {
		return fmt.Errorf("evidence %d: does not exist", e)
	}
	if counted == 0 && b.Max[i] != 0 {
		return fmt.Errorf("values up to %d: none was measured", b.Max[i])
	}
	return checkValues(signal, &valueSums{counted, b.Heavy[i], b.Sum[i], b.HeavySum[i], b.Min[i], b.Max[i]}, false)
}

// checkKind requires a signal and a kind that exist.
func checkKind(s csig.Signal, kind uint8) error {
	defined := s.Configured() || s == csig.SignalOf(csig.IETF01, s.Type()) || s == csig.SignalOf(csig.UEC050, s.Type())
	if k := decode.Kind(kind); !defined || k != decode.Tag && k != decode.Reflection {
		return fmt.Errorf("signal %d, kind %d: one of them does not exist", s, kind)
	}
	return nil
}

// checkEncoding requires a layout that has the signal's type, and codes of its format.
func checkEncoding(s csig.Signal, encoding uint8, codes []uint16) error {
	if int(encoding) >= csig.NumLayouts {
		return fmt.Errorf("encoding %d: does not exist", encoding)
	}
	l := Encoding(encoding).Layout()
	if int(s.Type()) >= l.Types() || s.Known() != csig.SignalOf(l.Profile, s.Type()).Known() {
		return fmt.Errorf("signal %d: encoding %d has none such", s, encoding)
	}
	if n := len(codes); n > 0 && codes[n-1] > csig.DistIndex(l.MaxS()) {
		return fmt.Errorf("bucket %d: encoding %d has none such", codes[n-1], encoding)
	}
	return nil
}

// valueSums are n values and their sums, with those of the heavy ones.
type valueSums struct{ n, heavy, sum, heavySum, min, max uint64 }

// checkValues checks values against their unit, and sums, extremes and counts against each other.
// Sums saturate: a rest, from which other sums were subtracted, stays at the largest integer.
func checkValues(s csig.Signal, v *valueSums, rest bool) error {
	if v.max > s.Unit().Max() {
		return fmt.Errorf("%w: value %d of %s: expected at most %d", ErrImpossible, v.max, s.FullName(), s.Unit().Max())
	}
	full := rest && v.sum == math.MaxUint64
	fullHeavy := rest && v.heavySum == math.MaxUint64
	if v.heavy > v.n || v.heavySum > v.sum || v.min > v.max ||
		!full && !sumFits(v.sum, v.n, v.min, v.max) || !fullHeavy && !sumFits(v.heavySum, v.heavy, v.min, v.max) {
		return fmt.Errorf("%d values from %d to %d with sum %d, %d heavy ones with sum %d: they contradict each other",
			v.n, v.min, v.max, v.sum, v.heavy, v.heavySum)
	}
	return nil
}

// sumFits reports whether n values between the extremes can have the sum, which saturates at the
// largest integer.
func sumFits(sum, n, least, most uint64) bool {
	lowHi, low := bits.Mul64(n, least)
	highHi, high := bits.Mul64(n, most)
	return (highHi > 0 || sum <= high) && (sum == math.MaxUint64 || lowHi == 0 && sum >= low)
}

// check returns an error if no aggregator can have made the row.
func (f *FlowRow) check() error {
	signal := csig.Signal(f.Signal)
	if err := checkKind(signal, f.Kind); err != nil {
		return err
	}
	if f.Observations == 0 || f.Measured > f.Observations || f.LocationHeavy > f.Heavy || f.Measured > 0 && !signal.HasValue() {
		return fmt.Errorf("%d observations, %d values, %d heavy, %d at a location: they contradict each other",
			f.Observations, f.Measured, f.Heavy, f.LocationHeavy)
	}
	if f.Flow != (flow.Flow{}) && f.Sampled > f.Heavy {
		return fmt.Errorf("%d heavy observations, %d of them sampled: they contradict each other", f.Heavy, f.Sampled)
	}
	return checkValues(signal, &valueSums{f.Measured, f.Heavy, f.Sum, f.HeavySum, f.Min, f.Max}, f.Flow == flow.Flow{})
}
