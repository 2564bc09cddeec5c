// Package capture reads and writes frames. It knows where frames come from: classic pcap and pcapng
// files, plain or compressed with gzip or zstd, read whole or in chunks on several cores, still
// growing, or in a directory of rotated files; on Linux also the live frames of an interface
// ([Tap]) and the packets of mirror sessions sent to this host ([MirrorSocket]). It merges several
// files by time, and writes frames with comments. It must never know the contents of a frame: the
// packets of a mirror session are frames like any other.
//
// Input is hostile: every length is checked before anything is allocated for it, a [Reader]'s
// memory is bounded by its [Options], and after the first batches no packet allocates. The formats
// are those of draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.
package capture
