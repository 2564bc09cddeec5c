package outbox

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
)

// grouped is a log of rows, expendable details and marks, whose records are in groups of three:
// one of each class.
func grouped(fsys FS) Options {
	return Options{
		Dir: testDir, Classes: []Class{{Name: "detail", Expendable: true}, {Name: "rows"}, {Name: "marks", Latest: true}},
		MaxBytes: 1 << 20, SegmentBytes: 1500, FS: fsys,
	}
}

func appendGroup(l *Log, n int) error {
	payload := func(class string) []byte { return fmt.Appendf(bytes.Repeat([]byte("."), 100), "%s %d", class, n) }
	return l.Append(
		Record{Class: 0, Weight: 1, Extent: Extent{int64(n), int64(n + 1)}, Payload: payload("detail")},
		Record{Class: 1, Weight: 1, Extent: Extent{int64(n), int64(n + 1)}, Payload: payload("rows")},
		Record{Class: 2, Payload: payload("marks")},
	)
}

func openGrouped(t *testing.T, fsys FS) *Log {
	t.Helper()
	l, err := Open(grouped(fsys))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// last parses the number of the last group from the payload of a record.
func last(t *testing.T, payload []byte) (n int) {
	t.Helper()
	if _, err := fmt.Sscanf(string(bytes.TrimLeft(payload, ".")), "marks %d", &n); err != nil {
		t.Fatalf("%q: %v", payload, err)
	}
	return n
}

// TestGroups cuts the power while groups are written: each group is complete or absent, confirmed
// ones are complete, and the marks are those of the last one.
func TestGroups(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fsys := newFakeFS()
		l := openGrouped(t, fsys)
		dies := fsys.ops + 1 + rng.IntN(80)
		fsys.fail = func(n int, _ string) (float64, error) {
			if n >= dies {
				return rng.Float64(), errInjected
			}
			return 0, nil
		}
		confirmed := 0
		for appendGroup(l, confirmed+1) == nil {
			confirmed++
		}
		next := fsys.killed()
		if rng.IntN(2) == 0 {
			next = fsys.powerCut(rng)
		}
		l = openGrouped(t, next)
		marks := 0
		if e, ok, err := l.Latest(2); err != nil {
			t.Fatal(err)
		} else if ok {
			marks = last(t, e.Payload)
		}
		const later = 1000
		if err := appendGroup(l, later); err != nil {
			t.Fatal(err)
		}
		if seed%2 == 0 { // a process that was torn itself, or one that opens its files
			l = openGrouped(t, next.killed())
		}
		if e, ok, err := l.Latest(2); !ok || err != nil || last(t, e.Payload) != later {
			t.Errorf("seed %d: marks after another group: %v, %v", seed, ok, err)
		}
		var counts [2]int
		for e, ok, err := l.Next(nil); ok || err != nil; e, ok, err = l.Next(nil) {
			if err != nil || e.Lost != "" && e.Lost != Uncertain {
				t.Fatalf("seed %d: %+v, %v", seed, e, err)
			}
			if e.Lost == "" {
				counts[e.Class]++
			}
			l.Ack(&e)
		}
		if counts[0] != counts[1] || counts[0] != marks+1 || marks < confirmed || marks > confirmed+1 {
			t.Errorf("seed %d: %d details, %d rows, marks of group %d; %d groups were confirmed", seed, counts[0], counts[1], marks, confirmed)
		}
	}
}

// TestGivingWay drops the records of one class, and others in the same segments stay, on a disk
// with room and on a full one, also after a restart.
func TestGivingWay(t *testing.T) {
	for _, full := range []bool{false, true} {
		fsys := newFakeFS()
		l := openGrouped(t, fsys)
		const groups = 20
		for n := range groups {
			if err := appendGroup(l, n+1); err != nil {
				t.Fatal(err)
			}
		}
		before := l.Stats().Bytes
		if full {
			fsys.fail = func(_ int, op string) (float64, error) {
				if op == "write" || op == "create" {
					return 0, syscall.ENOSPC
				}
				return 0, nil
			}
		}
		lost := uint64(0)
		for s, ok := l.Oldest(0); ok; s, ok = l.Oldest(0) {
			if s.Class != 0 || s.Weight == 0 {
				t.Fatalf("%+v gives way, want details", s)
			}
			lost += s.Weight
			if err := l.Discard(s, "full", Lost{Records: s.Weight, Weight: s.Weight}); err != nil {
				t.Fatal(err)
			}
		}
		if got := l.Stats(); lost != groups || got.Bytes > before*3/4 || got.Waiting != (Waiting{groups, groups}) || got.Lost["full"] != (Lost{groups, groups}) {
			t.Errorf("disk full %v: %d given up, %d bytes of %d, %+v", full, lost, got.Bytes, before, got)
		}
		for name, file := range fsys.killed().files {
			if size := int64(len(file.data)); name != testDir+"/"+positionName && size > 1500 {
				t.Errorf("%s has %d bytes", name, size)
			}
		}
		l = openGrouped(t, fsys.killed())
		for n := range groups {
			e, ok, err := l.Next(nil)
			if !ok || err != nil || e.Class != 1 || e.Lost != "" || !bytes.HasSuffix(e.Payload, fmt.Appendf(nil, "rows %d", n+1)) {
				t.Fatalf("disk full %v: record %d is %+v, %v, %v", full, n+1, e, ok, err)
			}
			l.Ack(&e)
		}
		if e, ok, err := l.Latest(2); !ok || err != nil || last(t, e.Payload) != groups {
			t.Errorf("disk full %v: marks %v, %v", full, ok, err)
		}
	}
}

// TestBlockedClass: a class that cannot be sent takes only the room of its own records, and the
// other classes continue.
func TestBlockedClass(t *testing.T) {
	o := grouped(newFakeFS())
	o.Classes[0].Expendable = false
	o.MaxBytes = 40_000
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	l.Hold(0)
	held := 0
	for n := 0; ; n++ {
		err := appendGroup(l, n+1)
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		held++
		e, ok, err := l.Next(nil)
		if !ok || err != nil || e.Class != 1 {
			t.Fatalf("%+v, %v, %v", e, ok, err)
		}
		l.Ack(&e)
	}
	if _, bytes := l.Held(); int64(held)*headerSize > bytes || bytes < o.MaxBytes/2 {
		t.Errorf("full with %d held records of %d bytes, want at least half of %d", held, bytes, o.MaxBytes)
	}
	if !slices.IsSortedFunc(l.segments, func(a, b segment) int { return int(a.number) - int(b.number) }) {
		t.Error("segments are out of order")
	}
}
