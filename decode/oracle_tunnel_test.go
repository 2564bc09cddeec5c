package decode_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// headers returns gopacket's result for each IP header of a frame, and the tunnels found, by name.
func headers(p gopacket.Packet) (said []said, tunnels []string) {
	var before gopacket.LayerType
	for _, l := range p.Layers() {
		said = appendHeader(said, l)
		switch l.LayerType() {
		case layers.LayerTypeMPLS:
			tunnels = append(tunnels, "mpls")
		case layers.LayerTypeVXLAN:
			tunnels = append(tunnels, "vxlan")
		case layers.LayerTypeGeneve:
			tunnels = append(tunnels, "geneve")
		case layers.LayerTypeGTPv1U:
			tunnels = append(tunnels, "gtpu")
		case layers.LayerTypeGRE:
			tunnels = append(tunnels, "gre")
		case layers.LayerTypeIPSecESP:
			tunnels = append(tunnels, "esp")
		case layers.LayerTypeIPv4, layers.LayerTypeIPv6:
			switch before {
			case layers.LayerTypeIPv4, layers.LayerTypeIPv6, layers.LayerTypeIPv6Destination:
				tunnels = append(tunnels, "ipip")
			}
		}
		before = l.LayerType()
	}
	return said, tunnels
}

// appendHeader adds the fields of one layer to the last IP header.
func appendHeader(all []said, l gopacket.Layer) []said {
	var s *said
	if len(all) > 0 {
		s = &all[len(all)-1]
	}
	switch x := l.(type) {
	case *layers.IPv4:
		return append(all, ipSaid(x.SrcIP.To4(), x.DstIP.To4(), x.Protocol))
	case *layers.IPv6:
		return append(all, ipSaid(x.SrcIP, x.DstIP, x.NextHeader))
	case *layers.IPv6Destination:
		s.proto = uint8(x.NextHeader)
	case *layers.TCP:
		s.srcPort, s.dstPort, s.hasPorts = uint16(x.SrcPort), uint16(x.DstPort), true
		if x.ACK {
			s.hasAck, s.ack = true, x.Ack
		}
	case *layers.UDP:
		s.srcPort, s.dstPort, s.hasPorts = uint16(x.SrcPort), uint16(x.DstPort), true
	}
	return all
}

func ipSaid(src, dst []byte, proto layers.IPProtocol) said {
	a, _ := netip.AddrFromSlice(src)
	b, _ := netip.AddrFromSlice(dst)
	return said{src: a.Unmap(), dst: b.Unmap(), proto: uint8(proto)}
}

// TestTunnelsAgainstGopacket puts random packets into random tunnels, up to three nested ones, and
// compares the outermost header, the innermost one and the tunnels between with gopacket's.
func TestTunnelsAgainstGopacket(t *testing.T) {
	t.Parallel()
	dom := domain(t, csig.DefaultSpec())
	cfgs := configs(dom)
	outer, inner := decoderOf(t, cfgs["outer"]), decoderOf(t, cfgs["inner"])
	rng := rand.New(rand.NewPCG(3, 4))
	seen := map[string]int{}
	for i := range 5000 {
		frame := randomFrame(t, rng)
		for range 1 + rng.UintN(3) {
			frame = randomTunnel(t, rng, frame)
		}
		tagged := slicesInsert(frame, 12, 0x99, 0, 0x2b, 0x85)
		want, tunnels := headers(gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default))
		if len(want) < 1 {
			t.Fatalf("packet %d: gopacket finds no IP: %x", i, frame)
		}
		var r decode.Result
		outer.Decode(tagged, &r)
		if r.Reason != decode.OK || r.N != 1 {
			t.Fatalf("packet %d: %s, %d observations\n%x", i, r.Reason, r.N, tagged)
		}
		if got := ours(&r.Obs[0]); got != want[0] {
			t.Fatalf("packet %d, outermost header:\n%+v, gopacket says\n%+v\n%x", i, got, want[0], tagged)
		}
		if diff := cmp.Diff(tunnels, tunnelNames(&r)); diff != "" {
			t.Fatalf("packet %d: tunnels (-gopacket +ours):\n%s\n%x", i, diff, tagged)
		}
		inner.Decode(tagged, &r)
		if got := ours(&r.Obs[0]); r.N != 1 || got != want[len(want)-1] {
			t.Fatalf("packet %d, innermost header:\n%+v, gopacket says\n%+v\n%x", i, got, want[len(want)-1], tagged)
		}
		for _, name := range tunnels {
			seen[name]++
		}
	}
	for _, name := range []string{"mpls", "vxlan", "geneve", "gtpu", "gre", "ipip", "esp"} {
		if seen[name] < 100 {
			t.Errorf("only %d tunnels are %s", seen[name], name)
		}
	}
}

// tunnelNames returns the layers that are tunnels to gopacket, by its names.
func tunnelNames(r *decode.Result) (names []string) {
	for _, l := range r.Encap.Layers() {
		switch l.Encap {
		case decode.VLAN:
		case decode.NVGRE:
			names = append(names, "gre")
		default:
			names = append(names, l.Encap.String())
		}
	}
	return names
}

func slicesInsert(b []byte, at int, v ...byte) []byte {
	return append(append(bytes.Clone(b[:at]), v...), b[at:]...)
}

