package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/model"
)

const (
	// maxQuery bounds the parameters of a request, in bytes.
	maxQuery = 4096
	// maxBody bounds a body, which no request needs.
	maxBody = 1 << 10
)

// lists are the parameters that may be given several times.
var lists = []string{"src", "dst", "location", "state", "kind", "severity", "device"}

// guard refuses what no endpoint takes, and outlives what goes wrong in one.
func (a *API) guard(next http.Handler) http.Handler {
	return query.SecurityHeaders(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(p) // how net/http is told to cut an answer off
				}
				a.Logger.ErrorContext(r.Context(), "answer request", slog.String("path", r.URL.Path), slog.Any("panic", p))
				writeProblem(w, http.StatusInternalServerError, "the server could not answer: its log says why")
			}
		}()
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if code, err := checkRequest(r); err != nil {
			if code == http.StatusMethodNotAllowed {
				w.Header().Set("Allow", "GET, HEAD")
			}
			writeProblem(w, code, err.Error())
			return
		}
		if r.URL.Query().Has("wait") {
			// The server's limits are those of short answers. A writer that knows none is a test's.
			send := http.NewResponseController(w)
			_ = send.SetReadDeadline(time.Time{})
			_ = send.SetWriteDeadline(time.Now().Add(maxWait + a.Timeout + a.SendTimeout))
		}
		next.ServeHTTP(w, r)
	}))
}

// checkRequest finds what is wrong with a request whatever it asks. Repeated parameters are
// refused: a second bound must not be passed over in silence.
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
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return http.StatusBadRequest, errors.New("parameters cannot be read: escape % as %25, and & and ; in values")
	}
	for name, v := range values {
		if len(v) > 1 && !slices.Contains(lists, name) {
			return http.StatusBadRequest, fmt.Errorf("parameter %q is given %d times: give it once", name, len(v))
		}
	}
	return 0, nil
}

func writeProblem(w http.ResponseWriter, code int, detail string) {
	body, err := json.Marshal(model.Problem{Title: http.StatusText(code), Status: code, Detail: detail})
	if err != nil {
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// numbers are what huma says of text that is no number, and what was expected.
var numbers = map[string]string{
	"invalid float": "expected a number without a unit, such as 0.5 or 40e9", "invalid integer": "expected a whole number, such as 10",
}

// explain makes the detail of a refusal say which parameters are wrong, and what to do.
func explain(_ huma.Context, _ string, v any) (any, error) {
	e, ok := v.(*huma.ErrorModel)
	if !ok || len(e.Errors) == 0 || e.Detail != "validation failed" {
		return v, nil
	}
	var parts []string
	for _, d := range e.Errors {
		if says, ok := numbers[d.Message]; ok {
			d.Message = says
		}
		parts = append(parts, fmt.Sprintf("%s: %s", strings.TrimPrefix(d.Location, "query."), d.Message))
	}
	slices.Sort(parts)
	told := *e
	told.Detail = strings.Join(parts, "; ") + ": change what is named here, /openapi.json says what each parameter takes"
	return &told, nil
}

// wrong is the answer to a parameter that cannot be met.
func wrong(parameter string, value any, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	return huma.NewError(http.StatusUnprocessableEntity, parameter+": "+message,
		&huma.ErrorDetail{Message: message, Location: "query." + parameter, Value: value})
}

// answerable makes an error of a reader one that says what to change. What went wrong
// inside is logged and not told: it may name hosts and statements.
func (a *API) answerable(ctx context.Context, err error) error {
	if _, ok := errors.AsType[huma.StatusError](err); ok {
		return err
	}
	refuse := func(o query.Outcome, detail string) error { return huma.NewError(o.Status(), detail) }
	o := query.OutcomeOf(ctx, err)
	switch o {
	case query.Canceled:
		return refuse(o, "the request was ended before its answer")
	case query.Busy:
		limited, _ := errors.AsType[*query.Limited](err)
		return huma.ErrorWithHeaders(refuse(o, limited.Detail), http.Header{"Retry-After": []string{limited.RetryAfter()}})
	case query.Invalid:
		return refuse(o, err.Error())
	case query.TooLarge:
		return refuse(o, "the answer is too large: take a shorter range, or name src and dst")
	case query.NoData:
		return refuse(o, "nothing is stored: run csigscope collect or replay first")
	case query.TimedOut:
		return refuse(o, "the answer took too long and was given up: take a shorter range, or name src and dst")
	}
	a.Logger.ErrorContext(ctx, "answer request", slog.Any("error", err))
	if o == query.Unavailable {
		return huma.ErrorWithHeaders(refuse(o, "the store is slow or away, or the server stops: try again later"), http.Header{"Retry-After": []string{query.RetryAfter}})
	}
	return refuse(query.Failed, "the server could not answer: its log says why")
}
