package replay_test

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/replay"
)

// TestStreamErrorsReachTheCaller checks that neither side keeps waiting for the other.
func TestStreamErrorsReachTheCaller(t *testing.T) {
	rec := shared(t, singleFile)
	broken := errors.New("broken")
	for name, write := range map[string]func(context.Context, io.Writer) error{
		"the writer fails": func(context.Context, io.Writer) error { return broken },
		"not a capture": func(_ context.Context, w io.Writer) error {
			_, err := w.Write(make([]byte, 64<<20))
			return err
		},
		"the sink fails": func(_ context.Context, w io.Writer) error {
			return copyFile(w, rec.files[0])
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := rec.config(failing{broken})
			cfg.Files, cfg.Piped = nil, &replay.PipedCapture{Name: "made", ID: 1, Write: write}
			r, err := replay.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Run(t.Context()); err == nil || (name != "not a capture") != errors.Is(err, broken) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func copyFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// TestStreamEqualsFile checks that a capture gives the same blocks as a stream and as a file read
// in one piece, paced or not.
func TestStreamEqualsFile(t *testing.T) {
	rec := shared(t, singleFile)
	var want blocks
	cfg := rec.config(&want)
	cfg.ChunkBytes = -1
	replayed(t, cfg)
	for _, pace := range []float64{0, 1e6} {
		var got blocks
		cfg := rec.config(&got)
		cfg.Pace = pace
		cfg.Files = nil
		cfg.Piped = &replay.PipedCapture{Name: "made", ID: 1, Write: func(_ context.Context, w io.Writer) error {
			return copyFile(w, rec.files[0])
		}}
		result := replayed(t, cfg)
		if result.Packets != rec.report.Captured {
			t.Errorf("%d packets, want %d", result.Packets, rec.report.Captured)
		}
		if got.observations(time.Second) == 0 {
			t.Fatal("nothing was observed")
		}
		if diff := cmp.Diff(anonymous(&want), anonymous(&got)); diff != "" {
			t.Errorf("pace %v: blocks differ (-file +stream):\n%.2000s", pace, diff)
		}
	}
}

// anonymous returns the blocks without their source.
func anonymous(b *blocks) []aggregate.Block {
	list := slices.Clone(b.sorted())
	for i := range list {
		list[i].Source = aggregate.Source{}
	}
	return list
}
