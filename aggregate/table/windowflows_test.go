package table_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// flowBlock returns a block of a second with that many flows, each with one heavy observation.
func flowBlock(second int64, seq uint64, flows int) *aggregate.Block {
	b := tabletest.Block(rand.New(rand.NewPCG(1, 1)), 1, time.Unix(second, 0), 1, csig.MinABWRatio)
	b.Seq = seq
	for i := range flows {
		b.Flows = append(b.Flows, aggregate.FlowRow{
			Flow: flow.Flow{Src: [16]byte{15: 1}, Dst: [16]byte{15: 2}, SrcPort: uint16(i), DstPort: uint16(i >> 16), Proto: 6}, Signal: b.Signal[0], Kind: uint8(decode.Tag),
			SrcGroup: b.SrcGroup[0], DstGroup: b.DstGroup[0], Observations: 1, Heavy: 1, Location: 501, LocationHeavy: 1,
		})
	}
	return b
}

// TestWindowFlowsBounded: flows past the bound are one row, and no observation is lost; windows
// whose flows were dropped to make room are reported.
func TestWindowFlowsBounded(t *testing.T) {
	m := table.NewMemory(table.MemoryOptions{Windows: 8, MaxRows: 8 * 64, Ahead: -1}) // 64 flows, 16 in a window
	for second := range int64(8) {
		if err := m.WriteBlock(t.Context(), flowBlock(1000+second, 1, 40)); err != nil {
			t.Fatal(err)
		}
	}
	m.Publish()
	windows := m.State().Windows
	if len(windows) != 8 {
		t.Fatalf("%d windows", len(windows))
	}
	last, complete := table.Flows(windows[7:], csig.MinABWRatio, nil)
	total := uint64(0)
	for _, f := range last {
		total += f.Observations
	}
	if len(last) != 17 || total != 40 || !complete || last[0].Flow != (flow.Flow{}) || last[0].Heavy != 24 || last[0].LocationHeavy != 0 || last[0].SrcGroup != uint64(aggregate.OverflowGroup) {
		t.Errorf("%d flows of %d observations, complete %t, first %+v", len(last), total, complete, last[0])
	}
	if all, complete := table.Flows(windows, csig.MinABWRatio, nil); complete || len(all) == 0 {
		t.Errorf("%d flows of all windows, complete %t", len(all), complete)
	}
}

// TestWindowFlowsNeverChange: a late block makes another window, and does not change the flows of
// the first.
func TestWindowFlowsNeverChange(t *testing.T) {
	m := table.NewMemory(table.MemoryOptions{Ahead: -1})
	write := func(b *aggregate.Block) []*table.Window {
		t.Helper()
		if err := m.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		m.Publish()
		return m.State().Windows
	}
	before := write(flowBlock(1000, 1, 1))
	elsewhere := flowBlock(1000, 2, 1)
	elsewhere.Flows[0].Location, elsewhere.Flows[0].Observations, elsewhere.Flows[0].Heavy, elsewhere.Flows[0].LocationHeavy = 502, 5, 5, 5
	after := write(elsewhere)
	elsewhere = flowBlock(1000, 3, 1)
	elsewhere.Flows[0].Location = 503
	later := write(elsewhere)
	for i, c := range []struct {
		windows        []*table.Window
		heavy, located uint64
		location       uint64
	}{{before, 1, 1, 501}, {after, 6, 5, 502}, {later, 7, 5, 502}} {
		got, _ := table.Flows(c.windows, csig.MinABWRatio, nil)
		if len(got) != 1 || got[0].Heavy != c.heavy || got[0].Location != c.location || got[0].LocationHeavy != c.located || got[0].Windows != 1 {
			t.Errorf("revision %d: %+v, want %+v", i+1, got, c)
		}
	}
	two := write(flowBlock(1030, 1, 1))
	if got, _ := table.Flows(two, csig.MinABWRatio, nil); len(got) != 1 || got[0].Windows != 2 || got[0].Heavy != 8 {
		t.Errorf("two windows: %+v", got)
	}
}
