package capture

import (
	"hash/maphash"
	"time"
)

// DefaultDedup is the time within which equal frames count as duplicates. A mirror of both ends of
// a link captures a frame twice within it, and no sender retransmits so soon.
const DefaultDedup = time.Millisecond

// A Dedup has room for minRecent frames at first and for maxRecent at most, at 128 bytes
// each. A link of 400 Gbit/s passes no more within 1 ms if they have 760 bytes on average.
const (
	minRecent = 1 << 6
	maxRecent = 1 << 16
)

// Dedup finds frames that a tap captured twice, for example by mirrors of both sides of a link:
// frames with the same bytes, wire length and stripped tag within a given time. It belongs to one
// tap and is not safe for concurrent use. Its memory is bounded: after more than 65,536 frames
// within that time it forgets the earlier ones.
type Dedup struct {
	within  int64 // ns
	seed    maphash.Seed
	content uint64 // of the present frame
	// Hash tables with linear probing. Expired frames stay until half of the table is used; then
	// the others move to the spare table.
	recent, spare []recentFrame
	used          int
}

type recentFrame struct {
	content uint64 // 0: free slot
	time    int64  // last occurrence, Unix ns
}

// NewDedup returns a Dedup for frames within a time above 0.
func NewDedup(within time.Duration) *Dedup {
	return &Dedup{within: int64(within), seed: maphash.MakeSeed(), recent: make([]recentFrame, 4*minRecent), spare: make([]recentFrame, 4*minRecent)}
}

// Seen reports whether an equal frame occurred within the time; false for a frame without a time. It
// keeps no reference to the frame.
func (d *Dedup) Seen(f *Frame) bool {
	head := uint64(f.WireLen) | uint64(f.TPID)<<32 | uint64(f.TCI)<<48
	d.content = max(maphash.Bytes(d.seed, f.Data)^head*0x9e3779b97f4a7c15, 1)
	if f.NoTime {
		return false
	}
	if 2*d.used >= len(d.recent) {
		d.forget(f.TimeNS)
	}
	one := d.slot(d.content)
	if one.content == 0 {
		*one = recentFrame{d.content, f.TimeNS}
		d.used++
		return false
	}
	seen := d.isRecent(one, f.TimeNS)
	one.time = f.TimeNS
	return seen
}

// Content returns a hash of the frame of the last Seen call. Equal frames have equal hashes.
func (d *Dedup) Content() uint64 { return d.content }

// slot returns the slot of a content, or the free slot for it.
func (d *Dedup) slot(content uint64) *recentFrame {
	for i := content; ; i++ {
		if one := &d.recent[i&uint64(len(d.recent)-1)]; one.content == content || one.content == 0 {
			return one
		}
	}
}

func (d *Dedup) isRecent(one *recentFrame, now int64) bool {
	apart := now - one.time
	return apart <= d.within && apart >= -d.within
}

// forget removes expired frames, or all frames if too many remain. If the table fills up, the next
// one is larger.
func (d *Dedup) forget(now int64) {
	d.recent, d.spare, d.used = d.spare, d.recent, 0
	clear(d.recent)
	for i := range d.spare {
		if one := &d.spare[i]; one.content != 0 && d.isRecent(one, now) {
			*d.slot(one.content) = *one
			d.used++
		}
	}
	if d.used >= maxRecent {
		clear(d.recent)
		d.used = 0
	}
	next := len(d.recent) // there is always room
	if 4*d.used > next && next < 4*maxRecent {
		next *= 2
	}
	if len(d.spare) < next {
		d.spare = make([]recentFrame, next)
	}
}
