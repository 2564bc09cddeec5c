package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/ingest/local"
)

// kept is a log that keeps the numbers of blocks.
type kept struct {
	blocks []uint64
	marks  [][]byte
	err    error // returned by Commit
}

func (k *kept) WriteBlock(_ context.Context, b *aggregate.Block) error {
	k.blocks = append(k.blocks, b.Seq)
	return nil
}

func (k *kept) Commit(_ context.Context, marks []byte) error {
	if k.err == nil {
		k.marks = [][]byte{marks}
	}
	return k.err
}

func (k *kept) Marks() ([][]byte, error) { return k.marks, nil }

// process returns the journal of a process with one tap, which has recorded nothing.
func process(t *testing.T, cfg Config) *Journal {
	t.Helper()
	cfg.Name, cfg.Logger, cfg.Records = "test", slog.New(slog.DiscardHandler), newRecording(t, cfg.Opened).Recorder
	return New(cfg)
}

// TestResume: a process gets the gaps of the previous one: from the last frame of a tap, or
// from the opening of the taps if there was none, and the open windows. Marks cover only
// durable rows. Marks of another name and damaged ones are ignored.
func TestResume(t *testing.T) {
	opened := time.Unix(1_700_000_000, 0)
	var first kept
	rounds := 0
	j := process(t, Config{
		Log: &first, Opened: opened,
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
		{Name: "leaf", Source: block.Source, At: opened.Add(time.Minute).UnixNano(), Behind: time.Second},
		{Name: "quiet", Source: aggregate.Source{Producer: 2, Incarnation: 2, Epoch: 3}},
		{Name: "ended", Source: aggregate.Source{Producer: 3, Incarnation: 2, Epoch: 3}, At: opened.Add(time.Second).UnixNano(), Closed: true},
		{Name: "reloaded", Source: aggregate.Source{Producer: 4, Incarnation: uint64(opened.Add(time.Hour / 2).UnixNano()), Epoch: 3}},
	}
	if err := j.Commit(t.Context(), marks); err != nil {
		t.Fatal(err)
	}
	if st := j.Stats(); st.Taken != 1 || !slices.Equal(first.blocks, []uint64{7}) {
		t.Fatalf("%d rounds, blocks %v: want one of each", st.Taken, first.blocks)
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

	again := opened.Add(time.Hour)
	another := []byte(`{"Name": "another", "At": 9000000000000000000}`)
	j = process(t, Config{Log: &kept{marks: [][]byte{another, first.marks[0], []byte("{")}}, Opened: again})
	from := map[uint64]time.Time{}
	open := map[uint64]int{}
	resolutions := []time.Duration{10 * time.Millisecond, time.Second, time.Minute}
	got, err := j.Resume(&window.Settings{Resolutions: resolutions}, func(m *local.Mark, gaps []store.Gap) error {
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
	if !from[1].Equal(opened.Add(time.Minute)) || !from[2].Equal(opened) || !from[3].Equal(opened.Add(time.Second)) || !from[4].Equal(opened.Add(time.Hour/2)) || open[1] != 2 || len(open) > 1 {
		t.Errorf("missing from %v, open windows %v", from, open)
	}
	refused := errors.New("the store is away")
	if _, err := j.Resume(&window.Settings{Resolutions: resolutions}, func(*local.Mark, []store.Gap) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("a gap that cannot be told: %v", err)
	}
}

// TestOpenWindows: for each resolution, the windows that were open at the last frame.
func TestOpenWindows(t *testing.T) {
	at := time.Unix(1_700_000_000, 5e8)
	got := OpenWindows(&local.Mark{At: at.UnixNano()}, &window.Settings{Resolutions: []time.Duration{time.Second, time.Minute}})
	if len(got) != 1 || !got[0].From.Equal(time.Unix(1_699_999_998, 0)) || !got[0].To.Equal(at) || got[0].Resolution != time.Second || got[0].Reason != store.GapOpen {
		t.Errorf("got %+v", got)
	}
	got = OpenWindows(&local.Mark{At: at.UnixNano(), Behind: 600 * time.Millisecond}, &window.Settings{Resolutions: []time.Duration{time.Second}})
	if len(got) != 1 || !got[0].From.Equal(time.Unix(1_699_999_997, 0)) || !got[0].To.Equal(at) {
		t.Errorf("of a session that is behind: %+v", got)
	}
	got = OpenWindows(&local.Mark{At: at.UnixNano()}, &window.Settings{Resolutions: []time.Duration{time.Minute}})
	if len(got) != 1 || !got[0].From.Equal(at.Add(-2*time.Minute).Truncate(time.Minute)) || got[0].Resolution != time.Minute {
		t.Errorf("of minutes alone: %+v", got)
	}
	if got := OpenWindows(&local.Mark{}, &window.Settings{Resolutions: []time.Duration{time.Second}}); got != nil {
		t.Errorf("of a ring without a frame: %+v", got)
	}
}
