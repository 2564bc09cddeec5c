package metrics

import "sync"

// MaxProducers bounds the values of the labels tap, producer and exporter: those that
// were there first have a name of their own.
const MaxProducers = 256

// Other is the label of everything past a bound.
const Other = "other"

// first gives names to what comes first, for good, so that a counter named Other never
// goes back because something left it. Safe for concurrent use.
type first struct {
	mu    sync.Mutex
	named map[string]bool
}

// name is the label for something of that name.
func (f *first) name(s string) string {
	s = label(s)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.named == nil {
		f.named = make(map[string]bool)
	}
	if !f.named[s] {
		if len(f.named) >= MaxProducers {
			return Other
		}
		f.named[s] = true
	}
	return s
}

// sums adds up counters by label, in the order of their first appearance.
type sums[T any] struct {
	order []string
	of    map[string]*T
}

// at is the sum for a label, to be added to.
func (s *sums[T]) at(name string) *T {
	if s.of == nil {
		s.of = make(map[string]*T)
	}
	if s.of[name] == nil {
		s.of[name] = new(T)
		s.order = append(s.order, name)
	}
	return s.of[name]
}
