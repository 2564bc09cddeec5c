package access

import (
	"net/http"
	"strings"
	"testing"
)

// TestOpen: what holds no data is for everybody, whatever they show, within the limits of an
// address and without credentials in the URL; it says nothing of who asks.
func TestOpen(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /file.js", func(http.ResponseWriter, *http.Request) {})
	f := newFixture(t, Settings{Limits: Limits{Requests: 1, Burst: 70}}, mux)
	for range failureBurst + 1 {
		f.ask("GET", "/api/v1/cells", "192.0.2.1", "hunter2")
	}
	for _, tc := range []struct {
		target, who string
		code        int
	}{
		{"/file.js", "", 200},
		{"/file.js", "hunter2", 200},
		{"/file.js?token=hunter3", "", 400},
		{"/api/v1/admin/askers", "hunter2", 429},
		{"/api/v1/admin/askers", "", 403},
	} {
		if w := f.ask("GET", tc.target, "192.0.2.1", tc.who); w.Code != tc.code {
			t.Errorf("%s as %q: %d, want %d", tc.target, tc.who, w.Code, tc.code)
		}
	}
	if log := f.log.String(); strings.Contains(log, "path=/file.js status=200") {
		t.Errorf("log %s", log)
	}
	limited := 0
	for range 100 {
		if f.ask("GET", "/file.js", "192.0.2.1", "te").Code == 429 {
			limited++
		}
	}
	if limited != 100-68 {
		t.Errorf("%d of 100 requests too many, want 32", limited)
	}
	if log := f.log.String(); strings.Contains(log, "who=te") || strings.Contains(log, "hunter") {
		t.Errorf("log %s", log)
	}
}
