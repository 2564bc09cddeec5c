package frames

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	csiglayers "github.com/csigscope/csigscope/decode/layers"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// EtherTypes and protocol numbers missing from gopacket.
const (
	etherMACsec      = layers.EthernetType(0x88e5)
	etherTransparent = layers.EthernetType(0x6558)
	protocolESP      = 50

	networkID = 50454 // of every virtual network
	icvLen    = 16
)

// stack holds the headers of one frame from the outside in, as gopacket layers, and the positions
// of the fields that vary between frames.
type stack struct {
	f  *Framer
	s  *Segment
	st scenario.Style

	layers   []gopacket.SerializableLayer
	fixes    []fix
	at       int // length of the headers so far, in bytes
	next     *layers.EthernetType
	overhead int // bytes that the encapsulation adds
	trailer  int
	noise    bool
}

// stack lays out the headers of a segment's frame.
func (f *Framer) stack(s *Segment) (*stack, error) {
	k := &stack{f: f, s: s, st: f.styles[s.Style].Style}
	encap := k.st.Encap
	if !s.Wrapped {
		encap = scenario.EncapNone
	}
	eth := &layers.Ethernet{DstMAC: s.MACs[:6], SrcMAC: s.MACs[6:]}
	k.add(eth, EthernetLen, &eth.EthernetType)
	k.l2(encap)
	if encap == scenario.EncapMACsecEncrypted {
		k.encrypted(k.f.tagBytes(s) + k.hostsLen())
		return k, nil
	}
	if s.Tagged {
		tag := &csiglayers.Tag{Tag: s.Tag}
		tag.Layout = f.layout
		k.is(layers.EthernetType(f.tpid))
		k.fixAt(fixTag, k.at)
		k.add(tag, f.TagLen(), &tag.Next)
	}
	k.tunnel(encap)
	if k.noise {
		return k, nil
	}
	return k, k.hosts()
}

func (f *Framer) tagBytes(s *Segment) int {
	if s.Tagged {
		return f.TagLen()
	}
	return 0
}

// add appends a layer of n bytes. An EtherType belongs to the preceding layer, as in gopacket: a
// tag begins after its TPID.
func (k *stack) add(l gopacket.SerializableLayer, n int, next *layers.EthernetType) {
	k.layers = append(k.layers, l)
	k.at += n
	k.next = next
}

// is writes the type of the next header into the preceding header if that has an EtherType field.
func (k *stack) is(t layers.EthernetType) {
	if k.next != nil {
		*k.next = t
	}
}

// raw appends a header that gopacket cannot write.
func (k *stack) raw(b []byte) { k.add(gopacket.Payload(b), len(b), nil) }

func (k *stack) fixAt(kind fixKind, at int) { k.fixes = append(k.fixes, fix{kind: kind, at: at}) }

// hostsLen returns the length of the hosts' packet.
func (k *stack) hostsLen() int {
	return k.f.AckLen(k.s.Style, k.s.Reflects) - EthernetLen + k.payload()
}

// payload returns the number of data bytes in the segment; templates have none.
func (k *stack) payload() int {
	length := k.s.Length
	if length == 0 {
		return 0
	}
	if k.s.Wrapped {
		length -= k.f.Overhead(k.s.Style)
	}
	return k.f.Payload(k.s.Style, length, k.s.Tagged, k.s.Reflects)
}

// l2 adds the L2 tags before the CSIG tag (section 4.1).
func (k *stack) l2(encap scenario.Encapsulation) {
	start := k.at
	switch encap {
	case scenario.EncapVLAN:
		k.vlan(layers.EthernetTypeDot1Q, 100)
	case scenario.EncapQinQ:
		k.vlan(layers.EthernetTypeQinQ, 200)
		k.vlan(layers.EthernetTypeDot1Q, 100)
	case scenario.EncapVLANTunnel:
		k.vlan(layers.EthernetTypeQinQ, 400)
		k.vlan(layers.EthernetTypeQinQ, 300)
		k.vlan(layers.EthernetTypeQinQ, 200)
		k.vlan(layers.EthernetTypeDot1Q, 100)
	case scenario.EncapMACsec:
		k.secTAG(true, icvLen, false)
	case scenario.EncapMACsecNoSCI:
		k.secTAG(false, icvLen, false)
	case scenario.EncapMACsecNoICV:
		k.secTAG(true, 0, false)
	case scenario.EncapMACsecVLAN:
		k.secTAG(true, icvLen, false)
		k.vlan(layers.EthernetTypeDot1Q, 100)
	case scenario.EncapMACsecEncrypted:
		k.secTAG(true, icvLen, true)
	}
	k.overhead += k.at - start
}

