package layers_test

import (
	"fmt"
	"net"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode/csig"
	csiglayers "github.com/csigscope/csigscope/decode/layers"
)

// A program writes an acknowledgement that carries a tag of its own path and
// reflects the tag of the reverse one, and reads both from the bytes.
func Example() {
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := csiglayers.Register(domain); err != nil {
		fmt.Println(err)
		return
	}
	packet, err := acknowledgement(domain)
	if err != nil {
		fmt.Println(err)
		return
	}

	p := gopacket.NewPacket(packet, layers.LayerTypeEthernet, gopacket.Default)
	if tag, ok := p.LayerClass(csiglayers.LayerClassTag).(*csiglayers.Tag); ok {
		fmt.Println(tag)
	}
	if tcp, ok := p.TransportLayer().(*layers.TCP); ok {
		for _, t := range csiglayers.Reflections(tcp, domain) {
			fmt.Println("reflected:", t.Signal(), t.S, "at", t.LM)
		}
	}
	// Output:
	// CSIG compact/ietf01 min_abw_ratio S=23 LM=5 Next=IPv4
	// reflected: max_delay 12 at 66
}

func acknowledgement(domain *csig.Domain) ([]byte, error) {
	compact := csig.Layout{Format: csig.Compact, Profile: csig.IETF01}
	tpid, _ := domain.TPID(compact)
	option, err := csiglayers.NewReflectionOption(domain.Reflections()[0], csig.Tag{Layout: compact, T: 2, S: 12, LM: 66})
	if err != nil {
		return nil, err
	}

	eth := &layers.Ethernet{
		DstMAC: net.HardwareAddr{2, 0, 10, 0, 0, 1}, SrcMAC: net.HardwareAddr{2, 1, 0, 0, 0, 1},
		EthernetType: layers.EthernetType(tpid),
	}
	tag := &csiglayers.Tag{
		Tag:  csig.Tag{Layout: compact, T: 1, S: 23, LM: 5},
		Next: layers.EthernetTypeIPv4,
	}
	ip := &layers.IPv4{
		Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP,
		SrcIP: net.IP{10, 0, 0, 2}, DstIP: net.IP{10, 0, 0, 1},
	}
	tcp := &layers.TCP{SrcPort: 5001, DstPort: 49152, ACK: true, Window: 8192, Options: []layers.TCPOption{option}}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options, eth, tag, ip, tcp); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}
