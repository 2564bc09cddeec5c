package livetest

import (
	"encoding/binary"
	"errors"
	"io"
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
