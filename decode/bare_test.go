package decode_test

import (
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestBare: the ends of frames without a tag, and whether they carry data.
func TestBare(t *testing.T) {
	d := decoder(t, domain(t, csig.DefaultSpec()))
	for _, c := range []struct {
		name     string
		frame    []byte
		data, ok bool
	}{
		{"data over TCP", bareFrame(t, 4, layers.IPProtocolTCP, 10), true, true},
		{"an acknowledgement", bareFrame(t, 4, layers.IPProtocolTCP, 0), false, true},
		{"over UDP", bareFrame(t, 4, layers.IPProtocolUDP, 10), true, true},
		{"over IPv6", bareFrame(t, 6, layers.IPProtocolTCP, 10), true, true},
		{"padding is no data", append(bareFrame(t, 4, layers.IPProtocolTCP, 0), make([]byte, 6)...), false, true},
		{"nothing", nil, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var o decode.Observation
			data, ok := d.Bare(c.frame, &o)
			if data != c.data || ok != c.ok {
				t.Fatalf("data %t, ok %t", data, ok)
			}
			if !ok {
				return
			}
			if src, dst := o.Addrs(); !src.IsValid() || src.As16()[15] != 1 || dst.As16()[15] != 2 || o.SrcPort != 1000 || o.DstPort != 2000 || o.Flags&decode.HasPorts == 0 {
				t.Errorf("%s to %s, ports %d and %d", src, dst, o.SrcPort, o.DstPort)
			}
			for cut := range c.frame {
				if _, ok := d.Bare(c.frame[:cut:cut], &o); ok && cut < 42 {
					t.Errorf("cut at %d is whole", cut)
				}
			}
		})
	}
	inner := decoderOf(t, decode.Config{Domain: domain(t, csig.DefaultSpec()), Endpoints: decode.Inner})
	if _, ok := inner.Bare(bareFrame(t, 4, layers.IPProtocolUDP, 10), new(decode.Observation)); ok {
		t.Error("the innermost header is not looked for, and yet named")
	}
	frame := bareFrame(t, 4, layers.IPProtocolTCP, 10)
	var o decode.Observation
	if n := testing.AllocsPerRun(100, func() { d.Bare(frame, &o) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

// bareFrame is a frame from an address that ends in 1 to one that ends in 2.
func bareFrame(t *testing.T, version int, proto layers.IPProtocol, payload int) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
	src, dst := make([]byte, 4), make([]byte, 4)
	if version == 6 {
		eth.EthernetType, src, dst = layers.EthernetTypeIPv6, make([]byte, 16), make([]byte, 16)
	}
	src[0], src[len(src)-1], dst[0], dst[len(dst)-1] = 10, 1, 10, 2
	var ip gopacket.SerializableLayer = &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: src, DstIP: dst}
	if version == 6 {
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: src, DstIP: dst}
	}
	var transport gopacket.SerializableLayer = &layers.TCP{SrcPort: 1000, DstPort: 2000, ACK: true}
	if proto == layers.IPProtocolUDP {
		transport = &layers.UDP{SrcPort: 1000, DstPort: 2000}
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, eth, ip, transport, gopacket.Payload(make([]byte, payload))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
