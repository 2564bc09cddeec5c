package metrics

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/csigscope/csigscope/ingest/edge"
)

// API counts the clients and requests of the query API.
type API struct {
	edge.Stats
	Watchers int    // clients that wait or watch
	Lagging  uint64 // lagging events sent to watchers
	// Slow and Crowded count disconnected watchers: one event took too long to send, or it did so
	// while other watchers waited for memory.
	Slow, Crowded uint64
}

// APICollector exports the query API's counters.
type APICollector struct {
	*snapshots[API]
	took *family
	from func() API
}

// NewAPI exports requests to the query API by endpoint, refused requests by reason, and the store's
// work for answers.
func NewAPI(read func() API) *APICollector {
	a := &APICollector{snapshots: of(read), from: read}
	requests := a.Collector.counter("api_requests_total", "Requests to the query API, by endpoint and status.", "endpoint", "code")
	a.took = a.add(Histogram, "api_request_duration_seconds", "How long answers of the query API took; without requests that wait or watch.", []string{"endpoint"})
	a.counters("api_refused_total", "Refused requests: without a valid credential or role, from foreign web sites, or beyond a limit of the client; and refused connections, beyond their number.", "reason", func(s *API) map[string]uint64 { return s.Refused })
	a.gauge("api_requests_in_flight", "Requests to the query API that are being answered, with those that wait or watch.", func(s *API) float64 { return float64(s.Running) })
	a.gauge("api_watchers", "Requests that wait for the next window, or watch.", func(s *API) float64 { return float64(s.Watchers) })
	a.counter("api_lagging_total", "Times that a watcher read too slowly, got a notice and started again.", func(s *API) float64 { return float64(s.Lagging) })
	a.counters("api_watchers_cut_total", "Watchers that were cut because they did not read: an event took longer than 30 s (slow), or longer than 2 s while others waited for the memory that it took (crowded).", "reason", func(s *API) map[string]uint64 { return map[string]uint64{"slow": s.Slow, "crowded": s.Crowded} })
	a.counter("api_rows_total", "Cells and rows in answers.", func(s *API) float64 { return float64(s.Rows) })
	a.counter("api_store_seconds_total", "Time that the store has worked for the query API.", func(s *API) float64 { return s.StoreTime.Seconds() })
	a.gauge("api_clients", "Clients that are remembered, for their limits.", func(s *API) float64 { return float64(s.Clients) })
	a.counter("api_clients_forgotten_total", "Clients forgotten to make room for others, together with their used budgets.", func(s *API) float64 { return float64(s.Forgotten) })
	a.each = append(a.each, func(to emit, s *API) {
		for _, e := range s.Endpoints {
			for code, n := range e.Codes {
				to(requests, float64(n), e.Name, strconv.Itoa(code))
			}
		}
	})
	return a
}

// Collect implements prometheus.Collector.
func (a *APICollector) Collect(to chan<- prometheus.Metric) {
	a.Collector.Collect(to)
	bounds := edge.LatencyBuckets()
	for _, e := range a.from().Endpoints {
		to <- constHistogram(a.took, bounds, e.Took, e.Total, label(e.Name))
	}
}

// constHistogram returns a histogram of counts by class; the last class is unbounded.
func constHistogram(f *family, bounds []time.Duration, counts []uint64, sum time.Duration, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(bounds))
	total := uint64(0)
	for i, n := range counts {
		total += n
		if i < len(bounds) {
			buckets[bounds[i].Seconds()] = total
		}
	}
	return prometheus.MustNewConstHistogram(f.desc, total, math.Max(sum.Seconds(), 0), buckets, labels...)
}

// HTTP counts the requests to a server.
type HTTP struct {
	c        Collector
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	flying   prometheus.Gauge
}

// NewHTTP returns counters for Count.
func NewHTTP() *HTTP {
	h := new(HTTP)
	requests := h.c.counter("http_requests_total", "Requests to the page and the API of query serve that were answered, by status.", "code")
	duration := h.c.add(Histogram, "http_request_duration_seconds", "How long answers to these requests took.", nil)
	flying := h.c.gauge("http_requests_in_flight", "Requests to the page and the API of query serve that are being answered.")
	h.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: requests.Name, Help: requests.Help}, requests.Labels)
	h.duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: duration.Name, Help: duration.Help, Buckets: []float64{0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30},
	}, nil)
	h.flying = prometheus.NewGauge(prometheus.GaugeOpts{Name: flying.Name, Help: flying.Help})
	return h
}

// Count wraps next and counts its requests.
func (h *HTTP) Count(next http.Handler) http.Handler {
	return promhttp.InstrumentHandlerInFlight(h.flying,
		promhttp.InstrumentHandlerCounter(h.requests, promhttp.InstrumentHandlerDuration(h.duration, next)))
}

// Families returns the exported families.
func (h *HTTP) Families() []Family { return h.c.Families() }

// Describe implements prometheus.Collector.
func (h *HTTP) Describe(to chan<- *prometheus.Desc) { h.c.Describe(to) }

// Collect implements prometheus.Collector.
func (h *HTTP) Collect(to chan<- prometheus.Metric) {
	h.requests.Collect(to)
	h.duration.Collect(to)
	h.flying.Collect(to)
}
