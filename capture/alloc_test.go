package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// TestReadBatchAllocatesNothing covers refills too: the file is many times larger than the read
// buffer.
func TestReadBatchAllocatesNothing(t *testing.T) {
	p := newPcap(binary.BigEndian, magicMicros, 0, 1)
	n := (&ngBytes{}).section(binary.BigEndian)
	n.iface(1, 0, n.option(optOffset, make([]byte, 8)), n.option(optResolution, []byte{0x80 | 20}))
	for i := range 20000 {
		p.add(1, 1, 104, pattern(80+i%50, 1))
		n.enhanced(0, 1, 104, pattern(80+i%50, 1)).simple(9, pattern(9, 1)).block(5, make([]byte, 20))
	}
	for name, data := range map[string][]byte{"pcap": p.buf, "pcapng": n.buf} {
		t.Run(name, func(t *testing.T) {
			r, err := NewReader(bytes.NewReader(data), "x", Options{ReadBuffer: 16 << 10})
			if err != nil {
				t.Fatal(err)
			}
			var b Batch
			frames := 0
			allocs := testing.AllocsPerRun(100, func() {
				if err := r.ReadBatch(&b); err != nil {
					t.Fatal(err)
				}
				frames += b.N
			})
			if allocs != 0 || frames < 5000 {
				t.Errorf("%v allocations a batch over %d frames, want none", allocs, frames)
			}
		})
	}
}

func TestMergerAllocatesNothing(t *testing.T) {
	p := newPcap(binary.LittleEndian, magicMicros, 0, 1)
	for i := range 5000 {
		p.add(uint32(i), 1, 104, pattern(80+i%50, 1))
	}
	var readers []*Reader
	for range 4 {
		r, err := NewReader(bytes.NewReader(p.buf), "x", Options{})
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	m := NewMerger(readers...)
	if _, _, err := m.Next(); err != nil {
		t.Fatal(err)
	}
	allocs := testing.AllocsPerRun(15000, func() {
		if _, _, err := m.Next(); errors.Is(err, io.EOF) {
			t.Fatal("the files ended early")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a frame, want none", allocs)
	}
}
