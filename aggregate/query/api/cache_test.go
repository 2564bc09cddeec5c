package api

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestCache: concurrent requests compute a result once, and after a failure the others retry.
func TestCache(t *testing.T) {
	m := newCache(1 << 20)
	var calls atomic.Int64
	var asking sync.WaitGroup
	for range 32 {
		asking.Go(func() {
			v, err := getOrCompute(m, "key", func() (int, int, error) { return int(calls.Add(1)), 1, nil })
			if v != 1 || err != nil {
				t.Errorf("%d, %v", v, err)
			}
		})
	}
	asking.Wait()
	if calls.Load() != 1 {
		t.Errorf("made %d times", calls.Load())
	}
	calls.Store(0)
	var good atomic.Int64
	begun := make(chan struct{})
	for i := range 8 {
		asking.Go(func() {
			if i > 0 {
				<-begun // while the first one runs
			}
			_, err := getOrCompute(m, "failing", func() (int, int, error) {
				if calls.Add(1) == 1 {
					close(begun)
					return 0, 0, errors.New("has left")
				}
				return 1, 1, nil
			})
			if err == nil {
				good.Add(1)
			}
		})
	}
	asking.Wait()
	if good.Load() != 7 {
		t.Errorf("%d of 8 were answered after one has failed", good.Load())
	}
}

// TestPanicInCache: equal requests after one whose result panicked do not get an empty result.
func TestPanicInCache(t *testing.T) {
	m, l := newCache(1<<20), &lazily[int]{}
	for call := range 2 {
		err := recovering(func() error {
			_, err := getOrCompute(m, "key", func() (int, int, error) { panic("secret") }) // a defect in the computation
			return err
		})
		lazy := recovering(func() error {
			_, err := l.get(func() (int, error) { panic("secret") }) // likewise
			return err
		})
		if err == nil || lazy == nil {
			t.Errorf("call %d: %v, %v", call, err, lazy)
		}
	}
}

// TestPanicInEvent: an event that panics while it is made takes no room from later ones.
func TestPanicInEvent(t *testing.T) {
	w := &subscription{api: &API{cache: newCache(1 << 20), sends: newSends(1000)}}
	turn, err := w.api.sends.begin(t.Context(), "key", 1000, func() {})
	if err != nil {
		t.Fatal(err)
	}
	err = recovering(func() error {
		_, err := w.share(turn, askedEvent{}, func() (*event, error) { panic("secret") }) // a defect in the computation
		return err
	})
	if held := w.api.sends.held; err == nil || held != 0 {
		t.Errorf("%d bytes are held after %v", held, err)
	}
}

// TestPanicAhead: a result that panics while it is prepared does not end the process.
func TestPanicAhead(t *testing.T) {
	a := &API{Config: Config{Now: time.Now}}
	a.lately.note("key", time.Now(), func(context.Context, *table.State) error { panic("secret") }) // a defect in the computation
	if err := recovering(func() error { a.prepare(t.Context(), &table.State{}); return nil }); err != nil {
		t.Error(err)
	}
}

// TestMadeBounds: least recently used results are dropped, and nothing is counted twice.
func TestMadeBounds(t *testing.T) {
	m := newCache(10 << 10)
	get := func(key int) (made bool) {
		_, err := getOrCompute(m, key, func() (struct{}, int, error) {
			made = true
			return struct{}{}, 1 << 10, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	for key := range 1000 {
		get(0) // used all the time
		get(key)
	}
	if m.bytes != 10<<10 || len(m.known) != 10 || m.order.Len() != 10 {
		t.Errorf("%d bytes in %d things, %d in order", m.bytes, len(m.known), m.order.Len())
	}
	if get(0) || get(999) || !get(1) {
		t.Error("not what was asked for last is held")
	}
	// A result larger than the cache is returned, but not kept.
	if _, err := getOrCompute(m, "huge", func() (struct{}, int, error) { return struct{}{}, 1 << 30, nil }); err != nil {
		t.Error(err)
	}
	if m.bytes != 10<<10 || len(m.known) != 10 {
		t.Errorf("%d bytes in %d things are held after something huge", m.bytes, len(m.known))
	}
	// A result dropped while it is computed has no size.
	if _, err := getOrCompute(m, "slow", func() (struct{}, int, error) {
		for key := range 100 {
			get(2000 + key)
		}
		return struct{}{}, 1 << 10, nil
	}); err != nil || m.bytes != 10<<10 || len(m.known) != 10 || m.order.Len() != 10 {
		t.Errorf("%v, %d bytes in %d things are held", err, m.bytes, len(m.known))
	}
}

// TestPrepared: recently requested results are computed for the next revision before the next
// request, but only for a while.
func TestPrepared(t *testing.T) {
	memory, now := table.NewMemory(table.MemoryOptions{Now: tabletest.Still}), time.Unix(1e9, 0)
	a, err := New(Config{Memory: memory, Names: tabletest.Names{Racks: 2}, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	window := func(second int) {
		b := tabletest.Block(rand.New(rand.NewPCG(1, uint64(second))), 1, now.Add(time.Duration(second)*time.Second), 4, csig.MinABWRatio)
		if err := memory.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		memory.Publish()
	}
	// further is the number of new results needed for the answers.
	further := func() int {
		before := len(a.cache.known)
		for _, target := range []string{"/api/v1/cells", "/api/v1/cells?src=rack1", "/api/v1/matrix?windows=2"} {
			w := httptest.NewRecorder()
			if a.ServeHTTP(w, httptest.NewRequest("GET", target, nil)); w.Code != 200 {
				t.Errorf("%s: %d %s", target, w.Code, w.Body)
			}
		}
		return len(a.cache.known) - before
	}
	window(0)
	window(1)
	if further() == 0 {
		t.Error("nothing is made for the first one who asks")
	}
	window(2)
	a.prepare(t.Context(), memory.State())
	if n := further(); n != 0 {
		t.Errorf("%d things are made although they were prepared", n)
	}
	now = now.Add(2 * wishedFor)
	window(3)
	before := len(a.cache.known)
	if a.prepare(t.Context(), memory.State()); len(a.cache.known) != before {
		t.Errorf("%d things are prepared for nobody", len(a.cache.known)-before)
	}
}
