package store

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// addFlows copies the flow rows of a block, and returns their number.
func (b *batch) addFlows(block *aggregate.Block) int {
	for i := range block.Flows {
		f := &block.Flows[i]
		b.flows = append(b.flows, FlowRow{
			Source: block.Source, Seq: block.Seq, Window: block.WindowStart, Resolution: block.Resolution,
			Signal: csig.Signal(f.Signal), Kind: decode.Kind(f.Kind),
			SrcGroup: aggregate.GroupID(f.SrcGroup), DstGroup: aggregate.GroupID(f.DstGroup),
			Flow:         FlowOf(f.Src, f.Dst, f.SrcPort, f.DstPort, f.Proto),
			Observations: f.Observations, Bytes: f.Bytes, Measured: f.Measured, Sum: f.Sum, Min: f.Min, Max: f.Max,
			Heavy: f.Heavy, HeavySum: f.HeavySum,
			Location: aggregate.LocationID(f.Location), LocationHeavy: f.LocationHeavy, Sampled: f.Sampled,
		})
	}
	return len(block.Flows)
}

// Versions of encoded flows: rows of the first one lack their last number, Sampled.
const (
	flowFormat        = 2
	flowFormatEarlier = 1
)

const flowWords = 20

// words are the numbers of a row, in the order of the insert.
func (r *FlowRow) words() [flowWords]uint64 {
	return [...]uint64{
		r.Producer, r.Incarnation, r.Epoch, r.Seq, uint64(r.Window), uint64(r.Resolution), uint64(r.SrcGroup), uint64(r.DstGroup), uint64(r.Location),
		r.Observations, r.Bytes, r.Measured, r.Sum, r.Min, r.Max, r.Heavy, r.HeavySum, r.LocationHeavy,
		uint64(r.Signal)<<16 | uint64(r.Kind)<<8 | uint64(r.Flow.Proto), r.Sampled,
	}
}

func (r *FlowRow) setWords(w *[flowWords]uint64) {
	r.Producer, r.Incarnation, r.Epoch, r.Seq, r.Window, r.Resolution = w[0], w[1], w[2], w[3], int64(w[4]), int64(w[5])
	r.SrcGroup, r.DstGroup, r.Location = aggregate.GroupID(w[6]), aggregate.GroupID(w[7]), aggregate.LocationID(w[8])
	r.Observations, r.Bytes, r.Measured, r.Sum, r.Min, r.Max = w[9], w[10], w[11], w[12], w[13], w[14]
	r.Heavy, r.HeavySum, r.LocationHeavy = w[15], w[16], w[17]
	r.Signal, r.Kind, r.Flow.Proto = csig.Signal(w[18]>>16), decode.Kind(w[18]>>8), uint8(w[18])
	r.Sampled = w[19]
}

// flowRowBytes is the length of an encoded row.
const flowRowBytes = 2*16 + 2*2 + flowWords*8

// encodeFlows encodes rows. Encoding them as JSON would cost more than all other work on them.
func encodeFlows(rows []FlowRow) []byte {
	out := make([]byte, 0, 1+len(rows)*flowRowBytes)
	out = append(out, flowFormat)
	for i := range rows {
		r := &rows[i]
		src, dst := wide(r.Flow.Src).As16(), wide(r.Flow.Dst).As16()
		out = append(append(out, src[:]...), dst[:]...)
		out = binary.LittleEndian.AppendUint16(out, r.Flow.SrcPort)
		out = binary.LittleEndian.AppendUint16(out, r.Flow.DstPort)
		for _, v := range r.words() {
			out = binary.LittleEndian.AppendUint64(out, v)
		}
	}
	return out
}

var errFlows = errors.New("is no list of flows")

// decodeFlows decodes the rows of encodeFlows.
func decodeFlows(in []byte) ([]FlowRow, error) {
	if len(in) == 0 || in[0] != flowFormat && in[0] != flowFormatEarlier {
		return nil, errFlows
	}
	numbers := flowWords
	if in[0] == flowFormatEarlier {
		numbers--
	}
	rowBytes := flowRowBytes - 8*(flowWords-numbers)
	if (len(in)-1)%rowBytes != 0 {
		return nil, errFlows
	}
	rows := make([]FlowRow, (len(in)-1)/rowBytes)
	in = in[1:]
	for i := range rows {
		r := &rows[i]
		ends := in[:36]
		in = in[36:]
		var words [flowWords]uint64
		for w := range numbers {
			words[w] = binary.LittleEndian.Uint64(in[8*w:])
		}
		in = in[8*numbers:]
		r.setWords(&words)
		r.Flow = FlowOf([16]byte(ends), [16]byte(ends[16:]), binary.LittleEndian.Uint16(ends[32:]), binary.LittleEndian.Uint16(ends[34:]), r.Flow.Proto)
	}
	return rows, nil
}

// fillFlows appends whole columns, in the order of the insert.
func fillFlows(to driver.Batch, rows []FlowRow) error {
	var failed []error
	at := 0
	put := func(column any) {
		failed = append(failed, to.Column(at).Append(column))
		at++
	}
	words := func(f func(*FlowRow) uint64) { put(columnOf(rows, f)) }
	words(func(r *FlowRow) uint64 { return r.Producer })
	words(func(r *FlowRow) uint64 { return r.Incarnation })
	words(func(r *FlowRow) uint64 { return r.Epoch })
	words(func(r *FlowRow) uint64 { return r.Seq })
	put(columnOf(rows, func(r *FlowRow) time.Time { return utcTime(r.Window) }))
	words(func(r *FlowRow) uint64 { return uint64(r.Resolution) })
	put(columnOf(rows, func(r *FlowRow) uint8 { return uint8(r.Signal) }))
	put(columnOf(rows, func(r *FlowRow) uint8 { return uint8(r.Kind) }))
	words(func(r *FlowRow) uint64 { return uint64(r.SrcGroup) })
	words(func(r *FlowRow) uint64 { return uint64(r.DstGroup) })
	put(columnOf(rows, func(r *FlowRow) netip.Addr { return wide(r.Flow.Src) }))
	put(columnOf(rows, func(r *FlowRow) netip.Addr { return wide(r.Flow.Dst) }))
	put(columnOf(rows, func(r *FlowRow) uint16 { return r.Flow.SrcPort }))
	put(columnOf(rows, func(r *FlowRow) uint16 { return r.Flow.DstPort }))
	put(columnOf(rows, func(r *FlowRow) uint8 { return r.Flow.Proto }))
	for w := 9; w < 17; w++ {
		words(func(r *FlowRow) uint64 { return r.words()[w] })
	}
	words(func(r *FlowRow) uint64 { return uint64(r.Location) })
	words(func(r *FlowRow) uint64 { return r.LocationHeavy })
	words(func(r *FlowRow) uint64 { return r.Sampled })
	return errors.Join(failed...)
}

func columnOf[T any](rows []FlowRow, f func(*FlowRow) T) []T {
	column := make([]T, len(rows))
	for i := range rows {
		column[i] = f(&rows[i])
	}
	return column
}
