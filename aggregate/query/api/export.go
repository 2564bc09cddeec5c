package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/table"
)

// FormatInput chooses how a table is written.
type FormatInput struct {
	Format string `query:"format" default:"csv" enum:"csv,parquet,arrow" doc:"of the table; arrow is a stream of record batches (Arrow IPC)" example:"parquet"`
}

func (in FormatInput) format() tabular.Format { return tabular.Format(in.Format) }

type exportInput struct {
	SignalInput
	RangeInput
	WaitInput
	FilterInput
	FormatInput
	Table string `query:"table" default:"cells" enum:"cells,windows" doc:"cells over the whole range, or by each window of it" example:"windows"`
	Step  string `query:"step" maxLength:"20" doc:"with table=windows, from and to: length of a window, such as 10s; otherwise about 120 windows" example:"10s"`
}

type exportFlowsInput struct {
	FlowInput
	FormatInput
}

type exportFindingsInput struct {
	FindingInput
	FormatInput
}

const exportDescription = `Rows come as they are read, in a table with units in the names of columns. Headers say how many there
may be (Csigscope-Row-Limit) and how long they may take (Csigscope-Time-Limit-S); trailers, and the key-value metadata of Parquet, how
many there are (Csigscope-Rows), whether that is all (Csigscope-Complete: true or false) and, where it is not, which limit cut them off
(Csigscope-Cut-By: rows or time). A transfer that breaks off without the trailers has failed.`

func (a *API) registerExports(h huma.API) {
	export(a, h, "export", "Cells as a table", a.exportCells)
	export(a, h, "export/flows", "Flows as a table", a.exportFlows)
	export(a, h, "export/findings", "Findings as a table", a.exportFindings)
}

// exported is a table that can be written, once what may be wrong with the question has been
// found.
type exported struct {
	state *table.State // nil: of the store
	most  int          // rows
	write func(ctx context.Context, f tabular.Format, w io.Writer) (ending, error)
}

// ending is how a table ended.
type ending struct {
	rows  int
	cutBy string // empty where it is complete, else rows or time
}

// notes are what trailers and metadata say of the ending.
func (e ending) notes() map[string]string {
	return map[string]string{
		"Csigscope-Rows": strconv.Itoa(e.rows), "Csigscope-Complete": strconv.FormatBool(e.cutBy == ""), "Csigscope-Cut-By": e.cutBy,
	}
}

// errEnough ends the reading of rows at the limit.
var errEnough = errors.New("as many rows as there may be")

// tableOf is a table of the rows that each finds.
func tableOf[T any](s *table.State, columns []tabular.Column[T], most int, each func(ctx context.Context, told func(*T) error) error) *exported {
	return &exported{s, most, func(ctx context.Context, f tabular.Format, w io.Writer) (e ending, err error) {
		to, err := tabular.New(f, columns, w)
		if err != nil {
			return e, err
		}
		err = each(ctx, func(row *T) error {
			if e.rows == most {
				return errEnough
			}
			e.rows++
			return to.Write(row)
		})
		switch {
		case errors.Is(err, errEnough):
			e.cutBy = "rows"
		case err != nil && e.rows > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded):
			e.cutBy = "time"
		case err != nil:
			return e, err
		}
		return e, to.Close(e.notes())
	}}
}

// export serves one kind of table.
func export[I interface{ format() tabular.Format }](a *API, h huma.API, path, summary string, f func(context.Context, *table.State, *I) (*exported, error)) {
	content := map[string]*huma.MediaType{}
	for _, format := range []tabular.Format{tabular.CSV, tabular.Parquet, tabular.Arrow} {
		content[format.ContentType()] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	}
	op := huma.Operation{
		OperationID: strings.ReplaceAll(path, "/", "-"), Method: http.MethodGet, Path: "/api/v1/" + path, Summary: summary, Description: exportDescription,
		Responses: responses(h, "text/csv", ""),
	}
	op.Responses["200"].Content = content
	huma.Register(h, op, func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		s, fresh, err := a.await(ctx, in)
		if err != nil {
			return nil, a.answerable(ctx, err)
		}
		if s != nil && !fresh {
			return &huma.StreamResponse{Body: func(ctx huma.Context) {
				ctx.SetHeader("ETag", etag(s))
				ctx.SetStatus(http.StatusNotModified)
			}}, nil
		}
		found, err := f(ctx, s, in)
		if err != nil {
			return nil, a.answerable(ctx, err)
		}
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			r, out := humago.Unwrap(ctx)
			a.serveTable(r, out, (*in).format(), found)
		}}, nil
	})
}

