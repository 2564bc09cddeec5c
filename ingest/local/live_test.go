package local_test

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

func config(j *journal) local.Config {
	return local.Config{Instance: "test", Interval: 3 * time.Millisecond, Journal: j}
}

// start runs a pipeline; wait returns the error of Run.
func start(ctx context.Context, t *testing.T, p *local.Pipeline) (wait func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	return func() error {
		select {
		case err := <-done:
			return err
		case <-time.After(5 * time.Minute): // long enough for a busy machine
			t.Fatal("the pipeline does not end")
			return nil
		}
	}
}

// runPipeline runs a pipeline until end, which reports an error of Run.
func runPipeline(t *testing.T, cfg local.Config, plan local.Plan) (p *local.Pipeline, end func()) {
	t.Helper()
	p, err := local.New(cfg, plan)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	wait := start(ctx, t, p)
	return p, func() {
		t.Helper()
		stop()
		if err := wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// collected holds the blocks of a replay.
type collected struct {
	mu   sync.Mutex
	list []aggregate.Block
}

func (c *collected) WriteBlock(_ context.Context, b *aggregate.Block) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, *b.Clone())
	return nil
}

// TestEqualsReplay: taps give the same rows as a replay of the same captures, over many
// commits, at every resolution, and the counts of the truth.
func TestEqualsReplay(t *testing.T) {
	rec := record(t)
	j := newJournal(t)
	p, err := local.New(config(j), rec.plan(t, 3, func(path string) local.Source {
		f := openFile(t, path)
		f.size, f.pause = 100, 100*time.Microsecond
		return f
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := start(t.Context(), t, p)(); err != nil {
		t.Fatal(err)
	}
	conserved(t, p.Stats())
	if j.commits < 5 {
		t.Errorf("%d commits: expected several while frames came", j.commits)
	}

	var c collected
	plan := rec.plan(t, 3, func(string) local.Source { return nil })
	r, err := replay.New(replay.Config{
		Files: rec.files, Sink: &c, Workers: 1, Logger: slog.New(slog.DiscardHandler), Settings: plan.Settings,
		Tap: func(string) window.Tap { return window.Tap{Tags: true, Reflections: true, Weight: 1} },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, resolution := range plan.Resolutions {
		want, got := addUp(slices.Values(c.list), resolution), j.rows(resolution)
		if len(want) == 0 && resolution >= time.Second || !maps.Equal(got, want) {
			t.Errorf("at %s: %d rows differ from the %d of a replay", resolution, len(got), len(want))
		}
	}
	seen := p.Stats().Counts()
	if want := r.Result().Counts; seen.In != want.In || seen.Stored != want.Stored || seen.Rejected != want.Rejected {
		t.Errorf("counted %+v, the replay %+v", seen, want)
	}
	compareTruth(t, rec, j.rows(time.Second))
}

// compareTruth checks all tags against the simulator's truth.
func compareTruth(t *testing.T, rec *recording, rows map[row]values) {
	t.Helper()
	got := values{}
	for k, v := range rows {
		if k.kind == uint8(decode.Tag) && !k.isDistributionOf {
			got.observations += v.observations
			got.heavy += v.heavy
			got.untouched += v.untouched
		}
	}
	f, err := os.Open(filepath.Join(rec.dir, truth.File))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := values{}
	err = truth.Read(f, truth.Visitor{Cell: func(c truth.Cell) error {
		if c.Source == "tag" {
			want.observations += c.Observations
			want.heavy += c.Heavy
			want.untouched += c.Untouched
		}
		return nil
	}})
	if err != nil || got != want || want.observations == 0 {
		t.Errorf("stored %+v of tags, the truth has %+v (%v)", got, want, err)
	}
}

// TestCrash kills a pipeline early and late. The stored observations are exactly those of the
// rounds before the kill and after the restart, each under its own incarnation.
func TestCrash(t *testing.T) {
	rec := record(t)
	for _, kill := range []uint64{1, 2000, 20000} {
		j := newJournal(t)
		var sources []*file
		plan := rec.plan(t, 3, func(path string) local.Source {
			f := openFile(t, path)
			f.size, f.pause = 50, 100*time.Microsecond
			sources = append(sources, f)
			return f
		})
		crashed, crash := context.WithCancel(t.Context())
		var given []int64
		var p *local.Pipeline
		j.onCommit = func() error {
			if p.Stats().Counts().In >= kill && j.commits > 1 {
				if crash(); given == nil {
					for _, f := range sources {
						given = append(given, f.given.Load())
						f.cut.Store(true)
					}
				}
				return context.Canceled // nothing of this round was saved
			}
			return nil
		}
		var err error
		if p, err = local.New(config(j), plan); err != nil {
			t.Fatal(err)
		}
		if err := start(crashed, t, p)(); err == nil {
			t.Fatal("the pipeline did not fail with its journal")
		}
		before := j.total(10 * time.Millisecond)
		j.held, j.onCommit = nil, nil
		for _, m := range j.marks() {
			if m.Closed {
				t.Errorf("killed after %d: all windows of %s are closed", kill, m.Name)
			}
		}

		rest := func(j *journal) local.Stats {
			i := -1
			cfg := config(j)
			cfg.After = j.after()
			p, err := local.New(cfg, rec.plan(t, 3, func(path string) local.Source {
				i++
				f := openFile(t, path)
				f.size = 50
				skip(t, f, given[i])
				return f
			}))
			if err != nil {
				t.Fatal(err)
			}
			if err := start(t.Context(), t, p)(); err != nil {
				t.Fatal(err)
			}
			conserved(t, p.Stats())
			return p.Stats()
		}
		alone := newJournal(t)
		stats := rest(j)
		after, fresh := stats.Counts(), rest(alone).Counts()
		if after.In != fresh.In || fresh.In == 0 {
			t.Errorf("killed after %d: %d observations counted after the restart, %d without a process before it", kill, after.In, fresh.In)
		}
		if got, want := j.total(10*time.Millisecond), before+alone.total(10*time.Millisecond); got != want {
			t.Errorf("killed after %d: %d observations are stored, want %d before it and the rest after the restart", kill, got, want)
		}
		for _, m := range j.marks() {
			if !m.Closed {
				t.Errorf("killed after %d: windows of %s are open at the end", kill, m.Name)
			}
		}
		inc := map[uint64]map[uint64]bool{}
		for k := range j.stored {
			if inc[k.producer] == nil {
				inc[k.producer] = map[uint64]bool{}
			}
			inc[k.producer][k.incarnation] = true
		}
		for producer, list := range inc {
			if len(list) > 2 || before > 0 && len(list) < 1 {
				t.Errorf("killed after %d: producer %x has %d incarnations, want one a process", kill, producer, len(list))
			}
		}
	}
}

// skip makes a source begin after n frames. Those that no commit contains are lost.
func skip(t *testing.T, f *file, n int64) {
	t.Helper()
	for n > 0 {
		if f.at == f.batch.N {
			f.at = 0
			if err := f.r.ReadBatch(&f.batch); err != nil {
				return
			}
		}
		step := min(int64(f.batch.N-f.at), n)
		f.at += int(step)
		n -= step
	}
}

// TestReload changes the configuration 20 times while frames arrive: each frame is counted
// once, under one epoch.
func TestReload(t *testing.T) {
	rec := record(t)
	j := newJournal(t)
	var more atomic.Int64
	plan := rec.plan(t, 1, func(path string) local.Source {
		f := openFile(t, path)
		f.size, f.more = 20, &more
		return f
	})
	p, err := local.New(config(j), plan)
	if err != nil {
		t.Fatal(err)
	}
	wait := start(t.Context(), t, p)
	for epoch := uint64(2); epoch <= 21; epoch++ {
		more.Add(40)
		next := rec.plan(t, epoch, func(string) local.Source { return nil })
		if epoch%5 == 0 {
			next.Resolutions = []time.Duration{time.Second, time.Minute}
		}
		if epoch%7 == 0 {
			bad := next
			bad.Resolutions = []time.Duration{3 * time.Second, time.Minute / 7}
			if p.Reload(t.Context(), bad, nil) == nil {
				t.Error("a plan that cannot be was taken")
			}
		}
		if err := p.Reload(t.Context(), next, nil); err != nil {
			t.Fatal(err)
		}
	}
	more.Store(1 << 60)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	s := p.Stats()
	conserved(t, s)
	c := s.Counts()
	if got := j.total(time.Minute); got != c.Stored+c.Overflow || c.Late > 0 {
		t.Errorf("%d observations are stored, %d were counted, %d late", got, c.Stored+c.Overflow, c.Late)
	}
	var c2 collected
	r, err := replay.New(replay.Config{
		Files: rec.files, Sink: &c2, Logger: slog.New(slog.DiscardHandler),
		Tap:      func(string) window.Tap { return window.Tap{Tags: true, Reflections: true, Weight: 1} },
		Settings: window.Settings{Decode: plan.Decode, Resolver: plan.Resolver, Epoch: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, resolution := range []time.Duration{time.Second, time.Minute} {
		if want, got := addUp(slices.Values(c2.list), resolution), j.rows(resolution); !maps.Equal(got, want) {
			t.Errorf("at %s: %d rows over 21 configurations differ from the %d of a replay under one", resolution, len(got), len(want))
		}
	}
	epochs := map[uint64]bool{}
	for _, b := range j.stored {
		epochs[b.Epoch] = true
	}
	if len(epochs) < 15 {
		t.Errorf("rows of %d epochs are stored: expected nearly all of 21", len(epochs))
	}
	if s.Reloads != 20 {
		t.Errorf("%d reloads counted", s.Reloads)
	}
}
