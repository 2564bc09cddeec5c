package replay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	result := replayed(t, cfg)
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
