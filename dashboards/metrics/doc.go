// Package metrics shows a running pipeline to Prometheus: its names, units and bounds,
// and the collectors that read the pipeline's own counters when they are scraped.
//
// It knows what each number is called. It must never count what the pipeline does:
// whoever does the work counts, and does not know Prometheus. A collector is given a
// function that takes a snapshot; nothing runs between scrapes.
//
// Cardinality is bounded everywhere: reasons are fixed sets, producers are the first
// MaxProducers and "other", locations are the worst few of each signal.
package metrics

//go:generate go test -count=1 -run ^TestGenerated$ . -write
