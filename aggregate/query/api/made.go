package api

import (
	"container/list"
	"sync"
)

// made holds what was made of revisions and windows, which never change, for those who ask
// the same: each thing is made once, and what nobody asked for lately gives way. It is safe
// for concurrent use.
type made struct {
	most int // bytes

	mu    sync.Mutex
	known map[any]*list.Element // of *thing
	order *list.List            // what was asked for last is in front
	bytes int
}

// thing is one of them. size is known when it has been made.
type thing struct {
	key   any
	once  sync.Once
	value any
	size  int
	err   error
}

// leastSize is what the smallest thing counts for, in bytes.
const leastSize = 512

func newMade(most int) *made {
	return &made{most: most, known: make(map[any]*list.Element), order: list.New()}
}

// once gives what was made under the key, or makes it; f says how large it is, in bytes, about.
// What could not be made is tried again by all who wait for it, each for itself: it may have
// failed because one of them has left.
func once[T any](m *made, key any, f func() (value T, size int, err error)) (T, error) {
	t := m.at(key)
	mine := false
	t.once.Do(func() {
		mine = true
		value, size, err := f()
		t.value, t.err = value, err
		m.weigh(t, max(size, leastSize))
	})
	if t.err != nil && !mine {
		value, _, err := f()
		return value, err
	}
	value, _ := t.value.(T)
	return value, t.err
}

// at is the thing of the key, made or not.
func (m *made) at(key any) *thing {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.known[key]; ok {
		m.order.MoveToFront(e)
		return e.Value.(*thing)
	}
	t := &thing{key: key}
	m.known[key] = m.order.PushFront(t)
	return t
}

// weigh takes the size of a thing into account, and forgets those beyond the bound. One that
// failed, or is larger than all there is room for, is forgotten itself.
func (m *made) weigh(t *thing, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, held := m.known[t.key]
	if !held || e.Value != t {
		return // it has given way already
	}
	if t.err != nil || size > m.most {
		m.forget(e)
		return
	}
	t.size = size
	m.bytes += size
	for m.bytes > m.most {
		m.forget(m.order.Back())
	}
}

// forget takes a thing out; one that is being made counts for nothing. The caller holds mu.
func (m *made) forget(e *list.Element) {
	t := m.order.Remove(e).(*thing)
	delete(m.known, t.key)
	m.bytes -= t.size
}

// lazily is something that is made once, by whoever needs it first.
type lazily[T any] struct {
	once  sync.Once
	value T
	err   error
}

func (l *lazily[T]) get(f func() (T, error)) (T, error) {
	l.once.Do(func() { l.value, l.err = f() })
	return l.value, l.err
}
