// Package decode tells what one frame says: it walks the headers from L2 to L4 and
// yields an Observation for each CSIG tag and each reflection.
//
// It knows frame formats. It must never know time windows or the topology, and it
// believes no more than the bytes say.
//
// # Where a tag stands
//
// A CSIG tag is the last tag of L2 (draft-ravi-ippm-csig-01, section 4.1). Its TPID
// takes the place of an EtherType, the EtherType of the packet follows its data
// fields, which package csig draws:
//
//	0             6             12                                    bytes
//	+-------------+-------------+------+-------------+------+----------
//	| destination | source      | TPID | data fields | next | packet
//	| (6)         | (6)         | (2)  | (2 or 6)    | (2)  |
//	+-------------+-------------+------+-------------+------+----------
//
// Before it stand up to four VLAN tags (0x8100, 0x88a8, 0x9100) and SecTAGs:
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
// MACsec leaves user data in clear when E and C are 0: the tag is then read. With
// either of them the frame is Hidden. The short length SL, when it is not 0, ends
// the user data and so keeps the integrity check value from being read as headers;
// otherwise the lengths in the IP header do.
//
// A tag that another CSIG tag, a VLAN tag or a SecTAG follows is an Orphan, and so is one
// behind a fifth VLAN tag. After a tag, ARP, LLDP and MAC control end the walk: the tag counts, without addresses.
//
// Ultra Ethernet's unified forwarding header replaces the MAC addresses and leaves
// the first EtherType at offset 12. As no identity is ever taken from the first 12
// bytes, such frames need no configuration. The cooked link layers of Linux
// put 16 or 20 other bytes before the packet.
//
// # What follows L2
//
// IPv4, IPv6 with up to eight extension headers, and MPLS, which has below its last label
// whatever the first four bits say: 4 and 6 are IP, 0 is the control word of an
// Ethernet pseudowire, 1 an associated channel and the end of the walk. An authentication
// header is walked in IPv4 too.
//
//	+---------------------------------+     +--------------------------+
//	| label:20  TC:3  bottom:1  TTL:8 | ... | 0:4  reserved 0:12 seq:16 |
//	+---------------------------------+     +--------------------------+
//	  label stack entry, one or more          control word (RFC 4448)
//
// # Tunnels
//
// The tag rides on the outermost L2. The walk goes on inside of a tunnel to name it
// in the Stack, to find the reflections of what is inside, and to count tags that
// do not belong there. Up to four tunnels are followed inside each other, and at
// most 16 headers are named: beyond, the reason is TooDeep.
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
//	tzsp        UDP 37008, unless that is another tunnel's: a mirrored frame
//
// # Mirror sessions
//
// At a tap whose Framing holds sessions of a kind (ERSPAN, GRE-TAP, VXLAN, TZSP), the
// walk takes one off that stands in IP behind VLAN tags and CSIG tags alone, and goes on as
// if the frame inside were what was captured; Mirrored has the session. A tag before the
// session measures the path of the mirror: it is an observation of its own, with the
// addresses of the outer packet. Of a packet in fragments the first one holds the session. A
// session whose headers are cut or wrong is a packet as any other. In all other places anybody
// can have sent it: tags and reflections inside of ERSPAN and TZSP are Orphans whatever is
// configured, and no header inside names the ends of others; GRE and VXLAN are tunnels.
//
// # Endpoints
//
// Of the IP headers in a frame, Config.Endpoints chooses the one that names the
// ends: the outermost one unless configured. The addresses, the protocol and the
// ports of all observations come from it, those of a reflection inside of a tunnel
// too; only the acknowledgement number of such a reflection is that of its own TCP
// header, by which repetitions are told. A pseudowire is not in IP, so that the
// outermost IP header is the one inside.
//
// A tag inside of a tunnel is an Orphan unless Config.InnerTags expects it there,
// and even then when a tag further out counts: a frame is measured once.
//
// # Reflections
//
// A reflection on a packet from B to A carries the data fields of a tag that came
// from A to B. Over TCP it is an option (section 4.2.1), of a plain Kind or of an
// experiment (RFC 6994), whose length octet counts in one of two ways:
//
//	+--------+----------------+-------------+----------------------+
//	| Kind   | length: total, | ExID        | data fields (2 or 6) |
//	| (1)    | or payload (1) | (0, 2 or 4) |                      |
//	+--------+----------------+-------------+----------------------+
//
// Over UDP (section 4.2.2) csig.UDPReflectionSpec says where the data fields are.
// Reflections that are empty or invalid are counted: they say that the path is not
// CSIG-capable (section 6.3.3).
package decode
