package decode_test

import (
	"bytes"
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

// What L2 carries stays the same when headers are put before it, and any cut is survived.
func TestNetwork(t *testing.T) {
	t.Parallel()
	d := decoder(t, domain(t, csig.DefaultSpec()))
	headers := [][]byte{
		{0x81, 0x00, 0x00, 0x64},                                     // VLAN
		{0x99, 0x00, 0x2b, 0x85},                                     // compact tag
		{0x88, 0xb6, 0x00, 0x0a, 0x20, 0x00, 0x9c, 0x00},             // wide tag
		{0x88, 0xe5, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01},             // SecTAG in clear
		{0x88, 0xe5, 0x20, 0x00, 0, 0, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7}, // with a channel
	}
	found := 0
	for _, g := range goldens(t) {
		for n := range g.frame {
			d.Network(g.frame[:n])
		}
		etherType, packet, ok := d.Network(g.frame)
		if !ok {
			continue
		}
		found++
		for _, h := range headers {
			longer := append(append(append([]byte(nil), g.frame[:12]...), h...), g.frame[12:]...)
			e, p, ok := d.Network(longer)
			if !ok || e != etherType || !bytes.Equal(p, packet) {
				t.Errorf("%s behind %x: %#x %x, want %#x %x", g.name, h, e, p, etherType, packet)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d frames carry a packet", found)
	}
	label := []byte{0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64}
	ip := []byte{0x45, 0, 0, 20}
	if e, p, ok := d.Network(append(append(make([]byte, 12), label...), ip...)); !ok || e != 0x0800 || !bytes.Equal(p, ip) {
		t.Errorf("below labels: %#x %x %t", e, p, ok)
	}
	if _, _, ok := d.Network(append(make([]byte, 12), 0x88, 0xe5, 0x0c, 0, 0, 0, 0, 1, 8, 0)); ok {
		t.Error("what is encrypted is found")
	}
}
