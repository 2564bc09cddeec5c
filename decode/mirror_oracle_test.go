package decode_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"github.com/csigscope/csigscope/decode"
)

// tsharkFields runs tshark over frames and returns its lines, one for each packet, fields separated
// by tabs; it skips the test if tshark is not installed.
func tsharkFields(t *testing.T, frames [][]byte, fields ...string) []string {
	t.Helper()
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	var file bytes.Buffer
	w := pcapgo.NewWriterNanos(&file)
	err = w.WriteFileHeader(1<<16, layers.LinkTypeEthernet)
	for _, data := range frames {
		err = errors.Join(err, w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(data), Length: len(data)}, data))
	}
	path := filepath.Join(t.TempDir(), "mirror.pcap")
	if err = errors.Join(err, os.WriteFile(path, file.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
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

// TestUnwrapAgainstTshark compares random sessions with tshark's dissection.
func TestUnwrapAgainstTshark(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	frames := make([][]byte, 500)
	for i := range frames {
		frames[i] = randomMirror(t, rng)
	}
	want := tsharkFields(t, frames, "erspan.version", "erspan.spanid", "erspan.vlan", "erspan.cos",
		"erspan.encap", "erspan.bso", "erspan.truncated", "erspan.index", "erspan.hw", "erspan.direction", "gre.sequence_number", "eth.type")
	for i, data := range frames {
		inner, s, m := onlyERSPAN.Unwrap(&decode.Frame{Data: data, WireLen: uint32(len(data))})
		if m != decode.MirrorOK {
			t.Fatalf("frame %d: %s", i, m)
		}
		if got := asTshark(&s, inner.Data); got != want[i] {
			t.Fatalf("frame %d: % x\n%q, tshark has\n%q", i, data, got, want[i])
		}
	}
}

// randomMirror builds a frame of any type whose header is random.
func randomMirror(t *testing.T, rng *rand.Rand) []byte {
	const typeII, typeIII = 8, 12
	header := make([]byte, []int{0, typeII, typeIII}[rng.IntN(3)])
	for i := range header {
		header[i] = byte(rng.Uint32())
	}
	gre := "0000 88be"
	switch len(header) {
	case typeII:
		header[0] = 0x10 | header[0]&0x0f
		gre = gre88be
	case typeIII:
		header[0], header[10] = 0x20|header[0]&0x0f, header[10]&0x83 // frame type 0
		gre = gre22eb
		if header[11]&1 != 0 {
			header = append(header, 0x14, 0, 0, 1, 0, 0, 0, 9)
		}
	}
	tail := append(append(join(t, gre), header...), join(t, mirrored)...)
	head := join(t, outerMAC, ipv4Gre4)
	binary.BigEndian.PutUint16(head[16:], uint16(20+len(tail)))
	return append(head, tail...)
}

// asTshark prints a session as tshark -T fields does.
func asTshark(s *decode.Session, inner []byte) string {
	f := make([]string, 12)
	bit := func(b bool) string {
		if b {
			return "1"
		}
		return "0"
	}
	if s.Type > 1 {
		f[0], f[1], f[2], f[3], f[6] = fmt.Sprint(s.Type-1), fmt.Sprint(s.ID), fmt.Sprint(s.VLAN), fmt.Sprint(s.CoS), bit(s.Truncated)
	}
	switch s.Type {
	case 2:
		f[4], f[7] = fmt.Sprint(s.Encap), fmt.Sprint(s.Index)
	case 3:
		f[5], f[8], f[9] = fmt.Sprint(s.Integrity), fmt.Sprint(s.Hardware), bit(s.Egress)
	}
	if s.Sequenced {
		f[10] = fmt.Sprint(s.Sequence)
	}
	f[11] = fmt.Sprintf("0x%04x", binary.BigEndian.Uint16(inner[12:]))
	return strings.Join(f, "\t")
}
