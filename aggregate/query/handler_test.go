package query_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
)

func serve(t *testing.T, h http.Handler, method, target string) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w.Result()
}

func TestHandlerStatus(t *testing.T) {
	h := query.NewHandler(query.HandlerConfig{Reader: querytest.Fabric(4, 10), Options: query.Options{MaxWindows: 50}})
	tests := map[string]struct {
		method, target string
		status         int
		says           string
	}{
		"all":             {"GET", "/api/v1/bundle", 200, ""},
		"everything said": {"GET", "/api/v1/bundle?signal=max_delay,min_abw&level=device&from=2026-01-20T09:00:00Z&to=1768899605000000000&step=1s", 200, ""},
		"bad fields":      {"GET", "/api/v1/frames?signal=max_delay&fields=mean", 422, "expected all or lean"},
		"bad group":       {"GET", "/api/v1/frames?signal=max_delay&src=rack1", 422, "an id"},
		"group of bundle": {"GET", "/api/v1/bundle?src=1", 422, "unknown parameter"},
		"frames of all":   {"GET", "/api/v1/frames", 422, "one each"},
		"frames posted":   {"POST", "/api/v1/frames?signal=max_delay", 405, "expected GET"},
		"head":            {"HEAD", "/api/v1/extent", 200, ""},
		"post":            {"POST", "/api/v1/bundle", 405, "expected GET"},
		"unknown path":    {"GET", "/api/v1/nothing", 404, "/api/v1/bundle"},
		"unknown name":    {"GET", "/api/v1/bundle?form=1", 422, `unknown parameter "form"`},
		"given twice":     {"GET", "/api/v1/bundle?step=1s&step=2s", 422, "twice"},
		"bad escape":      {"GET", "/api/v1/bundle?step=%zz", 422, "invalid"},
		"bad signal":      {"GET", "/api/v1/bundle?signal=max_speed", 422, "min_abw"},
		"signal twice":    {"GET", "/api/v1/bundle?signal=min_abw,min_abw", 422, "listed twice"},
		"bad level":       {"GET", "/api/v1/bundle?level=galaxy", 422, "stage"},
		"bad time":        {"GET", "/api/v1/bundle?from=yesterday", 422, "RFC 3339"},
		"far time":        {"GET", "/api/v1/bundle?to=9999-01-01T00:00:00Z", 422, "expected one in 1970 to 2105"},
		"early time":      {"GET", "/api/v1/bundle?from=-1", 422, "expected one in 1970 to 2105"},
		"bad step":        {"GET", "/api/v1/bundle?step=-1s", 422, "duration"},
		"tiny step":       {"GET", "/api/v1/bundle?step=1ns", 422, "duration"},
		"long value":      {"GET", "/api/v1/bundle?signal=" + strings.Repeat("a", 600), 422, "longer"},
		"long range":      {"GET", "/api/v1/bundle?from=2026-01-20T09:00:00Z&to=2026-01-20T10:00:00Z&step=1s", 422, "longer step"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := serve(t, h, test.method, test.target)
			if r.StatusCode != test.status {
				t.Fatalf("status %d, want %d", r.StatusCode, test.status)
			}
			if test.status == 200 {
				if got := r.Header.Get("Content-Type"); got != "application/json" {
					t.Errorf("content type %s, want application/json", got)
				}
				return
			}
			var p struct {
				Status        int
				Title, Detail string
			}
			if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
				t.Fatal(err)
			}
			if r.Header.Get("Content-Type") != "application/problem+json" || p.Status != test.status || p.Title == "" {
				t.Errorf("problem %+v of type %s", p, r.Header.Get("Content-Type"))
			}
			if !strings.Contains(p.Detail, test.says) {
				t.Errorf("detail %q does not say %q", p.Detail, test.says)
			}
		})
	}
}

func TestHandlerSelects(t *testing.T) {
	h := query.NewHandler(query.HandlerConfig{Reader: querytest.Fabric(4, 10), Options: query.Options{Fabric: "lab"}})
	r := serve(t, h, "GET", "/api/v1/bundle?signal=max_delay&level=stage&from=2026-01-20T09:00:02Z&to=2026-01-20T09:00:05Z&step=1s")
	var b query.Bundle
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
		t.Fatal(err)
	}
	if len(b.Data) != 1 || b.Signals[b.Data[0].Signal].Name != "max_delay" {
		t.Errorf("data of %d signals, want max_delay alone", len(b.Data))
	}
	if len(b.Signals) != 3 {
		t.Errorf("%d signals named, want all 3 that are stored", len(b.Signals))
	}
	if len(b.Windows) != 3 || int64(b.Windows[0]) != start.Add(2*time.Second).UnixNano() {
		t.Errorf("windows %v, want 3 from 2 s on", b.Windows)
	}
	if b.Data[0].Total.Modes["stage"] == nil || b.Data[0].Total.Modes["location"] != nil {
		t.Errorf("modes at %v, want stage alone", b.Levels)
	}
}

