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
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// registerExports serves tables, only over HTTP. Rows are sent as they are read.
func (a *API) registerExports(mux *http.ServeMux) {
	export(a, mux, "export", fromMemory, a.exportCells)
	export(a, mux, "export/flows", fromStore, a.exportFlows)
	export(a, mux, "export/findings", fromStore, a.exportFindings)
}

// exported is a table that is ready to be written: its question has been validated.
type exported struct {
	state *table.State // nil: from the store
	most  int          // maximum number of rows
	write func(ctx context.Context, f tabular.Format, w io.Writer) (ending, error)
}

// ending is the end of a table.
type ending struct {
	rows  int
	cutBy string // empty if it is complete, else rows or time
}

// notes are the trailers and metadata for the ending.
func (e ending) notes() map[string]string {
	return map[string]string{
		"Csigscope-Rows": strconv.Itoa(e.rows), "Csigscope-Complete": strconv.FormatBool(e.cutBy == ""), "Csigscope-Cut-By": e.cutBy,
	}
}

// errEnough stops the reading of rows at the limit.
var errEnough = errors.New("as many rows as there may be")

// lines writes rows as JSON, one per line.
type lines[T any, P message[T]] struct {
	schema *rest.Schema
	out    io.Writer
	line   []byte
}

// Write implements tabular.Writer.
func (l *lines[T, P]) Write(r *T) (err error) {
	if l.line, err = l.schema.Append(l.line[:0], P(r)); err != nil {
		return err
	}
	l.line = append(l.line, '\n')
	_, err = l.out.Write(l.line)
	return err
}

// Close implements tabular.Writer.
func (l *lines[T, P]) Close(map[string]string) error { return nil }

