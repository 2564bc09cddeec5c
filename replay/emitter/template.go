package emitter

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	csiglayers "github.com/csigscope/csigscope/decode/layers"
)

// template is the headers of a frame with the fields that differ between frames of
// its shape left open, and the offsets of those that not all shapes have in the
// same place. gopacket writes a shape once, since it takes longer for a frame than
// the simulation of its journey does.
type template struct {
	header     []byte
	tag        int // data fields; 0 without
	ip, tcp    int
	stamps     int // TCP timestamps
	reflection int // data fields; 0 without
}

// shape is the index of a template.
func shape(tagged, reflects bool) int {
	i := 0
	if tagged {
		i |= 1
	}
	if reflects {
		i |= 2
	}
	return i
}

func (f *framer) newTemplate(tagged, reflects bool) (template, error) {
	s := segment{tagged: tagged, reflects: reflects, length: f.ackLen(reflects)}
	s.tag.Layout, s.reflection.Layout = f.layout, f.layout
	t := template{ip: ethernetLen}
	if tagged {
		s.length += f.tagLen()
		t.tag, t.ip = ethernetLen, ethernetLen+f.tagLen()
	}
	t.tcp = t.ip + ipLen
	t.stamps = t.tcp + tcpLen + 4
	if reflects {
		t.stamps = t.tcp + tcpLen + 2
		t.reflection = t.tcp + tcpLen + 10 + f.reflectionLen() - f.layout.Format.DataLen()
	}
	var err error
	t.header, err = f.serialize(&s, gopacket.SerializeOptions{FixLengths: true})
	return t, err
}

// serialize writes a whole frame with gopacket, with the identification that its
// sender has used last.
func (f *framer) serialize(s *segment, o gopacket.SerializeOptions) ([]byte, error) {
	eth := layers.Ethernet{
		DstMAC:       binary.BigEndian.AppendUint32(net.HardwareAddr{2, 0}, s.tuple.dst),
		SrcMAC:       binary.BigEndian.AppendUint16(net.HardwareAddr{2, 1, 0, 0}, uint16(s.rack+1)), // the leaf
		EthernetType: layers.EthernetTypeIPv4,
	}
	stack := []gopacket.SerializableLayer{&eth}
	if s.tagged {
		eth.EthernetType = layers.EthernetType(f.tpid)
		stack = append(stack, &csiglayers.Tag{Tag: s.tag, Next: layers.EthernetTypeIPv4})
	}
	ip := layers.IPv4{
		Version: 4, Id: f.identifier[s.from], Flags: layers.IPv4DontFragment,
		TTL: uint8(64 - s.hops), Protocol: layers.IPProtocolTCP,
		SrcIP: binary.BigEndian.AppendUint32(nil, s.tuple.src), DstIP: binary.BigEndian.AppendUint32(nil, s.tuple.dst),
	}
	payload := f.payload(s.length, s.tagged, s.reflects)
	tcp := layers.TCP{
		SrcPort: layers.TCPPort(s.tuple.srcPort), DstPort: layers.TCPPort(s.tuple.dstPort),
		Seq: s.sequence, Ack: s.ack, ACK: true, PSH: payload > 0, Window: 0x2000,
	}
	var err error
	if tcp.Options, err = f.options(s); err != nil {
		return nil, fmt.Errorf("serialize frame: %w", err)
	}
	if err := tcp.SetNetworkLayerForChecksum(&ip); err != nil {
		return nil, fmt.Errorf("serialize frame: %w", err)
	}
	b := gopacket.NewSerializeBuffer()
	stack = append(stack, &ip, &tcp, gopacket.Payload(make([]byte, payload)))
	if err := gopacket.SerializeLayers(b, o, stack...); err != nil {
		return nil, fmt.Errorf("serialize frame: %w", err)
	}
	return b.Bytes(), nil
}

func (f *framer) options(s *segment) ([]layers.TCPOption, error) {
	stamps := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, s.stamp), s.echo)
	timestamps := layers.TCPOption{OptionType: layers.TCPOptionKindTimestamps, OptionData: stamps}
	if !s.reflects {
		nop := layers.TCPOption{OptionType: layers.TCPOptionKindNop}
		return []layers.TCPOption{nop, nop, timestamps}, nil
	}
	reflection, err := csiglayers.NewReflectionOption(f.reflection, s.reflection)
	return []layers.TCPOption{timestamps, reflection}, err
}

// fill sets the open fields of h, a copy of the template's header.
func (t *template) fill(h []byte, s *segment, identifier uint16) {
	be := binary.BigEndian
	be.PutUint32(h[2:], s.tuple.dst)
	be.PutUint16(h[10:], uint16(s.rack+1))
	if t.tag > 0 {
		s.tag.Append(h[:t.tag])
	}

	ip := h[t.ip:t.tcp]
	be.PutUint16(ip[2:], uint16(s.length-t.ip))
	be.PutUint16(ip[4:], identifier)
	ip[8] = byte(64 - s.hops)
	be.PutUint32(ip[12:], s.tuple.src)
	be.PutUint32(ip[16:], s.tuple.dst)
	be.PutUint16(ip[10:], ^fold(sum(ip, 0)))

	be.PutUint32(h[t.stamps:], s.stamp)
	be.PutUint32(h[t.stamps+4:], s.echo)
	if t.reflection > 0 {
		s.reflection.Append(h[:t.reflection])
	}
	tcp := h[t.tcp:]
	be.PutUint16(tcp, s.tuple.srcPort)
	be.PutUint16(tcp[2:], s.tuple.dstPort)
	be.PutUint32(tcp[4:], s.sequence)
	be.PutUint32(tcp[8:], s.ack)
	if s.length > len(h) {
		const push = 0x08
		tcp[13] |= push
	}
	pseudo := sum(ip[12:], uint32(ip[9])+uint32(s.length-t.tcp))
	be.PutUint16(tcp[16:], ^fold(sum(tcp, pseudo)))
}
