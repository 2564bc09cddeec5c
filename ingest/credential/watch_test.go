package credential_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/ingest/credential"
)

// replace puts a file in place of an older one.
func replace(name, text string) error {
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// TestWatched: a file is read again when it changes, or is put in place of another one;
// what cannot be read changes nothing.
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
	if _, err := credential.Watch(load, clock, slog.New(slog.DiscardHandler), name); err == nil {
		t.Error("a file that is not there is read")
	}
	put("one")
	var log bytes.Buffer
	w, err := credential.Watch(load, clock, slog.New(slog.NewTextHandler(&log, nil)), name)
	if err != nil {
		t.Fatal(err)
	}
	want := func(text string) {
		t.Helper()
		if got := w.Get(); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	want("one")
	put("two")
	want("one") // looked at a moment ago
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
		t.Errorf("one reason is told %d times:\n%s", n, &log)
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
