// Package capture knows where frames come from: classic pcap and pcapng files,
// plain or compressed with gzip or zstd, whole or split into chunks that several
// cores read, still growing, or a directory of rotated ones; the live frames of an
// interface ([Tap]) and the packets of mirror sessions sent to this host
// ([MirrorSocket]), on Linux; and how to merge several files by time. It also writes
// frames back with comments. It never knows what is in a frame: a mirror session's
// packets are frames as others are.
//
// Input is treated as hostile: every length is checked before anything is
// allocated for it, the memory of a [Reader] is bounded by its [Options], and
// after the first batches no packet allocates. The formats are those of
// draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.
package capture
