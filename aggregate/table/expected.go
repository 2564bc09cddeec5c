package table

import (
	"cmp"
	"slices"
)

// Producer is a tap, or a stream of an exporter.
type Producer struct {
	ID   uint64 // as in aggregate.Source
	Name string // for people
}

// maxProducers bounds the producers that a Memory knows by their windows, and as many again by
// Expect. Completeness is computed from them.
const maxProducers = 1 << 12

// Expect replaces the list of the producers that should write: a window is complete with rows
// of all of them, and of those that wrote any window that is kept. It takes the first 4096.
func (m *Memory) Expect(list []Producer) {
	expected := make(map[uint64]string, min(len(list), maxProducers))
	for _, p := range list[:min(len(list), maxProducers)] {
		expected[p.ID] = p.Name
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expected = expected
}

// Missing are the expected producers that wrote no window that is kept, by name.
func (m *Memory) Missing() []Producer {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Producer
	for id, name := range m.expected {
		if m.producers[id] == nil {
			list = append(list, Producer{id, name})
		}
	}
	slices.SortFunc(list, func(a, b Producer) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return list
}

// known is how many producers wrote a window that is kept, or should have.
func (m *Memory) known() int {
	n := len(m.producers)
	for id := range m.expected {
		if m.producers[id] == nil {
			n++
		}
	}
	return n
}
