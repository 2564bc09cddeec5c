package table_test

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

func suffering(host byte, kind decode.Kind, heavy, location uint64) aggregate.FlowRow {
	return aggregate.FlowRow{
		Flow: flow.Flow{Src: [16]byte{15: host}, Dst: [16]byte{15: 9}, SrcPort: 1, DstPort: 2, Proto: 6}, Signal: uint8(csig.MaxDelay), Kind: uint8(kind), SrcGroup: 3, DstGroup: 4,
		Observations: heavy, Bytes: 100 * heavy, Measured: heavy, Sum: 10 * heavy, Min: 5, Max: 20, Heavy: heavy, HeavySum: 10 * heavy, Location: location, LocationHeavy: heavy,
	}
}

// TestFlowTotals: flows add up over windows, tags come before reflections of the same flow,
// and the location is the one that most of them all name.
func TestFlowTotals(t *testing.T) {
	t.Parallel()
	totals := table.NewFlowTotals(time.Minute, 4)
	write := func(resolution time.Duration, rows ...aggregate.FlowRow) {
		t.Helper()
		rows = append(rows, aggregate.FlowRow{Signal: uint8(csig.MaxDelay), Kind: uint8(decode.Tag), SrcGroup: 3, DstGroup: 4, Heavy: 1000}) // the rest
		if err := totals.WriteBlock(t.Context(), &aggregate.Block{Resolution: int64(resolution), Flows: rows}); err != nil {
			t.Fatal(err)
		}
	}
	write(time.Second, suffering(1, decode.Tag, 50, 7))
	write(time.Minute, suffering(1, decode.Tag, 4, 7), suffering(2, decode.Tag, 9, 8), suffering(1, decode.Reflection, 30, 7))
	write(time.Minute, suffering(1, decode.Tag, 5, 8), suffering(3, decode.Reflection, 9, 8))
	write(time.Minute, suffering(1, decode.Tag, 3, 7))
	if totals.Full() {
		t.Error("full, with room for 4 flows")
	}
	got := totals.Flows(csig.MaxDelay)
	if len(got) != 3 || len(totals.Flows(csig.MinABW)) != 0 {
		t.Fatalf("flows are %+v", got)
	}
	want := suffering(1, decode.Tag, 12, 7)
	want.LocationHeavy = 7
	for i, w := range []aggregate.FlowRow{want, suffering(2, decode.Tag, 9, 8), suffering(3, decode.Reflection, 9, 8)} {
		if got[i] != w {
			t.Errorf("flow %d is\n%+v, want\n%+v", i, got[i], w)
		}
	}
	write(time.Minute, suffering(4, decode.Tag, 99, 1))
	if !totals.Full() || len(totals.Flows(csig.MaxDelay)) != 3 {
		t.Errorf("%d flows where there is room for 4, full %t", len(totals.Flows(csig.MaxDelay)), totals.Full())
	}
}
