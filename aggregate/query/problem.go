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

func status(err error) int {
	if _, limited := errors.AsType[*Limited](err); limited {
		return http.StatusTooManyRequests
	}
	switch {
	case errors.Is(err, ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, ErrTooLarge):
		return http.StatusUnprocessableEntity
	case errors.Is(err, ErrNoData):
		return http.StatusNotFound
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// fail answers with a problem. What went wrong inside is logged and not told: it
// may name hosts and statements.
func (a *api) fail(w http.ResponseWriter, r *http.Request, code int, err error) {
	p := problem{Title: http.StatusText(code), Status: code, Detail: err.Error()}
	if code >= http.StatusInternalServerError {
		a.Logger.ErrorContext(r.Context(), "answer request",
			slog.String("path", r.URL.Path), slog.Int("status", code), slog.Any("error", err))
		p.Detail = "the server could not answer: its log says why"
		if code == http.StatusGatewayTimeout {
			p.Detail = "the answer took too long: take a longer step, a shorter range, one signal or one level"
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
