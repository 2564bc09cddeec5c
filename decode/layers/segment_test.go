package layers_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode/csig"
	csiglayers "github.com/csigscope/csigscope/decode/layers"
)

// segment returns a TCP segment with up to two VLAN tags, up to two CSIG tags and up to two
// reflections.
func segment(t testing.TB, rng *rand.Rand, domain *csig.Domain) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6)}
	stack := []gopacket.SerializableLayer{eth}
	next := &eth.EthernetType
	for range rng.IntN(3) {
		vlan := &layers.Dot1Q{VLANIdentifier: uint16(rng.IntN(4096))}
		*next, next = layers.EthernetTypeDot1Q, &vlan.Type
		stack = append(stack, vlan)
	}
	for range min(rng.IntN(4), 2) {
		tag := &csiglayers.Tag{Tag: randomTag(rng, csig.LayoutAt(rng.IntN(csig.NumLayouts)))}
		tpid, _ := domain.TPID(tag.Layout)
		*next, next = layers.EthernetType(tpid), &tag.Next
		stack = append(stack, tag)
	}

	tcp := &layers.TCP{SrcPort: layers.TCPPort(rng.Uint32()), DstPort: layers.TCPPort(rng.Uint32()), ACK: true}
	for range rng.IntN(3) {
		tcp.Options = append(tcp.Options, randomReflection(t, rng, domain))
	}
	// Set here, because FixLengths would count all of an option in its length octet.
	n := 0
	for _, o := range tcp.Options {
		n += 2 + len(o.OptionData)
	}
	tcp.Padding = make([]byte, -n&3)
	tcp.DataOffset = uint8((20 + n + len(tcp.Padding)) / 4)
	payload := randomBytes(rng, rng.IntN(32))
	length := uint16(tcp.DataOffset)*4 + uint16(len(payload))
	if rng.IntN(2) == 0 {
		*next = layers.EthernetTypeIPv4
		stack = append(stack, &layers.IPv4{
			Version: 4, IHL: 5, Length: 20 + length, Protocol: layers.IPProtocolTCP,
			SrcIP: randomBytes(rng, 4), DstIP: randomBytes(rng, 4),
		})
	} else {
		*next = layers.EthernetTypeIPv6
		stack = append(stack, &layers.IPv6{
			Version: 6, Length: length, NextHeader: layers.IPProtocolTCP,
			SrcIP: randomBytes(rng, 16), DstIP: randomBytes(rng, 16),
		})
	}
	return serialize(t, gopacket.SerializeOptions{}, append(stack, tcp, gopacket.Payload(payload))...)
}

func randomReflection(t testing.TB, rng *rand.Rand, domain *csig.Domain) layers.TCPOption {
	t.Helper()
	all := domain.Reflections()
	r := all[rng.IntN(len(all))]
	l, _ := r.Layout([]int{2, 6}[rng.IntN(2)])
	o, err := csiglayers.NewReflectionOption(r, randomTag(rng, l))
	if err != nil {
		t.Fatal(err)
	}
	if rng.IntN(8) == 0 { // the reflection of a path that is not CSIG-capable
		n := uint8(l.Format.DataLen())
		o.OptionLength -= n
		o.OptionData = o.OptionData[:len(o.OptionData)-int(n)]
	}
	return o
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}
