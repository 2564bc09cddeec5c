package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
)

// cutSamples returns small files with every kind of record.
func cutSamples() map[string][]byte {
	le, be := binary.LittleEndian, binary.BigEndian
	n := (&ngBytes{}).section(be)
	n.iface(1, 0, n.option(optName, []byte("a")), n.option(optResolution, []byte{9}), n.option(optEnd, nil))
	n.enhanced(0, 5, 90, pattern(31, 1), n.option(1, []byte("comment"))).block(0x55, make([]byte, 20))
	n.section(le).iface(1, 10).simple(90, pattern(10, 2)).old(0, 0, 1, 9, pattern(9, 3))
	return map[string][]byte{
		"pcap":     newPcap(le, magicMicros, 0, 1).add(1, 2, 60, pattern(20, 1)).add(1, 3, 9, nil).add(2, 4, 33, pattern(33, 2)).buf,
		"modified": newPcap(be, magicModified, 0, 1).add(1, 2, 60, pattern(20, 1)).add(2, 4, 33, pattern(33, 2)).buf,
		"pcapng":   n.buf,
	}
}

// TestCutAtEveryByte checks that the intact part of a truncated file is delivered, and that the
// error gives the offset and the number of missing bytes.
func TestCutAtEveryByte(t *testing.T) {
	for name, data := range cutSamples() {
		t.Run(name, func(t *testing.T) {
			ends := recordEnds(t, data)
			_, whole, err := readAll(t, data, Options{})
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			for size := range len(data) {
				_, got, err := readAll(t, data[:size], Options{})
				checkCut(t, size, ends, whole, got, err)
			}
		})
	}
}

// recordEnds walks a file independently and returns the offsets where it may end.
func recordEnds(t *testing.T, data []byte) map[int]bool {
	t.Helper()
	ends := map[int]bool{}
	if c, ok := classicMagic(data); ok {
		at := classicFileHeader
		for ends[at] = true; at < len(data); ends[at] = true {
			at += c.head + int(c.recordAt(data[at:]).incl)
		}
		return ends
	}
	var order binary.ByteOrder
	for at := 0; at < len(data); ends[at] = true {
		if binary.LittleEndian.Uint32(data[at:]) == blockSection {
			order = binary.ByteOrder(binary.BigEndian)
			if data[at+8] == byteOrderMagic&0xff {
				order = binary.LittleEndian
			}
		}
		at += int(order.Uint32(data[at+4:]))
	}
	return ends
}

func checkCut(t *testing.T, size int, ends map[int]bool, whole, got []packet, err error) {
	t.Helper()
	if !slices.Equal(whole[:len(got)], got) {
		t.Errorf("cut at %d: packets %+v", size, got)
	}
	next := len(got) < len(whole) && whole[len(got)].Offset < int64(size)
	var cut *CutError
	var format *FormatError
	switch {
	case size < 4:
		if !errors.As(err, &format) {
			t.Errorf("cut at %d: error %v, want a *FormatError", size, err)
		}
	case ends[size]:
		if !errors.Is(err, io.EOF) || next {
			t.Errorf("cut at %d, between records: %d packets, error %v, want io.EOF", size, len(got), err)
		}
	case !errors.As(err, &cut):
		t.Errorf("cut at %d: error %v, want a *CutError", size, err)
	case cut.Offset+int64(cut.Have) != int64(size) || cut.Have >= cut.Want || cut.Packets != uint64(len(got)):
		t.Errorf("cut at %d after %d packets: %+v", size, len(got), cut)
	case cut.Offset != 0 && !ends[int(cut.Offset)]:
		t.Errorf("cut at %d: Offset %d is not where a record starts", size, cut.Offset)
	}
}

func TestCutErrorText(t *testing.T) {
	data := newPcap(binary.LittleEndian, magicMicros, 0, 1).add(1, 2, 60, pattern(60, 1)).add(1, 2, 60, pattern(60, 1)).buf
	r, err := NewReader(bytes.NewReader(data[:len(data)-40]), "tap.pcap", Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = drain(t, r)
	const want = `read capture "tap.pcap": packet 2 at byte offset 100: file ends inside the packet data: wanted 76 bytes, have 36; the 1 packets before it are intact`
	if err == nil || err.Error() != want {
		t.Errorf("message %v\nwant    %s", err, want)
	}
}