func (k *stack) vlan(tpid layers.EthernetType, id uint16) {
	k.is(tpid)
	v := &layers.Dot1Q{Priority: 3, VLANIdentifier: id}
	k.add(v, 4, &v.Type)
}

// secTAG adds the SecTAG of IEEE 802.1AE. Its short length is 0, since all frames here are longer
// than the lengths that this field can give.
func (k *stack) secTAG(sci bool, icv int, encrypted bool) {
	const hasSCI, isEncrypted, isChanged = 0x20, 0x08, 0x04
	k.is(etherMACsec)
	b := make([]byte, 6, 14)
	if sci {
		b[0] |= hasSCI
		b = append(b, 2, scenario.SwitchMAC, 0, 0, 0, 1, 0, 1)
	}
	if encrypted {
		b[0] |= isEncrypted | isChanged
	}
	binary.BigEndian.PutUint32(b[2:], k.s.ID)
	k.fixAt(fixNumber, k.at+2)
	k.trailer, k.overhead = icv, k.overhead+icv
	if encrypted {
		k.raw(b)
		return
	}
	tag := &secTAG{header: b}
	k.add(tag, len(b)+2, &tag.next)
}

// secTAG is a SecTAG followed by the EtherType of the user data in clear text.
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

// encrypted ends the headers with n bytes of noise and the trailer.
func (k *stack) encrypted(n int) {
	k.noise = true
	b := make([]byte, n+k.trailer)
	noise(b, k.s.noiseKey())
	k.layers = append(k.layers, gopacket.Payload(b))
}

// hosts adds the hosts' packet.
func (k *stack) hosts() error {
	if k.st.Pony {
		return k.ponyHosts()
	}
	ipAt := k.at
	network := k.ip(0, k.st.IP, layers.IPProtocolTCP)
	payload := k.payload()
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(k.s.Tuple.SrcPort), DstPort: layers.TCPPort(k.s.Tuple.DstPort),
		Seq: k.s.Sequence, Ack: k.s.Ack, ACK: true, PSH: payload > 0, ECE: k.s.Congested, Window: 0x2000,
	}
	var err error
	if tcp.Options, err = k.options(); err != nil {
		return fmt.Errorf("serialize frame: %w", err)
	}
	if err := tcp.SetNetworkLayerForChecksum(network); err != nil {
		return fmt.Errorf("serialize frame: %w", err)
	}
	stamps := k.at + tcpLen + 4
	if k.s.Reflects {
		stamps = k.at + tcpLen + 2
		k.fixAt(fixReflection, k.at+tcpLen+10+k.f.reflectionLen()-k.f.layout.Format.DataLen())
	}
	k.fixAt(fixStamps, stamps)
	k.fixes = append(k.fixes, fix{kind: fixTCP, at: k.at, ip: ipAt})
	k.add(tcp, tcpLen+k.f.optionsLen(k.s.Reflects), nil)
	k.layers = append(k.layers, gopacket.Payload(make([]byte, payload)))
	return nil
}

func (k *stack) options() ([]layers.TCPOption, error) {
	stamps := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, k.s.Stamp), k.s.Echo)
	timestamps := layers.TCPOption{OptionType: layers.TCPOptionKindTimestamps, OptionData: stamps}
	if !k.s.Reflects {
		nop := layers.TCPOption{OptionType: layers.TCPOptionKindNop}
		return []layers.TCPOption{nop, nop, timestamps}, nil
	}
	tag := k.s.Reflection
	tag.Layout = k.f.layout
	reflection, err := csiglayers.NewReflectionOption(k.f.reflection, tag)
	return []layers.TCPOption{timestamps, reflection}, err
}

