package emitter

import (
	"encoding/binary"
	"fmt"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode/csig"
)

// Transport is what carries the data of a workload's flows.
type Transport string

// The transports: TCP, with reflections in an option (section 4.2.1), and one over
// UDP with reflections in its own header, as PonyExpress does it (section 4.2.2).
const (
	TCP  Transport = ""
	Pony Transport = "pony"
)

// Every packet of the transport over UDP, data and acknowledgements alike, goes to
// one port and begins with this header, the length of which does not depend on
// whether it reflects anything:
//
//	 0               1               2                            8
//	+---------------+---------------+----------------------------+
//	| flags         | 0             | CSIG data fields (2 or 6)  |
//	+---------------+---------------+----------------------------+
//	| sequence number (8) | acknowledgement number (12)          |
//	| time of the sender, ms (16) | time that it answers, ms (20)|
//	+------------------------------------------------------------+
//
// The data fields are valid if the flag Valid is set, and otherwise zeros: the
// receiver has nothing to reflect.
const (
	ponyPort      = 40123
	ponyHeaderLen = 24
	udpHeaderLen  = 8

	ponyFields    = 2 // offset of the data fields
	ponySequence  = 8
	ponyValid     = 0x01
	ponyAcks      = 0x02
	ponyMarked    = 0x04
	udpProtocol   = 17
	ponyHeaderAll = udpHeaderLen + ponyHeaderLen
)

// ponyReflections tells readers where the header has its reflection; the list is
// empty if no workload uses the transport.
func (s *Scenario) ponyReflections() []csig.UDPReflectionSpec {
	for i := range s.Workloads {
		if s.Workloads[i].Transport == Pony {
			return []csig.UDPReflectionSpec{{
				Ports: []uint16{ponyPort}, Offset: ponyFields,
				Format: s.Layout.Format.String(), Profile: s.Layout.Profile.String(),
				ValidOffset: 0, ValidMask: ponyValid,
			}}
		}
	}
	return nil
}

// opposite is the 5-tuple of the packets that answer those of a flow: the transport
// over UDP keeps its ports, so that one of them names it in both directions.
func (s style) opposite(f fiveTuple) fiveTuple {
	back := f.reversed()
	if s.pony {
		back.srcPort, back.dstPort = f.srcPort, f.dstPort
	}
	return back
}

// ponyHosts adds the packet of hosts that speak the transport over UDP.
func (k *stack) ponyHosts() error {
	ipAt := k.at
	network := k.ip(0, k.st.ip, layers.IPProtocolUDP)
	udp := &layers.UDP{SrcPort: layers.UDPPort(k.s.tuple.srcPort), DstPort: layers.UDPPort(k.s.tuple.dstPort)}
	if err := udp.SetNetworkLayerForChecksum(network); err != nil {
		return fmt.Errorf("serialize frame: %w", err)
	}
	k.fixes = append(k.fixes, fix{kind: fixPony, at: k.at, ip: ipAt})
	k.add(udp, udpHeaderLen, nil)
	var header [ponyHeaderLen]byte
	payload := k.payload()
	k.s.fillPony(header[:], payload > 0)
	k.raw(header[:])
	k.layers = append(k.layers, gopacket.Payload(make([]byte, payload)))
	return nil
}

// fillPony sets the transport's header.
func (s *segment) fillPony(p []byte, data bool) {
	p[0] = 0
	if s.reflects {
		p[0] |= ponyValid
		s.reflection.Append(p[:ponyFields])
	}
	if !data {
		p[0] |= ponyAcks
	}
	if s.congested {
		p[0] |= ponyMarked
	}
	be := binary.BigEndian
	be.PutUint32(p[ponySequence:], s.sequence)
	be.PutUint32(p[ponySequence+4:], s.ack)
	be.PutUint32(p[ponySequence+8:], s.stamp)
	be.PutUint32(p[ponySequence+12:], s.echo)
}

// fillUDP sets the UDP header at p and the transport's header behind it. ip is the IP
// header before them, length that of the whole datagram.
func (s *segment) fillUDP(p, ip []byte, length int) {
	s.fillPony(p[udpHeaderLen:ponyHeaderAll], length > ponyHeaderAll)
	be := binary.BigEndian
	be.PutUint16(p, s.tuple.srcPort)
	be.PutUint16(p[2:], s.tuple.dstPort)
	be.PutUint16(p[4:], uint16(length))
	p[6], p[7] = 0, 0
	pseudo := uint32(udpProtocol) + uint32(length)
	if ip[0]>>4 == 6 {
		pseudo = sum(ip[8:ipv6Len], pseudo)
	} else {
		pseudo = sum(ip[12:ipv4Len], pseudo)
	}
	check := ^fold(sum(p[:ponyHeaderAll], pseudo))
	if check == 0 {
		check = 0xffff // 0 says that there is none
	}
	be.PutUint16(p[6:], check)
}
