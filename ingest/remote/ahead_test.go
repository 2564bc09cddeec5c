package remote

import (
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
)

// TestClockAhead: windows too far ahead are refused for good, so that the exporter's spool
// drains, and lead to a finding and to gaps; windows within the limit are stored. Windows that are too old
// lead to gaps too.
func TestClockAhead(t *testing.T) {
	l, cfg := newLedger(), testConfig(t)
	start := time.Now().Truncate(time.Second)
	var now atomic.Int64
	now.Store(start.UnixNano())
	cfg.Now = func() time.Time { return time.Unix(0, now.Load()) }
	s := startCollector(t, cfg, l, "")
	client := clientConfig(t, s.url)
	client.Logger = slog.New(slog.DiscardHandler)
	c := startClient(t, client)
	stream := c.stream(t, "eth0")
	rng := rand.New(rand.NewPCG(1, 2))
	refused := uint64(0) // observations
	write := func(ahead ...time.Duration) {
		t.Helper()
		for _, d := range ahead {
			b := testBlock(rng, start.Add(d), 3)
			if at := start.Add(d).UnixNano() - now.Load(); at > int64(aggregate.MaxAhead) || at < -int64(7*24*time.Hour) {
				for _, n := range b.Observations {
					refused += n
				}
			}
			if err := stream.WriteBlock(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		c.flush(t)
	}
	found := func(most string) (count uint64) {
		t.Helper()
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.disputes) != 1 {
			t.Fatalf("%d findings, want one", len(l.disputes))
		}
		for _, f := range l.disputes {
			if f.GetKind() != finding.ClockAhead.String() || f.GetSeverity() != string(finding.ClockAhead.Severity()) ||
				!strings.Contains(f.GetEvidence(), `"tester"`) || !strings.Contains(f.GetEvidence(), "up to "+most) || checkFinding(f) != nil {
				t.Errorf("found %+v, %v", f, checkFinding(f))
			}
			count = f.GetCount()
		}
		return count
	}
	write(10*time.Second, 0, 2*time.Second, 3*time.Second)
	st := c.Stats()
	before := found("10s")
	if st.Refused["future"] != 2 || l.taken() != 2 || before == 0 {
		t.Errorf("exporter %+v, %d blocks in the store, %d found", st, l.taken(), before)
	}
	now.Add(int64(2 * time.Minute)) // the finding is due again, and the clock is correct by now
	write(3 * time.Minute)
	write(3*time.Second, -8*24*time.Hour, -30*365*24*time.Hour)
	if got := s.Stats().Total; found("1m0s") <= before || got.Refused[ReasonFuture] < 3 || got.Refused[ReasonPast] != 2 || l.taken() != 3 {
		t.Errorf("%d found, then %d, %d refused, %d blocks in the store", before, found("1m0s"), got.Refused[ReasonFuture], l.taken())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.gaps {
		refused -= g.GetObservations()
	}
	if len(l.gaps) == 0 || refused != 0 {
		t.Errorf("%d observations that were refused are in none of %d gaps", int64(refused), len(l.gaps))
	}
}
