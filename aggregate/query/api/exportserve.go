package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
)

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

// refuse answers with a problem.
func (a *API) refuse(ctx context.Context, out http.ResponseWriter, err error) {
	err = a.answerable(ctx, err)
	var headers huma.HeadersError
	if errors.As(err, &headers) {
		for name, values := range headers.GetHeaders() {
			out.Header().Set(name, strings.Join(values, ", "))
		}
	}
	code := http.StatusInternalServerError
	if status, ok := errors.AsType[huma.StatusError](err); ok {
		code = status.GetStatus()
	}
	writeProblem(out, code, err.Error())
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
