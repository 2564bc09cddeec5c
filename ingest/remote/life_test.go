package remote

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

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
	now = now.Add(-time.Hour) // the clock is set back
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
