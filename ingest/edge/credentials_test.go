package edge

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNewClient: the client sends the token in the file, and follows no redirect with it.
func TestNewClient(t *testing.T) {
	var shown []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = append(shown, r.URL.Path+" "+r.Header.Get("Authorization"))
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	for text, good := range map[string]bool{"secret\n": true, "": false, " \n": false, "two words": false} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := NewClient(&http.Transport{}, TLSFiles{}, file, time.Now, slog.New(slog.DiscardHandler))
		if (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil {
			continue
		}
		r, err := c.Get(server.URL + "/asked")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if len(shown) != 1 || shown[0] != "/asked Bearer secret" || r.StatusCode != http.StatusFound {
			t.Errorf("status %d, shown %q", r.StatusCode, shown)
		}
		c.CloseIdleConnections()
	}
	absent := filepath.Join(t.TempDir(), "absent")
	for want, files := range map[string]TLSFiles{
		"read token file: open ":                             {},
		"read certificate " + absent + " and its key: open ": {Cert: absent, Key: file},
		"read authorities: open ":                            {CA: absent},
	} {
		_, err := NewClient(&http.Transport{}, files, absent, time.Now, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want+absent) {
			t.Errorf("a file that is not there: %v, want %s", err, want)
		}
	}
	if _, err := NewClient(&http.Transport{}, TLSFiles{Cert: file}, "", time.Now, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a certificate without its key is no error")
	}
}

// replace atomically replaces a file.
func replace(name, text string) error {
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// TestWatched: a file is reloaded when it changes or is replaced; an unreadable file changes
// nothing.
func TestWatched(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	put := func(text string) {
		t.Helper()
		if err := replace(name, text); err != nil {
			t.Fatal(err)
		}
	}
	reads := 0
	load := func() (string, error) {
		reads++
		text, err := os.ReadFile(name)
		if string(text) == "bad" {
			return "", errors.New("bad")
		}
		return string(text), err
	}
	now := time.Now()
	clock := func() time.Time { return now }
	if _, err := watch(load, clock, slog.New(slog.DiscardHandler), name); err == nil {
		t.Error("a file that is not there is read")
	}
	put("one")
	var log bytes.Buffer
	w, err := watch(load, clock, slog.New(slog.NewTextHandler(&log, nil)), name)
	if err != nil {
		t.Fatal(err)
	}
	want := func(text string) {
		t.Helper()
		if got := w.get(); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	want("one")
	put("two")
	want("one") // checked a moment ago
	now = now.Add(time.Minute)
	want("two")
	before := reads
	now = now.Add(time.Minute)
	want("two")
	if reads != before {
		t.Error("read again without a change")
	}
	put("bad")
	for range 3 {
		now = now.Add(time.Minute)
		want("two")
	}
	if n := strings.Count(log.String(), "cannot be read"); n != 1 {
		t.Errorf("one reason is logged %d times:\n%s", n, &log)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	want("two")
	put("three")
	now = now.Add(time.Minute)
	want("three")
}