// tableOf is a table of the rows that each passes on.
func tableOf[T any, P message[T]](a *API, s *table.State, columns []tabular.Column[T], most int, each func(ctx context.Context, write func(*T) error) error) *exported {
	return &exported{s, most, func(ctx context.Context, f tabular.Format, w io.Writer) (e ending, err error) {
		var to tabular.Writer[T] = &lines[T, P]{schema: a.schema, out: w}
		if f != tabular.NDJSON {
			if to, err = tabular.New(f, columns, w); err != nil {
				return e, err
			}
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
	message[Q]
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
		defer cancel()
		err := a.withSlot(ctx, a.slots, func() (err error) {
			found, err = f(ctx, s, in)
			return err
		})
		if err != nil {
			a.refuse(ctx, w, err)
			return
		}
		a.serveTable(r, w, tabular.Format(in.GetFormat()), found)
	})
}

func (a *API) exportCells(ctx context.Context, s *table.State, in *wire.ExportRequest) (*exported, error) {
	switch {
	case in.GetStep() != nil && (s != nil || in.GetTable() != "windows"):
		return nil, wrong("step", in.GetStep().AsDuration().String(), "applies only to windows of history: give from, to and table=windows")
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
	about := a.about(s, k)
	return tableOf(a, s, cellColumns(about.Unit), a.ExportRows, func(_ context.Context, write func(*wire.ExportedCell) error) error {
		return v.writeCells(&f, about, write)
	}), nil
}

// writeCells passes the view's cells that the filter accepts to write.
func (v *view) writeCells(f *filter, about *wire.About, write func(*wire.ExportedCell) error) error {
	for i := range v.cells {
		if !f.takes(&v.cells[i]) {
			continue
		}
		if err := write(&wire.ExportedCell{From: about.From, To: about.To, Signal: about.Signal, Cell: v.names.cell(&v.cells[i], &v.covers[i])}); err != nil {
			return err
		}
	}
	return nil
}

// exportWindows exports the last windows in memory, one by one.
func (a *API) exportWindows(ctx context.Context, s *table.State, in *wire.ExportRequest) (*exported, error) {
	_, k, err := a.asked(ctx, s, in, 1)
	if err != nil {
		return nil, err
	}
	about := a.about(s, k)
	return tableOf(a, s, cellColumns(about.Unit), a.ExportRows, func(ctx context.Context, write func(*wire.ExportedCell) error) error {
		for _, w := range s.Parts(s.Last(int(in.GetWindows()))) {
			v, err := a.windowView(ctx, w, k.signal, k.level)
			if err != nil {
				return err
			}
			f, err := v.names.filter(in, k.signal)
			if err != nil {
				return err
			}
			about.From, about.To = timestamppb.New(w.Start), timestamppb.New(w.End)
			if err := v.writeCells(&f, about, write); err != nil {
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
	about := a.pastAbout(q, a.Now())
	return tableOf(a, nil, cellColumns(about.Unit), a.ExportRows, func(ctx context.Context, write func(*wire.ExportedCell) error) error {
		cells, err := a.pastCells(ctx, q.Question, in)
		for i := 0; err == nil && i < len(cells); i++ {
			err = write(&wire.ExportedCell{From: about.From, To: about.To, Signal: about.Signal, Cell: cells[i]})
		}
		return err
	}), nil
}

func (a *API) exportPastWindows(ctx context.Context, in *wire.ExportRequest) (*exported, error) {
	q, err := a.question(ctx, in, in)
	if err != nil {
		return nil, err
	}
	if err := a.cut(ctx, &q.Question, in.GetStep(), a.ExportRows); err != nil {
		return nil, err
	}
	n, f, err := a.pastFilter(ctx, &q.Question, in)
	if err != nil {
		return nil, err
	}
	about := a.pastAbout(q, a.Now())
	return tableOf(a, nil, cellColumns(about.Unit), a.ExportRows, func(ctx context.Context, write func(*wire.ExportedCell) error) error {
		more, err := a.Reader.EachCellWindow(ctx, q.Question, a.ExportRows, func(r *aggregate.CellWindow) (err error) {
			if !f.takes(&r.CellStats) {
				return nil
			}
			if n, err = a.history().knowingCell(ctx, n, &r.CellStats); err != nil {
				return err
			}
			begin := time.Unix(0, r.Start)
			return write(&wire.ExportedCell{
				From: timestamppb.New(begin), To: timestamppb.New(begin.Add(q.Step)), Signal: about.Signal, Cell: n.pastCell(&r.CellStats),
			})
		})
		if err == nil && more {
			return errEnough
		}
		return err
	}), nil
}

func (a *API) exportFlows(ctx context.Context, _ *table.State, in *wire.ExportFlowsRequest) (*exported, error) {
	q, _, err := a.flowQuestion(ctx, in, &pin{})
	if err != nil {
		return nil, err
	}
	q.Limit = MaxExportRecords + 1
	return tableOf(a, nil, flowColumns(q.Signal.Unit().String()), MaxExportRecords, func(ctx context.Context, write func(*wire.ExportedFlow) error) error {
		rows, err := a.Reader.Flows(ctx, q)
		if err != nil {
			return err
		}
		n, err := a.knowFlows(ctx, rows)
		for i := 0; err == nil && i < len(rows); i++ {
			err = write(&wire.ExportedFlow{From: timestamppb.New(q.From), To: timestamppb.New(q.To), Flow: n.flow(q.Signal, &rows[i])})
		}
		return err
	}), nil
}

func (a *API) exportFindings(ctx context.Context, _ *table.State, in *wire.ExportFindingsRequest) (*exported, error) {
	q, err := a.findingQuestion(ctx, in, &pin{})
	if err != nil {
		return nil, err
	}
	q.Limit = MaxExportRecords + 1
	return tableOf(a, nil, findingColumns(), MaxExportRecords, func(ctx context.Context, write func(*wire.Finding) error) error {
		rows, err := a.Reader.Findings(ctx, q)
		if err != nil {
			return err
		}
		n, err := a.knowFindings(ctx, rows)
		for i := 0; err == nil && i < len(rows); i++ {
			err = write(n.finding(&rows[i]))
		}
		return err
	}), nil
}

// exportBuffer is how many bytes of a table are held back: until they are sent, an error can
// still replace the table.
const exportBuffer = 64 << 10

// serveTable answers with the table.
func (a *API) serveTable(r *http.Request, out http.ResponseWriter, f tabular.Format, t *exported) {
	send := http.NewResponseController(out) // only a test's writer has no deadlines
	_ = send.SetWriteDeadline(time.Now().Add(a.ExportTimeout + sendTimeout))
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
	err := a.withSlot(ctx, a.exports, func() error {
		held := bufio.NewWriterSize(w, exportBuffer)
		end, err := t.write(ctx, f, held)
		if err != nil {
			return err
		}
		if err := held.Flush(); err != nil {
			return err
		}
		if !w.begun { // lines without a row
			w.begin()
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
		panic(http.ErrAbortHandler) // so that the reader notices the incomplete table
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

// suffix is the suffix of column names for values in the unit.
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

// bottlenecks are the columns of a location named by observations.
func bottlenecks[T any](name, unit string, get func(*T) *wire.Bottleneck) []tabular.Column[T] {
	return []tabular.Column[T]{
		{Name: name + "_location", Text: func(row *T) string { return get(row).GetLocation() }},
		{Name: name + "_heavy", Count: func(row *T) uint64 { return get(row).GetHeavy() }},
		{Name: name + "_share_ratio", Real: func(row *T) float64 {
			if b := get(row); b != nil {
				return b.ShareRatio
			}
			return math.NaN()
		}},
		{Name: name + "_evidence", Text: func(row *T) string { return strings.Join(get(row).GetEvidence(), " ") }},
		valued(name+"_mean", unit, func(row *T) *wire.Measure { return get(row).GetMean() }),
	}
}

func cellColumns(unit string) []tabular.Column[wire.ExportedCell] {
	list := []tabular.Column[wire.ExportedCell]{
		{Name: "from", Time: func(c *wire.ExportedCell) time.Time { return c.From.AsTime() }},
		{Name: "to", Time: func(c *wire.ExportedCell) time.Time { return c.To.AsTime() }},
		{Name: "signal", Text: func(c *wire.ExportedCell) string { return c.Signal }},
		{Name: "src", Text: func(c *wire.ExportedCell) string { return c.Cell.Src }},
		{Name: "dst", Text: func(c *wire.ExportedCell) string { return c.Cell.Dst }},
		{Name: "kind", Text: func(c *wire.ExportedCell) string { return c.Cell.Kind.Word() }},
		{Name: "state", Text: func(c *wire.ExportedCell) string { return c.Cell.State.Word() }},
		{Name: "since", Time: func(c *wire.ExportedCell) time.Time { return timeOf(c.Cell.Since) }},
		{Name: "sustained_s", Real: func(c *wire.ExportedCell) float64 { return c.Cell.SustainedS }},
		{Name: "congested_ratio", Real: func(c *wire.ExportedCell) float64 { return c.Cell.CongestedRatio }},
		{Name: "observations", Count: func(c *wire.ExportedCell) uint64 { return c.Cell.Observations }},
		{Name: "samples", Count: func(c *wire.ExportedCell) uint64 { return c.Cell.Samples }},
		valued("mean", unit, func(c *wire.ExportedCell) *wire.Measure { return c.Cell.Mean }),
		valued("mean_error", unit, func(c *wire.ExportedCell) *wire.Measure { return c.Cell.MeanError }),
		valued("min", unit, func(c *wire.ExportedCell) *wire.Measure { return c.Cell.Min }),
		valued("max", unit, func(c *wire.ExportedCell) *wire.Measure { return c.Cell.Max }),
		valued("trend", unit, func(c *wire.ExportedCell) *wire.Measure { return c.Cell.Trend }),
		{Name: "unjudged", Count: func(c *wire.ExportedCell) uint64 { return c.Cell.Unjudged }},
		{Name: "untouched", Count: func(c *wire.ExportedCell) uint64 { return c.Cell.Untouched }},
		{Name: "trimmed", Count: func(c *wire.ExportedCell) uint64 { return c.Cell.Trimmed }},
		{Name: "heavy", Count: func(c *wire.ExportedCell) uint64 { return c.Cell.Heavy }},
		{Name: "heavy_ratio", Real: func(c *wire.ExportedCell) float64 { return orNaN(c.Cell.HeavyRatio) }},
	}
	return slices.Concat(list,
		bottlenecks("mode", unit, func(c *wire.ExportedCell) *wire.Bottleneck { return c.Cell.Mode }),
		bottlenecks("runner_up", unit, func(c *wire.ExportedCell) *wire.Bottleneck { return c.Cell.RunnerUp }),
		[]tabular.Column[wire.ExportedCell]{
			{Name: "candidates", Text: func(c *wire.ExportedCell) string { return strings.Join(c.Cell.Candidates, " ") }},
			{Name: "probabilities", Text: func(c *wire.ExportedCell) string { return strings.Trim(fmt.Sprint(c.Cell.Probabilities), "[]") }},
			{Name: "expected_producers", Count: func(c *wire.ExportedCell) uint64 { return uint64(c.Cell.ExpectedProducers) }},
			{Name: "present_producers", Count: func(c *wire.ExportedCell) uint64 { return uint64(c.Cell.PresentProducers) }},
			{Name: "silent_producers", Text: func(c *wire.ExportedCell) string { return strings.Join(c.Cell.SilentProducers, " ") }},
		})
}

// timeOf returns the zero time for nil.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func flowColumns(unit string) []tabular.Column[wire.ExportedFlow] {
	list := []tabular.Column[wire.ExportedFlow]{
		{Name: "from", Time: func(f *wire.ExportedFlow) time.Time { return f.From.AsTime() }},
		{Name: "to", Time: func(f *wire.ExportedFlow) time.Time { return f.To.AsTime() }},
		{Name: "others", Flag: func(f *wire.ExportedFlow) bool { return f.Flow.Others }},
		{Name: "src_address", Text: func(f *wire.ExportedFlow) string { return f.Flow.SrcAddress }},
		{Name: "src_port", Count: func(f *wire.ExportedFlow) uint64 { return uint64(f.Flow.SrcPort) }},
		{Name: "dst_address", Text: func(f *wire.ExportedFlow) string { return f.Flow.DstAddress }},
		{Name: "dst_port", Count: func(f *wire.ExportedFlow) uint64 { return uint64(f.Flow.DstPort) }},
		{Name: "proto", Count: func(f *wire.ExportedFlow) uint64 { return uint64(f.Flow.Proto) }},
		{Name: "src_group", Text: func(f *wire.ExportedFlow) string { return f.Flow.SrcGroup }},
		{Name: "dst_group", Text: func(f *wire.ExportedFlow) string { return f.Flow.DstGroup }},
		{Name: "kind", Text: func(f *wire.ExportedFlow) string { return f.Flow.Kind.Word() }},
		{Name: "observations", Count: func(f *wire.ExportedFlow) uint64 { return f.Flow.Observations }},
		{Name: "bytes", Count: func(f *wire.ExportedFlow) uint64 { return f.Flow.Bytes }},
		valued("mean", unit, func(f *wire.ExportedFlow) *wire.Measure { return f.Flow.Mean }),
		valued("min", unit, func(f *wire.ExportedFlow) *wire.Measure { return f.Flow.Min }),
		valued("max", unit, func(f *wire.ExportedFlow) *wire.Measure { return f.Flow.Max }),
		{Name: "heavy", Count: func(f *wire.ExportedFlow) uint64 { return f.Flow.Heavy }},
		{Name: "heavy_ratio", Real: func(f *wire.ExportedFlow) float64 { return f.Flow.HeavyRatio }},
		{Name: "windows", Count: func(f *wire.ExportedFlow) uint64 { return f.Flow.Windows }},
	}
	list = append(list, bottlenecks("mode", unit, func(f *wire.ExportedFlow) *wire.Bottleneck { return f.Flow.Mode })...)
	return append(list, tabular.Column[wire.ExportedFlow]{Name: "sampled", Count: func(f *wire.ExportedFlow) uint64 { return f.Flow.Sampled }})
}

func findingColumns() []tabular.Column[wire.Finding] {
	return []tabular.Column[wire.Finding]{
		{Name: "kind", Text: func(f *wire.Finding) string { return f.Kind }},
		{Name: "id", Text: func(f *wire.Finding) string { return f.Id }},
		{Name: "severity", Text: func(f *wire.Finding) string { return f.Severity.Word() }},
		{Name: "first", Time: func(f *wire.Finding) time.Time { return timeOf(f.First) }},
		{Name: "last", Time: func(f *wire.Finding) time.Time { return timeOf(f.Last) }},
		{Name: "count", Count: func(f *wire.Finding) uint64 { return f.Count }},
		{Name: "device", Text: func(f *wire.Finding) string { return f.Device }},
		{Name: "port", Text: func(f *wire.Finding) string { return f.Port }},
		{Name: "location", Text: func(f *wire.Finding) string { return f.Location }},
		{Name: "evidence", Text: func(f *wire.Finding) string { return f.Evidence }},
		{Name: "packets", Text: func(f *wire.Finding) string { return strings.Trim(fmt.Sprint(f.Packets), "[]") }},
	}
}

// orNaN returns NaN for nil.
func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}
