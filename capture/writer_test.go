package capture

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket/pcapgo"
)

// TestWriterBytes compares every byte of a small file.
func TestWriterBytes(t *testing.T) {
	var file bytes.Buffer
	w := NewWriter(&file, Interface{Name: "eth0", Link: LinkSLL2, SnapLen: 96})
	f := Frame{Data: []byte{1, 2, 3, 4, 5}, TimeNS: 0x1_0000_0002, WireLen: 60}
	if err := errors.Join(w.Write(&f, ""), w.Write(&f, "hop 3"), w.Flush()); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"0a0d0d0a 30000000 4d3c2b1a 0100 0000 ffffffffffffffff 0400 0900 637369677363 6f7065 000000 0000 0000 30000000",
		"01000000 28000000 1401 0000 60000000 0200 0400 65746830 0900 0100 09000000 0000 0000 28000000",
		"06000000 28000000 00000000 01000000 02000000 05000000 3c000000 0102030405 000000 28000000",
		"06000000 38000000 00000000 01000000 02000000 05000000 3c000000 0102030405 000000 0100 0500 686f702033 000000 0000 0000 38000000",
	}, "")
	if got := hex.EncodeToString(file.Bytes()); got != strings.ReplaceAll(want, " ", "") {
		t.Errorf("file %s\nwant %s", got, want)
	}
}

