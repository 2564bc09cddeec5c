// Package decode reads one frame: it parses the headers from L2 to L4 and yields an Observation for
// each CSIG tag and each reflection.
//
// It knows frame formats. It must never know time windows or the topology, and it believes only the
// bytes of the frame.
//
// # Position of a tag
//
// A CSIG tag is the last tag of L2 (draft-ravi-ippm-csig-01, section 4.1). Its TPID takes the place
// of an EtherType, then come its data fields, which package csig draws, and the packet's EtherType:
//
//	0             6             12                                    bytes
//	+-------------+-------------+------+-------------+------+----------
//	| destination | source      | TPID | data fields | next | packet
//	| (6)         | (6)         | (2)  | (2 or 6)    | (2)  |
//	+-------------+-------------+------+-------------+------+----------
//
// Up to four VLAN tags (0x8100, 0x88a8, 0x9100) and SecTAGs may come before it:
//
//	+------+------------+
//	| TPID | PCP:3      |   IEEE 802.1Q, the TCI 2 bytes
//	| (2)  | DEI:1      |
//	|      | VID:12     |
//	+------+------------+
//
//	+--------+-----------+---------+--------+-------------+--------- - -+-----+
//	| 0x88e5 | V ES SC   | 0:2     | packet | SCI (8),    | user data   | ICV |
//	| (2)    | SCB E C   | SL:6    | number | with SC     |             |     |
//	|        | AN:2  (1) |     (1) | (4)    | alone       |             |     |
//	+--------+-----------+---------+--------+-------------+--------- - -+-----+
//
// MACsec leaves user data in clear when E and C are 0: then the decoder reads the tag. Otherwise
// the frame is Hidden. The short length SL, if it is not 0, ends the user data, so that the
// integrity check value is not parsed as headers; otherwise the lengths in the IP header end it.
//
// A tag is an Orphan if another CSIG tag, a VLAN tag or a SecTAG follows it, or if it is behind a
// fifth VLAN tag. After a tag, ARP, LLDP and MAC control end the walk: the tag counts, without
// addresses.
//
// Ultra Ethernet's unified forwarding header replaces the MAC addresses and leaves the first
// EtherType at offset 12. The decoder never takes an identity from the first 12 bytes, so such
// frames need no configuration. The cooked link layers of Linux have 16 or 20 other bytes before
// the packet.
//
// # After L2
//
// The decoder parses IPv4, IPv6 with up to eight extension headers, an authentication header in
// IPv4 too, and MPLS. The first four bits below the last label name its payload: 4 and 6 are IP, 0
// is the control word of an Ethernet pseudowire, 1 is an associated channel and ends the walk.
//
//	+---------------------------------+     +--------------------------+
//	| label:20  TC:3  bottom:1  TTL:8 | ... | 0:4  reserved 0:12 seq:16 |
//	+---------------------------------+     +--------------------------+
//	  label stack entry, one or more          control word (RFC 4448)
//
// # Tunnels
//
// The tag rides on the outermost L2. The walk continues inside a tunnel to name the tunnel in the
// Stack, to find reflections inside, and to count tags that do not belong there. It follows up to
// four nested tunnels and names at most 16 headers; beyond that, the reason is TooDeep.
//
//	ipip        IP protocols 4 and 41: IPv4 or IPv6 in either of them
//	gre         C:1 R:1 K:1 S:1 0:9 version:3 | EtherType:16
//	            checksum:16 0:16 with C | key:32 with K | sequence:32 with S
//	            (RFC 2784, RFC 2890; R is refused, version 1 not walked)
//	nvgre       GRE with K alone, EtherType 0x6558, key = network:24 flow:8
//	vxlan       UDP 4789: 0000 I 000 0:24 | network:24 0:8 | Ethernet
//	vxlan-gpe   UDP 4790: 00 version:2 I P B O 0:16 next:8 | network:24 0:8
//	            next: 1 IPv4, 2 IPv6, 3 Ethernet
//	geneve      UDP 6081: version:2 options:6 O C 0:6 EtherType:16
//	            network:24 0:8 | options, in words of 32 bits
//	gtpu        UDP 2152: 001 1 0 E S PN | type:8 length:16 | tunnel:32
//	            sequence:16 N-PDU:8 next:8 with any of E, S, PN
//	            words:8 ... next:8 for each extension header; IP
//	srv6        routing header of type 4, before protocol 4, 41 or 143
//	            (Ethernet); before a transport, it is no tunnel
//	pw          MPLS with a control word: Ethernet
//	esp         IP protocol 50: SPI:32 sequence:32, encrypted
//	psp         UDP 1000: next:8 length:8 ... 1 | SPI:32, encrypted
//	erspan      GRE, EtherType 0x88be or 0x22eb: a mirrored frame
//	tzsp        UDP 37008, unless another tunnel uses that port: a mirrored frame
//
// # Mirror sessions
//
// At a tap whose Framing holds sessions of a kind (ERSPAN, GRE-TAP, VXLAN, TZSP), the walk removes
// such a session if only VLAN tags and CSIG tags are before its IP header, and continues as if the
// inner frame had been captured; Mirrored returns the session. A tag before the session measures
// the path of the mirror: it is an observation of its own, with the addresses of the outer packet.
// In a fragmented packet, the first fragment holds the session. A session whose headers are
// truncated or wrong is an ordinary packet. Everywhere else, anybody can have sent it: tags and
// reflections inside ERSPAN and TZSP are Orphans whatever is configured, and their headers never
// name endpoints; GRE and VXLAN are tunnels.
//
// # Endpoints
//
// Config.Endpoints chooses the IP header that names the endpoints: the outermost one by default.
// The addresses, the protocol and the ports of all observations come from it, also for a reflection
// inside a tunnel. Only the acknowledgement number of such a reflection comes from its own TCP
// header, because it identifies repeats. A pseudowire is not in IP, so its outermost IP header is
// the one inside.
//
// A tag inside a tunnel is an Orphan unless Config.InnerTags expects it there, and even then if a
// tag further out counts: a frame is measured once.
//
// # Reflections
//
// A reflection on a packet from B to A carries the data fields of a tag that came from A to B. Over
// TCP it is an option (section 4.2.1) with a plain Kind or an experiment identifier (RFC 6994). Its
// length octet counts in one of two ways:
//
//	+--------+----------------+-------------+----------------------+
//	| Kind   | length: total, | ExID        | data fields (2 or 6) |
//	| (1)    | or payload (1) | (0, 2 or 4) |                      |
//	+--------+----------------+-------------+----------------------+
//
// Over UDP (section 4.2.2) csig.UDPReflectionSpec gives the position of the data fields. Empty and
// invalid reflections are counted: they say that the path is not CSIG-capable (section 6.3.3).
package decode
