package store

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
)

// devNull is a server that takes everything at once.
type devNull struct{ rows int }

func (n *devNull) sendBatch(_ context.Context, b *batch, _ string) error {
	n.rows += b.rows()
	return nil
}

func (*devNull) sendGaps(context.Context, []gap) error { return nil }

func (*devNull) sendRecords(context.Context, insertion) error { return nil }

func (*devNull) pinNames(context.Context, []fabric.Name) error { return nil }

func (*devNull) endRuns(context.Context, *ending) error { return nil }

func (*devNull) keeps(context.Context, int) (time.Duration, error) { return forever, nil }

func (*devNull) present(_ context.Context, _ int, probes []rowSample) (map[rowSample]bool, error) {
	found := map[rowSample]bool{}
	for _, p := range probes {
		found[p] = true
	}
	return found, nil
}

func (*devNull) trimmed(_ context.Context, _ int, list []lossExtent) ([]bool, error) {
	return make([]bool, len(list)), nil
}

// takenBytes is the size of the records in the last take.
func takenBytes(d *delivery) (n float64) {
	for _, r := range d.records {
		n += float64(len(r))
	}
	return n
}

// BenchmarkOutbox sends full batches through an outbox on disk: encoded, synced, read back, decoded
// and acknowledged.
func BenchmarkOutbox(b *testing.B) {
	full := new(batch)
	full.reset(batchKey{table: secondTable}, time.Time{})
	for window := 0; full.rows() < maxBatchRows; window++ {
		block := hourOfCells(window)
		full.add(block, 0, min(block.Len(), maxBatchRows-full.rows()))
	}
	n := &devNull{}
	s := &Store{logger: slog.New(slog.DiscardHandler)}
	if err := s.openOutboxes(&Outbox{Dir: b.TempDir(), Keep: -1}, n, time.Minute); err != nil {
		b.Fatal(err)
	}
	d := s.deliveries[0]
	for b.Loop() {
		if err := d.take(b.Context(), []*batch{full}, nil); err != nil {
			b.Fatal(err)
		}
		if err := d.flush(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	rows := float64(b.N) * maxBatchRows
	b.ReportMetric(rows/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(takenBytes(d)/maxBatchRows, "bytes/row")
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	if float64(n.rows) != rows {
		b.Fatalf("%d rows came through, want %v", n.rows, rows)
	}
}

// BenchmarkEncode measures the CPU cost of the outbox, without checksums and copies to the disk.
func BenchmarkEncode(b *testing.B) {
	from := batchOf(b, time.Second, 1)
	var e encoder
	var to batch
	record := e.append(nil, from, 0, from.rows())
	b.ReportAllocs()
	for b.Loop() {
		record = e.append(record[:0], from, 0, from.rows())
		if err := e.decode(record, &to); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*from.rows()), "ns/row")
}
