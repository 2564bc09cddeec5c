package store

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/decode/csig"
)

func journalOn(t testing.TB, s BlockStore, dir string, fsys outbox.FS, o JournalOptions) *Journal {
	t.Helper()
	file, err := checkpoint.Open(checkpoint.Options{Dir: filepath.Join(dir, "checkpoints"), Name: "test", FS: fsys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	o.File = file
	j := NewJournal(nil, o)
	j.store = s
	return j
}

// recordingStore keeps blocks; those written since the last Sync are not durable.
type recordingStore struct {
	blocks []uint64 // Seq
	synced int
	err    error
}

func (r *recordingStore) WriteBlock(_ context.Context, b *aggregate.Block) error {
	r.blocks = append(r.blocks, b.Seq)
	return r.err
}

func (r *recordingStore) Sync(context.Context) error {
	r.synced = len(r.blocks)
	return nil
}

func numbered(seq uint64, rows int) *aggregate.Block {
	list := make([]row, rows)
	for i := range list {
		list[i] = row{resolution: int64(time.Second), window: testStart.UnixNano(), seq: seq, kind: 1, src: uint64(i), observations: 1}
	}
	return blockOf(list)
}

// Blocks are handed over after the checkpoint that holds them, and once more by whoever
// goes on from it.
func TestJournal(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1e9, 0)
	o := JournalOptions{Every: 10 * time.Second, HeldRows: 10, Now: func() time.Time { return now }}
	s := &recordingStore{}
	j := journalOn(t, s, dir, nil, o)
	write := func(j *Journal, seq uint64, rows int) {
		t.Helper()
		if err := j.WriteBlock(t.Context(), numbered(seq, rows)); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(j *Journal, state string) {
		t.Helper()
		if err := j.Commit(t.Context(), checkpoint.Section{Name: "state", Data: []byte(state)}); err != nil {
			t.Fatal(err)
		}
	}
	write(j, 1, 3)
	write(j, 2, 4)
	if due := j.Due(); due != o.Every || len(s.blocks) != 0 {
		t.Errorf("due in %s, %d blocks in the store", due, len(s.blocks))
	}
	commit(j, "first")
	write(j, 3, 10)
	if due := j.Due(); due > 0 || len(s.blocks) != 2 || s.synced != 0 {
		t.Errorf("due in %s, %d blocks in the store, %d durable", due, len(s.blocks), s.synced)
	}
	now = now.Add(time.Second)
	commit(j, "second")
	if st := j.Stats(); st.Taken != 2 || st.Held != 0 || s.synced != 2 || len(s.blocks) != 3 || st.Bytes == 0 || j.Due() != o.Every {
		t.Errorf("%+v, %d of %d blocks durable", st, s.synced, len(s.blocks))
	}
	write(j, 4, 1) // lost
	j.o.File.Close()

	s = &recordingStore{}
	j = journalOn(t, s, dir, nil, o)
	saved, err := j.Resume(t.Context())
	if err != nil || string(saved.Section("state")) != "second" || len(s.blocks) != 1 || s.blocks[0] != 3 {
		t.Fatalf("resumed %+v, %v with blocks %v", saved, err, s.blocks)
	}
	write(j, 4, 2)
	if err := j.Release(t.Context()); err != nil || s.synced != 2 {
		t.Errorf("%d blocks durable: %v", s.synced, err)
	}
	if err := j.Finish(); err != nil {
		t.Fatal(err)
	}
	j.o.File.Close()
	if saved, err := journalOn(t, s, dir, nil, o).Resume(t.Context()); saved != nil || err != nil {
		t.Errorf("after the end: %+v, %v", saved, err)
	}
	if err := j.WriteBlock(t.Context(), &aggregate.Block{Resolution: int64(time.Second), WindowStart: endOfTime}); err == nil {
		t.Error("a block beyond all times is held")
	}
}

// A disk that is full does not end a run: blocks are held up to a bound and then go on
// without a checkpoint, of which nothing stays that would contradict them.
func TestJournalDiskFull(t *testing.T) {
	disk := &badDisk{}
	dir := t.TempDir()
	now := time.Unix(1e9, 0)
	o := JournalOptions{Every: time.Second, HeldRows: 10, Now: func() time.Time { return now }}
	s := &recordingStore{}
	j := journalOn(t, s, dir, disk, o)
	step := func(rows int) {
		t.Helper()
		now = now.Add(o.Every)
		if err := errors.Join(j.WriteBlock(t.Context(), numbered(uint64(now.Unix()), rows)), j.Commit(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	step(1)
	disk.bad.Store(true)
	step(20)
	if st := j.Stats(); st.Failed != 1 || st.Held != 20 || len(s.blocks) != 1 || j.Due() != o.Every {
		t.Errorf("%+v, %d blocks, due in %s", st, len(s.blocks), j.Due())
	}
	if saved, err := j.o.File.Load(); err != nil || saved.Number != 1 {
		t.Errorf("the checkpoint before: %+v, %v", saved, err)
	}
	step(20)
	if st := j.Stats(); st.Failed != 2 || st.GivenUp != 1 || st.Held != 0 || len(s.blocks) != 3 {
		t.Errorf("%+v, %d blocks", st, len(s.blocks))
	}
	if saved, err := j.o.File.Load(); saved != nil || err != nil {
		t.Errorf("a checkpoint stays: %+v, %v", saved, err)
	}
	disk.bad.Store(false)
	step(20)
	if st := j.Stats(); st.Taken != 2 || st.Held != 0 || len(s.blocks) != 4 {
		t.Errorf("%+v, %d blocks", st, len(s.blocks))
	}
}

// Blocks that this program cannot read are no reason not to begin.
func TestJournalForeignBlocks(t *testing.T) {
	for _, blocks := range []string{"x", "\x01\x00\x00\x00\x00\x00\x00\x00\xff", "\xff\x00\x00\x00\x00\x00\x00\x00\x01"} {
		s := &recordingStore{}
		j := journalOn(t, s, t.TempDir(), nil, JournalOptions{})
		if err := j.o.File.Save([]checkpoint.Section{{Name: blocksSection, Data: []byte(blocks)}}); err != nil {
			t.Fatal(err)
		}
		if saved, err := j.Resume(t.Context()); saved != nil || err != nil || len(s.blocks) != 0 {
			t.Errorf("%q: %+v, %v", blocks, saved, err)
		}
	}
	s := &recordingStore{err: errAway}
	dir := t.TempDir()
	j := journalOn(t, s, dir, nil, JournalOptions{})
	if err := j.WriteBlock(t.Context(), numbered(1, 1)); err != nil {
		t.Fatal(err)
	}
	if err := j.Commit(t.Context()); !errors.Is(err, errAway) {
		t.Errorf("commit to a store that fails: %v", err)
	}
	if _, err := j.Resume(t.Context()); !errors.Is(err, errAway) {
		t.Errorf("resume into a store that fails: %v", err)
	}
}

// A gap of a restart is on disk before anything else, comes to the table once, and says
// which source misses which time.
func TestWriteGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		f.setErr(errAway)
		dir := t.TempDir()
		s := storeBefore(t, f, &Outbox{Dir: dir})
		g := Gap{Source: aggregate.Source{Producer: 5, Incarnation: 6, Epoch: 7}, From: testStart, To: testStart.Add(3 * time.Second), Reason: GapRestart}
		for range 2 {
			if err := s.WriteGap(t.Context(), g); err != nil {
				t.Fatal(err)
			}
		}
		closeStore(t, s)
		f.setErr(nil)
		clear(f.gaps)
		s = storeBefore(t, f, &Outbox{Dir: dir})
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		var ids []uint64
		for got := range f.gaps {
			ids = append(ids, got.ID)
			if got.source() != g.Source || got.From != g.From.UnixNano() || got.To != g.To.UnixNano() || got.Reason != GapRestart || got.Rows != 0 {
				t.Errorf("gap %+v", got)
			}
		}
		if len(ids) == 0 || ids[0] != ids[len(ids)-1] {
			t.Errorf("gaps %x, expected the same one", ids)
		}
		g.To = g.From.Add(-1)
		if err := s.WriteGap(t.Context(), g); err == nil || !strings.Contains(err.Error(), "write gap") {
			t.Errorf("a gap that ends before it begins: %v", err)
		}
	})
}

// countingResolver has one group and one location.
type countingResolver struct{}

func (countingResolver) Group(netip.Addr) aggregate.GroupID { return 7 }

func (countingResolver) Locate(csig.Layout, uint8, uint16, netip.Addr, netip.Addr) (aggregate.LocationID, uint64) {
	return 8, 100e6
}
