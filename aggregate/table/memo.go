package table

import "sync"

// maxMemo bounds what a Memo remembers.
const maxMemo = 128

// Memo remembers what was made of something that never changes, each thing made once and
// forgotten with it. It is safe for concurrent use.
type Memo struct {
	mu   sync.Mutex
	made map[any]func() any
}

// NewMemo makes an empty Memo.
func NewMemo() *Memo { return &Memo{made: make(map[any]func() any)} }

// Get gives what was made under the key, or makes it. Past a bound it makes it each time.
func (m *Memo) Get(key any, make func() any) any {
	m.mu.Lock()
	get, ok := m.made[key]
	if !ok {
		get = sync.OnceValue(make)
		if len(m.made) < maxMemo {
			m.made[key] = get
		}
	}
	m.mu.Unlock()
	return get()
}
