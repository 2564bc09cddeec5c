package table_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/table/tabletest"
	"github.com/csigscope/csigscope/decode/csig"
)

// BenchmarkTable adds up what two producers tell of a window of 4096 cells and three
// signals, and gives the cells of one.
func BenchmarkTable(b *testing.B) {
	var blocks []*aggregate.Block
	for producer := range uint64(2) {
		rng := rand.New(rand.NewPCG(producer, 1))
		blocks = append(blocks, tabletest.Block(rng, producer, time.Unix(0, 0), 4096, csig.MinABW, csig.MinABWRatio, csig.MaxDelay))
	}
	fill := func(s *table.Table) *table.Table {
		for _, block := range blocks {
			if err := s.WriteBlock(b.Context(), block); err != nil {
				b.Fatal(err)
			}
		}
		return s
	}
	full := fill(table.New(table.Bounds{Resolution: time.Second, Rows: 1 << 20})).Total()
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			fill(table.New(table.Bounds{Resolution: time.Second, Rows: 1 << 20}))
		}
	})
	b.Run("cells", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if n := len(full.Cells(csig.MaxDelay, nil)); n != 4096 {
				b.Fatalf("%d cells", n)
			}
		}
	})
}
