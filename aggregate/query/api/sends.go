package api

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	// maxSending bounds the bytes held for watchers while events are made and sent.
	maxSending = 48 << 20
	// crowdedAfter is how long a watcher may take for an event while others wait for room.
	crowdedAfter = 2 * time.Second
)

// sends bounds the memory of events that are being sent to watchers. An event for several
// watchers counts once. If there is no room for a further event, the watchers that have taken
// longest are cut off once they have taken crowdedAfter: a client that does not read must not
// keep others from reading. It is safe for concurrent use.
type sends struct {
	most int // bytes

	mu      sync.Mutex
	held    int // bytes of all charges
	charges map[any]*charge
	turns   *list.List    // of *turn, the oldest in front
	ended   chan struct{} // closed and replaced when room is made

	slow, crowded uint64 // watchers that were cut
}

// charge is the memory held for turns that send the same event.
type charge struct {
	bytes      int
	turns, cut int
}

// turn is the sending of one event to one watcher.
type turn struct {
	key   any
	at    *list.Element
	began time.Time
	stop  func() // makes the writing of the event fail
	cut   bool
}

func newSends(most int) *sends {
	return &sends{most: most, charges: make(map[any]*charge), turns: list.New(), ended: make(chan struct{})}
}

// begin waits for room for an event of about the given size, before it is made. Turns with the
// same key share their memory. Unless begin fails, the caller must call end.
func (s *sends) begin(ctx context.Context, key any, bytes int, stop func()) (*turn, error) {
	for {
		t, wait, ended := s.enter(key, bytes, stop)
		if t != nil {
			return t, nil
		}
		if err := untilEnded(ctx, wait, ended); err != nil {
			return nil, err
		}
	}
}

// untilEnded waits at most the given time, or until ended is closed. It fails when ctx ends.
func untilEnded(ctx context.Context, wait time.Duration, ended chan struct{}) error {
	select {
	case <-ended:
	case <-time.After(wait):
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// enter begins a turn if there is room. Otherwise it cuts off old turns, and returns the maximum
// wait before the next attempt, and a channel that closes earlier if room is made.
func (s *sends) enter(key any, bytes int, stop func()) (t *turn, wait time.Duration, ended chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.charges[key] != nil || s.held == 0 || s.held+bytes <= s.most {
		t = &turn{key: key, began: time.Now(), stop: stop}
		t.at = s.turns.PushBack(t)
		s.join(key, bytes)
		return t, 0, nil
	}
	leaving := 0
	for _, c := range s.charges {
		if c.cut == c.turns {
			leaving += c.bytes
		}
	}
	wait = crowdedAfter
	for e := s.turns.Front(); e != nil && s.held-leaving+bytes > s.most; e = e.Next() {
		old := e.Value.(*turn)
		if left := crowdedAfter - time.Since(old.began); left > 0 {
			wait = left
			break
		}
		if !old.cut {
			old.cut = true
			old.stop()
			c := s.charges[old.key]
			if c.cut++; c.cut == c.turns {
				leaving += c.bytes
			}
		}
	}
	return nil, wait, s.ended
}

// join adds a turn to a charge. The caller holds mu.
func (s *sends) join(key any, bytes int) {
	c := s.charges[key]
	if c == nil {
		c = &charge{bytes: bytes}
		s.charges[key] = c
		s.held += bytes
	}
	c.turns++
}

// leave removes a turn from its charge. The caller holds mu.
func (s *sends) leave(t *turn) {
	c := s.charges[t.key]
	if t.cut {
		c.cut--
	}
	if c.turns--; c.turns == 0 {
		s.held -= c.bytes
		delete(s.charges, t.key)
	}
}

// weigh corrects the bytes held for a turn after its event was made.
func (s *sends) weigh(t *turn, bytes int) {
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.cut {
		return // it fails soon
	}
	c := s.charges[t.key]
	s.held += bytes - c.bytes
	c.bytes = bytes
	s.makeRoom()
}

// end ends a turn.
func (s *sends) end(t *turn) {
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns.Remove(t.at)
	s.leave(t)
	s.makeRoom()
}

// makeRoom wakes all waiters. The caller holds mu.
func (s *sends) makeRoom() {
	close(s.ended)
	s.ended = make(chan struct{})
}

// isCut reports whether the turn was cut off.
func (s *sends) isCut(t *turn) bool {
	if t == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.cut
}

// count counts a watcher that could not be sent an event.
func (s *sends) count(t *turn, took, most time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case t != nil && t.cut:
		s.crowded++
	case took >= most:
		s.slow++
	}
}
