package capture_test

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/capture/livetest"
)

func openTap(t *testing.T, cfg capture.TapConfig) *capture.Tap {
	t.Helper()
	if cfg.Interface == "" {
		cfg.Interface = livetest.TapEnd
	}
	if cfg.BlockSize == 0 {
		cfg.BlockSize = 256 << 10 // the kernel clears every ring
	}
	if cfg.Retire == 0 {
		// Tests send before they read, and every retire interval uses up a block.
		cfg.Retire = 100 * time.Millisecond
	}
	tap, err := capture.NewTap(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := tap.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tap.Close(); err != nil {
			t.Error(err)
		}
	})
	return tap
}

// collect reads frames in wire form until there are want of them, or none has arrived for a while.
func collect(t *testing.T, r *capture.Ring, want int) [][]byte {
	t.Helper()
	var b capture.Batch
	var got [][]byte
	for quiet := 0; quiet < 15 && len(got) < want; {
		if err := r.ReadBatch(&b); err != nil {
			t.Fatal(err)
		}
		if quiet++; b.N > 0 {
			quiet = 0
		}
		for i := range b.N {
			got = append(got, b.Frames[i].Append(nil))
		}
	}
	return got
}

// until reads and drops frames until the condition holds.
func until(t *testing.T, r *capture.Ring, what string, ok func() bool) {
	t.Helper()
	var b capture.Batch
	for end := time.Now().Add(2 * time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("%s: it did not happen; state %s, %+v", what, r.State(), r.Counters())
		}
		if err := r.ReadBatch(&b); err != nil {
			t.Fatal(err)
		}
	}
}