// ip adds an IP header: the hosts' or the outer one.
func (k *stack) ip(header int, version uint8, protocol layers.IPProtocol) gopacket.NetworkLayer {
	src, dst := k.s.ends(k.st, header)
	from, to := net.IP(scenario.AddressOf(version, src).AsSlice()), net.IP(scenario.AddressOf(version, dst).AsSlice())
	ttl := k.s.ttl(header)
	if version == 6 {
		k.is(layers.EthernetTypeIPv6)
		k.fixes = append(k.fixes, fix{kind: fixIPv6, at: k.at, ip: header})
		l := &layers.IPv6{Version: 6, TrafficClass: k.s.ECN, HopLimit: ttl, NextHeader: protocol, SrcIP: from, DstIP: to}
		k.add(l, ipv6Len, nil)
		return l
	}
	k.is(layers.EthernetTypeIPv4)
	k.fixes = append(k.fixes, fix{kind: fixIPv4, at: k.at, ip: header})
	l := &layers.IPv4{
		Version: 4, Id: uint16(k.s.ID), Flags: layers.IPv4DontFragment,
		TOS: k.s.ECN, TTL: ttl, Protocol: protocol, SrcIP: from, DstIP: to,
	}
	k.add(l, ipv4Len, nil)
	return l
}

// Every packet of the transport over UDP, data or acknowledgement, goes to one port and begins with
// this header. Its length is the same with and without a reflection:
//
//	 0               1               2                            8
//	+---------------+---------------+----------------------------+
//	| flags         | 0             | CSIG data fields (2 or 6)  |
//	+---------------+---------------+----------------------------+
//	| sequence number (8) | acknowledgement number (12)          |
//	| time of the sender, ms (16) | time that it answers, ms (20)|
//	+------------------------------------------------------------+
//
// The data fields are valid if the flag scenario.PonyValid is set. Otherwise the receiver had
// nothing to reflect, and they are zeros.
const (
	ponyHeaderLen = 24
	ponyHeaderAll = udpLen + ponyHeaderLen

	ponySequence = 8
	ponyAcks     = 0x02
	ponyMarked   = 0x04
)

// ponyHosts adds the hosts' packet of the transport over UDP.
func (k *stack) ponyHosts() error {
	ipAt := k.at
	network := k.ip(0, k.st.IP, layers.IPProtocolUDP)
	udp := &layers.UDP{SrcPort: layers.UDPPort(k.s.Tuple.SrcPort), DstPort: layers.UDPPort(k.s.Tuple.DstPort)}
	if err := udp.SetNetworkLayerForChecksum(network); err != nil {
		return fmt.Errorf("serialize frame: %w", err)
	}
	k.fixes = append(k.fixes, fix{kind: fixPony, at: k.at, ip: ipAt})
	k.add(udp, udpLen, nil)
	var header [ponyHeaderLen]byte
	payload := k.payload()
	k.s.fillPony(header[:], payload > 0)
	k.raw(header[:])
	k.layers = append(k.layers, gopacket.Payload(make([]byte, payload)))
	return nil
}

// fillPony sets the transport's header.
func (s *Segment) fillPony(p []byte, data bool) {
	p[0] = 0
	if s.Reflects {
		p[0] |= scenario.PonyValid
		s.Reflection.Append(p[:scenario.PonyFields])
	}
	if !data {
		p[0] |= ponyAcks
	}
	if s.Congested {
		p[0] |= ponyMarked
	}
	be := binary.BigEndian
	be.PutUint32(p[ponySequence:], s.Sequence)
	be.PutUint32(p[ponySequence+4:], s.Ack)
	be.PutUint32(p[ponySequence+8:], s.Stamp)
	be.PutUint32(p[ponySequence+12:], s.Echo)
}

// fillUDP sets the UDP header at p and the transport's header behind it. ip is the preceding IP
// header, length the length of the whole datagram.
func (s *Segment) fillUDP(p, ip []byte, length int) {
	s.fillPony(p[udpLen:ponyHeaderAll], length > ponyHeaderAll)
	be := binary.BigEndian
	be.PutUint16(p, s.Tuple.SrcPort)
	be.PutUint16(p[2:], s.Tuple.DstPort)
	be.PutUint16(p[4:], uint16(length))
	p[6], p[7] = 0, 0
	be.PutUint16(p[6:], udpSum(ip, p[:ponyHeaderAll], length))
}

