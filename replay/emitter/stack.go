package emitter

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	csiglayers "github.com/csigscope/csigscope/decode/layers"
)

// EtherTypes and numbers that gopacket has no name for.
const (
	etherMACsec      = layers.EthernetType(0x88e5)
	etherTransparent = layers.EthernetType(0x6558)
	protocolESP      = 50

	networkID = 50454 // of all virtual networks
	icvLen    = 16
)

// stack is the headers of one frame from the outside in, as gopacket's layers, and
// where in them is what differs between frames.
type stack struct {
	f  *framer
	s  *segment
	st style

	layers   []gopacket.SerializableLayer
	fixes    []fix
	at       int // length of the headers so far
	next     *layers.EthernetType
	overhead int // bytes that the encapsulation adds
	trailer  int
	noise    bool
}

// stack lays out the frame of a segment.
func (f *framer) stack(s *segment) (*stack, error) {
	k := &stack{f: f, s: s, st: f.styles[s.style].style}
	encap := k.st.encap
	if !s.wrapped {
		encap = encapNone
	}
	eth := &layers.Ethernet{DstMAC: s.link[:6], SrcMAC: s.link[6:]}
	k.add(eth, ethernetLen, &eth.EthernetType)
	k.l2(encap)
	if encap == encapMACsecEncrypted {
		k.encrypted(k.f.tagBytes(s) + k.hostsLen())
		return k, nil
	}
	if s.tagged {
		tag := &csiglayers.Tag{Tag: s.tag}
		tag.Layout = f.layout
		k.is(layers.EthernetType(f.tpid))
		k.fixAt(fixTag, k.at)
		k.add(tag, f.tagLen(), &tag.Next)
	}
	k.tunnel(encap)
	if k.noise {
		return k, nil
	}
	return k, k.hosts()
}

func (f *framer) tagBytes(s *segment) int {
	if s.tagged {
		return f.tagLen()
	}
	return 0
}

// add appends a layer of n bytes. An EtherType is part of the layer before, as it is
// to gopacket: a tag begins after its TPID.
func (k *stack) add(l gopacket.SerializableLayer, n int, next *layers.EthernetType) {
	k.layers = append(k.layers, l)
	k.at += n
	k.next = next
}

// is says what the next header is, to a header before it that names it by EtherType.
func (k *stack) is(t layers.EthernetType) {
	if k.next != nil {
		*k.next = t
	}
}

// raw appends a header that gopacket can not write.
func (k *stack) raw(b []byte) { k.add(gopacket.Payload(b), len(b), nil) }

func (k *stack) fixAt(kind fixKind, at int) { k.fixes = append(k.fixes, fix{kind: kind, at: at}) }

// hostsLen is the length of the hosts' packet.
func (k *stack) hostsLen() int {
	return k.f.ackLen(k.s.style, k.s.reflects) - ethernetLen + k.payload()
}

// payload is the bytes of data in the segment; templates have none.
func (k *stack) payload() int {
	length := k.s.length
	if length == 0 {
		return 0
	}
	if k.s.wrapped {
		length -= k.f.overhead(k.s.style)
	}
	return k.f.payload(k.s.style, length, k.s.tagged, k.s.reflects)
}

// l2 adds the tags that stand before the CSIG tag (section 4.1).
func (k *stack) l2(encap encapsulation) {
	start := k.at
	switch encap {
	case encapVLAN:
		k.vlan(layers.EthernetTypeDot1Q, 100)
	case encapQinQ:
		k.vlan(layers.EthernetTypeQinQ, 200)
		k.vlan(layers.EthernetTypeDot1Q, 100)
	case encapVLANTunnel:
		k.vlan(layers.EthernetTypeQinQ, 400)
		k.vlan(layers.EthernetTypeQinQ, 300)
		k.vlan(layers.EthernetTypeQinQ, 200)
		k.vlan(layers.EthernetTypeDot1Q, 100)
	case encapMACsec:
		k.secTAG(true, icvLen, false)
	case encapMACsecNoSCI:
		k.secTAG(false, icvLen, false)
	case encapMACsecNoICV:
		k.secTAG(true, 0, false)
	case encapMACsecVLAN:
		k.secTAG(true, icvLen, false)
		k.vlan(layers.EthernetTypeDot1Q, 100)
	case encapMACsecEncrypted:
		k.secTAG(true, icvLen, true)
	}
	k.overhead += k.at - start
}

func (k *stack) vlan(tpid layers.EthernetType, id uint16) {
	k.is(tpid)
	v := &layers.Dot1Q{Priority: 3, VLANIdentifier: id}
	k.add(v, 4, &v.Type)
}

