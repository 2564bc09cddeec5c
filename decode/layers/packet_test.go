package layers_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode/csig"
	csiglayers "github.com/csigscope/csigscope/decode/layers"
)

// taggedUDP returns a datagram behind an Ethernet header, a VLAN tag and a CSIG tag.
func taggedUDP(t testing.TB, domain *csig.Domain, tag csig.Tag) []byte {
	t.Helper()
	tpid, _ := domain.TPID(tag.Layout)
	return serialize(
		t, gopacket.SerializeOptions{FixLengths: true},
		&layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeDot1Q},
		&layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetType(tpid)},
		&csiglayers.Tag{Tag: tag, Next: layers.EthernetTypeIPv4},
		&layers.IPv4{Version: 4, Protocol: layers.IPProtocolUDP, SrcIP: make([]byte, 4), DstIP: make([]byte, 4)},
		&layers.UDP{SrcPort: 1, DstPort: 2}, gopacket.Payload("data"),
	)
}

// TestPacket finds each layout behind a VLAN tag, where gopacket passes on a layer type and no
// EtherType.
func TestPacket(t *testing.T) {
	t.Parallel()
	domain := compile(t, testSpec())
	for i := range csig.NumLayouts {
		want := csig.Tag{Layout: csig.LayoutAt(i), T: 1, S: 9, LM: 33}
		frame := taggedUDP(t, domain, want)
		for _, options := range []gopacket.DecodeOptions{gopacket.Default, gopacket.Lazy} {
			p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, options)
			tag, ok := p.Layer(csiglayers.TagType(want.Layout)).(*csiglayers.Tag)
			if !ok || tag.Tag != want {
				t.Errorf("%s: %v in %v", want.Layout, tag, p)
			}
			class := csiglayers.LayerClassCompactTag
			if want.Layout.Format == csig.Wide {
				class = csiglayers.LayerClassWideTag
			}
			if p.LayerClass(class) == nil || p.LayerClass(csiglayers.LayerClassTag) == nil || p.TransportLayer() == nil {
				t.Errorf("%s: layers are missing in %v", want.Layout, p)
			}
		}
	}
}

// TestPacketCut checks that gopacket marks a truncated packet, at every byte, and keeps a tag whose
// data fields are complete.
func TestPacketCut(t *testing.T) {
	t.Parallel()
	domain := compile(t, testSpec())
	frame := taggedUDP(t, domain, csig.Tag{Layout: wideUEC, T: 2, S: 77, LM: 9})
	const begin, data, end = 18, 24, 26
	for n := begin + 1; n < end; n++ {
		p := gopacket.NewPacket(frame[:n], layers.LayerTypeEthernet, gopacket.Default)
		if !p.Metadata().Truncated || p.ErrorLayer() == nil {
			t.Errorf("cut at %d: truncated is %t, error layer %v", n, p.Metadata().Truncated, p.ErrorLayer())
		}
		if found := p.LayerClass(csiglayers.LayerClassTag) != nil; found != (n >= data) {
			t.Errorf("cut at %d: tag found is %t", n, found)
		}
	}
}

// TestLength treats the bytes behind a length as LLC, without the padding.
func TestLength(t *testing.T) {
	t.Parallel()
	frame := binary.BigEndian.AppendUint16(make([]byte, 12), 0x9900)
	frame = append(frame, 0x2b, 0x85, 0, 3, 0x42, 0x42, 0x03, 0, 0, 0)
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	llc, ok := p.Layer(layers.LayerTypeLLC).(*layers.LLC)
	if !ok || llc.DSAP != 0x42 || len(llc.Payload) != 0 || p.Metadata().Truncated {
		t.Errorf("packet %v", p)
	}
	p = gopacket.NewPacket(frame[:20], layers.LayerTypeEthernet, gopacket.Default)
	if !p.Metadata().Truncated {
		t.Error("a packet shorter than its length is not truncated")
	}
}

// TestParser decodes into reused tags, without allocating.
func TestParser(t *testing.T) {
	domain := compile(t, testSpec())
	var (
		eth     layers.Ethernet
		vlan    layers.Dot1Q
		ip      layers.IPv4
		udp     layers.UDP
		payload gopacket.Payload
		decoded []gopacket.LayerType
	)
	parser := gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &eth, &vlan, &ip, &udp, &payload)
	tags := make([]*csiglayers.Tag, csig.NumLayouts)
	for i := range tags {
		tags[i] = csiglayers.NewTag(csig.LayoutAt(i))
		parser.AddDecodingLayer(tags[i])
	}
	for i, tag := range tags {
		want := csig.Tag{Layout: csig.LayoutAt(i), T: 2, S: 3, LM: 4}
		frame := taggedUDP(t, domain, want)
		allocations := testing.AllocsPerRun(100, func() {
			if err := parser.DecodeLayers(frame, &decoded); err != nil {
				t.Fatal(err)
			}
		})
		if tag.Tag != want || !slices.Contains(decoded, tag.LayerType()) || decoded[len(decoded)-1] != gopacket.LayerTypePayload {
			t.Errorf("%s: %v, layers %v", want.Layout, tag, decoded)
		}
		if allocations != 0 {
			t.Errorf("%s: %v allocations", want.Layout, allocations)
		}
	}
}

// TestManyTags decodes as many tags as fit a packet.
func TestManyTags(t *testing.T) {
	t.Parallel()
	frame := make([]byte, 12, 1<<16)
	for len(frame) < 1<<16-4 {
		frame = append(frame, 0x99, 0x00, 0x2b, 0x85)
	}
	p := gopacket.NewPacket(append(frame, 8, 6), layers.LayerTypeEthernet, gopacket.Default)
	if n := len(p.Layers()); n != 1+(1<<16-16)/4 {
		t.Errorf("%d layers", n)
	}
}

func BenchmarkTag(b *testing.B) {
	tag := csiglayers.NewTag(compactIETF)
	data := []byte{0x2b, 0x85, 0x08, 0x00, 0x45}
	b.ReportAllocs()
	for b.Loop() {
		if err := tag.DecodeFromBytes(data, gopacket.NilDecodeFeedback); err != nil {
			b.Fatal(err)
		}
	}
}
