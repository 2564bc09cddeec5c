package chdb_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	osexec "os/exec"
	"strings"
	"testing"
	"time"
)

// request sends a client's request over TCP. A Host header sets the host.
func request(t *testing.T, method, address, body string, header http.Header) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if host := header.Get("Host"); host != "" {
		r.Host = host
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text), response.Header
}

// awaited is how long tests wait for an expected event, even on a busy machine: an event that
// takes longer counts as missing.
const awaited = 2 * time.Minute

// comes waits until a condition holds, and reports whether it did.
func comes(holds func() bool) bool {
	for begun := time.Now(); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > awaited {
			return false
		}
	}
	return true
}

// retry waits until a condition holds, and fails otherwise.
func retry(t *testing.T, holds func() bool) {
	t.Helper()
	if !comes(holds) {
		t.Fatalf("waited for %s in vain", awaited)
	}
}

// run runs a program to its end and returns its output.
func run(t *testing.T, path string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var stderr strings.Builder
	cmd := osexec.CommandContext(ctx, path, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", path, err, out, stderr.String())
	}
	return string(out)
}

func writeGzip(t *testing.T, path, text string) {
	t.Helper()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, zipped.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// escape escapes a statement as a query parameter.
func escape(sql string) string { return url.QueryEscape(sql) }

// skipShort skips tests of answers, which involve no goroutines, when tests run with the race
// detector.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped by -short")
	}
}
