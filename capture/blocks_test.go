package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readAll(t *testing.T, data []byte, opts Options) (*Reader, []packet, error) {
	t.Helper()
	r, err := NewReader(bytes.NewReader(data), "x.pcapng", opts)
	if err != nil {
		return nil, nil, err
	}
	got, err := drain(t, r)
	return r, got, err
}

// TestSectionsAndInterfaces reads two sections with different byte orders and separate interfaces,
// and every kind of block.
func TestSectionsAndInterfaces(t *testing.T) {
	a, b := pattern(61, 1), pattern(130, 2)
	n := (&ngBytes{}).section(binary.LittleEndian)
	n.iface(1, 0, n.option(optName, []byte("tap0")), n.option(optDescription, []byte("receiver\x00")), n.option(optResolution, []byte{9}), n.option(optEnd, nil))
	n.iface(113, 100)
	n.block(4, []byte("name resolution")).block(5, make([]byte, 8)).block(0xbad, make([]byte, 300<<10))
	first := len(n.buf)
	n.enhanced(0, 1700000000123456789, 1500, a, n.option(1, []byte("comment")))
	n.enhanced(1, 1700000000123456, 130, b)
	n.section(binary.BigEndian)
	n.iface(1, 50, n.option(optResolution, []byte{3}), n.option(optOffset, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe}))
	n.old(0, 7, 5000, 61, a).simple(130, b[:50]).simple(20, b[:20])
	n.block(0xbad, nil)

	r, got, err := readAll(t, n.buf, Options{})
	if got == nil {
		t.Fatal(err)
	}
	at := func(i int) int64 { return got[i].Offset }
	want := []packet{
		{string(a), 1700000000123456789, 1500, 0, false, 1, int64(first)},
		{string(b), 1700000000123456000, 130, 1, false, 2, at(1)},
		{string(a), 3e9, 61, 2, false, 3, at(2)},
		{string(b[:50]), 0, 130, 2, true, 4, at(3)},
		{string(b[:20]), 0, 20, 2, true, 5, at(4)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for i := 1; i < len(got); i++ {
		if kind := n.buf[at(i)] + n.buf[at(i)+3]; at(i) <= at(i-1) || kind == 0 || kind > blockEnhanced {
			t.Errorf("packet %d at offset %d: no packet block there", i+1, at(i))
		}
	}
	wantIf := []Interface{
		{Name: "tap0", Description: "receiver", Link: LinkEthernet, NanosPerTick: 1},
		{Link: 113, SnapLen: 100, NanosPerTick: 1000},
		{Section: 1, Link: LinkEthernet, SnapLen: 50, NanosPerTick: 1e6, OffsetSeconds: -2},
	}
	if diff := cmp.Diff(wantIf, r.Interfaces()); diff != "" {
		t.Error(diff)
	}
	if got, want := r.Counters(), (Counters{Packets: 5, SkippedBlocks: 6}); got != want {
		t.Errorf("Counters %+v, want %+v", got, want)
	}
}

// TestMalformedBlocks checks that each contradiction ends the file at its offset, after the intact
// packet before it.
func TestMalformedBlocks(t *testing.T) {
	le := binary.LittleEndian
	data := pattern(40, 1)
	good := func() *ngBytes {
		return (&ngBytes{}).section(le).iface(1, 0).enhanced(0, 1, 40, data)
	}
	tests := []struct {
		name string
		make func(n *ngBytes)
		want string
	}{
		{"length below a block", func(n *ngBytes) { n.buf = append(n.buf, n.words(6, 8, 0)...) }, "block of type 0x6 has length 8, expected a multiple of 4 from 12 on"},
		{"length not of 32 bits", func(n *ngBytes) { n.buf = append(n.buf, n.words(9, 13, 0, 0)...) }, "block of type 0x9 has length 13, expected a multiple of 4 from 12 on"},
		{"short packet block", func(n *ngBytes) { n.block(blockEnhanced, make([]byte, 8)) }, "block of type 0x6 is 20 bytes long, it needs at least 32"},
		{"trailer", func(n *ngBytes) { n.block(9, nil); n.buf[len(n.buf)-4]++ }, "block of 12 bytes ends with length 13, expected the same"},
		{"trailer of a large block", func(n *ngBytes) { n.block(9, make([]byte, 1<<20)); n.buf[len(n.buf)-4]++ }, "block of 1048588 bytes ends with length 1048589, expected the same"},
		{"unknown interface", func(n *ngBytes) { n.enhanced(1, 1, 1, data) }, "packet of interface 1, the section has described 1"},
		{"interface of the section before", func(n *ngBytes) { n.section(le).enhanced(0, 1, 1, data) }, "packet of interface 0, the section has described 0"},
		{"simple packet without interface", func(n *ngBytes) { n.section(le).simple(40, data) }, "simple packet before the first interface of its section"},
		{"captured length", func(n *ngBytes) { n.block(blockEnhanced, append(n.words(0, 0, 0, 100, 100), data...)) }, "packet of 100 captured bytes in a block with room for 40"},
		{"simple captured length", func(n *ngBytes) { n.simple(41, data) }, "packet of 41 captured bytes in a block with room for 40"},
		{"byte order", func(n *ngBytes) { n.block(blockSection, make([]byte, 16)) }, "section header with byte-order magic 00 00 00 00, expected 1a 2b 3c 4d or its reverse"},
		{"version", func(n *ngBytes) { n.block(blockSection, n.words(byteOrderMagic, 2, 0, 0)) }, "section of pcapng version 2.0, only 1.x is read"},
		{"version of a large section", func(n *ngBytes) { n.block(blockSection, append(n.words(byteOrderMagic, 2), make([]byte, 1<<20)...)) }, "section of pcapng version 2.0, only 1.x is read"},
		{"option past its block", func(n *ngBytes) { n.iface(1, 0, []byte{2, 0, 9, 0, 'x', 0, 0, 0}) }, "option 2 of an interface is 9 bytes long, its block has 4 left"},
		{"resolution", func(n *ngBytes) { n.iface(1, 0, n.option(optResolution, []byte{1, 2})) }, "if_tsresol of an interface is 2 bytes long, expected 1"},
		{"offset", func(n *ngBytes) { n.iface(1, 0, n.option(optOffset, []byte{1, 2})) }, "if_tsoffset of an interface is 2 bytes long, expected 8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := good()
			tt.make(n)
			_, got, err := readAll(t, n.buf, Options{})
			var cut *CutError
			if !errors.As(err, &cut) {
				t.Fatalf("error %v, want a *CutError", err)
			}
			if len(got) != 1 || cut.Packets != 1 || cut.Want != 0 || cut.What != tt.want {
				t.Errorf("%d packets, error %+v\nwant 1 and %q", len(got), cut, tt.want)
			}
			if cut.Offset < int64(len(good().buf)) {
				t.Errorf("Offset %d lies inside the intact part", cut.Offset)
			}
			if !strings.Contains(err.Error(), `"x.pcapng": packet 2 at byte offset`) {
				t.Errorf("message %q does not name the place", err)
			}
		})
	}
}

