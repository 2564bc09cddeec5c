package emitter

import (
	"encoding/binary"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// tunnel adds the headers between the CSIG tag and the packet of the hosts: the tag
// rides on the outermost L2, whatever is inside.
func (k *stack) tunnel(encap encapsulation) {
	start := k.at
	switch encap {
	case encapMPLS:
		k.labels(16001, 16002, 24)
	case encapPseudowire:
		k.labels(16001, 30)
		k.raw(make([]byte, 4)) // control word (RFC 4448, section 4.6)
		k.ethernet()
	case encapIPIP:
		k.ip(outerHeader, k.st.underlay, k.hostsProtocol())
	case encapGRE, encapGREFlags, encapNVGRE:
		k.gre(encap)
	case encapVXLAN, encapVXLANGPE, encapGeneve, encapGTPU:
		k.ip(outerHeader, k.st.underlay, layers.IPProtocolUDP)
		k.overUDP(encap)
	case encapSRv6:
		k.segments()
	case encapESP:
		k.esp()
	case encapPSP:
		k.psp()
	}
	if !k.noise {
		k.overhead += k.at - start
	}
}

// labels adds a stack of MPLS labels (RFC 3032).
func (k *stack) labels(values ...uint32) {
	k.is(layers.EthernetTypeMPLSUnicast)
	for i, label := range values {
		k.fixAt(fixTTL, k.at+3)
		k.add(&layers.MPLS{Label: label, TTL: k.s.ttl(outerHeader), StackBottom: i == len(values)-1}, 4, nil)
	}
}

// ethernet adds the Ethernet header of the hosts inside of a tunnel.
func (k *stack) ethernet() {
	k.is(etherTransparent)
	var macs [12]byte
	k.s.hostMACs(k.st, macs[:])
	k.fixAt(fixMACs, k.at)
	eth := &layers.Ethernet{DstMAC: macs[:6], SrcMAC: macs[6:]}
	k.add(eth, ethernetLen, &eth.EthernetType)
}

func (k *stack) hostsProtocol() layers.IPProtocol {
	if k.st.ip == 6 {
		return layers.IPProtocolIPv6
	}
	return layers.IPProtocolIPv4
}

// gre adds GRE (RFC 2784, RFC 2890), or NVGRE (RFC 7637), whose key is a network and
// an entropy that is 0 here.
func (k *stack) gre(encap encapsulation) {
	k.ip(outerHeader, k.st.underlay, layers.IPProtocolGRE)
	g, n := &layers.GRE{}, 4
	switch encap {
	case encapNVGRE:
		g.KeyPresent, g.Key, n = true, networkID<<8, 8
	case encapGREFlags:
		g.ChecksumPresent, g.KeyPresent, g.SeqPresent, n = true, true, true, 16
		g.Key, g.Seq = networkID, k.s.id
		k.fixAt(fixGRE, k.at)
		k.fixAt(fixNumber, k.at+12)
	}
	k.add(g, n, &g.Protocol)
	if encap == encapNVGRE {
		k.ethernet()
	}
}

// udp adds the UDP header of a tunnel in an IP packet of a version: without checksum in
// IPv4, as RFC 7348 and others have it, and with one in IPv6. Where the IP header is not
// the tunnel's own, what follows is encrypted and not worth summing up (RFC 6935).
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

// udpTunnel is a UDP header with a checksum over one IP header, or none.
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

// overUDP adds a UDP header and what follows it.
func (k *stack) overUDP(encap encapsulation) {
	network := binary.BigEndian.AppendUint32(nil, networkID<<8)
	switch encap {
	case encapVXLAN: // RFC 7348
		k.udp(4789, outerHeader, k.st.underlay)
		k.add(&layers.VXLAN{ValidIDFlag: true, VNI: networkID}, 8, nil)
		k.ethernet()
	case encapVXLANGPE: // draft-ietf-nvo3-vxlan-gpe
		next := byte(1)
		if k.st.ip == 6 {
			next = 2
		}
		k.udp(4790, outerHeader, k.st.underlay)
		k.raw(append([]byte{vxlanHasID | vxlanHasNext, 0, 0, next}, network...))
	case encapGeneve: // RFC 8926, with one option of 8 bytes
		const words = 2
		k.udp(6081, outerHeader, k.st.underlay)
		k.raw(append([]byte{words, 0, 0x65, 0x58}, network...))
		k.raw([]byte{0x01, 0x02, 0x01, 1, 0xc5, 0x16, 0, 0})
		k.ethernet()
	case encapGTPU:
		k.gtpu()
	}
}

// gtpu adds GTP-U (3GPP TS 29.281) with a sequence number and, as an extension
// header, the container of a PDU session (TS 38.415).
func (k *stack) gtpu() {
	const version1, hasExtension, hasSequence, userPacket, pduSession = 0x30, 0x04, 0x02, 255, 0x85
	k.udp(2152, outerHeader, k.st.underlay)
	b := []byte{version1 | hasExtension | hasSequence, userPacket, 0, 0}
	b = binary.BigEndian.AppendUint32(b, networkID)
	b = binary.BigEndian.AppendUint16(b, uint16(k.s.id))
	b = append(b, 0, pduSession, 1, 0x10, 9, 0)
	if k.s.length > 0 {
		binary.BigEndian.PutUint16(b[2:], uint16(k.s.length-k.trailer-k.at-8))
	}
	k.fixAt(fixLength, k.at+2)
	k.fixAt(fixNumber16, k.at+8)
	k.raw(b)
}

// segments adds an IPv6 header and a segment routing header (RFC 8754) on the way to
// the last of two segments.
func (k *stack) segments() {
	const routing, segmentRouting = 43, 4
	k.ip(outerHeader, 6, routing)
	_, dst := k.s.ends(k.st, outerHeader)
	b := make([]byte, 8+2*16)
	b[0], b[1], b[2], b[4] = byte(k.hostsProtocol()), 4, segmentRouting, 1
	putIPv6(b[8:], dst)
	putIPv6(b[24:], 10<<24|vtepHost)
	k.fixAt(fixSegments, k.at+8)
	k.raw(b)
}

// esp adds ESP in transport mode (RFC 4303, RFC 4106): the initialization vector,
// the transport header and all after it, two bytes of trailer and the integrity
// check value follow.
func (k *stack) esp() {
	const fixed, vector, trailer = 8, 8, 2
	k.ip(0, k.st.ip, protocolESP)
	b := binary.BigEndian.AppendUint32(nil, networkID)
	k.fixAt(fixNumber, k.at+4)
	k.raw(binary.BigEndian.AppendUint32(b, k.s.id))
	k.trailer, k.overhead = icvLen, fixed+vector+trailer+icvLen
	k.encrypted(vector + k.transportLen() + trailer)
}

// psp adds PSP in transport mode (PSP Architecture Specification): UDP, the header
// with its initialization vector; the rest is as in ESP.
func (k *stack) psp() {
	const tcp, version0, always = 6, 0, 1
	k.ip(0, k.st.ip, layers.IPProtocolUDP)
	k.udp(1000, 0, k.st.ip)
	b := binary.BigEndian.AppendUint32([]byte{tcp, 1, 0, version0 | always}, networkID)
	b = append(b, 0, 0, 0, 0)
	k.fixAt(fixNumber, k.at+len(b))
	b = binary.BigEndian.AppendUint32(b, k.s.id)
	k.raw(b)
	k.trailer, k.overhead = icvLen, udpLen+len(b)+icvLen
	k.encrypted(k.transportLen())
}

// transportLen is the length of the TCP segment.
func (k *stack) transportLen() int { return k.hostsLen() - k.f.ipLen(k.s.style) }
