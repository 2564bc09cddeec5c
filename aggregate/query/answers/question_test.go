package answers

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/store"
)

// TestWholeWindows: a range that begins or ends within a window is extended to whole windows.
func TestWholeWindows(t *testing.T) {
	minute := time.Date(2026, 1, 5, 9, 30, 0, 0, time.UTC)
	extent := store.Extent{First: minute.Add(time.Second), Last: minute.Add(3 * time.Second), Resolutions: []time.Duration{time.Second}}
	for _, test := range []struct {
		name             string
		from, to         time.Time
		resolution       time.Duration
		wantFrom, wantTo time.Duration // after the minute
	}{
		{"all data", time.Time{}, time.Time{}, 0, time.Second, 3 * time.Second},
		{"minutes of all data", time.Time{}, time.Time{}, time.Minute, 0, time.Minute},
		{"parts of seconds", minute.Add(1500 * time.Millisecond), minute.Add(2001 * time.Millisecond), 0, time.Second, 3 * time.Second},
		{"seconds", minute.Add(time.Second), minute.Add(2 * time.Second), 0, time.Second, 2 * time.Second},
		{"10 ms", minute.Add(1505 * time.Millisecond), minute.Add(1507 * time.Millisecond), 10 * time.Millisecond, 1500 * time.Millisecond, 1510 * time.Millisecond},
	} {
		q := Question{query: store.Question{From: test.from, To: test.to, Resolution: test.resolution}}
		q.fill(&extent)
		if from, to := q.query.From.Sub(minute), q.query.To.Sub(minute); from != test.wantFrom || to != test.wantTo {
			t.Errorf("%s: %s to %s, want %s to %s", test.name, from, to, test.wantFrom, test.wantTo)
		}
	}
	extent.First, extent.Seconds = minute.Add(-time.Hour), minute
	q := Question{}
	if q.fill(&extent); !q.query.From.Equal(extent.First) || !q.query.To.Equal(minute.Add(time.Minute)) {
		t.Errorf("all data, of which the first seconds have gone: %s to %s, want whole minutes", q.query.From, q.query.To)
	}
}
