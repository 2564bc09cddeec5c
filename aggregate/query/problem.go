package query

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
)

// problem is an error as RFC 9457 describes it.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// StatusCanceled is the status of a request whose client left before its answer. None of
// RFC 9110 says so; servers and proxies commonly log this one.
const StatusCanceled = 499

// Outcome is how the work on a request ended. Whoever answers requests, over whatever
// protocol, takes it from OutcomeOf.
type Outcome uint8

// The outcomes.
const (
	Answered    Outcome = iota
	Canceled            // the client left: nobody reads the answer, and nothing went wrong
	TimedOut            // there was no answer in time
	Unavailable         // the store is away or slow, or the server stops
	Busy                // the client's limits are used up: the error is a Limited
	Invalid
	TooLarge
	NoData
	Failed // inside; the log says why
)

// RetryAfter is what the header Retry-After says where a request is Unavailable, in seconds.
const RetryAfter = "5"

// OutcomeOf is the outcome of work under ctx that ended with err. A request that has ended
// fails in many ways, so that ctx is looked at before most errors.
func OutcomeOf(ctx context.Context, err error) Outcome {
	if err == nil {
		return Answered
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return Canceled
	}
	if _, limited := errors.AsType[*Limited](err); limited {
		return Busy
	}
	switch {
	case errors.Is(err, ErrInvalid):
		return Invalid
	case errors.Is(err, ErrTooLarge):
		return TooLarge
	case errors.Is(err, ErrNoData):
		return NoData
	case errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil:
		return TimedOut
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.Canceled):
		return Unavailable
	}
	return Failed
}

// Status is the outcome as a status of HTTP.
func (o Outcome) Status() int {
	return [...]int{
		Answered: http.StatusOK, Canceled: StatusCanceled, TimedOut: http.StatusGatewayTimeout, Unavailable: http.StatusServiceUnavailable,
		Busy: http.StatusTooManyRequests, Invalid: http.StatusUnprocessableEntity, TooLarge: http.StatusUnprocessableEntity,
		NoData: http.StatusNotFound, Failed: http.StatusInternalServerError,
	}[o]
}

// status is that of work on a bundle: most of its parameters cannot be read where they are
// wrong.
func status(ctx context.Context, err error) int {
	if o := OutcomeOf(ctx, err); o != Invalid {
		return o.Status()
	}
	return http.StatusBadRequest
}

// fail answers with a problem. What went wrong inside is logged and not told: it
// may name hosts and statements.
func (a *api) fail(w http.ResponseWriter, r *http.Request, code int, err error) {
	p := problem{Title: http.StatusText(code), Status: code, Detail: err.Error()}
	if code >= http.StatusInternalServerError {
		a.Logger.ErrorContext(r.Context(), "answer request",
			slog.String("path", r.URL.Path), slog.Int("status", code), slog.Any("error", err))
		p.Detail = "the server could not answer: its log says why"
		switch code {
		case http.StatusGatewayTimeout:
			p.Detail = "the answer took too long: take a longer step, a shorter range, one signal or one level"
		case http.StatusServiceUnavailable:
			w.Header().Set("Retry-After", RetryAfter)
			p.Detail = "the answer has to wait, since the store or the server is too busy: try again later"
		}
	}
	if limited, ok := errors.AsType[*Limited](err); ok {
		w.Header().Set("Retry-After", limited.RetryAfter())
		p.Detail = limited.Detail
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	body, err := json.Marshal(p)
	if err != nil {
		return
	}
	if _, err := w.Write(body); err != nil {
		a.Logger.DebugContext(r.Context(), "write problem", slog.Any("error", err))
	}
}
