package capture

import "strconv"

// LinkType is a link-layer header type, the registered LINKTYPE_ number of
// draft-ietf-opsawg-pcaplinktype. The FCS bits that share the field in classic
// pcap are masked off.
type LinkType uint16

// Link types that start with, or stand for, an Ethernet header.
const (
	// LinkEthernet is LINKTYPE_ETHERNET: frames start with the destination MAC.
	LinkEthernet LinkType = 1
	// LinkSLL is LINKTYPE_LINUX_SLL: a 16-byte cooked header that ends with the
	// EtherType, as captures of Linux' "any" interface have it.
	LinkSLL LinkType = 113
	// LinkSLL2 is LINKTYPE_LINUX_SLL2: a 20-byte cooked header that starts with
	// the EtherType.
	LinkSLL2 LinkType = 276
)

// String returns the usual name of a link type, and its number where this
// package has no name for it: messages that refuse one name it that way.
func (l LinkType) String() string {
	if name := l.name(); name != "" {
		return name
	}
	return "link type " + strconv.Itoa(int(l))
}

// name knows what turns up in captures of hosts and switches.
func (l LinkType) name() string {
	switch l {
	case 0:
		return "BSD loopback"
	case LinkEthernet:
		return "Ethernet"
	case 6:
		return "Token Ring"
	case 9:
		return "PPP"
	case 10:
		return "FDDI"
	case 12, 14, 101:
		return "raw IP"
	case 104:
		return "Cisco HDLC"
	case 105:
		return "IEEE 802.11"
	case 107:
		return "Frame Relay"
	case 108:
		return "OpenBSD loopback"
	case LinkSLL:
		return "Linux SLL"
	case 117:
		return "OpenBSD pflog"
	case 127:
		return "IEEE 802.11 radiotap"
	case 195:
		return "IEEE 802.15.4"
	case 197:
		return "Endace ERF"
	case 220:
		return "Linux USB"
	case 228:
		return "raw IPv4"
	case 229:
		return "raw IPv6"
	case 239:
		return "Linux netfilter log"
	case 247:
		return "InfiniBand"
	case 249:
		return "USBPcap"
	case 253:
		return "Linux netlink"
	case 271:
		return "Linux vsock"
	case LinkSLL2:
		return "Linux SLL2"
	}
	return ""
}
