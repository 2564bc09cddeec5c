// Package conform judges a device by its packets: it matches what went in with what came
// out and holds each pair against draft-ravi-ippm-csig-01 and
// draft-tian-ccwg-ibcs-datapath-processing-00 (IBCS).
//
// It knows packets before and after a device, and what the drafts demand of it. It must
// never know where frames come from, the topology, or time: but for local metrics, which
// have times themselves, nothing here depends on a clock.
//
// # Matching
//
// A packet is known again by what no device on the way may change:
//
//	IPv4   addresses, protocol, identification, fragment, length, all behind the header
//	IPv6   addresses, next header, flow label, length, all behind the header
//	other  all that follows the last EtherType of L2
//
// Everything of L2, DSCP and ECN, TTL or hop limit and the header checksum are left out.
// Packets that are alike (retransmissions, repeated acknowledgements) are one flow's, which
// a device keeps in order: the first one is matched with the first one. Where some of them
// are missing and their tags differ, that proves nothing, and they are counted as ambiguous
// instead of judged. A trimmed packet has lost its end and is known by its headers.
//
// # Judging
//
// Each Rule says what is demanded, by whom, and what else would explain a breach. A rule
// that cannot be judged, such as the value of an update without local metrics, is counted
// as not judged and never as kept.
package conform
