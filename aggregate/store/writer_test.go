package store

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// recorder is the writer's target and records its batches.
type recorder struct {
	mu    sync.Mutex
	sent  []sent
	fail  func(n int) error // by attempt, from 1
	tries int
	delay time.Duration
}

type sent struct {
	key  batchKey
	rows int
	at   time.Duration // since the test began
	sum  uint64        // of the observations
}

func (r *recorder) send(began time.Time) func(context.Context, []*batch, []byte) error {
	return func(_ context.Context, list []*batch, _ []byte) error {
		b := list[0]
		time.Sleep(r.delay)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.tries++
		if r.fail != nil {
			if err := r.fail(r.tries); err != nil {
				return err
			}
		}
		s := sent{key: b.batchKey, rows: b.rows(), at: time.Since(began)}
		for _, n := range b.words[7] {
			s.sum += n
		}
		r.sent = append(r.sent, s)
		return nil
	}
}

// start runs a writer inside a bubble of fake time.
func (r *recorder) start(t *testing.T) *writer {
	w := newWriter(r.send(time.Now()), false, attempts{limit: time.Minute, logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	w.start()
	return w
}

func blockAt(window time.Time, rows int) *aggregate.Block {
	one := row{resolution: int64(time.Second), window: window.UnixNano(), kind: 1, observations: 1, distCode: []uint16{1}, distCount: []uint64{1}}
	list := make([]row, rows)
	for i := range list {
		list[i] = one
	}
	return blockOf(list)
}

func (r *recorder) write(t *testing.T, w *writer, window time.Time, rows int) {
	t.Helper()
	if err := w.write(t.Context(), batchKey{table: secondTable, partition: partition(secondTable, window.UnixNano())}, blockAt(window, rows)); err != nil {
		t.Error(err)
	}
}

func TestBatchesByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		w := r.start(t)
		r.write(t, w, testStart, 3)
		time.Sleep(400 * time.Millisecond)
		r.write(t, w, testStart.Add(time.Second), 4)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(r.sent) != 1 || r.sent[0].rows != 7 || r.sent[0].at != maxBatchAge {
			t.Errorf("sent %+v, want 7 rows after %s", r.sent, maxBatchAge)
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestBatchesBySizeAndPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		w := r.start(t)
		r.write(t, w, testStart, maxBatchRows+5)
		r.write(t, w, testStart.Add(24*time.Hour), 7) // the next day: a batch of its own
		synctest.Wait()
		if len(r.sent) != 1 || r.sent[0].rows != maxBatchRows || r.sent[0].at != 0 {
			t.Fatalf("sent %+v, want the full batch at once", r.sent)
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
		rows := map[int64]int{}
		for _, s := range r.sent[1:] {
			rows[s.key.partition] += s.rows
		}
		day := partition(secondTable, testStart.UnixNano())
		if len(r.sent) != 3 || rows[day] != 5 || rows[day+int64(24*time.Hour)] != 7 {
			t.Errorf("sent %+v, want 5 and 7 rows after the full batch", r.sent)
		}
	})
}

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := &net.OpError{Op: "write", Err: errors.New("reset")}
		r := &recorder{fail: func(n int) error {
			if n <= 3 {
				return lost
			}
			return nil
		}}
		w := r.start(t)
		r.write(t, w, testStart, 9)
		if err := w.flush(t.Context(), nil); err != nil {
			t.Error(err)
		}
		if len(r.sent) != 1 || r.sent[0].sum != 9 || r.tries != 4 || w.stats.Retries != 3 {
			t.Errorf("sent %+v in %d tries, %d retries", r.sent, r.tries, w.stats.Retries)
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestGivingUp(t *testing.T) {
	for name, cause := range map[string]error{
		"server away for good": &net.OpError{Op: "dial", Err: errors.New("refused")},
		"rows refused":         errors.New("type mismatch"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{fail: func(int) error { return cause }}
				w := r.start(t)
				r.write(t, w, testStart, 9)
				if err := w.flush(t.Context(), nil); !errors.Is(err, cause) {
					t.Errorf("flush: %v", err)
				}
				if err := w.write(t.Context(), batchKey{table: secondTable}, blockAt(testStart, 1)); !errors.Is(err, cause) {
					t.Errorf("write after rows were lost: %v", err)
				}
				if err := w.close(); !errors.Is(err, cause) {
					t.Errorf("close: %v", err)
				}
				if w.stats.Lost != 9 || w.buffered != 0 {
					t.Errorf("%d rows lost, %d buffered, want 9 and 0", w.stats.Lost, w.buffered)
				}
			})
		})
	}
}

// TestBackPressure has a server that is slower than the shards.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{delay: time.Second}
		w := r.start(t)
		block := blockAt(testStart, maxBatchRows/2)
		for range 20 {
			if err := w.write(t.Context(), batchKey{table: secondTable}, block); err != nil {
				t.Fatal(err)
			}
			if w.buffered > maxBufferedRows+maxBatchRows {
				t.Fatalf("%d rows buffered", w.buffered)
			}
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 {
			if err := w.write(canceled, batchKey{table: secondTable}, block); err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				break
			}
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
		if w.buffered != 0 {
			t.Errorf("%d rows left", w.buffered)
		}
	})
}

// TestManyPartitions fills the buffer with batches that are all far from full.
func TestManyPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{delay: time.Millisecond}
		w := r.start(t)
		for day := range 2 * maxBufferedRows / 1000 {
			r.write(t, w, testStart.Add(time.Duration(day)*24*time.Hour), 1000)
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
		if want := uint64(2 * maxBufferedRows); w.stats.Rows != want {
			t.Errorf("%d rows written, want %d", w.stats.Rows, want)
		}
	})
}

// TestMarksAfterCanceled: marks that come while those of an ended call are being written are written
// after them.
func TestMarksAfterCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(nil, true, attempts{logger: slog.New(slog.DiscardHandler)})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.flush(ended, []byte("first")); !errors.Is(err, context.Canceled) {
			t.Errorf("a call that ended: %v", err)
		}
		_, first, _, _ := w.next(time.Now())
		var second error
		done := false
		go func() { second, done = w.flush(t.Context(), []byte("second")), true }()
		synctest.Wait()
		w.finish(nil, first, nil)
		synctest.Wait()
		if done {
			t.Error("the second call returned before its marks were written")
		}
		_, marks, _, _ := w.next(time.Now())
		w.finish(nil, marks, nil)
		synctest.Wait()
		if string(first) != "first" || string(marks) != "second" || !done || second != nil {
			t.Errorf("wrote %q and %q, done: %t, %v", first, marks, done, second)
		}
	})
}

func TestWriteAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		w := r.start(t)
		if err := w.close(); err != nil {
			t.Error(err)
		}
		if err := w.write(t.Context(), batchKey{table: secondTable}, blockAt(testStart, 1)); !errors.Is(err, ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	})
}
