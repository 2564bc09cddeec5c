package ingest

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestWatched: a file is read again when it changes, or is put in place of another one;
// what cannot be read changes nothing.
func TestWatched(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	put := func(text string) {
		t.Helper()
		if err := writeFile(name, []byte(text)); err != nil {
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
	clock := newClock()
	if _, err := newWatched(load, clock.now, slog.New(slog.DiscardHandler), name); err == nil {
		t.Error("a file that is not there is read")
	}
	put("one")
	w, err := newWatched(load, clock.now, slog.New(slog.DiscardHandler), name)
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
	want("one") // looked at a moment ago
	clock.add(time.Minute)
	want("two")
	before := reads
	clock.add(time.Minute)
	want("two")
	if reads != before {
		t.Error("read again without a change")
	}
	put("bad")
	clock.add(time.Minute)
	want("two")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	clock.add(time.Minute)
	want("two")
	put("three")
	clock.add(time.Minute)
	want("three")
}

func TestIncarnation(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1e9, 0)
	last := uint64(0)
	next := func() {
		t.Helper()
		n, err := nextIncarnation(dir, now)
		if err != nil || n <= last {
			t.Fatalf("%d after %d, %v", n, last, err)
		}
		last = n
	}
	next()
	next()
	now = now.Add(-time.Hour) // a clock that is set back
	next()
	now = now.Add(2 * time.Hour)
	if err := os.Remove(filepath.Join(dir, incarnationFile)); err != nil {
		t.Fatal(err)
	}
	next()
	if err := os.WriteFile(filepath.Join(dir, incarnationFile), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	next()
}
