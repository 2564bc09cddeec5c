package outbox

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"
)

// history records and checks the operations on an outbox over several processes.
type history struct {
	testing.TB
	attempted map[string]bool     // payloads given to Append
	confirmed map[recordID]string // payloads for which it returned nil
	sent      map[string]string   // payload by token
	sentAs    map[string]string   // token by payload
	lost      map[recordID]Reason
	n         int
	now       time.Time
}

type recordID struct {
	class int
	seq   uint64
}

func newHistory(t testing.TB) *history {
	return &history{
		TB: t, attempted: map[string]bool{}, confirmed: map[recordID]string{},
		sent: map[string]string{}, sentAs: map[string]string{}, lost: map[recordID]Reason{},
		now: time.Unix(1e9, 0),
	}
}

const testDir = "/outbox"

func (h *history) options(fsys FS) Options {
	return Options{
		Dir: testDir, Classes: []Class{{Name: "fine"}, {Name: "coarse"}, {Name: "notes", Exempt: true}},
		MaxBytes: 1 << 20, SegmentBytes: 500, FS: fsys,
		Now:    func() time.Time { h.now = h.now.Add(100 * time.Millisecond); return h.now },
		Logger: slog.New(slog.DiscardHandler),
	}
}

func (h *history) open(fsys FS) (*Log, error) { return Open(h.options(fsys)) }

func (h *history) mustOpen(fsys FS) *Log {
	h.Helper()
	l, err := h.open(fsys)
	if err != nil {
		h.Fatal(err)
	}
	return l
}

// append writes a record with a unique payload.
func (h *history) append(l *Log, class, size int) error {
	h.n++
	payload := bytes.Repeat(fmt.Appendf(nil, "%d.", h.n), size)[:size]
	payload = fmt.Appendf(payload, "|%d", h.n)
	label := fmt.Appendf(nil, "label %d", h.n)
	h.attempted[string(payload)] = true
	seq := l.classes[class].next
	err := l.Append(Record{Class: class, Weight: uint64(size), Label: label, Payload: payload})
	if err == nil {
		h.confirmed[recordID{class, seq}] = string(payload)
	}
	return err
}

// send takes up to max entries, and gives up after a persistent error.
func (h *history) send(l *Log, max int) (n int) {
	h.Helper()
	var buf []byte
	for errs := 0; n < max && errs < 20; {
		e, ok, err := l.Next(buf)
		if err != nil {
			errs++
			continue
		}
		if !ok {
			break
		}
		n++
		h.took(&e)
		l.Ack(&e)
	}
	return n
}

func (h *history) took(e *Entry) {
	h.Helper()
	if e.Lost != "" {
		for seq := e.First; seq <= e.Last; seq++ {
			h.lost[recordID{e.Class, seq}] = e.Lost
		}
		return
	}
	payload := string(e.Payload)
	if !h.attempted[payload] {
		h.Fatalf("sent %d-%d, which was never appended: %q", e.Class, e.First, payload)
	}
	if before, ok := h.sent[e.Token()]; ok && before != payload {
		h.Fatalf("token %s has another payload than before", e.Token())
	}
	if before, ok := h.sentAs[payload]; ok && before != e.Token() {
		h.Fatalf("payload has token %s, and had %s", e.Token(), before)
	}
	h.sent[e.Token()], h.sentAs[payload] = payload, e.Token()
}

// discard gives up the oldest segment up to a class.
func (h *history) discard(l *Log, class int) {
	s, ok := l.Oldest(class)
	if !ok {
		return
	}
	for seq := s.from; seq <= s.to; seq++ {
		h.lost[recordID{s.Class, seq}] = "full"
	}
	_ = l.Discard(s, "full", Lost{Records: s.to - s.from + 1})
}

// drain sends the remaining records on a file system without faults, and checks the invariant:
// every confirmed record is sent or lost for a reason.
func (h *history) drain(fsys FS) {
	h.Helper()
	l := h.mustOpen(fsys)
	h.send(l, 1000)
	if w := l.Stats().Waiting; w != (Waiting{}) {
		h.Errorf("%+v wait after all was sent", w)
	}
	if err := l.Close(); err != nil {
		h.Error(err)
	}
	h.check()
}

func (h *history) check() {
	h.Helper()
	for at, payload := range h.confirmed {
		if _, sent := h.sentAs[payload]; !sent && h.lost[at] == "" {
			h.Errorf("record %d of class %d was confirmed, and is neither sent nor lost", at.seq, at.class)
		}
	}
}

// work is a short sequence of all operations of a log.
func (h *history) work(l *Log) {
	for round := range 4 {
		for class := range 3 {
			_ = h.append(l, class, 60+30*round)
			_ = h.append(l, class, 200)
		}
		h.send(l, 3)
		if round == 2 {
			h.discard(l, 0)
		}
		for _, s := range l.Acked() {
			if s.Acked {
				_ = l.Release(s)
				break
			}
		}
	}
	l.Save()
}

func (h *history) wantLost(want int) {
	h.Helper()
	if len(h.lost) != want {
		h.Errorf("%d records lost, want %d: %v", len(h.lost), want, h.lost)
	}
}

func TestLife(t *testing.T) {
	h, fsys := newHistory(t), newFakeFS()
	l := h.mustOpen(fsys)
	if _, err := h.open(fsys); !errors.Is(err, ErrOwned) {
		t.Errorf("second owner: %v, want ErrOwned", err)
	}
	h.work(l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	discarded := len(h.lost)
	h.drain(fsys)
	h.wantLost(discarded)
	if discarded == 0 || len(h.sent)+discarded != 24 {
		t.Errorf("%d sent, %d discarded, want 24 together", len(h.sent), discarded)
	}
}