// tunnel adds the headers between the CSIG tag and the hosts' packet. The tag is always on the
// outermost L2.
func (k *stack) tunnel(encap scenario.Encapsulation) {
	start := k.at
	switch encap {
	case scenario.EncapMPLS:
		k.labels(16001, 16002, 24)
	case scenario.EncapPseudowire:
		k.labels(16001, 30)
		k.raw(make([]byte, 4)) // control word (RFC 4448, section 4.6)
		k.ethernet()
	case scenario.EncapIPIP:
		k.ip(outerHeader, k.st.Underlay, k.hostsProtocol())
	case scenario.EncapGRE, scenario.EncapGREFlags, scenario.EncapNVGRE:
		k.gre(encap)
	case scenario.EncapVXLAN, scenario.EncapVXLANGPE, scenario.EncapGeneve, scenario.EncapGTPU:
		k.ip(outerHeader, k.st.Underlay, layers.IPProtocolUDP)
		k.overUDP(encap)
	case scenario.EncapSRv6:
		k.segments()
	case scenario.EncapESP:
		k.esp()
	case scenario.EncapPSP:
		k.psp()
	}
	if !k.noise {
		k.overhead += k.at - start
	}
}

// labels adds an MPLS label stack (RFC 3032).
func (k *stack) labels(values ...uint32) {
	k.is(layers.EthernetTypeMPLSUnicast)
	for i, label := range values {
		k.fixAt(fixTTL, k.at+3)
		k.add(&layers.MPLS{Label: label, TTL: k.s.ttl(outerHeader), StackBottom: i == len(values)-1}, 4, nil)
	}
}

// ethernet adds the hosts' Ethernet header inside a tunnel.
func (k *stack) ethernet() {
	k.is(etherTransparent)
	var macs [12]byte
	k.s.hostMACs(k.st, macs[:])
	k.fixAt(fixMACs, k.at)
	eth := &layers.Ethernet{DstMAC: macs[:6], SrcMAC: macs[6:]}
	k.add(eth, EthernetLen, &eth.EthernetType)
}

func (k *stack) hostsProtocol() layers.IPProtocol {
	if k.st.IP == 6 {
		return layers.IPProtocolIPv6
	}
	return layers.IPProtocolIPv4
}

// gre adds GRE (RFC 2784, RFC 2890) or NVGRE (RFC 7637). The NVGRE key holds the network and a flow
// ID, here 0.
func (k *stack) gre(encap scenario.Encapsulation) {
	k.ip(outerHeader, k.st.Underlay, layers.IPProtocolGRE)
	g, n := &layers.GRE{}, 4
	switch encap {
	case scenario.EncapNVGRE:
		g.KeyPresent, g.Key, n = true, networkID<<8, 8
	case scenario.EncapGREFlags:
		g.ChecksumPresent, g.KeyPresent, g.SeqPresent, n = true, true, true, 16
		g.Key, g.Seq = networkID, k.s.ID
		k.fixAt(fixGRE, k.at)
		k.fixAt(fixNumber, k.at+12)
	}
	k.add(g, n, &g.Protocol)
	if encap == scenario.EncapNVGRE {
		k.ethernet()
	}
}

// udp adds a tunnel's UDP header in an IP packet of the given version: without checksum in IPv4, as
// in RFC 7348 and others, and with one in IPv6. If the IP header is the hosts' own, the payload is
// encrypted and the checksum stays 0 (RFC 6935).
func (k *stack) udp(port layers.UDPPort, header int, version uint8) {
	k.fixAt(fixUDP, k.at)
	u := &udpTunnel{UDP: layers.UDP{SrcPort: layers.UDPPort(k.s.entropy()), DstPort: port}}
	if header == outerHeader && version == 6 {
		k.fixes = append(k.fixes, fix{kind: fixUDPSum, at: k.at, ip: k.at - ipv6Len})
		u.over, _ = k.layers[len(k.layers)-1].(gopacket.NetworkLayer)
	}
	k.add(u, udpLen, nil)
}

const udpLen = 8

// udpTunnel is a UDP header whose checksum covers one IP header, or without checksum.
type udpTunnel struct {
	layers.UDP
	over gopacket.NetworkLayer
}

// SerializeTo implements gopacket.SerializableLayer.
func (u *udpTunnel) SerializeTo(b gopacket.SerializeBuffer, o gopacket.SerializeOptions) error {
	o.ComputeChecksums = o.ComputeChecksums && u.over != nil
	if u.over != nil {
		if err := u.SetNetworkLayerForChecksum(u.over); err != nil {
			return err
		}
	}
	return u.UDP.SerializeTo(b, o)
}

// Flags of VXLAN and VXLAN-GPE.
const (
	vxlanHasID   = 0x08
	vxlanHasNext = 0x04
)

