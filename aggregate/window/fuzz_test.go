package window_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// fuzzRecord is the length of an observation in the fuzzer's input.
const fuzzRecord = 24

// fuzzObservation fills every field with fuzzer data, possible or not.
func fuzzObservation(b []byte) decode.Observation {
	o := decode.Observation{
		TimeNS: int64(binary.LittleEndian.Uint64(b)), Bytes: uint32(b[8]),
		Kind: decode.Kind(b[9]), Flags: decode.Flags(b[10]), Ack: uint32(b[11]), SrcPort: uint16(b[12]),
		Tag: csig.Tag{
			Layout: csig.Layout{Format: csig.Format(b[13]), Profile: csig.Profile(b[14])},
			T:      b[15], S: binary.LittleEndian.Uint32(b[16:]), LM: binary.LittleEndian.Uint16(b[20:]), D: b[22]&1 != 0, R: b[22],
		},
	}
	setAddr(&o.Src, uint32(b[23]>>4), 1)
	setAddr(&o.Dst, uint32(b[23]&15), 1)
	return o
}

func appendFuzz(b []byte, o *decode.Observation) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(o.TimeNS))
	b = append(b, byte(o.Bytes), byte(o.Kind), byte(o.Flags), byte(o.Ack), byte(o.SrcPort),
		byte(o.Tag.Layout.Format), byte(o.Tag.Layout.Profile), o.Tag.T)
	b = binary.LittleEndian.AppendUint32(b, o.Tag.S)
	b = binary.LittleEndian.AppendUint16(b, o.Tag.LM)
	return append(b, 0, o.Src[14]<<4|o.Dst[14]&15)
}

// FuzzAdd checks that no observation breaks a shard, that none gets lost, and that every resolution
// has the same totals as the finest one.
func FuzzAdd(f *testing.F) {
	var seed []byte
	for i := range 8 {
		o := at(time.Duration(i) * time.Second)
		o.Kind += decode.Kind(i % 2)
		o.Tag.Layout = csig.LayoutAt(i % csig.NumLayouts)
		seed = appendFuzz(seed, &o)
	}
	f.Add(seed, uint8(3))
	late := at(-time.Minute)
	f.Add(appendFuzz(seed, &late), uint8(1))
	far := at(time.Hour)
	f.Add(appendFuzz(seed, &far), uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, budget uint8) {
		var obs []decode.Observation
		for ; len(data) >= fuzzRecord && len(obs) < 1000; data = data[fuzzRecord:] {
			obs = append(obs, fuzzObservation(data))
		}
		var sink collector
		s := newShard(t, window.Config{
			Tap: window.Tap{Tags: true, Reflections: true}, MaxSeries: 1 + int(budget), Flows: window.FlowLimits{Top: 2, Budget: 2 + int(budget%8)},
			Resolutions: []time.Duration{time.Millisecond, time.Second, time.Minute},
		}, &sink)
		c := run(t, s, obs, 7)
		for i := range sink.blocks {
			checkFlowTotals(t, &sink.blocks[i])
		}
		totals := map[int64]uint64{}
		for k, sums := range sink.rows {
			totals[k.resolution] += sums.observations
		}
		for _, r := range []time.Duration{time.Millisecond, time.Second, time.Minute} {
			if got := totals[int64(r)]; got != c.Stored+c.Overflow {
				t.Errorf("%s: %d observations in rows, %d stored and %d overflow", r, got, c.Stored, c.Overflow)
			}
		}
	})
}