// secTAG adds the SecTAG of IEEE 802.1AE. Its short length is 0, since no frame here
// is shorter than what it counts.
func (k *stack) secTAG(sci bool, icv int, encrypted bool) {
	const hasSCI, isEncrypted, isChanged = 0x20, 0x08, 0x04
	k.is(etherMACsec)
	b := make([]byte, 6, 14)
	if sci {
		b[0] |= hasSCI
		b = append(b, 2, switchMAC, 0, 0, 0, 1, 0, 1)
	}
	if encrypted {
		b[0] |= isEncrypted | isChanged
	}
	binary.BigEndian.PutUint32(b[2:], k.s.id)
	k.fixAt(fixNumber, k.at+2)
	k.trailer, k.overhead = icv, k.overhead+icv
	if encrypted {
		k.raw(b)
		return
	}
	tag := &secTAG{header: b}
	k.add(tag, len(b)+2, &tag.next)
}

// secTAG is a SecTAG with the EtherType of the user data, which is clear.
type secTAG struct {
	header []byte
	next   layers.EthernetType
}

// LayerType implements gopacket.SerializableLayer.
func (t *secTAG) LayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// SerializeTo implements gopacket.SerializableLayer.
func (t *secTAG) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	to, err := b.PrependBytes(len(t.header) + 2)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint16(to[copy(to, t.header):], uint16(t.next))
	return nil
}

// encrypted ends the headers: so many bytes follow, and the trailer.
func (k *stack) encrypted(n int) {
	k.noise = true
	b := make([]byte, n+k.trailer)
	noise(b, k.s.noiseKey(0))
	k.layers = append(k.layers, gopacket.Payload(b))
}

// hosts adds the packet of the hosts.
func (k *stack) hosts() error {
	if k.st.pony {
		return k.ponyHosts()
	}
	ipAt := k.at
	network := k.ip(0, k.st.ip, layers.IPProtocolTCP)
	payload := k.payload()
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(k.s.tuple.srcPort), DstPort: layers.TCPPort(k.s.tuple.dstPort),
		Seq: k.s.sequence, Ack: k.s.ack, ACK: true, PSH: payload > 0, ECE: k.s.congested, Window: 0x2000,
	}
	var err error
	if tcp.Options, err = k.options(); err != nil {
		return fmt.Errorf("serialize frame: %w", err)
	}
	if err := tcp.SetNetworkLayerForChecksum(network); err != nil {
		return fmt.Errorf("serialize frame: %w", err)
	}
	stamps := k.at + tcpLen + 4
	if k.s.reflects {
		stamps = k.at + tcpLen + 2
		k.fixAt(fixReflection, k.at+tcpLen+10+k.f.reflectionLen()-k.f.layout.Format.DataLen())
	}
	k.fixAt(fixStamps, stamps)
	k.fixes = append(k.fixes, fix{kind: fixTCP, at: k.at, ip: ipAt})
	k.add(tcp, tcpLen+k.f.optionsLen(k.s.reflects), nil)
	k.layers = append(k.layers, gopacket.Payload(make([]byte, payload)))
	return nil
}

func (k *stack) options() ([]layers.TCPOption, error) {
	stamps := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, k.s.stamp), k.s.echo)
	timestamps := layers.TCPOption{OptionType: layers.TCPOptionKindTimestamps, OptionData: stamps}
	if !k.s.reflects {
		nop := layers.TCPOption{OptionType: layers.TCPOptionKindNop}
		return []layers.TCPOption{nop, nop, timestamps}, nil
	}
	tag := k.s.reflection
	tag.Layout = k.f.layout
	reflection, err := csiglayers.NewReflectionOption(k.f.reflection, tag)
	return []layers.TCPOption{timestamps, reflection}, err
}

// ip adds an IP header, of the hosts or around their packet.
func (k *stack) ip(header int, version uint8, protocol layers.IPProtocol) gopacket.NetworkLayer {
	src, dst := k.s.ends(k.st, header)
	from, to := net.IP(addressOf(version, src).AsSlice()), net.IP(addressOf(version, dst).AsSlice())
	ttl := k.s.ttl(header)
	if version == 6 {
		k.is(layers.EthernetTypeIPv6)
		k.fixes = append(k.fixes, fix{kind: fixIPv6, at: k.at, ip: header})
		l := &layers.IPv6{Version: 6, TrafficClass: k.s.ecn, HopLimit: ttl, NextHeader: protocol, SrcIP: from, DstIP: to}
		k.add(l, ipv6Len, nil)
		return l
	}
	k.is(layers.EthernetTypeIPv4)
	k.fixes = append(k.fixes, fix{kind: fixIPv4, at: k.at, ip: header})
	l := &layers.IPv4{
		Version: 4, Id: uint16(k.s.id), Flags: layers.IPv4DontFragment,
		TOS: k.s.ecn, TTL: ttl, Protocol: protocol, SrcIP: from, DstIP: to,
	}
	k.add(l, ipv4Len, nil)
	return l
}
