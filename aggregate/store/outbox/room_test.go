package outbox

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestRoom(t *testing.T) {
	h, fsys := newHistory(t), newFakeFS()
	o := h.options(fsys)
	o.MaxBytes = 5000
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; err == nil; n++ {
		err = h.append(l, n%2, 200)
	}
	if !errors.Is(err, ErrFull) || n < 10 {
		t.Fatalf("append %d: %v, want ErrFull", n, err)
	}
	if err := h.append(l, 2, 100); err != nil {
		t.Errorf("exempt class: %v", err)
	}
	if got := l.Stats().Bytes; got > o.MaxBytes+500 {
		t.Errorf("%d bytes, want at most %d and the exempt ones", got, o.MaxBytes)
	}

	// Acknowledged records are deleted first.
	for range 4 {
		h.send(l, 4)
		if err := h.append(l, 1, 200); err != nil {
			t.Fatal(err)
		}
	}
	for err = nil; err == nil; {
		err = h.append(l, 1, 200)
	}

	// Records of the fine class are dropped first, and a record never displaces a coarser one.
	for range 2 {
		s, ok := l.Oldest(1)
		if !ok || s.Class != 0 {
			t.Fatalf("oldest %+v, %v, want the fine class", s, ok)
		}
		h.discard(l, 1)
		if err := h.append(l, 1, 200); err != nil {
			t.Fatal(err)
		}
	}
	for _, ok := l.Oldest(0); ok; _, ok = l.Oldest(0) {
		h.discard(l, 0)
	}
	if s, ok := l.Oldest(1); !ok || s.Class != 1 {
		t.Errorf("oldest %+v, %v, want the coarse class", s, ok)
	}
	h.send(l, 1000)
	h.check()
	if got := l.Stats(); got.Lost["full"].Records != uint64(len(h.lost)) || len(h.lost) == 0 || got.Waiting != (Waiting{}) {
		t.Errorf("%+v, want %d lost", got, len(h.lost))
	}
}

// TestFullDiskLeavesNothing: attempts on a full disk do not fill it further.
func TestFullDiskLeavesNothing(t *testing.T) {
	h, fsys := newHistory(t), newFakeFS()
	l := h.mustOpen(fsys)
	if err := h.append(l, 0, 100); err != nil {
		t.Fatal(err)
	}
	fsys.fail = func(_ int, op string) (float64, error) {
		if op == "write" {
			return 0.5, syscall.EDQUOT
		}
		return 0, nil
	}
	for range 10 {
		if err := h.append(l, 0, 100); !NoSpace(err) {
			t.Fatalf("%v, want no space", err)
		}
	}
	if names := fsys.segments(); len(names) != 1 {
		t.Errorf("segments %s, want one", names)
	}
	fsys.fail = nil
	if err := h.append(l, 0, 100); err != nil {
		t.Fatal(err)
	}
	var size int64
	for _, name := range fsys.segments() {
		size += int64(len(fsys.files[name].data))
	}
	if got := l.Stats().Bytes; got != size {
		t.Errorf("%d bytes, want the %d on disk", got, size)
	}
	h.send(l, 10)
	h.check()
	h.wantLost(0)
}

func TestTooLarge(t *testing.T) {
	h := newHistory(t)
	l := h.mustOpen(newFakeFS())
	for _, err := range []error{
		l.Append(Record{Class: 0, Weight: 1, Label: make([]byte, MaxLabel+1)}),
		l.Append(Record{Class: 0, Weight: 1, Payload: make([]byte, MaxPayload+1)}),
		l.Append(Record{Class: 0, Weight: 1, Payload: make([]byte, 1<<20)}),
	} {
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v, want ErrTooLarge", err)
		}
	}
}

// TestDiscardWhileSending gives up the records that the sender is sending.
func TestDiscardWhileSending(t *testing.T) {
	h := newHistory(t)
	l := h.mustOpen(newFakeFS())
	for range 8 {
		if err := h.append(l, 0, 150); err != nil {
			t.Fatal(err)
		}
	}
	e, ok, err := l.Next(nil)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	h.discard(l, 0)
	h.took(&e)
	l.Ack(&e)
	h.send(l, 100)
	h.check()
	if w := l.Stats().Waiting; w != (Waiting{}) {
		t.Errorf("%+v wait", w)
	}
}