func TestBlockLimits(t *testing.T) {
	tests := []struct {
		name string
		make func(n *ngBytes)
		want LimitError
	}{
		{
			"captured length", func(n *ngBytes) { n.enhanced(0, 1, 9, make([]byte, 1001)) },
			LimitError{Packet: 1, What: "captured length", Size: 1001, Max: 1000, Option: "Options.MaxFrame"},
		},
		{
			"packet block", func(n *ngBytes) { n.buf = append(n.buf, n.words(blockEnhanced, 1<<30, 0)...) },
			LimitError{Packet: 1, What: "packet block length", Size: 1 << 30, Max: 1000 + packetOverhead, Option: "Options.MaxFrame"},
		},
		{
			"interface block", func(n *ngBytes) { n.buf = append(n.buf, n.words(blockInterface, 0xfffffffc, 0)...) },
			LimitError{Packet: 1, What: "interface block length", Size: 0xfffffffc, Max: 1000 + packetOverhead, Option: "Options.MaxFrame"},
		},
		{
			"interfaces", func(n *ngBytes) { n.iface(1, 0).iface(1, 0) },
			LimitError{Packet: 1, What: "number of interfaces", Size: 3, Max: 2, Option: "Options.MaxInterfaces"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := (&ngBytes{}).section(binary.BigEndian).iface(1, 0)
			tt.make(n)
			_, _, err := readAll(t, n.buf, Options{MaxFrame: 1000, MaxInterfaces: 2})
			var limit *LimitError
			if !errors.As(err, &limit) {
				t.Fatalf("error %v, want a *LimitError", err)
			}
			tt.want.File, tt.want.Offset = "x.pcapng", limit.Offset
			if diff := cmp.Diff(tt.want, *limit); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestHostileLengths claims gigabytes in files of a few bytes and measures the allocated memory.
func TestHostileLengths(t *testing.T) {
	le := binary.LittleEndian
	pcap := newPcap(le, magicMicros, 0, 1).buf
	section := (&ngBytes{}).section(le).iface(1, 0)
	claim := func(kind uint32) []byte {
		return append(bytes.Clone(section.buf), section.words(kind, 0xfffffff0, byteOrderMagic, 1, 0, 0xffffffff, 0xffffffff)...)
	}
	files := map[string][]byte{
		"pcap record":       append(bytes.Clone(pcap), section.words(0, 0, 0xffffffff, 0xffffffff)...),
		"pcapng packet":     claim(blockEnhanced),
		"pcapng old packet": claim(blockOldPacket),
		"pcapng simple":     claim(blockSimple),
		"pcapng interface":  claim(blockInterface),
		"pcapng section":    claim(blockSection),
		"pcapng unknown":    claim(0x77777777),
		"pcapng no section": section.words(blockSection, 0xfffffff0, byteOrderMagic, 1, 0, 0),
	}
	for name, data := range files {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := NewReader(bytes.NewReader(data), "x", Options{})
			if err != nil {
				t.Fatal(err)
			}
			var b Batch
			err = r.ReadBatch(&b)
			runtime.ReadMemStats(&after)
			if b.N != 0 || err == nil {
				t.Errorf("%d frames and error %v", b.N, err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
				t.Errorf("%d bytes allocated for a file of %d", used, len(data))
			}
		})
	}
}

// TestInterfaceTextIsBounded checks that names stay printable and short.
func TestInterfaceTextIsBounded(t *testing.T) {
	n := (&ngBytes{}).section(binary.LittleEndian)
	n.iface(1, 0, n.option(optName, bytes.Repeat([]byte("é"), 20000)), n.option(optDescription, []byte("a\xffb")))
	n.iface(1, 0, n.option(optName, append([]byte("x"), bytes.Repeat([]byte("é"), 200)...)))
	n.iface(1, 0, n.option(optName, []byte("a\tb\nc\x1b[31md\u202ee\n")))
	n.iface(1, 0, n.option(optName, []byte("\r\n")))
	n.simple(1, []byte{1})
	r, _, _ := readAll(t, n.buf, Options{})
	want := []string{strings.Repeat("é", 128), "ab", "x" + strings.Repeat("é", 127), "a b c [31md e", ""}
	in := r.Interfaces()
	got := []string{in[0].Name, in[0].Description, in[1].Name, in[2].Name, in[3].Name}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