// TestHandlerTakesAutomaticSteps: the step of a bundle can be asked for, however long its range is.
func TestHandlerTakesAutomaticSteps(t *testing.T) {
	m := querytest.Fabric(2, 5)
	h := query.NewHandler(query.HandlerConfig{Reader: m})
	for _, from := range []int{1970, 2020, 2026} {
		b := build(t, m, query.Options{From: time.Date(from, 1, 1, 0, 0, 0, 0, time.UTC), To: time.Date(2105, 12, 1, 0, 0, 0, 0, time.UTC)})
		end := int64(b.Windows[len(b.Windows)-1]) + b.StepNS
		r := serve(t, h, "GET", fmt.Sprintf("/api/v1/frames?signal=min_abw&level=location&from=%d&to=%d&step=%dns", b.Windows[0], end, b.StepNS))
		if r.StatusCode != http.StatusOK {
			t.Errorf("from %d: status %d of windows of %s", from, r.StatusCode, time.Duration(b.StepNS))
		}
	}
}

func TestHandlerExtent(t *testing.T) {
	for name, test := range map[string]struct {
		reader query.Reader
		want   string
	}{
		"full":  {querytest.Fabric(4, 10), `"empty":false,"first_ns":"1768899600000000000","last_ns":"1768899610000000000"`},
		"empty": {&querytest.Memory{}, `"empty":true,"first_ns":"0","last_ns":"0","signals":[],"resolutions_ns":[],"observations":0`},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			query.NewHandler(query.HandlerConfig{Reader: test.reader}).
				ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/extent", nil))
			if !strings.Contains(w.Body.String(), test.want) {
				t.Errorf("extent %s, want %s", w.Body, test.want)
			}
		})
	}
}

func TestHandlerHeaders(t *testing.T) {
	h := query.NewHandler(query.HandlerConfig{Reader: querytest.Fabric(2, 2)})
	for _, target := range []string{"/api/v1/bundle", "/api/v1/bundle?step=x", "/nothing"} {
		header := serve(t, h, "GET", target).Header
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "no-referrer", "Access-Control-Allow-Origin": "",
		} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", target, name, got, want)
			}
		}
		if got := header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'self';") {
			t.Errorf("%s: policy %q", target, got)
		}
	}
}

// failing answers each question with an error; if wait is set, after its caller gave up.
type failing struct {
	*querytest.Memory
	wait bool
}

func (f failing) Cells(ctx context.Context, _ query.Question) ([]aggregate.CellStats, error) {
	if f.wait {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, errors.New("dial tcp 10.0.0.1: secret")
}

func TestHandlerHidesInnerErrors(t *testing.T) {
	for status, reader := range map[int]query.Reader{
		500: failing{querytest.Fabric(2, 2), false},
		504: failing{querytest.Fabric(2, 2), true},
	} {
		w := httptest.NewRecorder()
		query.NewHandler(query.HandlerConfig{Reader: reader, Timeout: 10 * time.Millisecond}).
			ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/bundle", nil))
		if w.Code != status || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("status %d, want %d, body %s", w.Code, status, w.Body)
		}
	}
}

func FuzzBundleParameters(f *testing.F) {
	for _, seed := range []string{"signal=min_abw&from=0", "step=1h&to=2026-01-20T09:00:05Z", "level=set,stage", "from=-1", "step=100us&from=0&to=1"} {
		f.Add(seed)
	}
	h := query.NewHandler(query.HandlerConfig{Reader: querytest.Fabric(2, 2), Options: query.Options{MaxWindows: 100}})
	f.Fuzz(func(t *testing.T, parameters string) {
		r := httptest.NewRequest("GET", "/api/v1/bundle", nil)
		r.URL.RawQuery = parameters
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 500 || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q: status %d, body %.200s", parameters, w.Code, w.Body)
		}
	})
}
