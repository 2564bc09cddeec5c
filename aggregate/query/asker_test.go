package query_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
)

// asker may ask the store so many times.
type asker struct{ left, rows int }

func (a *asker) Ask() error {
	if a.left--; a.left < 0 {
		return &query.Limited{Detail: "enough: ask less", Retry: 1500 * time.Millisecond}
	}
	return nil
}

func (a *asker) Spent(time.Duration)   {}
func (a *asker) Told(n int)            { a.rows += n }
func (a *asker) Stay() (func(), error) { return func() {}, nil }

// TestMetered: what is read is told to whom it is for, and is not read without leave.
func TestMetered(t *testing.T) {
	reads := 0
	read := func() ([]int, error) {
		reads++
		return []int{1, 2, 3}, nil
	}
	a := &asker{left: 1}
	ctx := query.WithAsker(t.Context(), a)
	if rows, err := query.Metered(ctx, read); err != nil || len(rows) != 3 || a.rows != 3 {
		t.Errorf("%v, %v, told of %d", rows, err, a.rows)
	}
	var limited *query.Limited
	if _, err := query.Metered(ctx, read); !errors.As(err, &limited) || limited.RetryAfter() != "2" || reads != 1 {
		t.Errorf("%v after %d reads", err, reads)
	}
	if _, err := query.Metered(t.Context(), read); err != nil {
		t.Errorf("for nobody: %v", err)
	}
}

// TestBundleLimited: who has had enough of the store is told when to come again.
func TestBundleLimited(t *testing.T) {
	h := query.NewHandler(query.HandlerConfig{Reader: querytest.Fabric(2, 2)})
	r := httptest.NewRequest("GET", "/api/v1/bundle", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(query.WithAsker(t.Context(), &asker{})))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "2" || !strings.Contains(w.Body.String(), `"detail":"enough: ask less"`) {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
