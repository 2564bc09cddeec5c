package decode_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// said is the part of a frame's result that both decoders give.
type said struct {
	src, dst         netip.Addr
	proto            uint8
	srcPort, dstPort uint16
	hasPorts, hasAck bool
	ack              uint32
}

func ours(o *decode.Observation) said {
	src, dst := o.Addrs()
	return said{
		src: src, dst: dst, proto: o.Proto, srcPort: o.SrcPort, dstPort: o.DstPort,
		hasPorts: o.Flags&decode.HasPorts != 0, hasAck: o.Flags&decode.HasAck != 0, ack: o.Ack,
	}
}

// theirs returns gopacket's result for the same packet without the tag: gopacket does not parse
// CSIG.
func theirs(t *testing.T, untagged []byte) said {
	t.Helper()
	p := gopacket.NewPacket(untagged, layers.LayerTypeEthernet, gopacket.Default)
	var s said
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		s.src, _ = netip.AddrFromSlice(ip.SrcIP)
		s.dst, _ = netip.AddrFromSlice(ip.DstIP)
		s.proto = uint8(ip.Protocol)
	case *layers.IPv6:
		s.src, _ = netip.AddrFromSlice(ip.SrcIP)
		s.dst, _ = netip.AddrFromSlice(ip.DstIP)
		s.proto = upperProtocol(p, ip)
	default:
		t.Fatalf("gopacket finds no IP: %v", p)
	}
	s.src, s.dst = s.src.Unmap(), s.dst.Unmap()
	switch l4 := p.TransportLayer().(type) {
	case *layers.TCP:
		s.srcPort, s.dstPort, s.hasPorts = uint16(l4.SrcPort), uint16(l4.DstPort), true
		if l4.ACK {
			s.hasAck, s.ack = true, l4.Ack
		}
	case *layers.UDP:
		s.srcPort, s.dstPort, s.hasPorts = uint16(l4.SrcPort), uint16(l4.DstPort), true
	}
	return s
}

func upperProtocol(p gopacket.Packet, ip *layers.IPv6) uint8 {
	next := ip.NextHeader
	for _, l := range p.Layers() {
		switch x := l.(type) {
		case *layers.IPv6HopByHop:
			next = x.NextHeader
		case *layers.IPv6Destination:
			next = x.NextHeader
		case *layers.IPv6Routing:
			next = x.NextHeader
		case *layers.IPv6Fragment:
			next = x.NextHeader
		}
	}
	return uint8(next)
}

// TestAgainstGopacket builds random packets with gopacket, tags them, and compares the results of
// both decoders.
func TestAgainstGopacket(t *testing.T) {
	t.Parallel()
	dom := domain(t, csig.DefaultSpec())
	d := decoder(t, dom)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		frame := randomFrame(t, rng)
		tag := csig.Tag{
			Layout: csig.Layout{Format: csig.Compact, Profile: csig.IETF01},
			T:      uint8(rng.UintN(8)), S: uint32(rng.UintN(32)), LM: uint16(rng.UintN(128)),
		}
		end := 12 + 4*int(vlans(frame)) // the tag goes after the VLAN tags
		tagged := append([]byte{}, frame[:end]...)
		tagged = tag.Append(binary.BigEndian.AppendUint16(tagged, 0x9900))
		tagged = append(tagged, frame[end:]...)

		var r decode.Result
		d.Decode(tagged, &r)
		if r.Reason != decode.OK || r.N != 1 || r.Obs[0].Tag != tag {
			t.Fatalf("packet %d: %s, %d observations, tag %+v, want %+v\n%x", i, r.Reason, r.N, r.Obs[0].Tag, tag, tagged)
		}
		if got, want := ours(&r.Obs[0]), theirs(t, frame); got != want {
			t.Fatalf("packet %d:\n%+v, gopacket says\n%+v\n%x", i, got, want, tagged)
		}
		d.Decode(frame, &r)
		if r.Reason != decode.NoCSIG || r.N != 0 {
			t.Fatalf("packet %d without tag: %s, %d observations", i, r.Reason, r.N)
		}
	}
}

func vlans(frame []byte) (n uint) {
	for binary.BigEndian.Uint16(frame[12+4*n:]) == 0x8100 {
		n++
	}
	return n
}

func randomFrame(t *testing.T, rng *rand.Rand) []byte {
	t.Helper()
	random := func(n uint) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	eth := &layers.Ethernet{SrcMAC: random(6), DstMAC: random(6), EthernetType: layers.EthernetTypeIPv4}
	stack := []gopacket.SerializableLayer{eth}
	last := &eth.EthernetType
	for range rng.UintN(4) {
		v := &layers.Dot1Q{VLANIdentifier: uint16(rng.UintN(4096)), Type: layers.EthernetTypeIPv4}
		*last = layers.EthernetTypeDot1Q
		last = &v.Type
		stack = append(stack, v)
	}

	proto := []layers.IPProtocol{layers.IPProtocolTCP, layers.IPProtocolUDP, layers.IPProtocolICMPv4, layers.IPProtocolESP}[rng.UintN(4)]
	var network gopacket.NetworkLayer
	if rng.UintN(2) == 0 {
		ip := &layers.IPv4{
			Version: 4, TTL: 64, Protocol: proto, SrcIP: random(4), DstIP: random(4),
			// gopacket leaves first fragments undecoded, so there are none here.
			FragOffset: uint16(max(int(rng.UintN(12))-8, 0)),
		}
		for range rng.UintN(3) {
			ip.Options = append(ip.Options, layers.IPv4Option{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}})
		}
		network = ip
		stack = append(stack, ip)
	} else {
		*last = layers.EthernetTypeIPv6
		ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: random(16), DstIP: random(16)}
		network = ip
		stack = append(stack, ip)
		if rng.UintN(2) == 0 {
			ip.NextHeader = layers.IPProtocolIPv6Destination
			ext := &layers.IPv6Destination{Options: []*layers.IPv6DestinationOption{{
				OptionType: 1, OptionData: random(4 + 8*rng.UintN(3)), ActualLength: 6,
			}}}
			ext.NextHeader = proto
			stack = append(stack, ext)
		}
	}
	stack = append(stack, randomTransport(t, rng, proto, network)...)
	stack = append(stack, gopacket.Payload(random(64+rng.UintN(64))))
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(buf.Bytes())
}

func randomTransport(t *testing.T, rng *rand.Rand, proto layers.IPProtocol, network gopacket.NetworkLayer) []gopacket.SerializableLayer {
	t.Helper()
	var err error
	var layer gopacket.SerializableLayer
	switch proto {
	case layers.IPProtocolTCP:
		tcp := &layers.TCP{
			SrcPort: layers.TCPPort(rng.Uint32()), DstPort: layers.TCPPort(rng.Uint32()),
			Ack: rng.Uint32(), ACK: rng.UintN(2) == 0,
		}
		if rng.UintN(2) == 0 {
			tcp.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8)}}
		}
		err = tcp.SetNetworkLayerForChecksum(network)
		layer = tcp
	case layers.IPProtocolUDP:
		udp := &layers.UDP{SrcPort: layers.UDPPort(rng.Uint32()), DstPort: layers.UDPPort(rng.Uint32())}
		err = udp.SetNetworkLayerForChecksum(network)
		layer = udp
	default:
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return []gopacket.SerializableLayer{layer}
}
