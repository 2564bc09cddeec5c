package livetest

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/capture"
)

// Read returns the frames of a capture file.
func Read(t testing.TB, path string) [][]byte {
	t.Helper()
	r, err := capture.Open(path, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var frames [][]byte
	var b capture.Batch
	for {
		if err := r.ReadBatch(&b); errors.Is(err, io.EOF) {
			return frames
		} else if err != nil {
			t.Fatal(err)
		}
		for i := range b.N {
			frames = append(frames, b.Frames[i].Append(nil))
		}
	}
}

// HexFrame is the frame of a .hex file.
type HexFrame struct {
	Name string // of the file, without its extension
	Data []byte
}

// ReadHex returns the frames of a folder's .hex files: bytes in wire order, with # comments.
func ReadHex(t testing.TB, dir string) []HexFrame {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.hex"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no frames in %s: %v", dir, err)
	}
	frames := make([]HexFrame, 0, len(paths))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var digits strings.Builder
		for line := range strings.Lines(string(text)) {
			bare, _, _ := strings.Cut(line, "#")
			digits.WriteString(strings.Join(strings.Fields(bare), ""))
		}
		data, err := hex.DecodeString(digits.String())
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		frames = append(frames, HexFrame{strings.TrimSuffix(filepath.Base(path), ".hex"), data})
	}
	return frames
}

// Plain returns an untagged IPv4/UDP frame between two numbered hosts, at least 60 bytes long.
func Plain(from, to, length int) []byte {
	f := make([]byte, max(length, 60))
	copy(f, []byte{2, 0, 0, 0, 0, byte(to), 2, 0, 0, 0, 0, byte(from)})
	binary.BigEndian.PutUint16(f[12:], 0x0800)
	copy(f[14:], []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, byte(from), 10, 0, 0, byte(to)})
	binary.BigEndian.PutUint16(f[16:], uint16(len(f)-14))
	binary.BigEndian.PutUint16(f[38:], uint16(len(f)-34))
	return f
}

// Tagged returns the frame with four-byte tags before its EtherType.
func Tagged(frame []byte, tags ...uint32) []byte {
	f := append([]byte{}, frame[:12]...)
	for _, tag := range tags {
		f = binary.BigEndian.AppendUint32(f, tag)
	}
	return append(f, frame[12:]...)
}
