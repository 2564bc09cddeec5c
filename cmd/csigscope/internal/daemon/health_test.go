package daemon

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestHealth(t *testing.T) {
	now := time.Unix(1e9, 0)
	h := newHealth(func() time.Time { return now })
	store := errors.New("connection refused")
	h.Require("store", func(context.Context) error { return store })
	h.Require("taps", func(context.Context) error { return nil })
	loop := h.Watch("writer", time.Second)
	h.Watch("done", time.Second).End()
	want := func(what string, err error, parts ...string) {
		t.Helper()
		if (err == nil) != (len(parts) == 0) {
			t.Errorf("%s: %v, want %q", what, err, parts)
			return
		}
		for _, p := range parts {
			if !strings.Contains(err.Error(), p) {
				t.Errorf("%s: %v does not name %q", what, err, p)
			}
		}
	}
	want("alive at first", h.Alive())
	want("ready without a store", h.Ready(t.Context()), "store: connection refused")
	store = nil
	want("ready", h.Ready(t.Context()))
	now = now.Add(3 * time.Second)
	want("alive with a stuck loop", h.Alive(), "writer: no progress for 3s")
	want("ready with a stuck loop", h.Ready(t.Context()), "writer")
	loop.Turn()
	want("alive again", h.Alive())
	h.Drain()
	want("alive while draining", h.Alive())
	want("ready while draining", h.Ready(t.Context()), "shutting down")
}

// TestReadyHangs: a check that does not answer is cut off and named.
func TestReadyHangs(t *testing.T) {
	h := newHealth(time.Now)
	h.Require("store", func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	answer := httptest.NewRecorder()
	handle(h.Ready)(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil))
	if answer.Code != http.StatusServiceUnavailable || !strings.HasPrefix(answer.Body.String(), "store: context deadline exceeded") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}
