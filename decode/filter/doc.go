// Package filter writes classic BPF programs. With them, the kernel passes a live tap only the
// frames that may hold something for package decode: a tag, a reflection, or encryption that hides
// them. It knows the headers that decode parses. It must never know what carries frames.
//
// In doubt, a program passes a frame: it follows fewer headers than decode does, and passes frames
// that have more of them. It never reads further than a header that decode needs, so it drops a
// truncated frame only where decode finds nothing either.
//
//	L2      six headers: VLAN tags, SecTAGs; a TPID of CSIG passes
//	MPLS    eight labels, then IP or a pseudowire
//	IP      IPv4; IPv6 with four extension headers
//	TCP     twenty options; one of a kind that reflects passes
//	UDP     ports that reflect pass
//	inside  of two tunnels, one in the other, the same again
//
// Mirror sessions are tunnels, whether the tap holds them or not. If it does not, decode counts the
// tags inside as orphans.
//
// Classic BPF has no loops: all of this is unrolled.
package filter
