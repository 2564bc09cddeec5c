// Package bpf counts CSIG in the kernel, where packets arrive. An eBPF program on TCX ingress of an interface
// reads tags and reflections and adds to maps. User space reads the maps as the counts of windows. No packet is
// copied to user space.
//
// The package knows which packets the program reads, the meaning of its keys, and how the program gets a
// configuration. It must never know the rows that counts become.
//
// The program is kernel/csig.c. make generate compiles it to csig.o, which is checked in, so hosts need no
// compiler. The program agrees with package decode about packets with up to two VLAN tags, IPv4 or IPv6 with common
// extension headers, TCP options, and reflections near the beginning of UDP packets. Other packets that may have CSIG
// are odd: the program counts them by reason. A filter from the same source passes exactly these packets to a ring, so
// each packet is read once.
//
// A key names endpoints by the classes of their addresses, which a trie of prefixes gives, or by the leading bits of
// the addresses if groups are derived from those. A key contains its window and its CPU: each entry has one writer,
// and can be read at any time. An entry holds the counts of four values of compact tags, or the sum and the range of
// the codes in one bucket of wide tags. Buckets are split at the codes where observations begin to be heavy. So counts
// make the same rows as single observations.
//
// Flows are named from samples: the program hands over heavy observations by a ring buffer, with a budget for each
// processor. Within it, all of them are handed over. Beyond it they are sampled at random distances that get longer,
// and each sample says for how many it stands. The windows fit these estimates into the exact counts.
//
// The program is attached by TCX and never by clsact. The kernel detaches a TCX link when the process that holds
// it ends, however it ends, and exchanges its program without losing a packet. A clsact filter would stay behind
// after a crash. Hosts without TCX use the ring.
package bpf

// OddReason is the reason why the program does not count a packet.
type OddReason uint8

// The reasons are in the order of kernel/csig.c.
const (
	OddCut     OddReason = iota // ends inside a header, or a header contradicts itself
	OddLong                     // its headers are longer than the program reads
	OddL2                       // MACsec, MPLS, more than two VLAN tags, two CSIG tags
	OddTunnel                   // a tunnel, or encrypted
	OddIP                       // extension headers that the program does not read, or IPv4 addresses in IPv6
	OddUDP                      // a tunnel over UDP, or reflections in a payload that are too far behind or several
	OddOptions                  // TCP options that are wrong, or with several reflections

	// OddReasons bounds OddReason.
	OddReasons = iota
)

var oddNames = [OddReasons]string{"cut", "long", "l2", "tunnel", "ip", "udp", "options"}

// String returns the reason's name in metrics and logs, such as "tunnel".
func (r OddReason) String() string {
	if r < OddReasons {
		return oddNames[r]
	}
	return "unknown"
}
