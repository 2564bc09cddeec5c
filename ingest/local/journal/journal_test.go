package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/ingest/local"
)

// kept is a log that keeps the numbers of blocks.
type kept struct {
	blocks []uint64
	err    error // of Sync
}

func (k *kept) WriteBlock(_ context.Context, b *aggregate.Block) error {
	k.blocks = append(k.blocks, b.Seq)
	return nil
}

func (k *kept) Sync(context.Context) error { return k.err }

// process is one life of a process with one tap, which has recorded nothing.
func process(t *testing.T, dir string, cfg Config) (*Journal, *checkpoint.File) {
	t.Helper()
	file, err := checkpoint.Open(checkpoint.Options{Dir: dir, Name: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	cfg.File, cfg.Logger, cfg.Records = file, slog.New(slog.DiscardHandler), newRecording(t, cfg.Opened).Recorder
	return New(cfg), file
}

// TestResume: a process is told what the one before it missed: since the last frame of a tap
// or, where none came, since the taps were opened; and the windows that were open. Marks
// stand for durable rows alone.
func TestResume(t *testing.T) {
	dir, opened := t.TempDir(), time.Unix(1_700_000_000, 0)
	var first, seen kept
	rounds := 0
	j, file := process(t, dir, Config{
		Log: &first, Seen: []aggregate.Sink{&seen}, Opened: opened,
		Begin: func(wrote map[aggregate.Source]bool, marks []local.Mark) {
			if rounds++; wrote[marks[0].Source] != (rounds == 1) {
				t.Errorf("round %d wrote %v", rounds, wrote)
			}
		},
	})
	block := &aggregate.Block{Source: aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}, Seq: 7, Resolution: int64(time.Second)}
	if err := j.WriteBlock(t.Context(), block); err != nil {
		t.Fatal(err)
	}
	marks := []local.Mark{
		{Name: "leaf", Source: block.Source, At: opened.Add(time.Minute).UnixNano()},
		{Name: "quiet", Source: aggregate.Source{Producer: 2, Incarnation: 2, Epoch: 3}},
		{Name: "ended", Source: aggregate.Source{Producer: 3, Incarnation: 2, Epoch: 3}, At: opened.Add(time.Second).UnixNano(), Closed: true},
	}
	if err := j.Commit(t.Context(), marks); err != nil {
		t.Fatal(err)
	}
	if st := j.Stats(); st.Taken != 1 || !slices.Equal(first.blocks, []uint64{7}) || !slices.Equal(seen.blocks, first.blocks) {
		t.Fatalf("%d rounds, blocks %v, seen %v: want one of each", st.Taken, first.blocks, seen.blocks)
	}
	later := slices.Clone(marks)
	later[0].At += int64(time.Hour)
	first.err = fmt.Errorf("disk: %w", ErrNotDurable)
	if err := j.Commit(t.Context(), later); err != nil || j.Stats().Taken != 1 {
		t.Errorf("rows that are not durable have marks: %v", err)
	}
	if first.err = errors.New("refused"); !errors.Is(j.Commit(t.Context(), later), first.err) {
		t.Error("a log that fails does not end the pipeline")
	}
	file.Close()

	again := opened.Add(time.Hour)
	j, file = process(t, dir, Config{Log: &kept{}, Opened: again})
	defer file.Close()
	from := map[uint64]time.Time{}
	open := map[uint64]int{}
	resolutions := []time.Duration{10 * time.Millisecond, time.Second, time.Minute}
	got, err := j.Resume(resolutions, func(m *local.Mark, gaps []store.Gap) error {
		for _, g := range gaps {
			switch {
			case g.Source != m.Source:
				t.Errorf("missing of %s: %+v", m.Name, g)
			case g.Reason == store.GapOpen:
				open[g.Producer]++
			case g.Reason == store.GapRestart && g.To.Equal(again):
				from[g.Producer] = g.From
			default:
				t.Errorf("missing of %s: %+v", m.Name, g)
			}
		}
		return nil
	})
	if err != nil || !slices.Equal(got, marks) {
		t.Errorf("marks %+v, %v", got, err)
	}
	if !from[1].Equal(opened.Add(time.Minute)) || !from[2].Equal(opened) || !from[3].Equal(opened.Add(time.Second)) || open[1] != 2 || open[2]+open[3] != 0 {
		t.Errorf("missing from %v, open windows %v", from, open)
	}
	refused := errors.New("the store is away")
	if _, err := j.Resume(resolutions, func(*local.Mark, []store.Gap) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("a gap that cannot be told: %v", err)
	}
}

// TestDamagedMarks: marks that cannot be read are none.
func TestDamagedMarks(t *testing.T) {
	dir := t.TempDir()
	j, file := process(t, dir, Config{Log: &kept{}, Opened: time.Now()})
	defer file.Close()
	if err := j.Commit(t.Context(), []local.Mark{{Name: "leaf", At: 1}}); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(file.Dir(), "checkpoint")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) + 1 {
		damaged := slices.Clone(whole[:n])
		if n == len(whole) {
			damaged[n-3] ^= 4
		}
		if err := os.WriteFile(name, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if marks, err := j.Resume([]time.Duration{time.Second}, nil); marks != nil || err != nil {
			t.Fatalf("%d of %d bytes are marks: %+v, %v", n, len(whole), marks, err)
		}
	}
}

// TestOpenWindows: of each resolution, the windows that were open at the last frame.
func TestOpenWindows(t *testing.T) {
	at := time.Unix(1_700_000_000, 5e8)
	got := OpenWindows(&local.Mark{At: at.UnixNano()}, []time.Duration{time.Second, time.Minute})
	if len(got) != 1 || !got[0].From.Equal(time.Unix(1_699_999_998, 0)) || !got[0].To.Equal(at) || got[0].Resolution != time.Second || got[0].Reason != store.GapOpen {
		t.Errorf("got %+v", got)
	}
	got = OpenWindows(&local.Mark{At: at.UnixNano()}, []time.Duration{time.Minute})
	if len(got) != 1 || !got[0].From.Equal(at.Add(-2*time.Minute).Truncate(time.Minute)) || got[0].Resolution != time.Minute {
		t.Errorf("of minutes alone: %+v", got)
	}
	if got := OpenWindows(&local.Mark{}, []time.Duration{time.Second}); got != nil {
		t.Errorf("of a ring without a frame: %+v", got)
	}
}