func (a *API) exportCells(ctx context.Context, s *table.State, in *exportInput) (*exported, error) {
	switch {
	case in.Step != "" && (s != nil || in.Table != "windows"):
		return nil, wrong("step", in.Step, "is of windows of history: give table=windows, from and to as well")
	case s == nil && in.Table == "windows":
		return a.exportPastWindows(ctx, in)
	case s == nil:
		return a.exportPastCells(ctx, in)
	case in.Table == "windows":
		return a.exportWindows(ctx, s, in)
	}
	v, k, err := a.asked(ctx, s, &in.SignalInput, in.Windows)
	if err != nil {
		return nil, err
	}
	f, err := in.filter(v.names, k.signal)
	if err != nil {
		return nil, err
	}
	about := about(s, k)
	return tableOf(s, cellColumns(about.Unit), a.ExportRows, func(_ context.Context, told func(*cellLine) error) error {
		return v.tell(&f, about, told)
	}), nil
}

// tell tells of the view's cells that the filter takes.
func (v *view) tell(f *filter, about model.About, told func(*cellLine) error) error {
	for i := range v.cells {
		if !f.takes(&v.cells[i]) {
			continue
		}
		if err := told(&cellLine{about.From, about.To, about.Signal, v.names.cell(&v.cells[i])}); err != nil {
			return err
		}
	}
	return nil
}

// exportWindows is of the last windows in memory, one by one.
func (a *API) exportWindows(ctx context.Context, s *table.State, in *exportInput) (*exported, error) {
	_, k, err := a.asked(ctx, s, &in.SignalInput, 1)
	if err != nil {
		return nil, err
	}
	about := about(s, k)
	return tableOf(s, cellColumns(about.Unit), a.ExportRows, func(ctx context.Context, told func(*cellLine) error) error {
		for _, w := range s.Last(in.Windows) {
			v, err := a.windowView(ctx, w, k.signal, k.level)
			if err != nil {
				return err
			}
			f, err := in.filter(v.names, k.signal)
			if err != nil {
				return err
			}
			about.From, about.To = w.Start, w.End
			if err := v.tell(&f, about, told); err != nil {
				return err
			}
		}
		return nil
	}), nil
}

func (a *API) exportPastCells(ctx context.Context, in *exportInput) (*exported, error) {
	q, err := a.question(ctx, &in.SignalInput, &in.TimesInput)
	if err != nil {
		return nil, err
	}
	about := pastAbout(q)
	return tableOf(nil, cellColumns(about.Unit), a.ExportRows, func(ctx context.Context, told func(*cellLine) error) error {
		cells, err := a.pastCells(ctx, q, &in.FilterInput)
		for i := 0; err == nil && i < len(cells); i++ {
			err = told(&cellLine{about.From, about.To, about.Signal, cells[i]})
		}
		return err
	}), nil
}

func (a *API) exportPastWindows(ctx context.Context, in *exportInput) (*exported, error) {
	q, err := a.question(ctx, &in.SignalInput, &in.TimesInput)
	if err != nil {
		return nil, err
	}
	if err := a.cut(ctx, &q, in.Step); err != nil {
		return nil, err
	}
	n, err := a.history(ctx)
	if err != nil {
		return nil, err
	}
	f, err := in.filter(n, q.Signal)
	if err != nil {
		return nil, err
	}
	f.narrow(&q)
	about := pastAbout(q)
	return tableOf(nil, cellColumns(about.Unit), a.ExportRows, func(ctx context.Context, told func(*cellLine) error) error {
		more, err := a.Reader.EachCellWindow(ctx, q, a.ExportRows, func(r *cellRow) error {
			if !pastTakes(&f, r) {
				return nil
			}
			begin := time.Unix(0, r.Window).UTC()
			return told(&cellLine{begin, begin.Add(q.Step), about.Signal, n.pastCell(q.Signal, r)})
		})
		if err == nil && more {
			return errEnough
		}
		return err
	}), nil
}

func (a *API) exportFlows(ctx context.Context, _ *table.State, in *exportFlowsInput) (*exported, error) {
	q, n, err := a.flowQuestion(ctx, &in.FlowInput, &pin{})
	if err != nil {
		return nil, err
	}
	q.Limit = a.ExportRecords + 1
	return tableOf(nil, flowColumns(q.Signal.Unit().String()), a.ExportRecords, func(ctx context.Context, told func(*flowLine) error) error {
		rows, err := a.Reader.Flows(ctx, q)
		for i := 0; err == nil && i < len(rows); i++ {
			err = told(&flowLine{q.From, q.To, n.flow(q.Signal, &rows[i])})
		}
		return err
	}), nil
}

func (a *API) exportFindings(ctx context.Context, _ *table.State, in *exportFindingsInput) (*exported, error) {
	q, n, err := a.findingQuestion(ctx, &in.FindingInput, &pin{})
	if err != nil {
		return nil, err
	}
	q.Limit = a.ExportRecords + 1
	return tableOf(nil, findingColumns(), a.ExportRecords, func(ctx context.Context, told func(*model.Finding) error) error {
		rows, err := a.Reader.Findings(ctx, q)
		for i := 0; err == nil && i < len(rows); i++ {
			f := n.finding(&rows[i])
			err = told(&f)
		}
		return err
	}), nil
}
