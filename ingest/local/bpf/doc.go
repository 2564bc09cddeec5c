// Package bpf counts CSIG where packets arrive, in the kernel: an eBPF program on TCX ingress of an interface
// reads tags and reflections and adds to maps, which user space reads as the counts of windows. A packet is
// never copied to user space.
//
// It knows which packets the program reads, the meaning of its keys, and how a configuration gets into it. It
// must never know the rows that counts become.
//
// The program is kernel/csig.c. csig.o is made of it by make generate and checked in: no compiler is needed
// where it runs. The program reads what package decode reads of a packet with up to two VLAN tags, IPv4 or
// IPv6 with common extension headers, and the options of TCP. Anything else that may have CSIG is odd: the
// program counts it by reason, and a filter that is made of the same source lets just these packets pass to a
// ring, so that each packet is read once.
//
// Keys name ends by classes of addresses, which a trie of prefixes gives, or by the leading bits that matter
// where groups are derived from addresses. A key has its window and its CPU, so that each entry has one writer and
// it does not matter when it is read. An entry of compact tags has a counter for each value; one of wide tags has
// the codes of an octave in 64 buckets, with their sum and range, and codes are split where they begin to be heavy:
// so rows come out as from single observations.
//
// TCX alone is used, no clsact: a bpf_link is detached with the last descriptor of a process, and its program can be
// exchanged without losing a packet. Older kernels have the ring.
package bpf

// OddReason says why the program left a packet to the ring.
type OddReason uint8

// The reasons are in the order of kernel/csig.c.
const (
	OddCut     OddReason = iota // ends inside a header, or a header contradicts itself
	OddLong                     // its headers are longer than what the program reads
	OddL2                       // MACsec, MPLS, more than two VLAN tags, two CSIG tags
	OddTunnel                   // a tunnel, or encrypted
	OddIP                       // extension headers that it does not read, or IPv4 addresses in IPv6
	OddUDP                      // to a port whose payload may have a reflection
	OddOptions                  // TCP options that are wrong, or with several reflections

	// OddReasons bounds OddReason.
	OddReasons = iota
)

var oddNames = [OddReasons]string{"cut", "long", "l2", "tunnel", "ip", "udp", "options"}

// String is the reason's name in metrics and logs, such as "tunnel".
func (r OddReason) String() string {
	if r < OddReasons {
		return oddNames[r]
	}
	return "unknown"
}
