package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestDashboardsPush: the token goes only to Grafana, Grafana's errors reach the terminal, and
// mistakes are found before any request.
func TestDashboardsPush(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("asked with %q", r.Header.Get("Authorization"))
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"message":"You'll need additional permissions"}`))
	}))
	defer refusing.Close()
	dir := t.TempDir()
	token, empty := filepath.Join(dir, "token"), filepath.Join(dir, "empty")
	for path, text := range map[string]string{token: "secret\n", empty: "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := runBinary(t, os.Environ(), "dashboards", "push", "--url", refusing.URL, "--token-file", token)
	if r.code != exitFailed || !strings.Contains(r.stderr, "additional permissions") || !strings.Contains(r.stderr, "role Editor") || strings.Contains(r.stderr, "secret") {
		t.Errorf("refused: exit code %d, %s", r.code, r.stderr)
	}
	before := asked.Load()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--url", refusing.URL}, "--token-file is missing"},
		{[]string{"--url", refusing.URL, "--token-file", empty}, "expected one token"},
		{[]string{"--url", refusing.URL, "--token-file", filepath.Join(dir, "missing")}, "read token"},
		{[]string{"--token-file", token}, "--url"},
		{[]string{"--url", "http://grafana.example", "--token-file", token}, "--insecure-token"},
		{[]string{"--url", "http://admin:admin@127.0.0.1", "--token-file", token}, "--url"},
	} {
		r := runBinary(t, os.Environ(), append([]string{"dashboards", "push"}, tt.args...)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%q: exit code %d, %s, want %q", tt.args, r.code, r.stderr, tt.want)
		}
	}
	if asked.Load() != before {
		t.Error("Grafana was asked in spite of a mistake")
	}
}
