package store

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/aggregate/store/outbox/outboxtest"
)

const (
	corruptionBlocks = 40
	corruptionRows   = 5 // in each block
)

// waitingRows is a folder of outboxes with rows of 1 s and of 1 min, as a killed process leaves
// it. The windows of 1 s are consecutive.
func waitingRows(t *testing.T) string {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		live := t.TempDir()
		f := newFakeServer()
		f.setErr(errAway)
		s := storeBefore(t, f, &Outbox{Dir: live, MaxBytes: 256 << 10})
		for seq := range uint64(corruptionBlocks) {
			putAt(t, s, seq, time.Second)
			if seq%4 == 3 {
				putAt(t, s, seq, time.Minute)
			}
		}
		if err := os.CopyFS(dir, os.DirFS(live)); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
	})
	return dir
}

func putAt(t *testing.T, s *Store, seq uint64, resolution time.Duration) {
	list := make([]row, corruptionRows)
	for i := range list {
		list[i] = row{
			resolution: int64(resolution), window: testStart.UnixNano() + int64(seq)*int64(resolution),
			source: aggregate.Source{Producer: 1}, seq: seq, kind: 1, src: uint64(i), observations: 1,
		}
	}
	if err := s.WriteBlock(t.Context(), blockOf(list)); err != nil {
		t.Fatal(err)
	}
	if err := s.writer.flush(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// TestCorruption damages an outbox in every way: each row is at the server once, or in a gap of
// its resolution and time, and both add up.
func TestCorruption(t *testing.T) {
	whole := waitingRows(t)
	for _, c := range outboxtest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "outboxes")
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			if err := c.Damage(filepath.Join(dir, "1")); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer()
				s := storeBefore(t, f, &Outbox{Dir: dir, MaxBytes: 256 << 10})
				if err := s.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				judgeRows(t, f, c.Harmless)
				closeStore(t, s)
			})
		})
	}
}

func judgeRows(t *testing.T, f *fakeServer, harmless bool) {
	t.Helper()
	inGaps, unknown := uint64(0), false
	for g := range f.gaps {
		inGaps += g.Rows
		if g.LogClass == "" || g.FirstSeq == 0 || g.LastSeq < g.FirstSeq {
			t.Errorf("gap %+v does not say which records are lost", g)
		}
		unknown = unknown || g.Reason == string(outbox.Uncertain)
	}
	const total = corruptionBlocks*corruptionRows + corruptionBlocks/4*corruptionRows
	stored := uint64(len(f.rows))
	if stored+inGaps > total || stored+inGaps < total && !unknown || harmless && stored != total {
		t.Errorf("%d rows stored and %d in gaps, want %d: %+v", stored, inGaps, total, f.gaps)
	}
	has := map[int64]bool{} // windows of 1 s
	for p := range f.rows {
		if p.Window-testStart.UnixNano() < corruptionBlocks*int64(time.Second) {
			has[p.Window] = true
		}
	}
	for seq := range corruptionBlocks {
		at := testStart.UnixNano() + int64(seq)*int64(time.Second)
		covered := has[at]
		for g := range f.gaps {
			covered = covered || g.Resolution == int64(time.Second) && g.From <= at && g.To >= at+int64(time.Second)
		}
		if !covered {
			t.Errorf("window %d is neither stored nor in one of %+v", seq, f.gaps)
		}
	}
}