// TestRoomWhileSending appends to a full log whose records a sender acknowledges meanwhile: each is sent once, in order.
func TestRoomWhileSending(t *testing.T) {
	o := grouped(newFakeFS())
	o.MaxBytes, o.SegmentBytes = 8<<10, 1500
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	const groups = 300
	sent := make(chan []string)
	go func() {
		var list []string
		for len(list) < 2*groups {
			e, ok, err := l.Next(nil)
			if err != nil {
				t.Error(err)
				break
			}
			if !ok {
				runtime.Gosched()
				continue
			}
			list = append(list, strings.TrimLeft(string(e.Payload), "."))
			l.Ack(&e)
		}
		sent <- list
	}()
	for n := 0; n < groups; {
		switch err := appendGroup(l, n); {
		case err == nil:
			n++
		case errors.Is(err, ErrFull):
			runtime.Gosched()
		default:
			t.Fatal(err)
		}
	}
	next := map[string]int{}
	for _, got := range <-sent {
		class, _, _ := strings.Cut(got, " ")
		if want := fmt.Sprintf("%s %d", class, next[class]); got != want {
			t.Fatalf("sent %q, want %q", got, want)
		}
		next[class]++
	}
	if next["detail"] != groups || next["rows"] != groups {
		t.Errorf("sent %v, want %d of each class", next, groups)
	}
}

// TestReadAgain reads acknowledged records with Read, with the same bytes and tokens.
func TestReadAgain(t *testing.T) {
	h := newHistory(t)
	l := h.mustOpen(newFakeFS())
	for range 7 {
		if err := h.append(l, 0, 150); err != nil {
			t.Fatal(err)
		}
	}
	h.send(l, 5)
	n := 0
	for _, s := range l.Acked() {
		for e, err := range l.Records(s) {
			if err == nil {
				e.Payload, err = e.Read(nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			h.took(&e.Entry)
			n++
		}
	}
	if n != 5 {
		t.Errorf("%d read, want the 5 that are acknowledged", n)
	}
}

func TestClear(t *testing.T) {
	h, fsys := newHistory(t), newFakeFS()
	l := h.mustOpen(fsys)
	for range 8 {
		if err := h.append(l, 0, 150); err != nil {
			t.Fatal(err)
		}
	}
	h.send(l, 3)
	if err := l.Clear(); err != nil {
		t.Fatal(err)
	}
	if got := l.Stats(); got.Bytes != 0 || got.Waiting != (Waiting{}) || len(fsys.segments()) != 0 {
		t.Errorf("%+v after clearing", got)
	}
	if err := h.append(l, 0, 10); err != nil {
		t.Fatal(err)
	}
	l = h.mustOpen(fsys.killed())
	if n := h.send(l, 100); n != 1 || len(h.lost) != 0 {
		t.Errorf("%d sent, %v lost, want the last record alone", n, h.lost)
	}
}

// TestExpendable: records of an expendable class are dropped first, and displace no others.
func TestExpendable(t *testing.T) {
	l, err := Open(Options{
		Dir: "box", Classes: []Class{{Name: "a"}, {Name: "b"}, {Name: "x", Expendable: true}}, MaxBytes: 4 << 10, SegmentBytes: 1 << 10, FS: newFakeFS(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for class := range 3 {
		if err := l.Append(Record{Class: class, Weight: 1, Payload: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, asking := range []int{0, 1, 2} {
		if s, ok := l.Oldest(asking); !ok || s.Class != 2 {
			t.Errorf("for class %d: %+v, %v, want the expendable one", asking, s, ok)
		}
	}
	s, _ := l.Oldest(2)
	if err := l.Discard(s, "full", Lost{Records: 1, Weight: 1}); err != nil {
		t.Fatal(err)
	}
	if s, ok := l.Oldest(2); ok {
		t.Errorf("%+v gives way to an expendable record", s)
	}
	if s, ok := l.Oldest(1); !ok || s.Class != 0 {
		t.Errorf("%+v, %v, want class 0", s, ok)
	}
}
