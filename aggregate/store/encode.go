package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/csigscope/csigscope/aggregate"
)

// batchFormat is the version of an encoded batch. Version 1 has no samples: they equal the
// observations that are not trimmed, as in rows stored before the column existed. Versions 1 and
// 2 have no unjudged observations and no evidence: none existed.
const batchFormat = 3

// errNewerBatch is the error for a batch left in the outbox by a newer program.
var errNewerBatch = errors.New("batch was left by a newer csigscope: use that one to send it")

// encoder converts rows of a batch to a record, and back. It reuses its buffers for all batches.
type encoder struct {
	values []uint64
}

// append encodes the rows [from, to) of a batch: format, table, number of rows, and the
// columns in the order of the insert, distributions as lengths, codes and counts.
func (e *encoder) append(out []byte, b *batch, from, to int) []byte {
	out = append(out, batchFormat, byte(b.table))
	out = binary.LittleEndian.AppendUint32(out, uint32(to-from))
	e.values = e.values[:0]
	for _, at := range b.windowStart[from:to] {
		e.values = append(e.values, uint64(at.UnixNano()))
	}
	out = appendColumn(out, e.values)
	if b.table == fineTable {
		out = appendColumn(out, b.resolution[from:to])
	}
	for i := range b.bytes8 {
		out = append(out, b.bytes8[i][from:to]...)
	}
	for i := range b.words {
		out = appendColumn(out, b.words[i][from:to])
	}
	first, last := b.codesFrom(from), b.codesFrom(to)
	e.values = e.values[:0]
	for i, at := from, first; i < to; i++ {
		e.values = append(e.values, uint64(b.codesEnd[i]-at)/codeSize)
		at = b.codesEnd[i]
	}
	out = appendColumn(out, e.values)
	out = append(out, b.codes[first:last]...)
	e.values = e.values[:0]
	for at := b.counts[first/codeSize*countSize : last/codeSize*countSize]; len(at) > 0; at = at[countSize:] {
		e.values = append(e.values, binary.LittleEndian.Uint64(at))
	}
	return appendColumn(out, e.values)
}

// decode fills a batch with the rows of a record.
func (e *encoder) decode(in []byte, b *batch) error {
	if len(in) < 6 || in[1] >= numResolutionTables {
		return errColumns
	}
	version := in[0]
	if version > batchFormat {
		return errNewerBatch
	}
	n := int(binary.LittleEndian.Uint32(in[2:]))
	if n == 0 || n > maxBatchRows {
		return fmt.Errorf("%d rows: %w", n, errColumns)
	}
	b.reset(batchKey{table: int(in[1])}, time.Time{})
	in, values, err := takeColumn(in[6:], e.values[:0], n)
	if err != nil {
		return err
	}
	for _, v := range values {
		if v >= uint64(aggregate.EndOfTime) {
			return errColumns
		}
		b.windowStart = append(b.windowStart, time.Unix(0, int64(v)).UTC())
	}
	b.partition = partition(b.table, int64(values[0]))
	if b.table == fineTable {
		if in, b.resolution, err = takeColumn(in, b.resolution, n); err != nil {
			return err
		}
	}
	for i := range b.bytes8 {
		if i == evidenceColumn && version <= 2 {
			b.bytes8[i] = append(b.bytes8[i], make([]uint8, n)...)
			continue
		}
		if len(in) < n {
			return errColumns
		}
		b.bytes8[i] = append(b.bytes8[i], in[:n]...)
		in = in[n:]
	}
	for i := range b.words {
		if i == samplesColumn && version == 1 {
			b.words[i] = b.untrimmed(b.words[i])
			continue
		}
		if i == unjudgedColumn && version <= 2 {
			b.words[i] = append(b.words[i], make([]uint64, n)...)
			continue
		}
		if in, b.words[i], err = takeColumn(in, b.words[i], n); err != nil {
			return err
		}
	}
	e.values = values
	return e.decodeDist(in, b, n)
}

// untrimmed appends each row's number of untrimmed observations to a column.
func (b *batch) untrimmed(column []uint64) []uint64 {
	for i, n := range b.words[observationsColumn] {
		column = append(column, n-min(b.words[trimmedColumn][i], n))
	}
	return column
}

func (e *encoder) decodeDist(in []byte, b *batch, n int) error {
	in, lengths, err := takeColumn(in, e.values[:0], n)
	if err != nil {
		return err
	}
	total := uint64(0)
	for _, length := range lengths {
		if total += length; length > uint64(len(in)) || total*codeSize > uint64(len(in)) {
			return errColumns
		}
		b.codesEnd = append(b.codesEnd, int(total)*codeSize)
		b.countsEnd = append(b.countsEnd, int(total)*countSize)
	}
	b.codes = append(b.codes, in[:total*codeSize]...)
	in, counts, err := takeColumn(in[total*codeSize:], lengths[:0], int(total))
	if err != nil || len(in) > 0 {
		return errColumns
	}
	for _, count := range counts {
		b.counts = binary.LittleEndian.AppendUint64(b.counts, count)
	}
	e.values = counts
	return nil
}

// codesFrom is the offset of the first code of row i.
func (b *batch) codesFrom(i int) int {
	if i == 0 {
		return 0
	}
	return b.codesEnd[i-1]
}

// maxRecordBytes bounds an encoded batch, with room for one row beyond.
const maxRecordBytes = 32 << 20

// cut returns the end of the rows, starting with row from, that fit into one record.
func (b *batch) cut(from int) int {
	const row = 8 + 8 + numColumns8 + 8*numColumns64 + 8
	size := 0
	for i := from; i < b.rows(); i++ {
		size += row + (b.codesEnd[i]-b.codesFrom(i))/codeSize*(codeSize+countSize)
		if size > maxRecordBytes {
			return max(i, from+1)
		}
	}
	return b.rows()
}
