package store

import (
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// hourOfCells are the 1 s blocks of a fabric of 64 x 64 cells, each of which has a row in 5 of
// 12 windows: 6 million rows.
func hourOfCells(window int) *aggregate.Block {
	const rows, cells = 1700, 4096
	b := &aggregate.Block{
		Source: aggregate.Source{Producer: 3, Incarnation: 5, Epoch: 1}, Seq: uint64(window),
		Resolution: int64(time.Second), WindowStart: testStart.Add(2*time.Minute).UnixNano() + int64(window)*int64(time.Second),
	}
	for i := range rows {
		n := uint64(window*rows + i)
		cell := n % cells
		location := (cell*2654435761)>>7%128 + uint64(window/600)%3 + 2
		heavy := 20 * (min(1, n%3) ^ 1)
		b.Signal = append(b.Signal, uint8(csig.MinABWRatio))
		b.Kind = append(b.Kind, 1)
		b.Encoding = append(b.Encoding, 3)
		b.SrcGroup = append(b.SrcGroup, cell/64*0x9e3779b97f4a7c15)
		b.DstGroup = append(b.DstGroup, cell%64*0x9e3779b97f4a7c15)
		b.Location = append(b.Location, location)
		b.Observations = append(b.Observations, 50+n%13)
		b.Samples = append(b.Samples, 50+n%13)
		b.Unjudged = append(b.Unjudged, 0)
		b.Bytes = append(b.Bytes, 50*1500+n%1000)
		b.Sum = append(b.Sum, 50*400000+n%99991)
		b.Min = append(b.Min, 100+n%977)
		b.Max = append(b.Max, 900000-n%977)
		b.Untouched = append(b.Untouched, 3)
		b.Trimmed = append(b.Trimmed, 0)
		b.Heavy = append(b.Heavy, heavy)
		b.HeavySum = append(b.HeavySum, heavy*100000)
		b.Evidence = append(b.Evidence, 0)
		for code := range uint16(8) {
			b.DistCode = append(b.DistCode, code*17+uint16(n%5))
			b.DistCount = append(b.DistCount, 6)
		}
		b.DistEnd = append(b.DistEnd, uint32(len(b.DistCode)))
	}
	return b
}

// BenchmarkBatch copies blocks into a batch, which shards wait for.
func BenchmarkBatch(b *testing.B) {
	block := hourOfCells(0)
	var to batch
	b.ReportAllocs()
	for b.Loop() {
		if to.rows() >= maxBatchRows {
			to.reset(batchKey{table: secondTable}, time.Time{})
		}
		to.add(block, 0, block.Len())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*block.Len()), "ns/row")
}

// BenchmarkInsert writes blocks to the engine, whose work is included.
func BenchmarkInsert(b *testing.B) {
	s := openStore(b)
	n, rows := 0, 0
	for b.Loop() {
		block := hourOfCells(n)
		if err := s.WriteBlock(b.Context(), block); err != nil {
			b.Fatal(err)
		}
		n++
		rows += block.Len()
	}
	if err := s.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
}
