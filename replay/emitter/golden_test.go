package emitter

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What reacting senders, heavy tails, jitter and every kind of workload put on the
// wire is the same on every machine: the digests of the captures are in testdata.
func TestCapturesAreTheSameEverywhere(t *testing.T) {
	var lines []string
	for _, name := range []string{
		"fairness", "fairness-e2e", "fairness-swift", "fairness-swift-e2e", "tree", "pipeline", "permutation", "storage", "straggler", "probes", "pony",
	} {
		s, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		s.Duration = min(s.Duration, 1200*time.Millisecond)
		s.Packets, s.SingleFile = 20_000, true
		r, _ := run(t, s)
		b, err := os.ReadFile(r.Captures[0])
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		lines = append(lines, fmt.Sprintf("%s  %s\n", hex.EncodeToString(sum[:8]), name))
	}
	got, path := strings.Join(lines, ""), filepath.Join("testdata", "captures.sha256")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("captures changed: if that is meant, run the test with -update\ngot:\n%swant:\n%s", got, want)
	}
}
