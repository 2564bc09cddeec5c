package remote

import (
	"context"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
)

// arrivals is a live sink that records when blocks arrive, by number.
type arrivals struct {
	mu   sync.Mutex
	sent map[uint64]time.Time
	took []time.Duration
}

// WriteBlock implements aggregate.Sink.
func (a *arrivals) WriteBlock(_ context.Context, b *aggregate.Block) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = append(a.took, time.Since(a.sent[b.Seq]))
	return nil
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.took)
}

// BenchmarkPeerLink measures the cost of a link for both ends, with TLS and compression, where
// 50 exporters send a window within 100 ms: CPU time by rusage, and the time until a block is
// in the peer's live sink, without that sink's own work.
func BenchmarkPeerLink(b *testing.B) {
	const exporters, rows = 50, 200
	ca := edgetest.NewAuthority(b)
	cfg, live := testConfig(b), &arrivals{sent: map[uint64]time.Time{}}
	cfg.Auth, cfg.Permits, cfg.Live = edge.Auth{TLS: ca.Server()}, everybody, live
	cfg.Peers = []string{"collector1"}
	s := startCollector(b, cfg, newLedger(), "")
	sharing, _ := startSharing(b, SharingConfig{Peers: []string{s.url}, TLS: ca.Issue("collector1", time.Now().Add(time.Hour))})
	blocks := make([]*aggregate.Block, exporters)
	for i := range blocks {
		blocks[i] = sharedBlock(b, uint64(i+1), 1, time.Now(), rows)
	}
	n, before := 0, cpuTime(b)
	for b.Loop() {
		for _, block := range blocks {
			n++
			block.Seq = uint64(n)
			live.mu.Lock()
			live.sent[block.Seq] = time.Now()
			live.mu.Unlock()
			if err := sharing.WriteBlock(b.Context(), block); err != nil {
				b.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond / exporters)
		}
	}
	for live.count() < n {
		time.Sleep(time.Millisecond)
	}
	cpu := cpuTime(b) - before
	slices.Sort(live.took)
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(n*rows), "cpu-ns/row")
	b.ReportMetric(float64(live.took[n/2].Microseconds())/1e3, "p50-ms")
	b.ReportMetric(float64(live.took[n*99/100].Microseconds())/1e3, "p99-ms")
	b.ReportMetric(float64(s.Stats().Peers[0].Bytes)/float64(n*rows), "wire-bytes/row")
	b.ReportMetric(float64(s.Stats().Peers[0].Requests)/float64(n/exporters), "requests/window")
}

// cpuTime returns the CPU time of this process so far.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(os.NewSyscallError("getrusage", err))
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
