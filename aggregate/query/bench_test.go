package query_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/decode/csig"
)

// answers are a reader's answers, read once: benchmarks measure only the bundle.
type answers struct {
	*querytest.Memory
	extent    query.Extent
	total     []aggregate.CellStats
	locations []aggregate.LocationWindow
}

func (a *answers) Extent(context.Context) (query.Extent, error) { return a.extent, nil }

func (a *answers) Cells(context.Context, query.Question) ([]aggregate.CellStats, error) {
	return a.total, nil
}

func (a *answers) LocationWindows(context.Context, query.Question) ([]aggregate.LocationWindow, error) {
	return a.locations, nil
}

func newAnswers(b *testing.B, racks, windows int) *answers {
	b.Helper()
	ctx := context.Background()
	a := &answers{Memory: querytest.Fabric(racks, windows)}
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	var err error
	a.extent, err = a.Memory.Extent(ctx)
	must(err)
	q := query.Question{Signal: csig.MinABW, From: a.extent.First, To: a.extent.Last, Step: a.Resolution, Resolution: a.Resolution}
	a.total, err = a.Memory.Cells(ctx, q)
	must(err)
	a.locations, err = a.Memory.LocationWindows(ctx, q)
	must(err)
	return a
}

// BenchmarkBundle builds and encodes 64 x 64 cells, and the locations of 60 windows, of one
// signal.
func BenchmarkBundle(b *testing.B) {
	a := newAnswers(b, 64, 60)
	b.ReportAllocs()
	var size int
	for b.Loop() {
		bundle, err := query.Build(context.Background(), a, query.Options{Signals: []csig.Signal{csig.MinABW}})
		if err != nil {
			b.Fatal(err)
		}
		text, err := json.Marshal(bundle)
		if err != nil {
			b.Fatal(err)
		}
		size = len(text)
	}
	b.ReportMetric(float64(size), "json-bytes")
}