// written returns a file with frames of three interfaces, two of which are declared later.
func written(t *testing.T) (file []byte, want []packet, comments []string, interfaces []Interface) {
	t.Helper()
	interfaces = []Interface{
		{Name: "leaf1", Description: "receiver", Link: LinkEthernet, SnapLen: 65535, NanosPerTick: 1},
		{Name: "leaf2", Link: LinkEthernet, NanosPerTick: 1},
		{Name: "any", Link: LinkSLL, NanosPerTick: 1},
	}
	comments = []string{"tag 9900 min_abw_ratio code 23", "", "Ärger\nin zwei Zeilen", "x", strings.Repeat("é", 100), ""}
	var buf bytes.Buffer
	w := NewWriter(&buf, interfaces[0])
	for i, comment := range comments {
		f := Frame{Data: pattern(60+i, byte(i)), TimeNS: 1700000000_123456789 + int64(i), WireLen: uint32(1500 + i), Interface: uint32(i / 2)}
		if err := w.Declare(interfaces[:1+i/2]); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(&f, comment); err != nil {
			t.Fatal(err)
		}
		want = append(want, packet{Data: string(f.Data), TimeNS: f.TimeNS, WireLen: f.WireLen, Interface: f.Interface, Packet: uint64(i) + 1})
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes(), want, comments, interfaces
}

func TestWriterReadBack(t *testing.T) {
	file, want, _, interfaces := written(t)
	r, got, err := readAll(t, file, Options{})
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for i := range got {
		got[i].Offset = 0
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(interfaces, r.Interfaces()); diff != "" {
		t.Error(diff)
	}
}

func TestWriterAgainstPcapgo(t *testing.T) {
	file, want, _, _ := written(t)
	options := pcapgo.DefaultNgReaderOptions
	options.WantMixedLinkType = true
	oracle, err := pcapgo.NewNgReader(bytes.NewReader(file), options)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, file, oracle, len(want))
	if in, err := oracle.Interface(0); err != nil || in.Name != "leaf1" || in.Description != "receiver" || in.SnapLength != 65535 {
		t.Errorf("interface %+v, %v", in, err)
	}
}

// TestWriterAgainstTshark compares comments with tshark's output.
func TestWriterAgainstTshark(t *testing.T) {
	file, _, comments, _ := written(t)
	got := tsharkFields(t, writeFile(t, "f.pcapng", file), "frame.interface_name", "frame.time_epoch", "frame.len", "frame.comment")
	want := []string{
		"leaf1\t1700000000.123456789\t1500\t" + comments[0],
		"leaf1\t1700000000.123456790\t1501\t",
		"leaf2\t1700000000.123456791\t1502\t" + strings.ReplaceAll(comments[2], "\n", `\n`),
		"leaf2\t1700000000.123456792\t1503\tx",
		"any\t1700000000.123456793\t1504\t" + comments[4],
		"any\t1700000000.123456794\t1505\t",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestWriterLimits writes values that must be truncated or rejected.
func TestWriterLimits(t *testing.T) {
	var file bytes.Buffer
	w := NewWriter(&file, Interface{Name: strings.Repeat("é", 200)})
	long := strings.Repeat("é", MaxComment)
	for _, f := range []Frame{
		{TimeNS: -1, WireLen: 1},
		{TimeNS: 5, NoTime: true, Data: []byte{1}},
		{TimeNS: math.MaxInt64, Data: pattern(1000, 1)},
	} {
		if err := w.Write(&f, "bad \xff"+long); err != nil {
			t.Fatal(err)
		}
	}
	err := w.Write(&Frame{Interface: 1}, "")
	if err == nil || err.Error() != "write packet 4: it is of interface 1, expected one of the 1 declared; declare it first" {
		t.Errorf("undeclared interface: %v", err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	r, got, err := readAll(t, file.Bytes(), Options{})
	if !errors.Is(err, io.EOF) || len(got) != 3 || got[0].TimeNS != 0 || got[1].TimeNS != 0 || got[2].TimeNS != math.MaxInt64 {
		t.Errorf("%d packets %v and %v", len(got), got, err)
	}
	if name := r.Interfaces()[0].Name; name != strings.Repeat("é", 128) {
		t.Errorf("name %q", name)
	}
	if at := bytes.Index(file.Bytes(), []byte("bad ?é")); at < 0 || binary.LittleEndian.Uint16(file.Bytes()[at-2:]) > MaxComment {
		t.Error("the comment is not cut, or not made valid")
	}
	if clip("aé", 2) != "a" || clip("aé", 3) != "aé" || clip("\xff\xff", 1) != "?" {
		t.Error("clip")
	}
}

// TestWriterOfNothing checks that an empty file gets its headers once, and that nothing is written
// earlier.
func TestWriterOfNothing(t *testing.T) {
	var file bytes.Buffer
	w := NewWriter(&file, Interface{Link: 1})
	if file.Len() != 0 {
		t.Error("NewWriter wrote")
	}
	if err := errors.Join(w.Flush(), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if r, got, err := readAll(t, file.Bytes(), Options{}); !errors.Is(err, io.EOF) || got != nil || len(r.Interfaces()) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// full accepts some bytes, then fails.
type full struct{ room int }

func (f *full) Write(p []byte) (int, error) {
	n := min(f.room, len(p))
	f.room -= n
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

var errFull = errors.New("the disk is full")

func TestWriterDestinationFails(t *testing.T) {
	for _, room := range []int{0, 100, writeBuffer + 5, 3 * writeBuffer} {
		w := NewWriter(&full{room: room}, Interface{Link: 1})
		f := Frame{Data: pattern(500, 1)}
		var err error
		for range 1000 {
			if err = w.Write(&f, "c"); err != nil {
				break
			}
		}
		if !errors.Is(err, errFull) || !errors.Is(w.Flush(), errFull) || !errors.Is(w.Write(&f, ""), errFull) {
			t.Errorf("room for %d bytes: %v", room, err)
		}
	}
}

func TestWriterAllocatesNothing(t *testing.T) {
	w := NewWriter(io.Discard, Interface{Link: 1})
	f := Frame{Data: pattern(104, 1), TimeNS: 1}
	if allocs := testing.AllocsPerRun(5000, func() {
		if err := w.Write(&f, "tag min_abw_ratio"); err != nil {
			t.Fatal(err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations a frame, want none", allocs)
	}
}

// FuzzWriter writes arbitrary frames and reads them back.
func FuzzWriter(f *testing.F) {
	f.Add([]byte{1, 2, 3}, "comment", "eth0", int64(5), uint32(9), uint16(1))
	f.Add([]byte{}, "\xff\x00", "", int64(-5), uint32(0), uint16(276))
	f.Fuzz(func(t *testing.T, data []byte, comment, name string, ns int64, wire uint32, link uint16) {
		var file bytes.Buffer
		w := NewWriter(&file, Interface{Name: name, Link: LinkType(link)})
		in := Frame{Data: data, TimeNS: ns, WireLen: wire}
		if err := errors.Join(w.Write(&in, comment), w.Write(&in, ""), w.Flush()); err != nil {
			t.Fatal(err)
		}
		r, got, err := readAll(t, file.Bytes(), Options{MaxFrame: largestMaxFrame})
		if !errors.Is(err, io.EOF) || r.Interfaces()[0].Link != LinkType(link) {
			t.Fatalf("%v, %+v", err, r.Interfaces())
		}
		for i := range got {
			got[i].Offset = 0
		}
		p := packet{Data: string(data), TimeNS: max(ns, 0), WireLen: wire, Packet: 1}
		q := p
		q.Packet = 2
		if !slices.Equal(got, []packet{p, q}) {
			t.Fatalf("%+v, want %+v twice", got, p)
		}
	})
}

// tsharkFields runs tshark on a file and returns its lines, one per packet, with tab-separated
// fields. Without tshark the test is skipped.
func tsharkFields(t *testing.T, path string, fields ...string) []string {
	t.Helper()
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	args := []string{"-r", path, "-n", "-T", "fields", "-E", "occurrence=l"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	out, err := exec.CommandContext(t.Context(), tshark, args...).Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	return strings.Split(strings.TrimRight(string(out), "\n"), "\n")
}
