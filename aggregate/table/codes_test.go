package table_test

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// codesBlock is a window of 1 s in which a cell measured two codes.
func codesBlock(second int64, src uint64, codes ...uint16) *aggregate.Block {
	b := &aggregate.Block{
		Resolution: int64(time.Second), WindowStart: second * int64(time.Second),
		Signal: []uint8{uint8(csig.MaxDelay)}, Kind: []uint8{uint8(decode.Tag)}, Encoding: []uint8{1}, SrcGroup: []uint64{src}, DstGroup: []uint64{2},
		DistEnd: []uint32{uint32(len(codes))},
	}
	for _, c := range codes {
		b.DistCode, b.DistCount = append(b.DistCode, c), append(b.DistCount, 5)
	}
	return b
}

// TestCodes: whatever the bounds, all codes are counted, in few enough steps.
func TestCodes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		steps, codes int
		full         bool
		step         time.Duration
	}{
		"room enough":   {100, 1000, false, time.Second},
		"too many":      {4, 1000, false, 10 * time.Second},
		"no room":       {100, 12, true, 20 * time.Second},
		"for no window": {100, 3, true, 100 * time.Second},
	} {
		c := table.NewCodes(time.Second, test.steps, test.codes)
		want := uint64(0)
		for second := range int64(40) {
			b := codesBlock(second, uint64(second%3), 7, 9)
			minute := *b
			minute.Resolution *= 60 // of another resolution
			for _, b := range []*aggregate.Block{b, &minute} {
				if err := c.WriteBlock(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			want += 10
		}
		got, starts, entries, step := uint64(0), map[int64]bool{}, 0, c.Step()
		c.Each(csig.MaxDelay, func(_ aggregate.CellID, n table.CodeCount) {
			got, entries = got+n.N, entries+1
			starts[n.Start] = true
			if n.Encoding != 1 || n.Code != 7 && n.Code != 9 || n.Start%int64(step) != 0 {
				t.Errorf("%s: %+v in steps of %s", name, n, step)
			}
		})
		// Codes of the overflow group are beside the others.
		if got != want || len(starts) > test.steps || entries > test.codes+2 || c.Full() != test.full || step != test.step {
			t.Errorf("%s: %d of %d codes in %d steps of %s and %d entries, full %t", name, got, want, len(starts), step, entries, c.Full())
		}
		c.Each(csig.MinABW, func(aggregate.CellID, table.CodeCount) { t.Errorf("%s: another signal has codes", name) })
	}
}
