package api

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/recent"
	"github.com/csigscope/csigscope/decode/csig"
)

type exportInput struct {
	SignalInput
	RangeInput
	WaitInput
	FilterInput
	Format string `query:"format" default:"csv" enum:"csv" doc:"of the table"`
}

func export(a *API, h huma.API) {
	const contentType = "text/csv; charset=utf-8"
	op := huma.Operation{OperationID: "export", Summary: "All cells as a table, with units in the names of columns"}
	question(a, h, op, contentType, "", a.export, cellsTable)
}

// export gives all cells of a question in one piece: no more than memory holds, or than the
// store answers with at a time.
func (a *API) export(ctx context.Context, s *recent.State, in *exportInput) (*answer, error) {
	if s == nil {
		q, err := a.question(ctx, &in.SignalInput, &in.TimesInput)
		if err != nil {
			return nil, err
		}
		cells, err := a.pastCells(ctx, q, &in.FilterInput)
		return &answer{content: content{value: &model.Cells{About: pastAbout(q), Values: cells}}}, err
	}
	v, k, err := a.asked(ctx, s, &in.SignalInput, in.Windows)
	if err != nil {
		return nil, err
	}
	f, err := in.filter(v.names, k.signal)
	if err != nil {
		return nil, err
	}
	return &answer{content{value: &model.Cells{About: about(s, k)}, view: v, chosen: v.chosen(&f)}, s}, nil
}

func cellsTable(c *content) ([]byte, error) {
	page, ok := c.whole().(*model.Cells)
	if !ok {
		return nil, fmt.Errorf("encode table: %T has no cells", c.value)
	}
	return cellsCSV(page)
}

// cellsCSV has a line for each cell. What a cell has no value for is empty.
func cellsCSV(page *model.Cells) ([]byte, error) {
	unit := ""
	if u, err := csig.ParseUnit(page.Unit); err == nil {
		unit = "_" + unitFields[u]
	}
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	_ = w.Write([]string{
		"from", "to", "signal", "src", "dst", "kind", "state", "observations", "mean" + unit, "min" + unit, "max" + unit,
		"untouched", "trimmed", "heavy", "heavy_ratio", "mode", "mode_heavy", "mode_share_ratio", "runner_up", "runner_up_heavy",
	})
	from, to := page.From.Format(time.RFC3339Nano), page.To.Format(time.RFC3339Nano)
	count := func(n uint64) string { return strconv.FormatUint(n, 10) }
	for i := range page.Values {
		c := &page.Values[i]
		row := []string{
			from, to, page.Signal, c.Src, c.Dst, c.Kind, c.State, count(c.Observations), number(c.Mean), number(c.Min), number(c.Max),
			count(c.Untouched), count(c.Trimmed), count(c.Heavy), strconv.FormatFloat(c.HeavyRatio, 'f', -1, 64), "", "", "", "", "",
		}
		if m := c.Mode; m != nil {
			row[15], row[16], row[17] = m.Location, count(m.Heavy), strconv.FormatFloat(m.ShareRatio, 'f', -1, 64)
		}
		if m := c.RunnerUp; m != nil {
			row[18], row[19] = m.Location, count(m.Heavy)
		}
		_ = w.Write(row)
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return nil, fmt.Errorf("encode table: %w", err)
	}
	return out.Bytes(), nil
}

func number(m *model.Measure) string {
	v, _, ok := m.Value()
	if !ok {
		return ""
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
