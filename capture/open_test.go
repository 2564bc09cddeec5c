package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOpenRefuses(t *testing.T) {
	pcap := newPcap(binary.LittleEndian, magicMicros, 0, 1).buf
	old := bytes.Clone(pcap)
	old[6] = 3
	const expected = "; expected pcap (magic a1b2c3d4, a1b23c4d or a1b2cd34 in either byte order), pcapng (0a0d0d0a), or one of them compressed once with gzip (1f8b) or zstd (28b52ffd)"
	tests := []struct {
		name, what string
		data       []byte
	}{
		{"empty", "the file is empty", nil},
		{"short", "not a pcap or pcapng file, too short (first bytes d4 c3)", pcap[:2]},
		{"nonsense", "not a pcap or pcapng file (first bytes 00 01 02 03)", []byte{0, 1, 2, 3, 4, 5}},
		{"pcapng without byte order", "not a pcapng file, its section has no byte-order magic (first bytes 0a 0d 0d 0a)", append([]byte{0x0a, 0x0d, 0x0d, 0x0a}, make([]byte, 40)...)},
		{"old version", "pcap file of version 2.3, only 2.4 is read (first bytes d4 c3 b2 a1)", old},
		{"zstd of nonsense", "not a pcap or pcapng file (first bytes 01 02 03 04)", zstded(t, []byte{1, 2, 3, 4, 5})},
		{"zstd of nothing", "the file is empty", zstded(t, nil)},
		{"zstd of gzip", "not a pcap or pcapng file (first bytes 1f 8b 08 00)", zstded(t, zipped(t, pcap))},
		{"gzip of nonsense", "not a pcap or pcapng file (first bytes 01 02 03 04)", zipped(t, []byte{1, 2, 3, 4, 5})},
		{"gzip of nothing", "the file is empty", zipped(t, nil)},
		{"gzip of gzip", "not a pcap or pcapng file (first bytes 1f 8b 08 00)", zipped(t, zipped(t, pcap))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := writeFile(t, "f", tt.data)
			chunks, err := Chunks(path, 1)
			if err != nil || len(chunks) != 1 {
				t.Fatalf("Chunks: %v, %v, want one chunk", chunks, err)
			}
			for name, open := range map[string]func() (*Reader, error){
				"Open":      func() (*Reader, error) { return Open(path, Options{}) },
				"OpenChunk": func() (*Reader, error) { return OpenChunk(path, chunks[0], Options{}) },
			} {
				_, err := open()
				var format *FormatError
				if !errors.As(err, &format) {
					t.Fatalf("%s: error %v, want a *FormatError", name, err)
				}
				if want := `open capture "` + path + `": ` + tt.what + expected; err.Error() != want {
					t.Errorf("%s: message %s\nwant %s", name, err, want)
				}
			}
		})
	}
}

func TestOpenPathErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.pcap")
	if _, err := Open(missing, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Chunks(missing, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Chunks of a missing file: %v", err)
	}
	if _, err := Open(t.TempDir(), Options{}); !errors.Is(err, ErrDirectory) {
		t.Errorf("directory: %v", err)
	}
	if _, err := Chunks(t.TempDir(), 1); !errors.Is(err, ErrDirectory) {
		t.Errorf("Chunks of a directory: %v", err)
	}
}

func TestOpenFile(t *testing.T) {
	for name, data := range cutSamples() {
		t.Run(name, func(t *testing.T) {
			_, want, _ := readAll(t, data, Options{})
			for form, stored := range map[string][]byte{"plain": data, "gzip": zipped(t, data), "zstd": zstded(t, data)} {
				r, err := Open(writeFile(t, "f", stored), Options{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, mustDrain(t, r)); diff != "" {
					t.Errorf("%s: %s", form, diff)
				}
				if size := int64(len(stored)); r.Offset() != size || r.Size() != size {
					t.Errorf("%s: Offset %d, Size %d, want %d", form, r.Offset(), r.Size(), size)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestPipe reads a pipe: frames arrive before it ends, and its size is unknown.
func TestPipe(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	p := newPcap(binary.LittleEndian, magicMicros, 0, 1).add(1, 0, 9, pattern(9, 1))
	if _, err = out.Write(p.buf); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(in, "pipe", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	if err = r.ReadBatch(&b); err != nil || b.N != 1 || r.Size() != -1 {
		t.Fatalf("%d frames, error %v, size %d", b.N, err, r.Size())
	}
	if err = out.Close(); err != nil {
		t.Fatal(err)
	}
	if err = r.ReadBatch(&b); !errors.Is(err, io.EOF) {
		t.Errorf("error %v, want io.EOF", err)
	}
}

func TestOpenStandardInput(t *testing.T) {
	data := cutSamples()["pcap"]
	f, err := os.Open(writeFile(t, "f", data))
	if err != nil {
		t.Fatal(err)
	}
	saved := os.Stdin
	os.Stdin = f
	t.Cleanup(func() { os.Stdin = saved; _ = f.Close() })
	chunks, err := Chunks("-", 1)
	if err != nil || len(chunks) != 1 {
		t.Fatalf("Chunks: %v, %v", chunks, err)
	}
	r, err := OpenChunk("-", chunks[0], Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := readAll(t, data, Options{})
	if got := mustDrain(t, r); !slices.Equal(got, want) || r.Size() != -1 {
		t.Errorf("%d packets, want %d; size %d", len(got), len(want), r.Size())
	}
	if err = r.Close(); err != nil {
		t.Error(err)
	}
	if _, err = f.Stat(); err != nil {
		t.Errorf("standard input was closed: %v", err)
	}
}
