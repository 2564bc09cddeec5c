package source

import (
	"context"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
)

// countedCells counts questions for cells.
type countedCells struct {
	report.Data
	asked int
}

func (c *countedCells) Cells(context.Context, csig.Signal) ([]aggregate.CellStats, error) {
	c.asked++
	return []aggregate.CellStats{{Src: 1}, {Src: 2}}, nil
}

func TestCellsOfASignalAreReadOnce(t *testing.T) {
	t.Parallel()
	counted := &countedCells{}
	data := &cellsOnce{Data: counted}
	for range 3 {
		cells, err := data.Cells(t.Context(), csig.MaxDelay)
		if err != nil || len(cells) != 2 || cells[0].Src != 1 {
			t.Fatalf("cells %v: %v", cells, err)
		}
		cells[0].Src = 9 // callers may sort their list
	}
	if counted.asked != 1 {
		t.Errorf("cells were read %d times", counted.asked)
	}
}

// TestWrongTimes: a packet whose time is years off extends neither the report nor its tap, and makes
// no other tap silent.
func TestWrongTimes(t *testing.T) {
	t.Parallel()
	second := func(n int64) time.Time { return time.Unix(n, 0).UTC() }
	span := report.Span{First: 100e9, Last: 199e9, Step: time.Second}
	n := &numbers{result: &replay.Result{}, taps: []report.Tap{
		{Name: "a", From: second(3), To: second(1e9), Packets: 9, Observations: 9, Stored: 7, Late: 1, Rejected: map[string]uint64{"future": 1}},
		{Name: "b", From: second(100), To: second(198), Packets: 9, Observations: 9, Stored: 9},
		{Name: "c", From: second(90), To: second(210), Packets: 9, Observations: 9, Stored: 9},
		{Name: "d, of a packet without a tag", From: second(100), To: second(4e9), Packets: 9, Observations: 8, Stored: 8},
		{Name: "e, with a wrong clock", From: second(3e9), To: second(4e9), Packets: 9, Observations: 9, Place: "mid"},
	}}
	n.result.Counts.Stored, n.result.Counts.Late, n.result.Counts.Rejected[aggregate.RejectFuture] = 25, 1, 1
	doc := &report.Report{From: second(3), To: second(1e9)}
	leaveOutWrongTimes(doc, n, span)
	doc.Coverage.SetTaps(n.taps, nil)
	if doc.From != second(100) || doc.To != second(200) {
		t.Errorf("the report is about %s to %s", doc.From, doc.To)
	}
	for i, want := range [][2]time.Time{{second(100), second(200)}, {second(100), second(198)}, {second(90), second(210)}, {second(100), second(200)}, {second(200), second(200)}} {
		if tap := &doc.Coverage.Taps[i]; tap.From != want[0] || tap.To != want[1] || tap.Note != "" {
			t.Errorf("tap %+v, want %s", tap, want)
		}
	}
}
