package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// benchFrames gives about 100 MB with 104 captured bytes per packet on average.
const benchFrames = 800_000

var benchLengths = [...]int{64, 90, 104, 122, 140}

func benchPcap() []byte {
	p := newPcap(binary.LittleEndian, magicNanos, 65535, 1)
	data := pattern(140, 9)
	for i := range benchFrames {
		p.add(uint32(i>>20), uint32(i), 1500, data[:benchLengths[i%len(benchLengths)]])
	}
	return p.buf
}

func benchPcapng() []byte {
	n := (&ngBytes{}).section(binary.LittleEndian)
	n.iface(1, 0, n.option(optResolution, []byte{9}))
	data := pattern(140, 9)
	for i := range benchFrames {
		n.enhanced(0, uint64(i), 1500, data[:benchLengths[i%len(benchLengths)]])
	}
	return n.buf
}

// BenchmarkReadHeaders walks the record headers only. It is the reference for everything that also
// reads frames.
func BenchmarkReadHeaders(b *testing.B) {
	for _, format := range []struct {
		name string
		make func() []byte
	}{{"pcap", benchPcap}, {"pcapng", benchPcapng}} {
		b.Run(format.name, func(b *testing.B) {
			file := format.make()
			b.SetBytes(int64(len(file)))
			b.ReportAllocs()
			var batch Batch
			var wire uint64
			for b.Loop() {
				r, err := NewReader(bytes.NewReader(file), "bench", Options{})
				if err != nil {
					b.Fatal(err)
				}
				for err == nil {
					err = r.ReadBatch(&batch)
					for i := range batch.Frames[:batch.N] {
						wire += uint64(batch.Frames[i].WireLen)
					}
				}
				if !errors.Is(err, io.EOF) || wire == 0 {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchFrames, "ns/packet")
		})
	}
}

// BenchmarkMerge measures pacing four files by time.
func BenchmarkMerge(b *testing.B) {
	file := benchPcap()
	b.ReportAllocs()
	for b.Loop() {
		var readers []*Reader
		for range 4 {
			r, err := NewReader(bytes.NewReader(file), "bench", Options{})
			if err != nil {
				b.Fatal(err)
			}
			readers = append(readers, r)
		}
		m := NewMerger(readers...)
		for {
			if _, _, err := m.Next(); err != nil {
				if !errors.Is(err, io.EOF) {
					b.Fatal(err)
				}
				break
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(4*benchFrames), "ns/packet")
}
