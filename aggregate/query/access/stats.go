package access

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds are the upper bounds of the classes of EndpointStats.Took; a further class has what
// took longer.
func Bounds() []time.Duration { return slices.Clone(bounds) }

var bounds = []time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 500 * time.Millisecond, time.Second, 5 * time.Second, 10 * time.Second,
}

// Stats is a snapshot of what was counted.
type Stats struct {
	Endpoints []EndpointStats // in the order of their names
	Refused   map[string]uint64
	Rows      uint64
	StoreTime time.Duration
	Running   int // requests
	Askers    int // that are remembered
	Forgotten uint64
}

// EndpointStats is what was counted of one endpoint.
type EndpointStats struct {
	Name  string
	Codes map[int]uint64
	// Took are the answers by how long they took, in the classes of Bounds; streams apart.
	Took  []uint64
	Total time.Duration
}

// maxEndpoints bounds the endpoints that are told apart.
const maxEndpoints = 64

// counts are what was counted so far. It is safe for concurrent use.
type counts struct {
	refused   [numReasons]atomic.Uint64
	rows      atomic.Uint64
	storeTime atomic.Int64

	mu        sync.Mutex
	endpoints map[string]*EndpointStats
}

// endpointOf is what a request was about: the pattern of whoever answered it, of which there
// are few, whatever is asked.
func endpointOf(r *http.Request) string {
	pattern := r.Pattern
	if _, path, ok := strings.Cut(pattern, " "); ok {
		pattern = path
	}
	if pattern == "" || pattern == "/" {
		return "other"
	}
	return strings.TrimSuffix(pattern, "{$}")
}

func (c *counts) count(q *request, code int, r *http.Request, took time.Duration) {
	c.refused[q.why()].Add(1)
	c.rows.Add(uint64(q.rows.Load()))
	c.storeTime.Add(q.storeTime.Load())
	name := endpointOf(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endpoints == nil {
		c.endpoints = make(map[string]*EndpointStats)
	}
	e := c.endpoints[name]
	if e == nil && len(c.endpoints) >= maxEndpoints {
		name = "other"
		e = c.endpoints[name]
	}
	if e == nil {
		e = &EndpointStats{Name: name, Codes: make(map[int]uint64), Took: make([]uint64, len(bounds)+1)}
		c.endpoints[name] = e
	}
	e.Codes[code]++
	if q.stayed.Load() {
		return
	}
	at, _ := slices.BinarySearch(bounds, took)
	e.Took[at]++
	e.Total += took
}

// Stats is a snapshot of what was counted.
func (a *Control) Stats() Stats {
	s := Stats{
		Refused: make(map[string]uint64), Rows: a.counts.rows.Load(), StoreTime: time.Duration(a.counts.storeTime.Load()), Running: a.running.count(),
	}
	for r := preflight + 1; r < numReasons; r++ {
		s.Refused[r.String()] = a.counts.refused[r].Load()
	}
	in := a.settings.Load()
	for _, t := range []*table{&in.named, &in.places} {
		t.mu.Lock()
		s.Askers += len(t.known)
		s.Forgotten += t.forgot
		t.mu.Unlock()
	}
	a.counts.mu.Lock()
	defer a.counts.mu.Unlock()
	for _, e := range a.counts.endpoints {
		copied := EndpointStats{Name: e.Name, Codes: make(map[int]uint64, len(e.Codes)), Took: slices.Clone(e.Took), Total: e.Total}
		for code, n := range e.Codes {
			copied.Codes[code] = n
		}
		s.Endpoints = append(s.Endpoints, copied)
	}
	slices.SortFunc(s.Endpoints, func(x, y EndpointStats) int { return strings.Compare(x.Name, y.Name) })
	return s
}
