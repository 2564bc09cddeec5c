package wireshark_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

var (
	tag       = []byte{0x99, 0x00, 0x2b, 0x85}
	delayTag  = []byte{0x99, 0x00, 0x44, 0x83}
	addresses = []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
)

// ipv4 returns an EtherType and the packet behind it.
func ipv4(proto byte, payload []byte) []byte {
	b := []byte{0x08, 0x00, 0x45, 0}
	b = binary.BigEndian.AppendUint16(b, uint16(20+len(payload)))
	b = append(b, 0, 1, 0, 0, 64, proto, 0, 0, 192, 168, 0, 1, 192, 168, 0, 2)
	return append(b, payload...)
}

func udp(port uint16, payload []byte) []byte {
	be := binary.BigEndian
	b := be.AppendUint16(nil, 50000)
	b = be.AppendUint16(b, port)
	b = be.AppendUint16(b, uint16(8+len(payload)))
	return append(append(b, 0, 0), payload...)
}

// TestTunnels compares tags outside and inside of tunnels, where they are orphans, and reflections
// inside.
func TestTunnels(t *testing.T) {
	t.Parallel()
	const (
		protoIPv4, protoUDP, protoGRE = 4, 17, 47
		vxlan, geneve                 = 4789, 6081
	)
	reflected := []byte{253, 6, 0xc5, 0x16, 0x2b, 0x85, 1, 1}
	inner := tcpFrame(delayTag, reflected)
	innerIP := tcpFrame(nil, reflected)[len(addresses)+2:]
	mpls := []byte{0x88, 0x47, 0x00, 0x01, 0x01, 0x40}
	payloads := []struct {
		name string
		b    []byte
		seen int // of the payload
	}{
		{"vxlan", ipv4(protoUDP, udp(vxlan, slices.Concat([]byte{8, 0, 0, 0, 0, 0, 1, 0}, inner))), 2},
		{"geneve", ipv4(protoUDP, udp(geneve, slices.Concat([]byte{0, 0, 0x65, 0x58, 0, 0, 1, 0}, inner))), 2},
		{"gre, a frame", ipv4(protoGRE, slices.Concat([]byte{0, 0, 0x65, 0x58}, inner)), 2},
		{"gre, a tag", ipv4(protoGRE, slices.Concat([]byte{0, 0}, inner[len(addresses):])), 2},
		{"ip in ip", ipv4(protoIPv4, innerIP), 1},
		{"mpls", slices.Concat(mpls, innerIP), 1},
		{"pseudowire", slices.Concat(mpls, []byte{0, 0, 0, 0}, inner), 2},
	}
	decoder := newReader(t, csig.DefaultSpec())
	var frames []capture
	for _, p := range payloads {
		b := slices.Concat(addresses, tag, p.b)
		frames = append(frames, capture{p.name, b, len(b)})
		if got := decoder.read(b).seen; len(got) != 1+p.seen {
			t.Errorf("%s: the decoder sees %d tags and reflections, want %d", p.name, len(got), 1+p.seen)
		}
	}
	compareAll(t, frames)
}
