package table

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Producer is a tap, or a stream of an exporter.
type Producer struct {
	ID   uint64 // as in aggregate.Source
	Name string // for people
	// Newest is the end of the newest window that it wrote, the zero Time if unknown. Only Coverage
	// sets it.
	Newest time.Time
}

const (
	// maxProducers bounds the producers that a Memory knows from their windows, and separately
	// those from Expect. Completeness is computed from them.
	maxProducers = 1 << 12
	// expectedFor is how long after its last rows a producer is expected, unless it is forgotten.
	expectedFor = 24 * time.Hour
)

// Expect replaces the list of the producers that should write; it uses the first 4096. The expected
// producers are these, and for a day all that wrote, except the forgotten ones. A forgotten
// producer counts again as soon as it writes. States include the change from the next revision on,
// which there is at once if there is no window yet.
func (m *Memory) Expect(list []Producer, forgotten []uint64) {
	expected := make(map[uint64]string, min(len(list), maxProducers))
	for _, p := range list[:min(len(list), maxProducers)] {
		expected[p.ID] = p.Name
	}
	m.mu.Lock()
	m.expected = expected
	for id, p := range m.producers {
		p.name = cmp.Or(expected[id], p.name)
	}
	for _, id := range forgotten {
		if p := m.producers[id]; p != nil && m.isSilent(p) {
			delete(m.producers, id)
		}
	}
	m.mu.Unlock()
	if len(m.State().Windows) == 0 {
		m.Publish()
	}
}

// expectsAs reports whether both coverages expect equal producers, and miss the same.
func (c *Coverage) expectsAs(other *Coverage) bool {
	return c.Expected == other.Expected && slices.Equal(c.Silent, other.Silent)
}

// isSilent reports whether a producer has no rows in the windows of the last MemoryOptions.MaxAge.
func (m *Memory) isSilent(p *producer) bool { return p.newest < m.current() }

// current returns the start of the first window that is not too old, Unix ns: without a clock all
// are current.
func (m *Memory) current() int64 {
	if !m.isLive() || m.table.newest == noWindow {
		return math.MinInt64
	}
	return m.table.newest + int64(m.opts.Resolution) - int64(m.opts.MaxAge)
}

// known returns the number of expected producers, and the names of those without current rows.
func (m *Memory) known() (n int, silent map[uint64]string) {
	n = len(m.producers)
	miss := func(id uint64, name string) {
		if silent == nil {
			silent = make(map[uint64]string)
		}
		silent[id] = cmp.Or(name, fmt.Sprintf("producer %016x", id))
	}
	for id, p := range m.producers {
		if m.isSilent(p) {
			miss(id, p.name)
		}
	}
	for id, name := range m.expected {
		if m.producers[id] == nil {
			n++
			miss(id, name)
		}
	}
	return n, silent
}

// forgetProducers drops producers that are no longer expected.
func (m *Memory) forgetProducers(now time.Time, oldest int64) {
	maps.DeleteFunc(m.producers, func(_ uint64, p *producer) bool {
		return p.newest < oldest && (!m.isLive() || now.Sub(p.wrote) >= expectedFor)
	})
}

// makeRoom drops a producer without a kept window if there are too many to add another one. It
// returns false if there is none.
func (m *Memory) makeRoom() bool {
	for id, p := range m.producers {
		if len(m.table.list) > 0 && p.newest < m.table.list[0].start {
			delete(m.producers, id)
			return true
		}
	}
	return false
}

// sortedProducers returns the producers of a map, by name.
func sortedProducers(of map[uint64]string) []Producer {
	list := make([]Producer, 0, len(of))
	for id, name := range of {
		list = append(list, Producer{ID: id, Name: name})
	}
	slices.SortFunc(list, func(a, b Producer) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return list
}
