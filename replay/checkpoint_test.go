package replay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter"
)

// keeper keeps states in memory and ends the replay after a number of looks.
type keeper struct {
	sink  *blocks
	every int // looks
	ends  int // looks
	end   context.CancelFunc

	looks int
	state []byte
	saved int // blocks
}

func (k *keeper) Due() time.Duration {
	if k.looks++; k.looks == k.ends {
		k.end()
	}
	if k.looks%k.every == 0 {
		return 0
	}
	return time.Hour
}

func (k *keeper) Save(_ context.Context, state []byte) error {
	k.state, k.saved = bytes.Clone(state), len(k.sink.list)
	return nil
}

// interrupted replays in as many pieces as it takes when each ends after some looks at
// whether a checkpoint is due, and goes on from the last one.
func interrupted(t *testing.T, cfg replay.Config, every, ends int) (result *replay.Result, sink *blocks, resumed int) {
	t.Helper()
	sink = new(blocks)
	cfg.Sink = sink
	last := new(keeper)
	for {
		ctx, cancel := context.WithCancel(t.Context())
		k := &keeper{sink: sink, every: every, ends: ends, end: cancel, state: last.state, saved: last.saved}
		r, err := replay.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		r.CheckpointTo(k)
		if k.state != nil {
			if packets, err := r.Resume(k.state); err != nil || packets == 0 {
				t.Fatalf("resume after %d packets: %v", packets, err)
			}
			resumed++
		}
		sink.list = sink.list[:k.saved]
		err = r.Run(ctx)
		cancel()
		if err == nil {
			return r.Result(), sink, resumed
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if k.saved == last.saved && bytes.Equal(k.state, last.state) {
			t.Fatal("no checkpoint between two interruptions")
		}
		last = k
	}
}

// A paced replay that is interrupted again and again gives the blocks and the counts of
// an undisturbed one: of several files, of one that is cut into chunks, of rotated,
// damaged and cut ones, and of a stream.
func TestResume(t *testing.T) {
	several, one := shared(t, func(*emitter.Scenario) {}), shared(t, classic)
	data, err := os.ReadFile(one.files[0])
	if err != nil {
		t.Fatal(err)
	}
	clear(data[len(data)/3 : len(data)/3+30_000])
	damaged := filepath.Join(t.TempDir(), "damaged.pcap")
	if err := os.WriteFile(damaged, data[:len(data)-7], 0o600); err != nil {
		t.Fatal(err)
	}
	everies := []int{1, 7}
	kinds := map[string]func(*replay.Config){
		"several files": func(c *replay.Config) { c.Files = several.files },
		"chunks":        func(c *replay.Config) { c.ChunkBytes = 300 << 10 },
		"damaged": func(c *replay.Config) {
			c.Files, c.ChunkBytes = []string{several.files[0], damaged, several.files[1]}, 300<<10
		},
		"stream": func(c *replay.Config) {
			c.Files, c.Stream = nil, &replay.Stream{Name: "made", ID: 1, Write: func(_ context.Context, w io.Writer) error {
				return copyFile(w, one.files[0])
			}}
		},
	}
	if testing.Short() { // the same goroutines, with fewer states and files
		everies = everies[1:]
		delete(kinds, "damaged")
		delete(kinds, "several files")
	}
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			cfg := one.config(nil)
			cfg.Pace = 1e12
			change(&cfg)
			var want blocks
			cfg.Sink = &want
			wantResult := replayed(t, cfg)
			for _, every := range everies {
				got, sink, resumed := interrupted(t, cfg, every, int(wantResult.Packets/256/5))
				if resumed < 3 {
					t.Errorf("resumed %d times", resumed)
				}
				if !reflect.DeepEqual(sink.sorted(), want.sorted()) || len(want.list) < 20 {
					t.Errorf("%d blocks differ from %d", len(sink.list), len(want.list))
				}
				cuts, wantCuts := errors.Join(got.Cuts...), errors.Join(wantResult.Cuts...)
				if (cuts == nil) != (wantCuts == nil) || cuts != nil && cuts.Error() != wantCuts.Error() {
					t.Errorf("cuts %v, expected %v", cuts, wantCuts)
				}
				have, expected := *got, *wantResult
				for _, r := range []*replay.Result{&have, &expected} {
					r.Cuts, r.Elapsed, r.Counts.CacheResets = nil, 0, 0
				}
				if !reflect.DeepEqual(have, expected) {
					t.Errorf("got %+v\nwant %+v", have, expected)
				}
			}
		})
	}
}

