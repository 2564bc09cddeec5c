package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
	"github.com/csigscope/csigscope/ingest/edge"
)

const (
	// maxQuery bounds the parameters of a request, in bytes.
	maxQuery = 4096
	// maxBody bounds a body, in bytes. No request needs one.
	maxBody = 1 << 10
)

// guard refuses requests that are invalid at every endpoint, and recovers from panics.
func (a *API) guard(next http.Handler) http.Handler {
	return query.SecurityHeaders(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(p) // tells net/http to cut off the answer
				}
				a.Logger.ErrorContext(r.Context(), "answer request", slog.String("path", r.URL.Path), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
				edge.WriteProblem(w, http.StatusInternalServerError, "the server could not answer: its log says why")
			}
		}()
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if code, err := checkRequest(r); err != nil {
			if code == http.StatusMethodNotAllowed {
				w.Header().Set("Allow", "GET, HEAD")
			}
			edge.WriteProblem(w, code, err.Error())
			return
		}
		if r.URL.Query().Has("wait") {
			// The server's deadlines are for short answers. Only a test's writer has none.
			send := http.NewResponseController(w)
			_ = send.SetReadDeadline(time.Time{})
			_ = send.SetWriteDeadline(time.Now().Add(maxWait + a.Timeout + sendTimeout))
		}
		next.ServeHTTP(w, r)
	}))
}

// recovering calls f and returns a panic as an error with its stack, for goroutines that work for requests: guards recover
// only in those of the requests.
func recovering(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// checkRequest does the checks that apply to every question.
func checkRequest(r *http.Request) (int, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return http.StatusMethodNotAllowed, errors.New("method not allowed: expected GET")
	}
	if r.ContentLength > maxBody {
		return http.StatusRequestEntityTooLarge, errors.New("requests have no body: leave it out, parameters are in the URL")
	}
	if len(r.URL.RawQuery) > maxQuery {
		return http.StatusRequestURITooLong, fmt.Errorf("parameters are longer than %d bytes: name fewer groups, or their parents", maxQuery)
	}
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return http.StatusBadRequest, errors.New("parameters cannot be read: escape % as %25, and & and ; in values")
	}
	return 0, nil
}

// refused is the reason why a question is refused: an HTTP status, and how to fix the question.
type refused struct {
	status     int
	detail     string
	wrong      rest.Wrong // the invalid parameters
	retryAfter string     // the header, in seconds; empty for none
}

// Error implements error.
func (r *refused) Error() string { return r.detail }

// problem converts the refusal to a message (RFC 9457).
func (r *refused) problem() *wire.Problem {
	return &wire.Problem{Title: http.StatusText(r.status), Status: uint32(r.status), Detail: text(r.detail), Errors: r.wrong}
}

// wrong is the error for an invalid parameter.
func wrong(parameter, value, format string, args ...any) error {
	return rest.Wrong{{Message: text(fmt.Sprintf(format, args...)), Location: "query." + parameter, Value: text(value)}}
}

// text replaces invalid UTF-8 in text from a capture, so that a message can hold it.
func text(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func texts(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = text(s)
	}
	return out
}

// retryAfter is when to retry after too many concurrent requests, in seconds.
const retryAfter = "1"

// refusalOf converts an error to a refusal. Internal errors are logged and not disclosed: they
// may name hosts and statements.
func (a *API) refusalOf(ctx context.Context, err error) *refused {
	if r, ok := errors.AsType[*refused](err); ok {
		return r
	}
	if w, ok := errors.AsType[rest.Wrong](err); ok {
		return &refused{status: http.StatusUnprocessableEntity, detail: w.Error(), wrong: w}
	}
	o := query.OutcomeOf(ctx, err)
	r := &refused{status: o.Status()}
	switch o {
	case query.Canceled:
		r.detail = "the request was ended before its answer"
	case query.Busy:
		limited, _ := errors.AsType[*edge.LimitError](err)
		r.detail, r.retryAfter = limited.Detail, limited.RetryAfter()
	case query.Invalid:
		r.detail = err.Error()
	case query.TooLarge:
		r.detail = "the answer is too large: take a shorter range, or name src and dst if the question has them"
	case query.NoData:
		r.detail = "nothing is stored: run csigscope collect or replay first"
	case query.TimedOut:
		r.detail = "the answer took too long and was cancelled: take a shorter range, or name src and dst if the question has them"
	case query.Unavailable:
		if a.running.Err() == nil { // the end of the server is no error
			a.Logger.ErrorContext(ctx, "answer request", slog.Any("error", err))
		}
		r.detail, r.retryAfter = "the store is slow or away, or the server stops: try again later", query.RetryAfter
	default:
		a.Logger.ErrorContext(ctx, "answer request", slog.Any("error", err))
		r.detail = "the server could not answer: its log says why"
	}
	return r
}

// refuse answers with a problem.
func (a *API) refuse(ctx context.Context, out http.ResponseWriter, err error) {
	r := a.refusalOf(ctx, err)
	if r.retryAfter != "" {
		out.Header().Set("Retry-After", r.retryAfter)
	}
	details := make([]edge.ProblemDetail, len(r.wrong))
	for i, w := range r.wrong {
		details[i] = edge.ProblemDetail{Message: w.Message, Location: w.Location, Value: w.Value}
	}
	edge.WriteProblem(out, r.status, r.detail, details...)
}
