package journal

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/local"
)

// kept is a store that keeps the numbers of blocks.
type kept struct{ blocks []uint64 }

func (k *kept) WriteBlock(_ context.Context, b *aggregate.Block) error {
	k.blocks = append(k.blocks, b.Seq)
	return nil
}

func (*kept) Sync(context.Context) error { return nil }

// process is one life of a process with one tap, which has recorded nothing.
func process(t *testing.T, dir string, to store.BlockStore, opened time.Time) (*Journal, *checkpoint.File) {
	t.Helper()
	file, err := checkpoint.Open(checkpoint.Options{Dir: dir, Name: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	net := Network{Epoch: 3, Fabric: fabric.None(domain)}
	return New(to, Config{
		File: file, Every: time.Nanosecond, Opened: opened, Network: func() Network { return net },
		Records: newRecording(t, opened).Recorder, Logger: slog.New(slog.DiscardHandler),
		More: func() []checkpoint.Section { return []checkpoint.Section{{Name: "more", Data: []byte("of it")}} },
	}), file
}

// TestResume: a process that goes on from a checkpoint has the states and the blocks in it,
// and is told from when nobody captured: the last frame of a tap or, where none came, the
// moment when the taps were opened.
func TestResume(t *testing.T) {
	dir, opened := t.TempDir(), time.Unix(1_700_000_000, 0)
	var first kept
	j, file := process(t, dir, &first, opened)
	block := &aggregate.Block{Source: aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}, Seq: 7, Resolution: int64(time.Second)}
	if err := j.WriteBlock(t.Context(), block); err != nil {
		t.Fatal(err)
	}
	states := []local.State{
		{Name: "leaf", Source: block.Source, At: opened.Add(time.Minute).UnixNano()},
		{Name: "quiet", Source: aggregate.Source{Producer: 2, Incarnation: 2, Epoch: 3}},
	}
	if err := j.Commit(t.Context(), states); err != nil {
		t.Fatal(err)
	}
	if st := j.Stats(); st.Taken != 1 || !slices.Equal(first.blocks, []uint64{7}) {
		t.Fatalf("%d checkpoints, blocks %v: want one of each", st.Taken, first.blocks)
	}
	saved, err := file.Load()
	if err != nil || string(saved.Section("more")) != "of it" {
		t.Errorf("further section: %v, %v", saved, err)
	}
	file.Close()

	var next kept
	again := opened.Add(time.Hour)
	j, file = process(t, dir, &next, again)
	defer file.Close()
	from := map[uint64]time.Time{}
	got, err := j.Resume(t.Context(), func(s *local.State, g store.Gap) error {
		if g.Source != s.Source || g.Reason != store.GapRestart || !g.To.Equal(again) {
			t.Errorf("missing of %s: %+v", s.Name, g)
		}
		from[g.Producer] = g.From
		return nil
	})
	if err != nil || len(got) != 2 || got[0].Name != "leaf" || got[0].Source != block.Source || got[0].At != states[0].At {
		t.Errorf("states %+v, %v", got, err)
	}
	if !slices.Equal(next.blocks, []uint64{7}) {
		t.Errorf("blocks %v go on, want 7", next.blocks)
	}
	if !from[1].Equal(opened.Add(time.Minute)) || !from[2].Equal(opened) {
		t.Errorf("missing from %v", from)
	}
	refused := errors.New("the store is away")
	if _, err := j.Resume(t.Context(), func(*local.State, store.Gap) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("a gap that cannot be told: %v", err)
	}
}

// TestOpenWindows: of each resolution, the windows that were open at the last frame.
func TestOpenWindows(t *testing.T) {
	at := time.Unix(1_700_000_000, 5e8)
	got := OpenWindows(&local.State{At: at.UnixNano()}, []time.Duration{time.Second, time.Minute})
	want := []time.Time{time.Unix(1_699_999_998, 0), at.Add(-2 * time.Minute).Truncate(time.Minute)}
	if len(got) != 2 || !got[0].From.Equal(want[0]) || !got[1].From.Equal(want[1]) || !got[1].To.Equal(at) || got[0].Resolution != time.Second || got[0].Reason != store.GapChanged {
		t.Errorf("got %+v, want from %v", got, want)
	}
	if got := OpenWindows(&local.State{}, []time.Duration{time.Second}); got != nil {
		t.Errorf("of a ring without a frame: %+v", got)
	}
}
