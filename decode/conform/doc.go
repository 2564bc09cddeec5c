// Package conform judges a device by its packets: it matches packets before the device with packets
// after it, and checks each pair against draft-ravi-ippm-csig-01 and
// draft-tian-ccwg-ibcs-datapath-processing-00 (IBCS).
//
// It knows packets before and after a device, and the drafts' demands on it. It must never know
// where frames come from, the topology, or time: except for local metrics, which have their own
// times, nothing here depends on a clock.
//
// # Matching
//
// Two captured packets match if all parts that no device on the way may change are equal:
//
//	IPv4   addresses, protocol, identification, fragment, length, all behind the header
//	IPv6   addresses, next header, flow label, length, all behind the header
//	other  all that follows the last EtherType of L2, without zeros at the end, which may be padding
//
// Everything of L2, DSCP and ECN, TTL or hop limit and the header checksum are left out. Equal
// packets (retransmissions, repeated acknowledgements) belong to one flow, and a device keeps a
// flow in order: the first one before matches the first one after. Where some of them are missing
// and their tags differ, that proves nothing: they are counted as ambiguous and not judged. A
// trimmed packet has lost its end and is matched by its headers. Where captures are truncated
// before that end, its length on the wire shows that it was trimmed.
//
// # Judging
//
// Each Rule has the demand, its source, and what else could explain a violation. A rule that cannot
// be judged, such as the value of an update without local metrics, counts as not judged, never as
// obeyed.
package conform
