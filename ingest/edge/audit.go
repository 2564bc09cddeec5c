package edge

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/ingest/retry"
)

// LatencyBuckets returns the upper bounds of the buckets of EndpointStats.Took. One more bucket
// counts slower responses.
func LatencyBuckets() []time.Duration { return slices.Clone(bounds) }

var bounds = []time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 500 * time.Millisecond, time.Second, 5 * time.Second, 10 * time.Second,
}

// Stats is a snapshot of the counters of a server with Access.
type Stats struct {
	Endpoints []EndpointStats   // sorted by name
	Refused   map[string]uint64 // requests and connections, by reason
	Rows      uint64
	StoreTime time.Duration
	Running   int // requests
	Clients   int // remembered
	Forgotten uint64
}

// EndpointStats holds the counters of one endpoint.
type EndpointStats struct {
	Name  string
	Codes map[int]uint64
	// Took counts responses by duration, in the buckets of LatencyBuckets, without streams.
	Took  []uint64
	Total time.Duration
}

// maxEndpoints is the maximum number of endpoints with counters of their own.
const maxEndpoints = 64

// counts is safe for concurrent use.
type counts struct {
	refused     [numRefusals]atomic.Uint64
	connections [NumReasons]atomic.Uint64 // that were refused or closed
	rows        atomic.Uint64
	storeTime   atomic.Int64

	mu        sync.Mutex
	endpoints map[string]*EndpointStats
}

// connReasons are why connections are refused or closed, before any request.
var connReasons = []Reason{
	NoCredential, ForeignCertificate, ExpiredCertificate, NamelessCertificate, NotListed,
	TooManyConns, Handshake, AddressConns, DisplacedConn,
}

// endpointOf returns the pattern of the handler that answered a request. There are few
// patterns, whatever clients request.
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
	if q.streamed.Load() {
		return
	}
	at, _ := slices.BinarySearch(bounds, took)
	e.Took[at]++
	e.Total += took
}

func (a *control) stats() Stats {
	s := Stats{
		Refused: make(map[string]uint64), Rows: a.counts.rows.Load(), StoreTime: time.Duration(a.counts.storeTime.Load()), Running: a.running.count(),
	}
	for r := preflight + 1; r < numRefusals; r++ {
		s.Refused[r.String()] = a.counts.refused[r].Load()
	}
	for _, r := range connReasons {
		s.Refused[r.String()] = a.counts.connections[r].Load()
	}
	in := a.settings.Load()
	for _, t := range []*table{&in.named, &in.addresses} {
		t.mu.Lock()
		s.Clients += len(t.known)
		s.Forgotten += t.forgot
		t.mu.Unlock()
	}
	a.counts.mu.Lock()
	defer a.counts.mu.Unlock()
	for _, e := range a.counts.endpoints {
		s.Endpoints = append(s.Endpoints, EndpointStats{Name: e.Name, Codes: maps.Clone(e.Codes), Took: slices.Clone(e.Took), Total: e.Total})
	}
	slices.SortFunc(s.Endpoints, func(x, y EndpointStats) int { return strings.Compare(x.Name, y.Name) })
	return s
}

// refusal says why a request was not passed on, or not answered in full.
type refusal uint8

// The zero value means no refusal.
const (
	none refusal = iota
	preflight
	unauthenticated
	forbidden
	foreignOrigin
	credentialInURL
	failures
	rateLimit
	concurrent
	watchers
	storeTime
	revoked

	numRefusals
)

var refusalNames = [numRefusals]string{
	"none", "preflight", "unauthenticated", "forbidden", "foreign_origin", "credential_in_url",
	"failures", "requests", "concurrent", "watchers", "store_time", "revoked",
}

// String returns the name of the reason in metrics and logs.
func (r refusal) String() string { return refusalNames[r] }

// audit logs each request from another machine or with a credential. It skips files without
// data, since strangers could fill the log with them, and limits the log rate of refused
// requests for each reason.
type audit struct {
	logger  *slog.Logger
	refused [numRefusals]retry.LogThrottle
}

func (a *audit) write(q *request, status int, r *http.Request, took time.Duration, now time.Time) {
	refused := q.why() > preflight
	if !refused && (q.open || q.peer.Credential == "" && q.address == loopback) || q.why() == preflight {
		return
	}
	line := []slog.Attr{
		slog.String("who", q.peer.Name), slog.String("role", string(q.peer.Role)), slog.String("by", string(q.peer.Credential)), slog.String("address", r.RemoteAddr),
		slog.String("method", Truncated(r.Method)), slog.String("path", Truncated(r.URL.Path)), slog.Int("status", status),
		slog.Float64("ms", float64(took)/float64(time.Millisecond)),
	}
	if refused {
		message := "api request refused"
		if status < http.StatusBadRequest || q.why() == revoked { // it had begun
			message = "api answer cut short"
		}
		a.refused[q.why()].Warn(a.logger, now, message, append(line, slog.String("reason", q.why().String()))...)
		return
	}
	if status < http.StatusBadRequest { // parameters of bad requests may contain anything
		line = append(line, slog.String("query", Truncated(r.URL.RawQuery)))
	}
	line = append(line, slog.Int64("rows", q.rows.Load()), slog.Float64("store_ms", float64(q.storeTime.Load())/float64(time.Millisecond)))
	a.logger.LogAttrs(r.Context(), slog.LevelInfo, "api request", line...)
}
