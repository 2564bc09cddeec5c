// Package filter writes classic BPF programs by which the kernel hands a live tap only
// the frames that package decode may find something in: a tag, a reflection, or
// encryption that hides them. It knows what decode walks, and never what carries
// frames.
//
// A program errs on the side of passing: it follows fewer headers than decode, and
// what goes on behind them passes. It never reads further than a header that decode
// needs, so that a frame cut by its sender is dropped where decode finds nothing
// either.
//
//	L2      six headers: VLAN tags, SecTAGs; a TPID of CSIG passes
//	MPLS    eight labels, then IP or a pseudowire
//	IP      IPv4; IPv6 with four extension headers
//	TCP     twenty options; one of a kind that reflects passes
//	UDP     ports that reflect pass
//	inside  of two tunnels, one in the other, the same again
//
// Mirror sessions are tunnels, whether the tap holds them or not: in others, what passes
// is an orphan.
//
// Classic BPF has no loops: all of this is unrolled.
package filter
