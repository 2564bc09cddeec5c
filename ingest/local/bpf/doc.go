// Package bpf counts CSIG in the kernel, where packets arrive. On the ingress of an interface (TCX), an eBPF program
// reads the tags and reflections of each packet and counts them in BPF maps. When a window ends, this package reads the
// counts. Counted packets are not copied to user space, only samples of heavy flows (see below).
//
// The package knows which packets the program reads, what the keys of the counts mean, and how the program gets its
// configuration. It must never know what rows are made of the counts.
//
// # Packets
//
// The program is kernel/csig.c. make generate compiles it to csig.o, which is checked in, so hosts need no compiler. It
// reads packets with up to two VLAN tags, IPv4 or IPv6 with common extension headers, TCP options, and reflections near
// the beginning of UDP payloads. For these it finds exactly what package decode finds. Other packets that may have CSIG
// are odd: the program counts them by OddReason and nothing else. With Config.Odd, a socket filter compiled from the same
// source passes odd packets, and no others, to a ring for package decode. So each packet is counted once, by one of the
// two.
//
// # Counts
//
// Observations with equal keys share one entry of a map, which holds their number and bytes. The key has the window, the
// CPU, the endpoints, the locator metadata, and the signal type. Since the CPU is part of the key, only one CPU writes to
// an entry, and no lock is needed. Endpoints are classes: all addresses that the fabric file treats alike are one class,
// which the program finds by longest prefix. Without groups in a fabric file, groups are address prefixes, and the key has
// the leading bits of the addresses.
//
// An entry of compact tags counts each of four values of S. An entry of wide tags holds the sum, the minimum and the
// maximum of the codes in one bucket of the distribution (csig.DistIndex). A bucket that has both heavy and other codes is
// split there, so an entry is heavy as a whole or not at all. That is all that a row needs, so counts make the same rows
// as single observations.
//
// # Flows
//
// Flows are named from samples of heavy observations, which the program writes to a ring buffer. Each CPU has a budget of
// samples between two readings. If there are few heavy observations, it samples all of them; of many, it samples some, at
// random distances, and each sample says how many it stands for. Package window fits these estimates into the exact counts.
//
// # Attaching
//
// The program is attached by TCX and never by clsact. The kernel detaches a TCX link when the process that holds it ends,
// even by a crash, and exchanges the program of a link without losing a packet. A clsact filter would stay behind after a
// crash. The program is attached before all others on the interface, because one of them can end the chain. Hosts without
// TCX (before Linux 6.6) use the ring.
package bpf

// OddReason is the reason why the program does not read a packet that may have CSIG.
type OddReason uint8

// The reasons are in the order of kernel/csig.c.
const (
	OddCut     OddReason = iota // ends inside a header, or a header contradicts itself
	OddLong                     // its headers are longer than the program reads
	OddL2                       // MACsec, MPLS, more than two VLAN tags, two CSIG tags
	OddTunnel                   // a tunnel, or encrypted
	OddIP                       // extension headers that the program does not read, or IPv4 addresses in IPv6
	OddUDP                      // a tunnel over UDP, or reflections in a payload that are too far behind or several
	OddOptions                  // wrong TCP options, or several reflections among them

	// OddReasons bounds OddReason.
	OddReasons = iota
)
