// Package csig is the protocol's vocabulary: tag layouts, signal types,
// quantization tables and locator layouts, as pure functions over integers.
//
// It knows the bits of a CSIG tag. It must never know packets (package decode finds the
// tag in a frame) or networks (package fabric finds the port that a locator names).
//
// Section numbers refer to draft-ravi-ippm-csig-01, Congestion Signaling (CSIG), of
// February 2024, unless another source is named: the slides "CSIG Telemetry at Layer
// 2" to IEEE 802.1, January 2026 (IEEE slides), or "CSIG: Congestion Signaling in the
// AI Era" to the IETF 124 side meeting, November 2025 (IETF 124).
//
// # Data fields
//
// A tag is a TPID followed by data fields; a reflection is the data fields alone. Both are in
// network byte order. Two profiles of the fields are public. Nothing on the wire tells them apart,
// so a Domain maps each TPID to exactly one Layout, a format in a profile. Compact, 16 bits (Figure
// 1; IEEE slides, "Two L2 Tags"):
//
//	  byte 0         byte 1
//	 0                   1
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5
//	+-----+-+---------+-------------+
//	|  T  |R|    S    |     LM      |   ietf01
//	+-----+-+---------+-----------+-+
//	|  T  |R|    S    |    LM     |D|   uec050
//	+-----+-+---------+-----------+-+
//
// Wide, 48 bits, which the draft calls expanded (Figure 2; IEEE slides, "Two L2 Tags"):
//
//	  bytes 0 and 1                   bytes 2 to 5
//	 0                   1                   2                   3                   4
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7
//	+-------------------------------+-------+---------------------------------------+---------------+
//	|              LM               |   T   |                   S                   |       R       |   ietf01
//	+-----------------------------+-+-------+---------------------------------------+---------------+
//	|             LM              |D|   T   |                   S                   |       R       |   uec050
//	+-----------------------------+-+-------+---------------------------------------+---------------+
//
//	field  meaning                                            compact      wide
//	T      signal type, see below                             0 to 7       0 to 15
//	S      signal value, quantized by a Table                 0 to 31      0 to 1048575
//	LM     locator metadata, read by a Locator      ietf01    0 to 127     0 to 65535
//	                                                uec050    0 to 63      0 to 32767
//	D      trimmed, do not update: S is that of the path up   0, 1         0, 1
//	       to the hop that cut the packet; uec050 alone
//	R      reserved, kept as it came                          0, 1         0 to 255
//
// Two tags with their TPIDs, under the default Spec:
//
//	99 00  2b 85               compact/ietf01   T 1, S 23, LM 5
//	88 b6  00 0a 20 00 9c 00   wide/uec050      T 2, S 156, LM 5: delay from 19968 to 20096 ns
//
// # TPIDs
//
// No EtherType is allocated. DefaultSpec takes
//
//	0x9900   compact/ietf01   as public switch software does
//	0x88b5   compact/uec050   IEEE 802's local experimental EtherTypes
//	0x88b6   wide/uec050
//
// # Signals
//
//	T   name            value                         unit    stored  hops     initial S   heavy by default         source
//	0   min_abw         available bandwidth           bit/s   kbit/s  minimum  all ones    at most 20 % of C        section 5.1
//	1   min_abw_ratio   the same by capacity, ABW/C   ratio   ppm     minimum  all ones    at most 20 %             section 5.2
//	2   max_delay       per-hop delay                 ns      ns      maximum  0           at least 20 us           section 5.4
//	3   max_nqd         normalized queue depth,       ratio   ppm     maximum  0           at least 50 %            IEEE slides,
//	                    uec050 alone                                                                                "max(nQD)"
//	N   type_N          as a table says, else none    any     those   any      by hops     as the table says        section 4.1.3
//	                                                          or counts
//
// Senders write the initial value ("Init Value" of the IEEE slides; all ones are 31 and 1048575).
// If S still has it, no hop replaced it: the tag is untouched and names no location, whatever LM
// says, but its value is a measurement. A hop replaces S and LM together where its own code is
// strictly tighter (section 5.3.3, 5.4.2), so that among hops with equal codes the first one is
// named.
//
// A type_N is a type that the profile does not define: from 3 on in ietf01, from 4 on in uec050.
// Without a table it is kept and counted, and has no value. A table gives it a unit and an
// Aggregation, and so a Signal of its own.
//
// # Values
//
// A Table turns S into a code, (S & mask) >> shift, and a code into a bucket, a range of values.
// Buckets are explicit or even:
//
//	buckets     code i covers [bound i, bound i+1), compact up to 32    (section 5.3.3, Appendix A)
//	quantum q   code i covers [i*q, (i+1)*q)                            (section 4.1.3, 5.3.3)
//	base, b     code i covers [bV + i*2^b, bV + (i+1)*2^b),
//	            B = (O - bV) >> b, at most the largest code             (IETF 124, "Quantization Algorithm")
//
// A code adds the middle of its range to sums, or the finite bound of an open-ended range. A code
// is heavy when its whole range is at or beyond the threshold. Values are integers, so that sums
// merge exactly: kbit/s, parts per million, nanoseconds, or plain numbers; the largest configured
// quantity is below 2^53.
//
// # Locator metadata
//
// The deployment chooses the content of LM, the same on all of its switches (section 5.5.1). A
// Locator lists fields from the most significant bit to the least. Bits that no field uses are the
// highest ones, and are 0:
//
//	field         width          holds                                          section 5.5.2
//	stage         1 bit and up   index of a table of names                      compact attribute
//	orientation   1 bit and up   index of a table of names, such as up, down    compact attribute
//	capacity      1 bit and up   index of a table of port speeds                compact attribute
//	port_id       1 bit and up   id of the port in the fabric file              expanded attribute
//	device_id     1 bit and up   id of the device in the fabric file            expanded attribute
//	ttl           1 to 8 bits    TTL of packets that leave the port: the hop    expanded attribute
//	opaque        1 bit and up   kept, and not read
//
// LM 0 is a host's default, an unset port, or a real value. It is a location only where the layout
// says zero_is_location.
//
// # Reflections
//
// ReflectionSpec and UDPReflectionSpec draw the TCP option (section 4.2.1, Figure 3) and the
// position of the fields over UDP (section 4.2.2, Figure 4).
package csig
