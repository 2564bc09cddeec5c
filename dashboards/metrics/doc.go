// Package metrics exports a running pipeline to Prometheus. It defines the metrics' names, units
// and bounds, and the collectors that read the pipeline's own counters at each scrape.
//
// It knows the names of the numbers. It must never count the pipeline's work: each worker counts
// its own and does not know Prometheus. A collector gets a snapshot function; nothing runs between
// scrapes.
//
// Cardinality is bounded everywhere: reasons are fixed sets, producers are the first MaxProducers
// and "other", locations are the worst few of each signal.
package metrics

//go:generate go test -count=1 -run ^TestGenerated$ . -write
