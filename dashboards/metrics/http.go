package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// HTTP counts the requests that a server answers.
type HTTP struct {
	c        Collector
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	flying   prometheus.Gauge
}

// NewHTTP makes the counters; Count uses them.
func NewHTTP() *HTTP {
	h := new(HTTP)
	requests := h.c.counter("http_requests_total", "Requests that were answered, by status.", "code")
	duration := h.c.add(Histogram, "http_request_duration_seconds", "How long answers took.", nil)
	flying := h.c.gauge("http_requests_in_flight", "Requests that are being answered.")
	h.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: requests.Name, Help: requests.Help}, requests.Labels)
	h.duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: duration.Name, Help: duration.Help, Buckets: []float64{0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30},
	}, nil)
	h.flying = prometheus.NewGauge(prometheus.GaugeOpts{Name: flying.Name, Help: flying.Help})
	return h
}

// Count counts what next answers.
func (h *HTTP) Count(next http.Handler) http.Handler {
	return promhttp.InstrumentHandlerInFlight(h.flying,
		promhttp.InstrumentHandlerCounter(h.requests, promhttp.InstrumentHandlerDuration(h.duration, next)))
}

// Families are what is exported.
func (h *HTTP) Families() []Family { return h.c.Families() }

// Describe implements prometheus.Collector.
func (h *HTTP) Describe(to chan<- *prometheus.Desc) { h.c.Describe(to) }

// Collect implements prometheus.Collector.
func (h *HTTP) Collect(to chan<- prometheus.Metric) {
	h.requests.Collect(to)
	h.duration.Collect(to)
	h.flying.Collect(to)
}
