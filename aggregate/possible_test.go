package aggregate_test

import (
	"errors"
	"math"
	"math/bits"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// soundBlock has a row of 3 values of a ratio and a trimmed observation.
func soundBlock() *aggregate.Block {
	return &aggregate.Block{
		Resolution: int64(time.Second), Signal: []uint8{uint8(csig.MinABWRatio)}, Kind: []uint8{uint8(decode.Tag)}, Encoding: []uint8{0},
		SrcGroup: []uint64{5}, DstGroup: []uint64{6}, Location: []uint64{7},
		Observations: []uint64{4}, Samples: []uint64{3}, Unjudged: []uint64{0}, Bytes: []uint64{400}, Sum: []uint64{1_200_000}, Min: []uint64{100_000}, Max: []uint64{1_000_000},
		Untouched: []uint64{1}, Trimmed: []uint64{1}, Heavy: []uint64{2}, HeavySum: []uint64{200_000}, Evidence: []uint8{0},
		DistCode: []uint16{3, 31}, DistCount: []uint64{2, 1}, DistEnd: []uint32{2},
		Flows: []aggregate.FlowRow{{
			Flow: flow.Flow{SrcPort: 1}, Signal: uint8(csig.MinABWRatio), Kind: uint8(decode.Tag), SrcGroup: 5, DstGroup: 6,
			Observations: 2, Bytes: 200, Measured: 2, Sum: 200_000, Min: 100_000, Max: 100_000, Heavy: 2, HeavySum: 200_000, Location: 7, LocationHeavy: 2,
		}, {
			Signal: uint8(csig.MinABWRatio), Kind: uint8(decode.Tag), SrcGroup: 5, DstGroup: 6,
			Observations: 2, Bytes: 200, Measured: 1, Sum: 1_000_000, Min: 100_000, Max: 1_000_000,
		}},
	}
}

// TestCheck: contradictions and impossible values are distinguished.
func TestCheck(t *testing.T) {
	t.Parallel()
	wide := uint8(csig.Layout{Format: csig.Wide, Profile: csig.IETF01}.Index())
	// many makes the row one of n untrimmed values.
	many := func(b *aggregate.Block, n, value, sum uint64) {
		b.Samples[0] = n
		b.Observations[0], b.Trimmed[0], b.Untouched[0], b.Heavy[0], b.HeavySum[0] = n, 0, 0, 0, 0
		b.DistCode, b.DistCount, b.DistEnd[0] = []uint16{3}, []uint64{n}, 1
		b.Min[0], b.Max[0], b.Sum[0] = value, value, sum
	}
	const sound, contradicts, impossible = 0, 1, 2
	for _, tc := range []struct {
		name   string
		change func(b *aggregate.Block)
		want   int
	}{
		{"sound", func(*aggregate.Block) {}, sound},
		{"the most packets and bytes", func(b *aggregate.Block) {
			many(b, aggregate.MaxPacketRate, 1, aggregate.MaxPacketRate)
			b.Bytes[0] = aggregate.MaxByteRate
		}, sound},
		{"a packet more", func(b *aggregate.Block) { many(b, aggregate.MaxPacketRate+1, 1, aggregate.MaxPacketRate+1) }, impossible},
		{"a minute has more", func(b *aggregate.Block) {
			b.Resolution, b.Flows = int64(time.Minute), nil
			many(b, 60*aggregate.MaxPacketRate, 1, 60*aggregate.MaxPacketRate)
		}, sound},
		{"a sampled packet in a short window", func(b *aggregate.Block) {
			b.Resolution, b.Flows = int64(100*time.Microsecond), nil
			many(b, 1<<30, 1, 1<<30)
			b.Samples[0] = 1
		}, sound},
		{"a sample of more than a weight", func(b *aggregate.Block) {
			many(b, 1<<30+1, 1, 1<<30+1)
			b.Samples[0] = 1
		}, contradicts},
		{"a byte more", func(b *aggregate.Block) { b.Bytes[0] = aggregate.MaxByteRate + 1 }, impossible},
		{"observations that wrap", func(b *aggregate.Block) { many(b, 1<<63, 2, math.MaxUint64) }, impossible},
		{"a sum that stops", func(b *aggregate.Block) {
			b.Signal[0], b.Flows = uint8(csig.MinABW), nil
			many(b, 1<<37, 1<<37, math.MaxUint64)
		}, sound},
		{"a sum that wraps", func(b *aggregate.Block) {
			b.Signal[0], b.Flows = uint8(csig.MinABW), nil
			many(b, 1<<37, 1<<37+1, 1<<37)
		}, contradicts},
		{"a sum that stops too early", func(b *aggregate.Block) { many(b, 2, 5, math.MaxUint64) }, contradicts},
		{"a ratio above 1", func(b *aggregate.Block) { b.Max[0] = 1_000_001 }, impossible},
		{"a value of none", func(b *aggregate.Block) {
			b.Observations[0], b.Trimmed[0], b.Untouched[0], b.Heavy[0], b.HeavySum[0], b.Sum[0], b.Min[0] = 1, 1, 0, 0, 0, 0, 0
			b.Samples[0] = 0
			b.DistCode, b.DistCount, b.DistEnd[0] = nil, nil, 0
		}, contradicts},
		{"a signal without a table", func(b *aggregate.Block) {
			b.Signal[0], b.Heavy[0], b.HeavySum[0], b.Sum[0], b.Min[0], b.Max[0] = uint8(csig.SignalOf(csig.IETF01, 5)), 0, 0, 0, 0, 0
		}, sound},
		{"its value", func(b *aggregate.Block) {
			b.Signal[0], b.Heavy[0], b.HeavySum[0], b.Sum[0], b.Min[0], b.Max[0] = uint8(csig.SignalOf(csig.IETF01, 5)), 0, 0, 0, 0, 1
		}, contradicts},
		{"a signal of no type", func(b *aggregate.Block) { b.Signal[0] = 17 }, contradicts},
		{"a type that compact tags have not", func(b *aggregate.Block) { b.Signal[0] = uint8(csig.SignalOf(csig.IETF01, 9)) }, contradicts},
		{"a bucket beyond compact codes", func(b *aggregate.Block) { b.DistCode[1] = 32 }, contradicts},
		{"a bucket of wide codes", func(b *aggregate.Block) { b.Encoding[0], b.DistCode[1] = wide, csig.DistIndexes-1 }, sound},
		{"a bucket beyond wide codes", func(b *aggregate.Block) { b.Encoding[0], b.DistCode[1] = wide, csig.DistIndexes }, contradicts},
		{"observations without a value", func(b *aggregate.Block) { b.Observations[0]++ }, contradicts},
		{"sampled", func(b *aggregate.Block) { b.Samples[0] = 1 }, sound},
		{"unjudged", func(b *aggregate.Block) { b.Unjudged[0] = 1 }, sound},
		{"heavy ones that are unjudged", func(b *aggregate.Block) { b.Unjudged[0] = 2 }, contradicts},
		{"unjudged without a value", func(b *aggregate.Block) { b.Unjudged[0] = 1 << 63 }, contradicts},
		{"all evidence", func(b *aggregate.Block) { b.Evidence[0] = 7 }, sound},
		{"evidence that does not exist", func(b *aggregate.Block) { b.Evidence[0] = 8 }, contradicts},
		{"samples of trimmed ones", func(b *aggregate.Block) { b.Samples[0] = 4 }, contradicts},
		{"values of no sample", func(b *aggregate.Block) { b.Samples[0] = 0 }, contradicts},
		{"untouched beyond the values", func(b *aggregate.Block) { b.Untouched[0] = 4 }, contradicts},
		{"heavy ones above the largest", func(b *aggregate.Block) { b.Heavy[0], b.HeavySum[0] = 1, 1_100_000 }, contradicts},
		{"heavy ones below the least", func(b *aggregate.Block) { b.HeavySum[0] = 199_999 }, contradicts},
		{"a flow of many", func(b *aggregate.Block) { b.Flows[0].Observations = 1 << 63 }, impossible},
		{"a flow's sum", func(b *aggregate.Block) { b.Flows[0].Sum = math.MaxUint64 }, contradicts},
		{"a rest that others were taken from", func(b *aggregate.Block) { b.Flows[1].Sum = math.MaxUint64 }, sound},
		{"a flow's ratio", func(b *aggregate.Block) { b.Flows[0].Max = 5e6 }, impossible},
		{"a flow's location", func(b *aggregate.Block) { b.Flows[0].LocationHeavy = 3 }, contradicts},
	} {
		b := soundBlock()
		tc.change(b)
		err, got := b.Check(), sound
		switch {
		case errors.Is(err, aggregate.ErrImpossible):
			got = impossible
		case err != nil:
			got = contradicts
		}
		if got != tc.want {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestBoundsDoNotWrap: the bounds' guarantees about sums.
func TestBoundsDoNotWrap(t *testing.T) {
	t.Parallel()
	minute := aggregate.MaxPackets(time.Minute)
	if hi, _ := bits.Mul64(minute, 1<<20); hi != 0 || minute == 0 {
		t.Errorf("2^20 minutes of %d packets wrap", minute)
	}
	for d, want := range map[time.Duration]uint64{
		-time.Hour: aggregate.MaxPacketRate, 0: aggregate.MaxPacketRate, time.Millisecond: aggregate.MaxPacketRate,
		time.Second + 1: 2 * aggregate.MaxPacketRate, math.MaxInt64: math.MaxUint64,
	} {
		if got := aggregate.MaxPackets(d); got != want {
			t.Errorf("%s: %d packets, want %d", d, got, want)
		}
	}
	// Blocks of a tap that is at the bound for long stop at the largest integer.
	s := table.New(table.Bounds{Resolution: time.Second, Rows: 10})
	b := soundBlock()
	b.Observations[0], b.Heavy[0] = math.MaxUint64-1, math.MaxUint64-1
	for range 2 {
		if err := s.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if c := s.Total().Cells(csig.MinABWRatio, nil); len(c) != 1 || c[0].Observations != math.MaxUint64 || c[0].Heavy != math.MaxUint64 {
		t.Errorf("%+v, want sums that stop", c)
	}
}
