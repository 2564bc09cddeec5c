package store

import (
	"encoding/binary"
	"time"
	"unsafe"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// maxBatchRows is the number of rows that closes a batch. A server writes one part for each
// batch, so batches are as large as memory allows and no larger.
const maxBatchRows = 100_000

// batchKey identifies the partition of a batch. A batch that spans partitions would become
// several parts, of which a failure may leave some.
type batchKey struct {
	table      int // index of its resolutionTable
	partition  int64
	resendable bool // see Resendable
}

// batch holds rows of one partition as the columns of the insert.
type batch struct {
	batchKey
	opened time.Time

	windowStart []time.Time
	resolution  []uint64 // of the fine table only
	bytes8      [numColumns8][]uint8
	words       [numColumns64][]uint64

	codes, counts       []byte // packed little-endian, row after row
	codesEnd, countsEnd []int
	text                []string // reused for the packed columns

	flows []FlowRow // of the blocks of the rows
}

// The columns of a batch after window_start and resolution_ns, in the order of the
// insert.
var (
	columns8  = [...]string{"signal", "source_kind", "encoding", "evidence"}
	columns64 = [...]string{
		"src_group", "dst_group", "location", "config_epoch", "producer", "incarnation", "seq",
		"observations", "bytes", "measured", "sum", "min", "max", "untouched", "trimmed", "heavy", "heavy_sum", "samples", "unjudged",
	}
)

const (
	numColumns8  = len(columns8)
	numColumns64 = len(columns64)

	evidenceColumn     = 3 // of columns8
	producerColumn     = 4 // of columns64
	incarnationColumn  = 5
	seqColumn          = 6
	observationsColumn = 7
	measuredColumn     = 9
	trimmedColumn      = 14
	samplesColumn      = 17
	unjudgedColumn     = 18

	codeSize, countSize = 2, 8 // bytes, in packed distributions
)

func (b *batch) rows() int { return len(b.windowStart) }

// all is the number of rows, flows included.
func (b *batch) all() int { return len(b.windowStart) + len(b.flows) }

func (b *batch) reset(key batchKey, now time.Time) {
	b.batchKey, b.opened = key, now
	b.windowStart, b.resolution = b.windowStart[:0], b.resolution[:0]
	for i := range b.bytes8 {
		b.bytes8[i] = b.bytes8[i][:0]
	}
	for i := range b.words {
		b.words[i] = b.words[i][:0]
	}
	b.codes, b.counts = b.codes[:0], b.counts[:0]
	b.codesEnd, b.countsEnd = b.codesEnd[:0], b.countsEnd[:0]
	b.flows = b.flows[:0]
}

// copyRows adds the rows [from, to) of another batch of the same partition.
func (b *batch) copyRows(o *batch, from, to int) {
	b.windowStart = append(b.windowStart, o.windowStart[from:to]...)
	if b.table == fineTable {
		b.resolution = append(b.resolution, o.resolution[from:to]...)
	}
	for i := range b.bytes8 {
		b.bytes8[i] = append(b.bytes8[i], o.bytes8[i][from:to]...)
	}
	for i := range b.words {
		b.words[i] = append(b.words[i], o.words[i][from:to]...)
	}
	b.codes, b.codesEnd = copyPacked(b.codes, b.codesEnd, o.codes, o.codesEnd, from, to)
	b.counts, b.countsEnd = copyPacked(b.counts, b.countsEnd, o.counts, o.countsEnd, from, to)
}

// copyPacked appends the rows [from, to) of one packed column to another.
func copyPacked(packed []byte, ends []int, other []byte, otherEnds []int, from, to int) ([]byte, []int) {
	if from == to {
		return packed, ends
	}
	begin := 0
	if from > 0 {
		begin = otherEnds[from-1]
	}
	shift := len(packed) - begin
	for _, end := range otherEnds[from:to] {
		ends = append(ends, end+shift)
	}
	return append(packed, other[begin:otherEnds[to-1]]...), ends
}

// add copies the rows [from, to) of the block.
func (b *batch) add(block *aggregate.Block, from, to int) {
	n := to - from
	b.windowStart = appendTimes(b.windowStart, time.Unix(0, block.WindowStart).UTC(), n)
	if b.table == fineTable {
		b.resolution = appendSame(b.resolution, uint64(block.Resolution), n)
	}
	for i, column := range [numColumns8][]uint8{block.Signal, block.Kind, block.Encoding, block.Evidence} {
		b.bytes8[i] = append(b.bytes8[i], column[from:to]...)
	}
	w := &b.words
	for i, column := range [...][]uint64{block.SrcGroup, block.DstGroup, block.Location} {
		w[i] = append(w[i], column[from:to]...)
	}
	for i, value := range [...]uint64{block.Epoch, block.Producer, block.Incarnation, block.Seq} {
		w[3+i] = appendSame(w[3+i], value, n)
	}
	for i, column := range [...][]uint64{
		block.Observations, block.Bytes, nil, block.Sum, block.Min, block.Max,
		block.Untouched, block.Trimmed, block.Heavy, block.HeavySum, block.Samples, block.Unjudged,
	} {
		if column != nil {
			w[7+i] = append(w[7+i], column[from:to]...)
		}
	}
	b.addDist(block, from, to)
}

// addDist packs distributions. Each counted observation has a value, except those of unknown
// types, whose raw codes are kept.
func (b *batch) addDist(block *aggregate.Block, from, to int) {
	at := uint32(0)
	if from > 0 {
		at = block.DistEnd[from-1]
	}
	for i, end := range block.DistEnd[from:to] {
		for _, code := range block.DistCode[at:end] {
			b.codes = binary.LittleEndian.AppendUint16(b.codes, code)
		}
		measured := uint64(0)
		for _, count := range block.DistCount[at:end] {
			b.counts = binary.LittleEndian.AppendUint64(b.counts, count)
			measured += count
		}
		if !csig.Signal(block.Signal[from+i]).HasValue() {
			measured = 0
		}
		b.words[measuredColumn] = append(b.words[measuredColumn], measured)
		b.codesEnd = append(b.codesEnd, len(b.codes))
		b.countsEnd = append(b.countsEnd, len(b.counts))
		at = end
	}
}

// strings cuts packed bytes into rows. They share the batch's memory and are valid until the next
// call or reset: the client copies them into its own buffer.
func (b *batch) strings(packed []byte, ends []int) []string {
	b.text = b.text[:0]
	at := 0
	for _, end := range ends {
		b.text = append(b.text, unsafe.String(unsafe.SliceData(packed[at:end]), end-at))
		at = end
	}
	return b.text
}

func appendSame(column []uint64, v uint64, n int) []uint64 {
	for range n {
		column = append(column, v)
	}
	return column
}

func appendTimes(column []time.Time, v time.Time, n int) []time.Time {
	for range n {
		column = append(column, v)
	}
	return column
}