// overUDP adds a UDP header and the tunnel header after it.
func (k *stack) overUDP(encap scenario.Encapsulation) {
	network := binary.BigEndian.AppendUint32(nil, networkID<<8)
	switch encap {
	case scenario.EncapVXLAN: // RFC 7348
		k.udp(4789, outerHeader, k.st.Underlay)
		k.add(&layers.VXLAN{ValidIDFlag: true, VNI: networkID}, 8, nil)
		k.ethernet()
	case scenario.EncapVXLANGPE: // draft-ietf-nvo3-vxlan-gpe
		next := byte(1)
		if k.st.IP == 6 {
			next = 2
		}
		k.udp(4790, outerHeader, k.st.Underlay)
		k.raw(append([]byte{vxlanHasID | vxlanHasNext, 0, 0, next}, network...))
	case scenario.EncapGeneve: // RFC 8926, with one option of 8 bytes
		const words = 2
		k.udp(6081, outerHeader, k.st.Underlay)
		k.raw(append([]byte{words, 0, 0x65, 0x58}, network...))
		k.raw([]byte{0x01, 0x02, 0x01, 1, 0xc5, 0x16, 0, 0})
		k.ethernet()
	case scenario.EncapGTPU:
		k.gtpu()
	}
}

// gtpu adds GTP-U (3GPP TS 29.281) with a sequence number and, as an extension header, a PDU
// session container (TS 38.415).
func (k *stack) gtpu() {
	const version1, hasExtension, hasSequence, userPacket, pduSession = 0x30, 0x04, 0x02, 255, 0x85
	k.udp(2152, outerHeader, k.st.Underlay)
	b := []byte{version1 | hasExtension | hasSequence, userPacket, 0, 0}
	b = binary.BigEndian.AppendUint32(b, networkID)
	b = binary.BigEndian.AppendUint16(b, uint16(k.s.ID))
	b = append(b, 0, pduSession, 1, 0x10, 9, 0)
	if k.s.Length > 0 {
		binary.BigEndian.PutUint16(b[2:], uint16(k.s.Length-k.trailer-k.at-8))
	}
	k.fixAt(fixLength, k.at+2)
	k.fixAt(fixNumber16, k.at+8)
	k.raw(b)
}

// segments adds an IPv6 header and a segment routing header (RFC 8754). The packet is on its way to
// the last of two segments.
func (k *stack) segments() {
	const routing, segmentRouting = 43, 4
	k.ip(outerHeader, 6, routing)
	_, dst := k.s.ends(k.st, outerHeader)
	b := make([]byte, 8+2*16)
	b[0], b[1], b[2], b[4] = byte(k.hostsProtocol()), 4, segmentRouting, 1
	scenario.PutIPv6(b[8:], dst)
	scenario.PutIPv6(b[24:], 10<<24|scenario.VTEPHost)
	k.fixAt(fixSegments, k.at+8)
	k.raw(b)
}

// esp adds ESP in transport mode (RFC 4303, RFC 4106). The initialization vector, the encrypted
// transport segment, two trailer bytes and the integrity check value follow.
func (k *stack) esp() {
	const fixed, vector, trailer = 8, 8, 2
	k.ip(0, k.st.IP, protocolESP)
	b := binary.BigEndian.AppendUint32(nil, k.s.spi())
	k.fixAt(fixSPI, k.at)
	k.fixAt(fixNumber, k.at+4)
	k.raw(binary.BigEndian.AppendUint32(b, k.s.ID))
	k.trailer, k.overhead = icvLen, fixed+vector+trailer+icvLen
	k.encrypted(vector + k.transportLen() + trailer)
}

// psp adds PSP in transport mode (PSP Architecture Specification): UDP and the PSP header with its
// initialization vector. The rest is as in ESP.
func (k *stack) psp() {
	const tcp, version0, always = 6, 0, 1
	k.ip(0, k.st.IP, layers.IPProtocolUDP)
	k.udp(1000, 0, k.st.IP)
	b := binary.BigEndian.AppendUint32([]byte{tcp, 1, 0, version0 | always}, k.s.spi())
	k.fixAt(fixSPI, k.at+4)
	b = append(b, 0, 0, 0, 0)
	k.fixAt(fixNumber, k.at+len(b))
	b = binary.BigEndian.AppendUint32(b, k.s.ID)
	k.raw(b)
	k.trailer, k.overhead = icvLen, udpLen+len(b)+icvLen
	k.encrypted(k.transportLen())
}

// transportLen returns the length of the hosts' transport segment.
func (k *stack) transportLen() int { return k.hostsLen() - k.f.ipLen(k.s.Style) }
