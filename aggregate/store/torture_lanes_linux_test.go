package store

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"
)

// wireLane writes through a proxy that disturbs every third request.
type wireLane struct {
	home   *errand
	tally  *tally
	rounds int
}

func (w *wireLane) run(t *testing.T, rng *rand.Rand) {
	_, socket := startWire(t, w.home.Socket, 0.3, rng, w.tally)
	e := &errand{Socket: socket, Dir: filepath.Join(t.TempDir(), "outbox"), MaxBytes: 1 << 20, Keep: time.Hour}
	direct := &errand{Socket: w.home.Socket, Dir: filepath.Join(t.TempDir(), "none")}
	look := direct.open(t)
	defer closeStore(t, look)
	s := e.open(t)
	defer closeStore(t, s)
	for producer := range uint64(w.rounds) {
		life := newLife(10_000_000 + producer)
		if err := life.write(t.Context(), s, 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := life.compare(t.Context(), look, always); err != nil {
			t.Fatal(err)
		}
	}
}

// engineLane kills the engine while rows are on their way.
func engineLane(t *testing.T, home *errand, count *tally, rng *rand.Rand, kills int) {
	e := &errand{Socket: home.Socket, Dir: filepath.Join(t.TempDir(), "outbox"), MaxBytes: 4 << 20, Keep: time.Hour}
	s := e.open(t)
	defer closeStore(t, s)
	producer := uint64(20_000_000)
	for range kills {
		first := producer
		killed := make(chan struct{})
		time.AfterFunc(time.Duration(rng.IntN(60))*time.Millisecond, func() {
			defer close(killed)
			killChildren(t)
			count.add("engine kills", "any moment")
		})
		for ; producer < first+20; producer++ {
			if err := newLife(producer).write(t.Context(), s, 0); err != nil {
				t.Fatal(err)
			}
			if err := s.writer.flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		<-killed
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for ; first < producer; first++ {
			if err := newLife(first).compare(t.Context(), s, always); err != nil {
				t.Fatal(err)
			}
		}
	}
}
