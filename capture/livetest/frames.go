package livetest

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/simulation"
)

// EveryEncapsulation returns whole frames of every encapsulation that the emitter
// has, between hosts and between leaves, in both IP versions inside and outside:
// with tags, with reflections and with neither. The tags are of the emitter's default
// layout.
func EveryEncapsulation(t testing.TB) [][]byte {
	t.Helper()
	s := scenario.Scenario{
		Name: "encapsulations", Seed: 7, Duration: 100 * time.Millisecond,
		Leaves: 2, Spines: 1, HostsPerLeaf: 2, HostSpeed: 100 * scenario.Mbps, UplinkSpeed: 100 * scenario.Mbps,
		TagEvery: 2, AckEvery: 2, SnapLen: 9000, SingleFile: true, CaptureUntagged: true,
		Taps: []scenario.Tap{{Racks: true}, {Name: "to-spine", Before: []string{"spine*"}}},
	}
	for i, encap := range scenario.Encapsulations() {
		for j, at := range []string{"hosts", "leaves"} {
			if at == "leaves" && slices.Contains([]string{"none", "esp", "psp"}, encap) {
				continue
			}
			for _, underlay := range []int{4, 6} {
				s.Workloads = append(s.Workloads, scenario.Workload{
					Kind: scenario.Background, Pairs: 1, Rate: scenario.Mbps / 2,
					Encap: encap, EncapAt: at, IP: 4 + 2*((i+j)%2), Underlay: underlay,
				})
			}
		}
	}
	r, err := simulation.Run(t.Context(), s, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for _, path := range r.Captures {
		frames = append(frames, Read(t, path)...)
	}
	return frames
}

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

// Plain is an untagged frame of IPv4 and UDP between hosts of those numbers, of at
// least 60 bytes.
func Plain(from, to, length int) []byte {
	f := make([]byte, max(length, 60))
	copy(f, []byte{2, 0, 0, 0, 0, byte(to), 2, 0, 0, 0, 0, byte(from)})
	binary.BigEndian.PutUint16(f[12:], 0x0800)
	copy(f[14:], []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, byte(from), 10, 0, 0, byte(to)})
	binary.BigEndian.PutUint16(f[16:], uint16(len(f)-14))
	binary.BigEndian.PutUint16(f[38:], uint16(len(f)-34))
	return f
}

// Tagged is a frame with tags of four bytes before its EtherType.
func Tagged(frame []byte, tags ...uint32) []byte {
	f := append([]byte{}, frame[:12]...)
	for _, tag := range tags {
		f = binary.BigEndian.AppendUint32(f, tag)
	}
	return append(f, frame[12:]...)
}
