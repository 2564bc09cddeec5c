package capture

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// packet is an expected frame, with its data copied.
type packet struct {
	Data      string
	TimeNS    int64
	WireLen   uint32
	Interface uint32
	NoTime    bool
	Packet    uint64
	Offset    int64
}

// drain reads to the end and returns the packets and the final error.
func drain(tb testing.TB, r *Reader) ([]packet, error) {
	tb.Helper()
	var got []packet
	var b Batch
	for {
		err := r.ReadBatch(&b)
		for _, f := range b.Frames[:b.N] {
			got = append(got, packet{string(f.Data), f.TimeNS, f.WireLen, f.Interface, f.NoTime, f.Packet, f.Offset})
		}
		if err != nil {
			if b.N != 0 {
				tb.Fatalf("ReadBatch returned %d frames together with %v", b.N, err)
			}
			if again := r.ReadBatch(&b); !errors.Is(again, err) {
				tb.Fatalf("error after the end: %v, want %v again", again, err)
			}
			return got, err
		}
		if b.N == 0 {
			tb.Fatal("ReadBatch returned neither a frame nor an error")
		}
	}
}

// mustDrain reads a well-formed capture.
func mustDrain(tb testing.TB, r *Reader) []packet {
	tb.Helper()
	got, err := drain(tb, r)
	if !errors.Is(err, io.EOF) {
		tb.Fatalf("final error %v, want io.EOF", err)
	}
	return got
}

func writeFile(tb testing.TB, name string, data []byte) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// pcapBytes builds a classic pcap file record by record.
type pcapBytes struct {
	order binary.AppendByteOrder
	magic uint32
	buf   []byte
}

func newPcap(order binary.AppendByteOrder, magic, snapLen, network uint32) *pcapBytes {
	p := &pcapBytes{order: order, magic: magic}
	p.buf = order.AppendUint32(p.buf, magic)
	p.buf = order.AppendUint16(p.buf, 2)
	p.buf = order.AppendUint16(p.buf, 4)
	for _, v := range []uint32{0, 0, snapLen, network} {
		p.buf = order.AppendUint32(p.buf, v)
	}
	return p
}

func (p *pcapBytes) add(sec, frac, wire uint32, data []byte) *pcapBytes {
	for _, v := range []uint32{sec, frac, uint32(len(data)), wire} {
		p.buf = p.order.AppendUint32(p.buf, v)
	}
	if p.magic == magicModified {
		p.buf = append(p.buf, 1, 2, 3, 4, 5, 6, 7, 8)
	}
	p.buf = append(p.buf, data...)
	return p
}

// ngBytes builds a pcapng file block by block.
type ngBytes struct {
	order binary.AppendByteOrder
	buf   []byte
}

// block appends a block and pads its body to 32 bits.
func (n *ngBytes) block(kind uint32, body []byte) *ngBytes {
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	total := uint32(len(body) + minBlock)
	n.buf = n.order.AppendUint32(n.buf, kind)
	n.buf = n.order.AppendUint32(n.buf, total)
	n.buf = append(n.buf, body...)
	n.buf = n.order.AppendUint32(n.buf, total)
	return n
}

func (n *ngBytes) words(v ...uint32) []byte {
	var b []byte
	for _, w := range v {
		b = n.order.AppendUint32(b, w)
	}
	return b
}

// section starts a section in the given byte order.
func (n *ngBytes) section(order binary.AppendByteOrder) *ngBytes {
	n.order = order
	body := n.words(byteOrderMagic)
	body = order.AppendUint16(body, 1)
	body = order.AppendUint16(body, 0)
	return n.block(blockSection, order.AppendUint64(body, ^uint64(0)))
}

func (n *ngBytes) option(code uint16, v []byte) []byte {
	b := n.order.AppendUint16(nil, code)
	b = n.order.AppendUint16(b, uint16(len(v)))
	b = append(b, v...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func (n *ngBytes) iface(link uint16, snapLen uint32, options ...[]byte) *ngBytes {
	body := n.order.AppendUint16(nil, link)
	body = n.order.AppendUint16(body, 0)
	body = append(body, n.words(snapLen)...)
	for _, o := range options {
		body = append(body, o...)
	}
	return n.block(blockInterface, body)
}

func (n *ngBytes) enhanced(id uint32, ticks uint64, wire uint32, data []byte, options ...[]byte) *ngBytes {
	body := n.words(id, uint32(ticks>>32), uint32(ticks), uint32(len(data)), wire)
	body = append(body, data...)
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	for _, o := range options {
		body = append(body, o...)
	}
	return n.block(blockEnhanced, body)
}

func (n *ngBytes) old(id, drops uint16, ticks uint64, wire uint32, data []byte) *ngBytes {
	body := n.order.AppendUint16(nil, id)
	body = n.order.AppendUint16(body, drops)
	body = append(body, n.words(uint32(ticks>>32), uint32(ticks), uint32(len(data)), wire)...)
	return n.block(blockOldPacket, append(body, data...))
}

func (n *ngBytes) simple(wire uint32, data []byte) *ngBytes {
	return n.block(blockSimple, append(n.words(wire), data...))
}

// pattern returns n bytes that depend on seed.
func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i)*7 + seed
	}
	return p
}
