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

// BenchmarkTable adds the blocks of two producers for a window of 4096 cells and three signals, and
// reads the cells of one signal.
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

// BenchmarkMemoryWriteBlock measures the cost of a block in a live table: blocks of 64 cells from
// 500 producers, and of 4096 cells and three signals from two, window after window.
func BenchmarkMemoryWriteBlock(b *testing.B) {
	for _, fleet := range []struct {
		name      string
		producers uint64
		cells     int
		signals   []csig.Signal
	}{
		{"500x64", 500, 64, []csig.Signal{csig.MaxDelay}},
		{"2x4096", 2, 4096, []csig.Signal{csig.MinABW, csig.MinABWRatio, csig.MaxDelay}},
	} {
		b.Run(fleet.name, func(b *testing.B) {
			var blocks []*aggregate.Block
			for producer := range fleet.producers {
				rng := rand.New(rand.NewPCG(producer, 1))
				blocks = append(blocks, tabletest.Block(rng, producer, time.Unix(1e9, 0), fleet.cells, fleet.signals...))
			}
			m := table.NewMemory(table.MemoryOptions{})
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				block := blocks[i%len(blocks)]
				if err := m.WriteBlock(b.Context(), block); err != nil {
					b.Fatal(err)
				}
				block.WindowStart += int64(time.Second)
				block.Seq++
			}
		})
	}
}

// BenchmarkMemoryPublish measures the revisions of a window of 4096 cells where nothing is heavy: four producers announce
// their rows, while the blocks of two windows before come.
func BenchmarkMemoryPublish(b *testing.B) {
	var blocks []*aggregate.Block
	for producer := range uint64(4) {
		block := tabletest.Block(rand.New(rand.NewPCG(producer, 1)), producer, time.Unix(1e9, 0), 4096, csig.MaxDelay)
		for i := range block.Len() {
			block.Observations[i], block.Samples[i], block.Heavy[i], block.Unjudged[i] = 1000, 1000, 0, 0
		}
		blocks = append(blocks, block)
	}
	now := time.Unix(1e9, 0)
	m := table.NewMemory(table.MemoryOptions{Now: func() time.Time { return now }})
	for b.Loop() {
		now = now.Add(time.Second)
		for _, block := range blocks {
			m.WriteProvisional(provisionalOf(block))
			m.Publish()
			block.WindowStart -= 2 * int64(time.Second)
			if err := m.WriteBlock(b.Context(), block); err != nil {
				b.Fatal(err)
			}
			m.Publish()
			block.WindowStart += 3 * int64(time.Second)
			block.Seq++
		}
	}
}
