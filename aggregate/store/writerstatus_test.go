package store

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// TestWriterStatus: rows that wait for a server, how long they wait, and losses by reason.
func TestWriterStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), &Outbox{Dir: t.TempDir(), MaxBytes: 1 << 20}
		s := storeBefore(t, f, o)
		defer closeStore(t, s)
		if got := s.WriterStatus(); got.OutboxAge != 0 || got.Failure != nil || got.OutboxLimit != 1<<20 || got.Outboxes != 1 {
			t.Errorf("at first: %+v", got)
		}
		f.setErr(errAway)
		put(t, s, 1, 1, time.Second, 10)
		time.Sleep(time.Minute)
		got := s.WriterStatus()
		if got.Waiting != 10 || got.OutboxBytes == 0 || got.Failure == nil || got.OutboxAge < time.Minute || got.OutboxAge > time.Minute+2*time.Second {
			t.Errorf("while the server is away: %+v", got)
		}
		if err := s.Ready(t.Context()); err != nil {
			t.Errorf("not ready while the outbox has room: %v", err)
		}
		f.setErr(nil)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := s.WriterStatus(); got.Waiting != 0 || got.OutboxAge != 0 || got.Failure != nil || got.Rows != 10 {
			t.Errorf("when all is sent: %+v", got)
		}
		f.refuse = 7
		put(t, s, 7, 2, time.Second, 5)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		lost := s.WriterStatus().LostBy
		if i := slices.Index(lost, LostRows{string(lostRefused), 5}); i < 0 || len(lost) != len(lostReasons) {
			t.Errorf("refused rows: %v", lost)
		}
	})
}

// TestLostReasons: the status includes every reason that a log counts.
func TestLostReasons(t *testing.T) {
	for _, reason := range []outbox.Reason{lostFull, lostDisk, lostRefused, outbox.Damaged, outbox.Missing, outbox.Torn} {
		if !slices.Contains(lostReasons[:], reason) {
			t.Errorf("%s is missing", reason)
		}
	}
}

// latencyBatch has rows of closed windows that begin at offsets from testStart, each window as
// often as it has rows.
func latencyBatch(g int, windows ...time.Duration) *batch {
	b := new(batch)
	b.reset(batchKey{table: g}, time.Time{})
	seq := uint64(0)
	for i, window := range windows {
		if i > 0 && window != windows[i-1] {
			seq++
		}
		b.windowStart = append(b.windowStart, testStart.Add(window))
		b.words[producerColumn] = append(b.words[producerColumn], 1)
		b.words[seqColumn] = append(b.words[seqColumn], seq)
	}
	return b
}

func TestLatency(t *testing.T) {
	b := latencyBatch(secondTable, 0, 0, 0, time.Second, time.Second, 0)
	var s Store
	s.latency.taken(b, testStart.Add(4500*time.Millisecond))
	got := s.Latency()
	counts := make(map[time.Duration]uint64)
	for i, n := range got.Counts {
		if n > 0 {
			counts[got.Bounds[i]] = n
		}
	}
	// Two runs of the first window, which ended 3.5 s ago, and one of the second.
	if counts[4*time.Second] != 2 || counts[3*time.Second] != 1 || len(counts) != 2 || got.Sum != 9500*time.Millisecond {
		t.Errorf("got %v, sum %v", counts, got.Sum)
	}
	s.latency.taken(latencyBatch(minuteTable, 0), testStart.Add(time.Hour))
	b = latencyBatch(secondTable, 0, time.Hour)
	s.latency.taken(b, testStart.Add(3*time.Hour)) // beyond the bounds
	s.latency.taken(b, testStart)                  // a clock that is ahead
	got = s.Latency()
	if got.Counts[len(got.Counts)-1] != 2 || got.Counts[0] != 2 {
		t.Errorf("got %v", got.Counts)
	}
}

// TestLatencyOnEngine: windows are counted when the engine has them, and each once.
func TestLatencyOnEngine(t *testing.T) {
	s := openWithOutbox(t)
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Truncate(time.Second)
	for i := range 3 {
		r := row{
			resolution: int64(time.Second), window: end.Add(-time.Duration(i+1) * time.Second).UnixNano(),
			source: aggregate.Source{Producer: 1}, seq: uint64(i), kind: 1, observations: 1,
		}
		if err := s.WriteBlock(t.Context(), blockOf([]row{r, r})); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := s.Latency()
	total := uint64(0)
	for _, n := range got.Counts {
		total += n
	}
	if total != 3 || got.Counts[len(got.Counts)-1] != 0 || got.Sum <= 0 || got.Sum > 3*time.Minute {
		t.Errorf("got %+v", got)
	}
}

func BenchmarkLatency(b *testing.B) {
	windows := make([]time.Duration, maxBatchRows)
	for i := range windows {
		windows[i] = time.Duration(i/1000) * time.Second
	}
	full := latencyBatch(secondTable, windows...)
	var l latency
	for b.Loop() {
		l.taken(full, testStart.Add(time.Minute))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/maxBatchRows, "ns/row")
}
