package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// registerExports serves tables, over HTTP alone. Rows come as they are read.
func (a *API) registerExports(mux *http.ServeMux) {
	export(a, mux, "export", fromMemory, a.exportCells)
	export(a, mux, "export/flows", fromStore, a.exportFlows)
	export(a, mux, "export/findings", fromStore, a.exportFindings)
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

// tableRequest is a request for a table.
type tableRequest[Q any] interface {
	request[Q]
	GetFormat() string
}

// export serves one kind of table.
func export[Q any, P tableRequest[Q]](a *API, mux *http.ServeMux, name string, from source, f func(context.Context, *table.State, P) (*exported, error)) {
	mux.HandleFunc("/api/v1/"+name, func(w http.ResponseWriter, r *http.Request) {
		in := P(new(Q))
		s, ok := a.begin(w, r, in, from)
		if !ok {
			return
		}
		var found *exported
		ctx, cancel := context.WithTimeout(r.Context(), a.Timeout)
		err := a.inTurn(ctx, a.slots, func() (err error) {
			found, err = f(ctx, s, in)
			return err
		})
		if err != nil {
			a.refuse(ctx, w, err)
		}
		cancel()
		if err != nil {
			return
		}
		a.serveTable(r, w, tabular.Format(in.GetFormat()), found)
	})
}

func (a *API) exportCells(ctx context.Context, s *table.State, in *wire.ExportRequest) (*exported, error) {
	switch {
	case in.GetStep() != nil && (s != nil || in.GetTable() != "windows"):
		return nil, wrong("step", in.GetStep().AsDuration().String(), "is of windows of history: give table=windows, from and to as well")
	case s == nil && in.GetTable() == "windows":
		return a.exportPastWindows(ctx, in)
	case s == nil:
		return a.exportPastCells(ctx, in)
	case in.GetTable() == "windows":
		return a.exportWindows(ctx, s, in)
	}
	v, k, err := a.asked(ctx, s, in, int(in.GetWindows()))
	if err != nil {
		return nil, err
	}
	f, err := v.names.filter(in, k.signal)
	if err != nil {
		return nil, err
	}
	about := about(s, k)
	return tableOf(s, cellColumns(about.Unit), a.ExportRows, func(_ context.Context, told func(*cellLine) error) error {
		return v.tell(&f, about, told)
	}), nil
}

// tell tells of the view's cells that the filter takes.
func (v *view) tell(f *filter, about *wire.About, told func(*cellLine) error) error {
	for i := range v.cells {
		if !f.takes(&v.cells[i]) {
			continue
		}
		if err := told(&cellLine{about.GetFrom().AsTime(), about.GetTo().AsTime(), about.Signal, v.names.cell(&v.cells[i])}); err != nil {
			return err
		}
	}
	return nil
}

// exportWindows is of the last windows in memory, one by one.
func (a *API) exportWindows(ctx context.Context, s *table.State, in *wire.ExportRequest) (*exported, error) {
	_, k, err := a.asked(ctx, s, in, 1)
	if err != nil {
		return nil, err
	}
	about := about(s, k)
	return tableOf(s, cellColumns(about.Unit), a.ExportRows, func(ctx context.Context, told func(*cellLine) error) error {
		for _, w := range s.Last(int(in.GetWindows())) {
			v, err := a.windowView(ctx, w, k.signal, k.level)
			if err != nil {
				return err
			}
			f, err := v.names.filter(in, k.signal)
			if err != nil {
				return err
			}
			about.From, about.To = timestamppb.New(w.Start), timestamppb.New(w.End)
			if err := v.tell(&f, about, told); err != nil {
				return err
			}
		}
		return nil
	}), nil
}

func (a *API) exportPastCells(ctx context.Context, in *wire.ExportRequest) (*exported, error) {
	q, err := a.question(ctx, in, in)
	if err != nil {
		return nil, err
	}
	about := pastAbout(q)
	return tableOf(nil, cellColumns(about.Unit), a.ExportRows, func(ctx context.Context, told func(*cellLine) error) error {
		cells, err := a.pastCells(ctx, q, in)
		for i := 0; err == nil && i < len(cells); i++ {
			err = told(&cellLine{q.From, q.To, about.Signal, cells[i]})
		}
		return err
	}), nil
}

func (a *API) exportPastWindows(ctx context.Context, in *wire.ExportRequest) (*exported, error) {
	q, err := a.question(ctx, in, in)
	if err != nil {
		return nil, err
	}
	if err := a.cut(ctx, &q, in.GetStep()); err != nil {
		return nil, err
	}
	n, f, err := a.pastFilter(ctx, &q, in)
	if err != nil {
		return nil, err
	}
	about := pastAbout(q)
	return tableOf(nil, cellColumns(about.Unit), a.ExportRows, func(ctx context.Context, told func(*cellLine) error) error {
		more, err := a.Reader.EachCellWindow(ctx, q, a.ExportRows, func(r *aggregate.CellWindow) error {
			if !f.takes(&r.CellStats) {
				return nil
			}
			begin := time.Unix(0, r.Start).UTC()
			return told(&cellLine{begin, begin.Add(q.Step), about.Signal, n.pastCell(&r.CellStats)})
		})
		if err == nil && more {
			return errEnough
		}
		return err
	}), nil
}

func (a *API) exportFlows(ctx context.Context, _ *table.State, in *wire.ExportFlowsRequest) (*exported, error) {
	q, err := a.flowQuestion(ctx, in, &pin{})
	if err != nil {
		return nil, err
	}
	q.Limit = a.ExportRecords + 1
	return tableOf(nil, flowColumns(q.Signal.Unit().String()), a.ExportRecords, func(ctx context.Context, told func(*flowLine) error) error {
		rows, err := a.Reader.Flows(ctx, q)
		if err != nil {
			return err
		}
		n, err := a.knowFlows(ctx, rows)
		for i := 0; err == nil && i < len(rows); i++ {
			err = told(&flowLine{q.From, q.To, n.flow(q.Signal, &rows[i])})
		}
		return err
	}), nil
}

func (a *API) exportFindings(ctx context.Context, _ *table.State, in *wire.ExportFindingsRequest) (*exported, error) {
	q, err := a.findingQuestion(ctx, in, &pin{})
	if err != nil {
		return nil, err
	}
	q.Limit = a.ExportRecords + 1
	return tableOf(nil, findingColumns(), a.ExportRecords, func(ctx context.Context, told func(*findingLine) error) error {
		rows, err := a.Reader.Findings(ctx, q)
		if err != nil {
			return err
		}
		n, err := a.knowFindings(ctx, rows)
		for i := 0; err == nil && i < len(rows); i++ {
			err = told(&findingLine{n.finding(&rows[i])})
		}
		return err
	}), nil
}

// exportBuffer is how much of a table is held back: until then it may turn out that there is
// an error to tell instead.
const exportBuffer = 64 << 10

// serveTable answers with the table.
func (a *API) serveTable(r *http.Request, out http.ResponseWriter, f tabular.Format, t *exported) {
	send := http.NewResponseController(out) // a writer that knows no limits is a test's
	_ = send.SetWriteDeadline(time.Now().Add(a.ExportTimeout + a.SendTimeout))
	ctx, cancel := context.WithTimeout(r.Context(), a.ExportTimeout)
	defer cancel()
	defer context.AfterFunc(a.running, cancel)()
	w := &tableWriter{out: out, header: func(h http.Header) {
		h.Set("Content-Type", f.ContentType())
		h.Set("Csigscope-Row-Limit", fmt.Sprint(t.most))
		h.Set("Csigscope-Time-Limit-S", fmt.Sprint(a.ExportTimeout.Seconds()))
		h.Set("Trailer", "Csigscope-Rows, Csigscope-Complete, Csigscope-Cut-By")
		if t.state != nil {
			h.Set("ETag", etag(t.state))
		}
	}}
	if r.Method == http.MethodHead {
		w.begin()
		return
	}
	err := a.inTurn(ctx, a.exports, func() error {
		held := bufio.NewWriterSize(w, exportBuffer)
		end, err := t.write(ctx, f, held)
		if err != nil {
			return err
		}
		if err := held.Flush(); err != nil {
			return err
		}
		for name, value := range end.notes() {
			out.Header().Set(name, value)
		}
		return nil
	})
	switch {
	case err == nil:
	case w.begun:
		if query.OutcomeOf(r.Context(), err) != query.Canceled {
			a.Logger.WarnContext(ctx, "export cut off", slog.String("path", r.URL.Path), slog.Any("error", err))
		}
		panic(http.ErrAbortHandler) // so that the reader learns that this is not all
	default:
		a.refuse(r.Context(), out, err)
	}
}

// tableWriter sends headers before the first bytes.
type tableWriter struct {
	out    http.ResponseWriter
	header func(http.Header)
	begun  bool
}

func (w *tableWriter) begin() {
	w.begun = true
	w.header(w.out.Header())
	w.out.WriteHeader(http.StatusOK)
}

// Write implements io.Writer.
func (w *tableWriter) Write(b []byte) (int, error) {
	if !w.begun {
		w.begin()
	}
	return w.out.Write(b)
}

// cellLine is a cell in a table.
type cellLine struct {
	from, to time.Time
	signal   string
	*wire.Cell
}

// flowLine is a flow in a table.
type flowLine struct {
	from, to time.Time
	*wire.Flow
}

// findingLine is a finding in a table.
type findingLine struct{ *wire.Finding }

// suffix is what the names of columns of values in the unit end in.
func suffix(unit string) string {
	if u, err := csig.ParseUnit(unit); err == nil && unitFields[u] != "" {
		return "_" + unitFields[u]
	}
	return ""
}

// valued is a column of values with a unit.
func valued[T any](name, unit string, get func(*T) *wire.Measure) tabular.Column[T] {
	return tabular.Column[T]{Name: name + suffix(unit), Real: func(row *T) float64 {
		v, _, ok := get(row).Number()
		if !ok {
			return math.NaN()
		}
		return v
	}}
}

// bottlenecks are the columns of a location that observations name.
func bottlenecks[T any](name string, get func(*T) *wire.Bottleneck) []tabular.Column[T] {
	return []tabular.Column[T]{
		{Name: name, Text: func(row *T) string {
			if b := get(row); b != nil {
				return b.Location
			}
			return ""
		}},
		{Name: name + "_heavy", Count: func(row *T) uint64 {
			if b := get(row); b != nil {
				return b.Heavy
			}
			return 0
		}},
		{Name: name + "_share_ratio", Real: func(row *T) float64 {
			if b := get(row); b != nil {
				return b.ShareRatio
			}
			return math.NaN()
		}},
	}
}

func cellColumns(unit string) []tabular.Column[cellLine] {
	list := []tabular.Column[cellLine]{
		{Name: "from", Time: func(c *cellLine) time.Time { return c.from }},
		{Name: "to", Time: func(c *cellLine) time.Time { return c.to }},
		{Name: "signal", Text: func(c *cellLine) string { return c.signal }},
		{Name: "src", Text: func(c *cellLine) string { return c.Src }},
		{Name: "dst", Text: func(c *cellLine) string { return c.Dst }},
		{Name: "kind", Text: func(c *cellLine) string { return c.Kind }},
		{Name: "state", Text: func(c *cellLine) string { return c.State }},
		{Name: "observations", Count: func(c *cellLine) uint64 { return c.Observations }},
		valued("mean", unit, func(c *cellLine) *wire.Measure { return c.Mean }),
		valued("min", unit, func(c *cellLine) *wire.Measure { return c.Min }),
		valued("max", unit, func(c *cellLine) *wire.Measure { return c.Max }),
		{Name: "untouched", Count: func(c *cellLine) uint64 { return c.Untouched }},
		{Name: "trimmed", Count: func(c *cellLine) uint64 { return c.Trimmed }},
		{Name: "heavy", Count: func(c *cellLine) uint64 { return c.Heavy }},
		{Name: "heavy_ratio", Real: func(c *cellLine) float64 { return c.HeavyRatio }},
	}
	list = append(list, bottlenecks("mode", func(c *cellLine) *wire.Bottleneck { return c.Mode })...)
	return append(list, bottlenecks("runner_up", func(c *cellLine) *wire.Bottleneck { return c.RunnerUp })...)
}

func flowColumns(unit string) []tabular.Column[flowLine] {
	list := []tabular.Column[flowLine]{
		{Name: "from", Time: func(f *flowLine) time.Time { return f.from }},
		{Name: "to", Time: func(f *flowLine) time.Time { return f.to }},
		{Name: "others", Flag: func(f *flowLine) bool { return f.Others }},
		{Name: "src_address", Text: func(f *flowLine) string { return f.SrcAddress }},
		{Name: "src_port", Count: func(f *flowLine) uint64 { return uint64(f.SrcPort) }},
		{Name: "dst_address", Text: func(f *flowLine) string { return f.DstAddress }},
		{Name: "dst_port", Count: func(f *flowLine) uint64 { return uint64(f.DstPort) }},
		{Name: "proto", Count: func(f *flowLine) uint64 { return uint64(f.Proto) }},
		{Name: "src_group", Text: func(f *flowLine) string { return f.SrcGroup }},
		{Name: "dst_group", Text: func(f *flowLine) string { return f.DstGroup }},
		{Name: "kind", Text: func(f *flowLine) string { return f.Kind }},
		{Name: "observations", Count: func(f *flowLine) uint64 { return f.Observations }},
		{Name: "bytes", Count: func(f *flowLine) uint64 { return f.Bytes }},
		valued("mean", unit, func(f *flowLine) *wire.Measure { return f.Mean }),
		valued("min", unit, func(f *flowLine) *wire.Measure { return f.Min }),
		valued("max", unit, func(f *flowLine) *wire.Measure { return f.Max }),
		{Name: "heavy", Count: func(f *flowLine) uint64 { return f.Heavy }},
		{Name: "heavy_ratio", Real: func(f *flowLine) float64 { return f.HeavyRatio }},
		{Name: "windows", Count: func(f *flowLine) uint64 { return f.Windows }},
	}
	return append(list, bottlenecks("mode", func(f *flowLine) *wire.Bottleneck { return f.Mode })...)
}

func findingColumns() []tabular.Column[findingLine] {
	return []tabular.Column[findingLine]{
		{Name: "kind", Text: func(f *findingLine) string { return f.Kind }},
		{Name: "id", Text: func(f *findingLine) string { return f.Id }},
		{Name: "severity", Text: func(f *findingLine) string { return f.Severity }},
		{Name: "first", Time: func(f *findingLine) time.Time { return f.GetFirst().AsTime() }},
		{Name: "last", Time: func(f *findingLine) time.Time { return f.GetLast().AsTime() }},
		{Name: "count", Count: func(f *findingLine) uint64 { return f.Count }},
		{Name: "device", Text: func(f *findingLine) string { return f.Device }},
		{Name: "port", Text: func(f *findingLine) string { return f.Port }},
		{Name: "location", Text: func(f *findingLine) string { return f.Location }},
		{Name: "evidence", Text: func(f *findingLine) string { return f.Evidence }},
	}
}
