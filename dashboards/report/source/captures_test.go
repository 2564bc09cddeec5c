package source

import (
	"context"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/decode/csig"
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
