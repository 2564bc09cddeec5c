package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestClassicLayouts(t *testing.T) {
	a, b := pattern(60, 1), pattern(99, 2)
	tests := []struct {
		name  string
		order binary.AppendByteOrder
		magic uint32
		frac  uint32
		ns    int64
		head  int64
		tick  float64
	}{
		{"little endian, microseconds", binary.LittleEndian, magicMicros, 999999, 999999000, 16, 1000},
		{"big endian, microseconds", binary.BigEndian, magicMicros, 1, 1000, 16, 1000},
		{"little endian, nanoseconds", binary.LittleEndian, magicNanos, 999999999, 999999999, 16, 1},
		{"big endian, nanoseconds", binary.BigEndian, magicNanos, 5, 5, 16, 1},
		{"little endian, modified", binary.LittleEndian, magicModified, 7, 7000, 24, 1000},
		{"big endian, modified", binary.BigEndian, magicModified, 8, 8000, 24, 1000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// The upper bits of the last field announce 4 bytes of FCS.
			p := newPcap(tt.order, tt.magic, 65535, 0x24000001).
				add(1700000000, tt.frac, 1500, a).
				add(0xffffffff, tt.frac, 99, b).
				add(1, 0, 0, nil)
			r, err := NewReader(bytes.NewReader(p.buf), "x", Options{})
			if err != nil {
				t.Fatal(err)
			}
			want := []packet{
				{string(a), 1700000000e9 + tt.ns, 1500, 0, false, 1, 24},
				{string(b), 0xffffffff*1e9 + tt.ns, 99, 0, false, 2, 24 + tt.head + 60},
				{"", 1e9, 0, 0, false, 3, 24 + 2*tt.head + 159},
			}
			if diff := cmp.Diff(want, mustDrain(t, r)); diff != "" {
				t.Error(diff)
			}
			wantIf := []Interface{{Link: LinkEthernet, SnapLen: 65535, NanosPerTick: tt.tick}}
			if diff := cmp.Diff(wantIf, r.Interfaces()); diff != "" {
				t.Error(diff)
			}
			if r.Offset() != int64(len(p.buf)) || r.Size() != -1 {
				t.Errorf("Offset %d, Size %d, want %d and -1", r.Offset(), r.Size(), len(p.buf))
			}
			if got := r.Counters(); got != (Counters{Packets: 3}) {
				t.Errorf("Counters %+v", got)
			}
		})
	}
}

// TestSlowSource reads from sources that return few bytes at a time, like pipes.
func TestSlowSource(t *testing.T) {
	p := newPcap(binary.LittleEndian, magicNanos, 0, 1)
	for i := range 300 {
		p.add(1, uint32(i), 80, pattern(i%90, byte(i)))
	}
	n := (&ngBytes{}).section(binary.LittleEndian).iface(1, 0)
	for i := range 300 {
		n.enhanced(0, uint64(i), 80, pattern(i%90, byte(i))).block(0x99, make([]byte, i))
	}
	for name, data := range map[string][]byte{"pcap": p.buf, "pcapng": n.buf} {
		t.Run(name, func(t *testing.T) {
			whole, err := NewReader(bytes.NewReader(data), "x", Options{})
			if err != nil {
				t.Fatal(err)
			}
			want := mustDrain(t, whole)
			if len(want) != 300 {
				t.Fatalf("%d packets, want 300", len(want))
			}
			slow, err := NewReader(iotest.OneByteReader(bytes.NewReader(data)), "x", Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, mustDrain(t, slow)); diff != "" {
				t.Error(diff)
			}
			tiny, err := NewReader(iotest.HalfReader(iotest.DataErrReader(bytes.NewReader(data))), "x", Options{ReadBuffer: 1})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, mustDrain(t, tiny)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestFrameGrowsBuffer reads frames larger than the read buffer.
func TestFrameGrowsBuffer(t *testing.T) {
	small, large := pattern(100, 3), pattern(200<<10, 4)
	p := newPcap(binary.LittleEndian, magicMicros, 0, 1).
		add(1, 0, 100, small).add(2, 0, 200<<10, large).add(3, 0, 100, small)
	r, err := NewReader(bytes.NewReader(p.buf), "x", Options{ReadBuffer: 4096})
	if err != nil {
		t.Fatal(err)
	}
	got := mustDrain(t, r)
	if len(got) != 3 || got[1].Data != string(large) || got[2].Data != string(small) {
		t.Fatalf("%d packets, or their data differ", len(got))
	}
}

func TestClassicFrameLimit(t *testing.T) {
	p := newPcap(binary.BigEndian, magicMicros, 0, 1).
		add(1, 0, 100, pattern(100, 1)).add(2, 0, 101, pattern(101, 1)).add(3, 0, 1, pattern(1, 1))
	r, err := NewReader(bytes.NewReader(p.buf), "big.pcap", Options{MaxFrame: 100})
	if err != nil {
		t.Fatal(err)
	}
	got, err := drain(t, r)
	if len(got) != 1 {
		t.Errorf("%d packets before the error, want 1", len(got))
	}
	want := &LimitError{File: "big.pcap", Offset: 140, Packet: 2, What: "captured length", Size: 101, Max: 100, Option: "Options.MaxFrame"}
	var limit *LimitError
	if !errors.As(err, &limit) {
		t.Fatalf("error %v, want a *LimitError", err)
	}
	if diff := cmp.Diff(want, limit); diff != "" {
		t.Error(diff)
	}
	const text = `read capture "big.pcap": packet 2 at byte offset 140: captured length is 101, more than the limit of 100`
	if limit.Error() != text {
		t.Errorf("message %q\nwant    %q", limit.Error(), text)
	}
}

func TestOptionsAreBounded(t *testing.T) {
	huge := int(^uint(0) >> 1)
	got := Options{MaxFrame: huge, ReadBuffer: 1, MaxInflation: huge, Poll: 1}.withDefaults()
	want := Options{
		MaxFrame: 1 << 30, ReadBuffer: minReadBuffer, MaxInterfaces: DefaultMaxInterfaces,
		MaxInflation: 1 << 20, Poll: minPoll, MaxOpen: DefaultMaxOpen,
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestSourceFails(t *testing.T) {
	p := newPcap(binary.LittleEndian, magicMicros, 0, 1).add(1, 0, 100, pattern(100, 1))
	broken := errors.New("the disk is gone")
	src := &failing{data: p.buf[:len(p.buf)-1], err: broken}
	r, err := NewReader(src, "x", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = drain(t, r); !errors.Is(err, broken) {
		t.Errorf("error %v, want one that wraps the source's", err)
	}
}

// failing returns its data, then err.
type failing struct {
	data []byte
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	if len(f.data) == 0 {
		return 0, f.err
	}
	n := copy(p, f.data)
	f.data = f.data[n:]
	return n, nil
}
