package capture

import (
	"errors"
	"fmt"
)

// ErrDirectory is wrapped by the error for a path that names a directory.
var ErrDirectory = errors.New("is a directory; expected a pcap or pcapng file")

// FormatError means that the input is not a capture that this package can read.
type FormatError struct {
	File  string
	First []byte // first bytes of the input, at most 4; none if it is empty
	What  string // the contradiction
}

// Error implements error.
func (e *FormatError) Error() string {
	found := e.What
	if len(e.First) > 0 {
		found = fmt.Sprintf("%s (first bytes % 02x)", e.What, e.First)
	}
	return fmt.Sprintf("open capture %q: %s; expected pcap (magic a1b2c3d4, a1b23c4d or a1b2cd34 in either byte order), "+
		"pcapng (0a0d0d0a), or one of them compressed once with gzip (1f8b) or zstd (28b52ffd)", e.File, found)
}

// CutError means that the record at Offset is incomplete or contradicts itself. Every packet before
// it has been delivered; without Options.Resume, no packet after it is read.
type CutError struct {
	File    string
	Offset  int64  // byte offset of the record
	Packets uint64 // intact packets before it
	Want    int    // bytes that the record needs; 0 if it is complete but malformed
	Have    int    // existing bytes of the record
	What    string // affected part, or the contradiction
}

// Error implements error.
func (e *CutError) Error() string {
	if e.Want == 0 {
		return fmt.Sprintf("read capture %q: packet %d at byte offset %d: malformed: %s; the %d packets before it are intact",
			e.File, e.Packets+1, e.Offset, e.What, e.Packets)
	}
	return fmt.Sprintf("read capture %q: packet %d at byte offset %d: file ends inside the %s: wanted %d bytes, have %d; the %d packets before it are intact",
		e.File, e.Packets+1, e.Offset, e.What, e.Want, e.Have, e.Packets)
}

// LimitError means that a record at Offset, or the inflated size of a compressed file, exceeds one
// of the Options. Packets before it have been delivered; nothing was allocated for it.
type LimitError struct {
	File   string
	Offset int64  // byte offset of the record
	Packet uint64 // number of the packet
	What   string // the part that is too large
	Size   int64  // as recorded in the file
	Max    int64  // the limit
	Option string // field of Options to raise
}

// Error implements error.
func (e *LimitError) Error() string {
	return fmt.Sprintf("read capture %q: packet %d at byte offset %d: %s is %d, more than the limit of %d",
		e.File, e.Packet, e.Offset, e.What, e.Size, e.Max)
}

// BoundaryError means that the records of a chunk do not end where the next chunk starts: either
// the guessed boundary is wrong for this file, or the file changed since it was split. The caller
// must drop the results of this and later chunks; reading the whole file with Open still works.
type BoundaryError struct {
	File   string
	Chunk  Chunk
	Offset int64 // end of the last complete record in the chunk
}

// Error implements error.
func (e *BoundaryError) Error() string {
	return fmt.Sprintf("read capture %q in pieces: the last record of piece %d ends at byte offset %d, expected %d",
		e.File, e.Chunk.Index, e.Offset, e.Chunk.End)
}

// Remedy returns advice on how to run csigscope with capabilities, given as setcap writes them, such
// as "cap_net_raw".
func Remedy(capabilities string) string {
	return "run as root, or sudo setcap " + capabilities + `+ep "$(command -v csigscope)"`
}
