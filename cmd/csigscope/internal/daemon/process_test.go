package daemon

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// TestAwaitSecond: a signal that comes twice at once is one request; the next one ends the wait.
func TestAwaitSecond(t *testing.T) {
	again := make(chan os.Signal, 4)
	for range cap(again) {
		again <- syscall.SIGTERM
	}
	start, asked := time.Unix(0, 0), 0
	times := []time.Duration{0, time.Millisecond, 250 * time.Millisecond, 251 * time.Millisecond}
	awaitSecond(again, func() time.Time {
		at := start.Add(times[asked])
		asked++
		return at
	})
	if asked != len(times) || len(again) != 1 {
		t.Errorf("the clock was read %d times, and %d signals are left: want %d and 1", asked, len(again), len(times))
	}
}
