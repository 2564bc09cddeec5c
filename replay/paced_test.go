package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// A paced replay takes the capture's duration divided by the pace.
func TestPace(t *testing.T) {
	rec := shared(t, classic)
	span := spanOf(t, rec.files[0])
	if span < 2*time.Second {
		t.Fatalf("the capture spans %s, too little to tell", span)
	}
	for _, pace := range []float64{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			cfg := rec.config(&blocks{})
			cfg.Pace = pace
			result := replayed(t, cfg)
			want := time.Duration(float64(span) / pace)
			if off := result.Elapsed - want; off < -10*time.Millisecond || off > 10*time.Millisecond {
				t.Errorf("pace %v: took %s, expected %s", pace, result.Elapsed, want)
			}
		})
	}
}

// A paced replay waits for pauses, but not for wrong times, and gives the rows of a fast one.
func TestPacedTimes(t *testing.T) {
	const count = 200 // packets, 10 ms apart
	const span, hour, years = (count - 1) * 10 * time.Millisecond, time.Hour, 10 * 365 * 24 * time.Hour
	shift := func(from, to int, by time.Duration) func(i int) time.Duration {
		return func(i int) time.Duration {
			if i >= from && i < to {
				return by
			}
			return 0
		}
	}
	rec := shared(t, classic)
	for _, test := range []struct {
		name    string
		shifted func(i int) time.Duration
		want    time.Duration
	}{
		{"none", shift(0, 0, 0), span},
		{"one is years ahead", shift(100, 101, years), span},
		{"one is an hour ahead", shift(100, 101, hour), span},
		{"one is half a minute ahead", shift(100, 101, 30*time.Second), 31 * time.Second},
		{"the first is years ahead", shift(0, 1, years), span - 10*time.Millisecond},
		{"the last is years ahead", shift(count-1, count, years), span - 10*time.Millisecond},
		{"63 are years ahead", shift(100, 163, years), span},
		{"every second one is years ahead", func(i int) time.Duration { return time.Duration(i%2) * years }, span - 10*time.Millisecond},
		{"one is years behind", shift(100, 101, -years), span},
		{"the first is years behind", shift(0, 1, -years), span - 640*time.Millisecond},
		{"a clock that is set ahead by years", shift(100, count, years), span - 640*time.Millisecond},
		{"a pause of an hour", shift(100, count, hour), span + hour},
		{"packets two minutes apart", func(i int) time.Duration { return time.Duration(i) * 2 * time.Minute }, span + (count-1)*2*time.Minute},
		{"packets 23 hours apart", func(i int) time.Duration { return time.Duration(i) * 23 * hour }, span + (count-1)*23*hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.pcapng")
			var times []time.Duration
			for i := range count {
				times = append(times, time.Duration(i)*10*time.Millisecond+2*years+test.shifted(i))
			}
			retimed(t, path, rec.files[0], times)
			var fast, slow blocks
			cfg := rec.config(&fast)
			cfg.Files = []string{path}
			replayed(t, cfg)
			synctest.Test(t, func(t *testing.T) {
				cfg.Sink, cfg.Pace = &slow, 1
				if got := replayed(t, cfg).Elapsed; got < test.want-10*time.Millisecond || got > test.want+10*time.Millisecond {
					t.Errorf("took %s, expected %s", got, test.want)
				}
			})
			if len(fast.list) == 0 || !reflect.DeepEqual(slow.sorted(), fast.sorted()) {
				t.Errorf("%d blocks differ from %d", len(slow.list), len(fast.list))
			}
		})
	}
}

// retimed writes the first packets of a capture with these Unix times.
func retimed(t *testing.T, path, from string, times []time.Duration) {
	t.Helper()
	r, err := capture.Open(from, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	m := capture.NewMerger(r)
	var out bytes.Buffer
	w := capture.NewWriter(&out, capture.Interface{Link: capture.LinkEthernet})
	for _, at := range times {
		f, _, err := m.Next()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(&capture.Frame{Data: f.Data, TimeNS: int64(at), WireLen: f.WireLen}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// spanOf returns the time between the first and the last packet of a capture in time order.
func spanOf(t *testing.T, path string) time.Duration {
	t.Helper()
	r, err := capture.Open(path, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var batch capture.Batch
	var first, last int64
	for {
		if err := r.ReadBatch(&batch); errors.Is(err, io.EOF) {
			return time.Duration(last - first)
		} else if err != nil {
			t.Fatal(err)
		}
		if first == 0 {
			first = batch.Frames[0].TimeNS
		}
		last = batch.Frames[batch.N-1].TimeNS
	}
}

// Rotated captures give the same rows at any pace, although a paced replay opens them only when
// they are due.
func TestPacedRotation(t *testing.T) {
	rec := shared(t, func(*scenario.Scenario) {})
	dir := t.TempDir()
	for i := range byte(20) {
		capturedAt(t, filepath.Join(dir, fmt.Sprint("rotated", i)), 2*i+1, 2*i+2)
	}
	var want, got blocks
	cfg := rec.config(&want)
	cfg.Files = append(cfg.Files, dir)
	wantResult := replayed(t, cfg)
	cfg.Sink, cfg.Pace = &got, 1e12
	r, err := replay.New(cfg)
	if err == nil {
		err = r.Run(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	result := r.Result()
	if done, total, packets := r.Progress(); done != total || packets != result.Packets {
		t.Errorf("progress of %d bytes of %d and %d packets of %d at the end", done, total, packets, result.Packets)
	}
	if result.Packets != wantResult.Packets || result.Packets < 40 {
		t.Errorf("%d packets, want %d", result.Packets, wantResult.Packets)
	}
	if !reflect.DeepEqual(got.sorted(), want.sorted()) {
		t.Errorf("%d blocks differ from %d", len(got.list), len(want.list))
	}
}

// halting ends a replay after a number of blocks.
type halting struct {
	blocks
	left int
	halt context.CancelFunc
}

func (h *halting) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	if h.left--; h.left == 0 {
		h.halt()
	}
	return h.blocks.WriteBlock(ctx, b)
}

// A paced replay that is killed halfway has written blocks with the identities of the complete
// replay, so repeating the command replaces them.
func TestPacedKilled(t *testing.T) {
	rec := shared(t, classic)
	cfg := rec.config(nil)
	cfg.Pace, cfg.ChunkBytes = 1e12, 300<<10
	ctx, halt := context.WithCancel(t.Context())
	var whole blocks
	part := halting{left: 30, halt: halt}
	cfg.Sink = &part
	r, err := replay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	cfg.Sink = &whole
	replayed(t, cfg)
	again := map[uint64]aggregate.Block{}
	for _, b := range whole.list {
		again[b.Seq] = b
	}
	for _, b := range part.list {
		if !reflect.DeepEqual(b, again[b.Seq]) {
			t.Errorf("block %d differs when the replay runs again", b.Seq)
		}
	}
	if len(part.list) < 30 || len(part.list) > len(whole.list)/2 {
		t.Errorf("%d blocks before the kill, %d in all", len(part.list), len(whole.list))
	}
}