// randomTunnel puts a frame, or the packet in it, into a tunnel.
func randomTunnel(t *testing.T, rng *rand.Rand, frame []byte) []byte {
	t.Helper()
	packet, etherType := payloadOf(frame)
	be := binary.BigEndian
	switch rng.UintN(8) {
	case 0:
		var labels []byte
		for n := rng.UintN(3); n > 0; n-- {
			labels = be.AppendUint32(labels, rng.Uint32()&^0x100)
		}
		labels = be.AppendUint32(labels, rng.Uint32()|0x100)
		if etherType != 0x0800 && etherType != 0x86dd {
			return inIP(t, rng, layers.IPProtocolGRE, nil, append(greHeader(rng, 0x6558), frame...))
		}
		return append(be.AppendUint16(bytes.Clone(frame[:12]), 0x8847), append(labels, packet...)...)
	case 1:
		return inIP(t, rng, layers.IPProtocolGRE, nil, append(greHeader(rng, 0x6558), frame...))
	case 2:
		return inIP(t, rng, layers.IPProtocolGRE, nil, append(greHeader(rng, etherType), packet...))
	case 3:
		header := be.AppendUint32([]byte{8, 0, 0, 0}, rng.Uint32())
		return inIP(t, rng, layers.IPProtocolUDP, &layers.UDP{DstPort: 4789}, append(header, frame...))
	case 4:
		header := geneveHeader(rng, 0x6558)
		return inIP(t, rng, layers.IPProtocolUDP, &layers.UDP{DstPort: 6081}, append(header, frame...))
	case 5:
		header := geneveHeader(rng, etherType)
		return inIP(t, rng, layers.IPProtocolUDP, &layers.UDP{DstPort: 6081}, append(header, packet...))
	}
	switch etherType {
	case 0x0800:
		if rng.UintN(2) == 0 {
			return inIP(t, rng, layers.IPProtocolIPv4, nil, packet)
		}
	case 0x86dd:
		if rng.UintN(2) == 0 {
			return inIP(t, rng, layers.IPProtocolIPv6, nil, packet)
		}
	default:
		return inIP(t, rng, layers.IPProtocolGRE, nil, append(greHeader(rng, 0x6558), frame...))
	}
	return inIP(t, rng, layers.IPProtocolUDP, &layers.UDP{DstPort: 2152}, gtpuMessage(rng, packet))
}

// payloadOf returns the packet behind the VLAN tags of a frame, and its EtherType.
func payloadOf(frame []byte) (packet []byte, etherType uint16) {
	at := 12 + 4*int(vlans(frame))
	return frame[at+2:], binary.BigEndian.Uint16(frame[at:])
}

func greHeader(rng *rand.Rand, etherType uint16) []byte {
	flags := uint16(rng.UintN(16)) << 12 &^ 0x4000
	b := binary.BigEndian.AppendUint16(nil, flags)
	b = binary.BigEndian.AppendUint16(b, etherType)
	for _, bit := range []uint16{0x8000, 0x2000, 0x1000} {
		if flags&bit != 0 {
			b = binary.BigEndian.AppendUint32(b, rng.Uint32())
		}
	}
	return b
}

func geneveHeader(rng *rand.Rand, etherType uint16) []byte {
	options := rng.UintN(3)
	b := binary.BigEndian.AppendUint16([]byte{byte(2 * options), 0}, etherType)
	b = binary.BigEndian.AppendUint32(b, rng.Uint32())
	for range options {
		b = append(b, 1, 2, 3, 1, 0, 0, 0, 0) // class, type, one word of data
	}
	return b
}

func gtpuMessage(rng *rand.Rand, packet []byte) []byte {
	flags, optional := byte(0x30), []byte(nil)
	switch rng.UintN(3) {
	case 1:
		flags, optional = 0x32, []byte{0, 1, 0, 0}
	case 2:
		flags, optional = 0x36, []byte{0, 1, 0, 0x85, 1, 0, 9, 0}
	}
	b := binary.BigEndian.AppendUint16([]byte{flags, 255}, uint16(len(optional)+len(packet)))
	b = binary.BigEndian.AppendUint32(b, rng.Uint32())
	return append(append(b, optional...), packet...)
}

// inIP returns an Ethernet frame with an IP header of either version, and below it UDP if given.
func inIP(t *testing.T, rng *rand.Rand, proto layers.IPProtocol, udp *layers.UDP, payload []byte) []byte {
	t.Helper()
	addr := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	eth := &layers.Ethernet{SrcMAC: addr(6), DstMAC: addr(6), EthernetType: layers.EthernetTypeIPv4}
	stack := []gopacket.SerializableLayer{eth}
	var network gopacket.NetworkLayer
	if rng.UintN(2) == 0 {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: addr(4), DstIP: addr(4)}
		network, stack = ip, append(stack, ip)
	} else {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: addr(16), DstIP: addr(16)}
		network, stack = ip, append(stack, ip)
	}
	if udp != nil {
		udp.SrcPort = layers.UDPPort(rng.Uint32())
		if err := udp.SetNetworkLayerForChecksum(network); err != nil {
			t.Fatal(err)
		}
		stack = append(stack, udp)
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, append(stack, gopacket.Payload(payload))...); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(buf.Bytes())
}
