package aggregate

import (
	"encoding/binary"
	"math"

	"github.com/csigscope/csigscope/decode/csig"
)

// blockVersion is the version of an encoded block.
const blockVersion = 2

// minRowBytes is the least that a row of an encoded block takes.
const minRowBytes = 3 + 3*8 + 9 + 1

// AppendBinary appends the block so that UnmarshalBinary gets it back; it implements
// encoding.BinaryAppender. There is no checksum.
func (b *Block) AppendBinary(out []byte) ([]byte, error) {
	out = append(out, blockVersion)
	for _, v := range [...]uint64{b.Producer, b.Incarnation, b.Epoch, b.Seq, uint64(b.Resolution), uint64(b.WindowStart)} {
		out = binary.LittleEndian.AppendUint64(out, v)
	}
	out = binary.AppendUvarint(out, uint64(b.Len()))
	for _, column := range [...][]uint8{b.Signal, b.Kind, b.Encoding} {
		out = append(out, column...)
	}
	for _, column := range [...][]uint64{b.SrcGroup, b.DstGroup, b.Location} {
		for _, v := range column {
			out = binary.LittleEndian.AppendUint64(out, v)
		}
	}
	for _, column := range b.sums() {
		for _, v := range *column {
			out = binary.AppendUvarint(out, v)
		}
	}
	from := uint32(0)
	for _, end := range b.DistEnd {
		out = binary.AppendUvarint(out, uint64(end-from))
		for i := from; i < end; i++ {
			out = binary.LittleEndian.AppendUint16(out, b.DistCode[i])
			out = binary.AppendUvarint(out, b.DistCount[i])
		}
		from = end
	}
	out = binary.AppendUvarint(out, uint64(len(b.Flows)))
	for i := range b.Flows {
		out = b.Flows[i].appendBinary(out)
	}
	return out, nil
}

// sums are the columns that rows are added up by.
func (b *Block) sums() [9]*[]uint64 {
	return [...]*[]uint64{&b.Observations, &b.Bytes, &b.Sum, &b.Min, &b.Max, &b.Untouched, &b.Trimmed, &b.Heavy, &b.HeavySum}
}

// UnmarshalBinary makes b the block that AppendBinary encoded, in b's own memory. Bytes
// that are no such block are an ErrState, and take no more memory than they are worth.
func (b *Block) UnmarshalBinary(in []byte) error {
	b.Reset()
	r := NewStateReader(in)
	r.Check(r.U8() == blockVersion)
	b.Producer, b.Incarnation, b.Epoch, b.Seq = r.U64(), r.U64(), r.U64(), r.U64()
	b.Resolution, b.WindowStart = int64(r.U64()), int64(r.U64())
	r.Check(b.Resolution > 0 && b.WindowStart >= 0)
	n := r.Count(minRowBytes)
	for _, column := range [...]*[]uint8{&b.Signal, &b.Kind, &b.Encoding} {
		*column = append(*column, make([]uint8, n)...)
		r.Copy(*column)
	}
	for _, column := range [...]*[]uint64{&b.SrcGroup, &b.DstGroup, &b.Location} {
		for i := 0; i < n && r.Ok(); i++ {
			*column = append(*column, r.U64())
		}
	}
	for _, column := range b.sums() {
		for i := 0; i < n && r.Ok(); i++ {
			*column = append(*column, r.Uvarint())
		}
	}
	for i := 0; i < n && r.Ok(); i++ {
		b.takeDist(r)
	}
	for n := r.Count(minFlowRowBytes); n > 0 && r.Ok(); n-- {
		b.Flows = append(b.Flows, takeFlowRow(r))
	}
	if err := r.End("block"); err != nil {
		b.Reset()
		return err
	}
	return nil
}

func (b *Block) takeDist(r *StateReader) {
	r.Check(uint64(len(b.DistCode)) < math.MaxUint32-csig.DistIndexes)
	last := -1
	for n := r.Count(3); n > 0 && r.Ok(); n-- {
		code := r.U16()
		r.Check(int(code) > last && code < csig.DistIndexes)
		last = int(code)
		b.DistCode = append(b.DistCode, code)
		b.DistCount = append(b.DistCount, r.Uvarint())
	}
	b.DistEnd = append(b.DistEnd, uint32(len(b.DistCode)))
}