// States of other files, other settings and other programs, and damaged ones, are
// refused, and the replay begins at the start.
func TestResumeRefuses(t *testing.T) {
	rec := shared(t, func(*emitter.Scenario) {})
	sink := new(blocks)
	cfg := rec.config(sink)
	cfg.Pace = 1e12
	ctx, cancel := context.WithCancel(t.Context())
	k := &keeper{sink: sink, every: 1, ends: 4, end: cancel}
	newReplay := func(cfg replay.Config) *replay.Replay {
		r, err := replay.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := newReplay(cfg)
	id := r.Identity()
	r.CheckpointTo(k)
	if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	refused := func(cfg replay.Config, state []byte, what string) {
		t.Helper()
		r := newReplay(cfg)
		if n, err := r.Resume(state); !errors.Is(err, replay.ErrState) || n != 0 {
			t.Errorf("%s: %d packets, %v", what, n, err)
		}
	}
	for n := 0; n < len(k.state); n += 1 + len(k.state)/200 {
		refused(cfg, k.state[:n], "cut")
	}
	refused(cfg, append(bytes.Clone(k.state), 0), "longer")
	refused(cfg, bytes.Replace(k.state, []byte(`"version":4`), []byte(`"version":5`), 1), "newer")
	other := cfg
	other.Pace = 0
	refused(other, k.state, "without a pace")
	other = cfg
	other.Epoch++
	refused(other, k.state, "of other settings")
	if newReplay(other).Identity() == id {
		t.Error("other settings, same identity")
	}
	other = cfg
	other.Pace, other.Workers = 3, 2
	other.Files = append(append([]string(nil), cfg.Files[1:]...), cfg.Files[0])
	r = newReplay(other)
	if n, err := r.Resume(k.state); err != nil || n == 0 || r.Identity() != id {
		t.Errorf("in another order, at another pace: %d packets, %v", n, err)
	}
	r = newReplay(cfg)
	_, _ = r.Resume(k.state[:len(k.state)-1])
	sink.list = nil
	if err := r.Run(t.Context()); err != nil || r.Result().Packets != rec.report.Captured {
		t.Errorf("after a refusal: %d packets, %v", r.Result().Packets, err)
	}
}

// While a replay waits for its next packet, checkpoints are taken at their times; one
// that goes on does not wait for what was replayed already.
func TestCheckpointsWhileWaiting(t *testing.T) {
	rec := shared(t, func(*emitter.Scenario) {})
	rec.files = []string{capturedAt(t, filepath.Join(t.TempDir(), "slow"), 10, 11, 60, 61)}
	synctest.Test(t, func(t *testing.T) {
		cfg := rec.config(new(blocks))
		cfg.Pace = 1
		r, err := replay.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 28*time.Second)
		defer cancel()
		k := &timer{every: 5 * time.Second, last: time.Now()}
		r.CheckpointTo(k)
		if err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) || k.saved != 5 {
			t.Errorf("%d checkpoints, %v", k.saved, err)
		}
		if r, err = replay.New(cfg); err != nil {
			t.Fatal(err)
		}
		if n, err := r.Resume(k.state); err != nil || n != 2 {
			t.Fatalf("resumed at %d: %v", n, err)
		}
		begun := time.Now()
		if err := r.Run(t.Context()); err != nil || time.Since(begun) > 2*time.Second || r.Result().Packets != 4 {
			t.Errorf("took %s for %d packets: %v", time.Since(begun), r.Result().Packets, err)
		}
	})
}

// timer keeps a state every so often.
type timer struct {
	every time.Duration
	last  time.Time
	saved int
	state []byte
}

func (k *timer) Due() time.Duration { return time.Until(k.last.Add(k.every)) }

func (k *timer) Save(_ context.Context, state []byte) error {
	k.saved++
	k.last, k.state = time.Now(), bytes.Clone(state)
	return nil
}
