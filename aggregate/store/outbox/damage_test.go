package outbox

import (
	"cmp"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// smallLog is a log of two classes with two acknowledged records, closed properly or killed.
func smallLog(t testing.TB, inOrder bool) (*history, *fakeFS) {
	h, fsys := newHistory(t), newFakeFS()
	l := h.mustOpen(fsys)
	for range 3 {
		for class := range 2 {
			for _, size := range []int{150, 20, 90} {
				if err := h.append(l, class, size); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	h.send(l, 2)
	l.Save()
	if inOrder {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return h, fsys.killed()
}

// mayLose checks the invariant after damage, with a maximum number of losses.
func mayLose(t *testing.T, h *history, fsys *fakeFS, atMost int) {
	t.Helper()
	h.TB = t
	h.drain(fsys)
	if len(h.lost) > atMost {
		t.Errorf("%d records lost, want at most %d: %v", len(h.lost), atMost, h.lost)
	}
}

// TestBitFlips damages every byte of every file: at most the record around it is lost, and
// counted.
func TestBitFlips(t *testing.T) {
	_, whole := smallLog(t, true)
	for name, file := range whole.files {
		for at := range file.data {
			if inPadding(name, at) {
				continue
			}
			h, fsys := smallLog(t, true)
			data := fsys.files[name].data
			data[min(at, len(data)-1)] ^= 1 << (at % 8)
			mayLose(t, h, fsys, 1)
			if t.Failed() {
				t.Fatalf("byte %d of %s", at, name)
			}
		}
	}
}

// TestTruncation cuts every file at every byte, in logs that were closed: the records that are
// cut off are lost and counted.
func TestTruncation(t *testing.T) {
	_, whole := smallLog(t, true)
	for name, file := range whole.files {
		for at := range file.data {
			if inPadding(name, at) {
				continue
			}
			h, fsys := smallLog(t, true)
			data := fsys.files[name].data
			fsys.files[name].data = data[:min(at, len(data)-1)]
			mayLose(t, h, fsys, 3)
			if t.Failed() {
				t.Fatalf("%s cut at %d", name, at)
			}
		}
	}
}

// inPadding reports bytes between the slots of the position.
func inPadding(name string, at int) bool {
	return filepath.Base(name) == positionName && at > 300 && at < slotSize
}

func TestMissingSegments(t *testing.T) {
	_, whole := smallLog(t, true)
	names := whole.segments()
	if len(names) < 3 {
		t.Fatalf("%d segments, want three", len(names))
	}
	for i, name := range names {
		h, fsys := smallLog(t, true)
		delete(fsys.files, name)
		mayLose(t, h, fsys, 3)
		if len(h.lost) == 0 {
			t.Errorf("segment %d missing: nothing is lost", i)
		}
		for at, reason := range h.lost {
			if reason != Missing {
				t.Errorf("segment %d missing: record %d is %s", i, at.seq, reason)
			}
		}
	}
}

// TestMissingLastAfterKill: without a clean end, the first record of a segment proves that it was
// there.
func TestMissingLastAfterKill(t *testing.T) {
	h, fsys := smallLog(t, false)
	names := fsys.segments()
	delete(fsys.files, names[len(names)-1])
	h.drain(fsys)
	if len(h.lost) == 0 {
		t.Error("nothing is lost")
	}
}

func TestLostPositionRepeats(t *testing.T) {
	for _, damage := range []func(*fakeFS, string){
		func(f *fakeFS, name string) { delete(f.files, name) },
		func(f *fakeFS, name string) { f.files[name].data = []byte("{}\n00000000\n") },
	} {
		h, fsys := smallLog(t, true)
		damage(fsys, filepath.Join(testDir, positionName))
		l := h.mustOpen(fsys)
		if n := h.send(l, 100); n != 20 || len(h.sent) != 18 {
			t.Errorf("%d given out, %d of them sent, want all 18 once more and a loss in each class", n, len(h.sent))
		}
		h.check()
		h.wantLost(2)
		for at, reason := range h.lost {
			if reason != Uncertain || at.seq != 10 {
				t.Errorf("record %d of class %d is %s, want only what may be behind the last one", at.seq, at.class, reason)
			}
		}
	}
}

// TestDamageNamesTheRecord: with a valid header, the lost record is known.
func TestDamageNamesTheRecord(t *testing.T) {
	h, fsys := newHistory(t), newFakeFS()
	l := h.mustOpen(fsys)
	if err := h.append(l, 0, 100); err != nil {
		t.Fatal(err)
	}
	file := fsys.files[fsys.segments()[0]]
	file.data[len(file.data)-1] ^= 1
	e, ok, err := l.Next(nil)
	if err != nil || !ok || e.Lost != Damaged || e.Weight != 100 || string(e.Label) != "label 1" {
		t.Fatalf("%+v, %v, %v, want a damaged record with its label", e, ok, err)
	}
	l.Ack(&e)
	if got := l.Stats(); got.Lost[Damaged] != (Lost{1, 100}) || got.Waiting != (Waiting{}) {
		t.Errorf("%+v, want one damaged record", got)
	}
}

// TestCopiesAreNoRecords: a record inside a payload is data.
func TestCopiesAreNoRecords(t *testing.T) {
	h, fsys := newHistory(t), newFakeFS()
	l := h.mustOpen(fsys)
	if err := h.append(l, 0, 100); err != nil {
		t.Fatal(err)
	}
	copied := string(fsys.files[fsys.segments()[0]].data)
	h.attempted[copied] = true
	if err := l.Append(Record{Class: 0, Weight: 1, Payload: []byte(copied)}); err != nil {
		t.Fatal(err)
	}
	// The header of the outer record is broken, so that the reader continues to search.
	file := fsys.files[fsys.segments()[0]]
	file.data[len(copied)+10] ^= 1
	h.send(l, 10)
	if len(h.sent) != 1 || h.lost[recordID{0, 2}] == "" {
		t.Errorf("sent %q, lost %v, want the first and the second", h.sent, h.lost)
	}
}

func TestNewerVersion(t *testing.T) {
	h, fsys := smallLog(t, true)
	file := fsys.files[fsys.segments()[0]]
	file.data[4] = version + 1
	sum := headerCRC(file.data[:headerSize-4], 0)
	for i := range 4 {
		file.data[headerSize-4+i] = byte(sum >> (8 * i))
	}
	if _, err := h.open(fsys); err == nil {
		t.Error("a newer log was opened")
	}
}

// TestUnreadableSegment has a disk that returns errors for one segment.
func TestUnreadableSegment(t *testing.T) {
	h, fsys := smallLog(t, true)
	l := h.mustOpen(fsys)
	reads := 0
	fsys.fail = func(_ int, op string) (float64, error) {
		if op == "read" {
			if reads++; reads <= readAttempts {
				return 0, errInjected
			}
		}
		return 0, nil
	}
	h.send(l, 100)
	h.check()
	if len(h.lost) == 0 || len(h.lost) > 3 {
		t.Errorf("%d records lost, want those of one segment", len(h.lost))
	}
}

func TestSegmentAge(t *testing.T) {
	h, fsys := newHistory(t), newFakeFS()
	o := h.options(fsys)
	o.SegmentAge = time.Minute
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := h.append(l, 0, 10); err != nil {
			t.Fatal(err)
		}
		h.now = h.now.Add(40 * time.Second)
	}
	if n := len(fsys.segments()); n != 2 {
		t.Errorf("%d segments, want 2", n)
	}
	h.now = h.now.Add(-24 * time.Hour)
	if err := h.append(l, 0, 10); err != nil {
		t.Fatal(err)
	}
	if n := len(fsys.segments()); n != 3 {
		t.Errorf("%d segments after the clock was set back, want 3: it would never be old enough", n)
	}
}

// TestClockBetweenProcesses: whatever the next process's clock shows, no age exceeds the
// process's, and none is negative.
func TestClockBetweenProcesses(t *testing.T) {
	for _, jump := range []time.Duration{-1e5 * time.Hour, -time.Hour, 0, time.Hour, 1e5 * time.Hour} {
		h, fsys := smallLog(t, true)
		h.now = h.now.Add(jump)
		opened := h.now
		l := h.mustOpen(fsys)
		list := l.Acked()
		for _, s := range list {
			if s.Acked && (s.AckedAt.Before(opened) || s.AckedAt.After(h.now)) {
				t.Errorf("clock set by %s: acknowledged at %s, want between %s and %s", jump, s.AckedAt, opened, h.now)
			}
		}
		if len(list) == 0 {
			t.Error("nothing was acknowledged")
		}
		h.send(l, 100)
		list = l.Acked()
		if !slices.IsSortedFunc(list, func(a, b Part) int { return cmp.Compare(a.number, b.number) }) {
			t.Errorf("segments %v, want them in order", list)
		}
	}
}

// TestDamagedEndAfterKill: only the log itself can reveal its last record then.
func TestDamagedEndAfterKill(t *testing.T) {
	h, fsys := newHistory(t), newFakeFS()
	l := h.mustOpen(fsys)
	for range 2 {
		if err := h.append(l, 0, 100); err != nil {
			t.Fatal(err)
		}
	}
	fsys = fsys.killed()
	file := fsys.files[fsys.segments()[0]]
	file.data[len(file.data)/2+20] ^= 1
	if err := h.append(h.mustOpen(fsys), 0, 100); err != nil {
		t.Fatal(err)
	}
	h.drain(fsys.killed())
	if h.lost[recordID{0, 2}] != Damaged && h.lost[recordID{0, 2}] != Torn {
		t.Errorf("lost %v, want the second record", h.lost)
	}
}

// TestFailedSync: the segment is no longer used, and rewriting its records in another one causes
// neither a loss nor duplicates.
func TestFailedSync(t *testing.T) {
	h, fsys := newHistory(t), newFakeFS()
	l := h.mustOpen(fsys)
	if err := h.append(l, 0, 100); err != nil {
		t.Fatal(err)
	}
	failed := false
	fsys.fail = func(_ int, op string) (float64, error) {
		if op == "sync" && !failed {
			failed = true
			return 0, errInjected
		}
		return 0, nil
	}
	first := fsys.files[fsys.segments()[0]]
	for i := range 3 {
		if err := h.append(l, 0, 50); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			failed = len(fsys.segments()) == 2
		}
	}
	if !failed || len(first.data) > 2*(headerSize+150) {
		t.Errorf("the segment was written to after its sync had failed")
	}
	h.send(l, 2)
	h.drain(fsys.killed())
	h.wantLost(0)
	if len(h.sent) != 4 {
		t.Errorf("%d records sent, want 4", len(h.sent))
	}
}

// TestTornIsNotReadAgain: a record torn by a crash was never confirmed, so Read does not return
// it and Discard does not give it up.
func TestTornIsNotReadAgain(t *testing.T) {
	h, fsys := newHistory(t), newFakeFS()
	l := h.mustOpen(fsys)
	for range 2 {
		if err := h.append(l, 0, 100); err != nil {
			t.Fatal(err)
		}
	}
	fsys = fsys.killed()
	file := fsys.files[fsys.segments()[0]]
	file.data = file.data[:len(file.data)-10]

	l = h.mustOpen(fsys)
	read := func(s Part) (seqs []uint64) {
		for e, err := range l.Records(s) {
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, e.First)
		}
		return seqs
	}
	waiting, ok := l.Oldest(0)
	if got := read(waiting); !ok || len(got) != 1 || got[0] != 1 {
		t.Errorf("waiting records %d, want 1", got)
	}
	h.send(l, 10)
	if acked := l.Acked(); len(acked) != 1 || len(read(acked[0])) != 1 {
		t.Errorf("%d acknowledged segments, want 1 with 1 record", len(acked))
	}
	h.wantLost(1)
}
