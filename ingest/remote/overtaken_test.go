package remote

import (
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestTwoProcesses: two hosts share a credential and the name of a tap. The windows of the one that began first
// are refused, and the log says why, while the other sends; those from before, and gaps, are stored.
func TestTwoProcesses(t *testing.T) {
	l, cfg, log := newLedger(), testConfig(t), &logBuffer{}
	start := time.Now().Truncate(time.Second)
	var now atomic.Int64
	now.Store(start.UnixNano())
	cfg.Now, cfg.Logger = func() time.Time { return time.Unix(0, now.Load()) }, slog.New(slog.NewTextHandler(log, nil))
	s := startCollector(t, cfg, l, "")
	client := clientConfig(t, s.url)
	client.Logger = nil
	first := startClient(t, client)
	client.Dir = t.TempDir()
	second := startClient(t, client)
	rng := rand.New(rand.NewPCG(1, 2))
	write := func(c *exporterUnderTest, after time.Duration) (observations uint64) {
		t.Helper()
		now.Store(max(now.Load(), start.Add(after).UnixNano()))
		b := testBlock(rng, start.Add(after), 3)
		if err := c.stream(t, "eth0/0").WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		c.flush(t)
		for _, n := range b.Observations {
			observations += n
		}
		return observations
	}
	check := func(when string, stored, refused int) {
		t.Helper()
		if got := s.Stats().Total; l.taken() != stored || got.Refused[ReasonForeign] != uint64(refused) {
			t.Errorf("%s: %d windows stored, %d refused, want %d and %d", when, l.taken(), got.Refused[ReasonForeign], stored, refused)
		}
	}
	write(first, 0)
	write(second, 10*time.Second)
	write(first, 9*time.Second)
	check("at the start", 3, 0)
	lost := write(first, 20*time.Second)
	write(second, 20*time.Second)
	check("both", 4, 1)
	if text := log.String(); !strings.Contains(text, "reason=foreign") || !strings.Contains(text, "--instance") {
		t.Errorf("log %s", text)
	}
	l.mu.Lock()
	for _, g := range l.gaps {
		lost -= g.GetObservations()
	}
	if len(l.gaps) != 1 || lost != 0 {
		t.Errorf("%d observations that were refused are in none of the gaps %v", int64(lost), l.gaps)
	}
	l.mu.Unlock()
	later := 20*time.Second + streamSilence
	write(first, later)
	check("the other is silent", 5, 1)
	second.stop()
	client.Dir, client.Now = t.TempDir(), func() time.Time { return start.Add(-time.Hour) }
	third := startClient(t, client)
	write(third, later+10*time.Second)
	check("a successor without spool, whose clock was set back", 6, 1)
	write(first, later+15*time.Second)
	write(third, later+20*time.Second)
	check("both, again", 7, 2)
}
