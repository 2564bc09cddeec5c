package capture

import (
	"hash/maphash"
	"time"
)

// DefaultDedup is the time within which frames are taken for duplicates: a mirror of both ends
// of a link captures a frame again within it, and no sender transmits it again.
const DefaultDedup = time.Millisecond

// A Dedup has room for minRecent frames at first and for maxRecent at most, at 64 bytes each: within
// 1 ms more do not pass a link of 400 Gbit/s.
const (
	minRecent = 1 << 6
	maxRecent = 1 << 16
)

// Dedup finds frames that a tap captured twice, as mirrors of both sides of a link do: the same
// bytes, of the same length on the wire and with the same stripped tag, within a time of each
// other. It belongs to one tap, and is not safe for concurrent use. Its memory is bounded: of
// more than 65,536 frames within the time, earlier ones are forgotten.
type Dedup struct {
	within  int64 // ns
	seed    maphash.Seed
	content uint64 // of the frame at hand
	// A hash table with linear probing. Frames that are too old stay until half of it is used,
	// and those of them that are not move to the spare one then.
	recent, spare []recentFrame
	used          int
}

type recentFrame struct {
	content uint64 // 0: the slot is free
	time    int64  // when it was there last, Unix ns
}

// NewDedup makes a Dedup for frames within a time above 0.
func NewDedup(within time.Duration) *Dedup {
	return &Dedup{within: int64(within), seed: maphash.MakeSeed(), recent: make([]recentFrame, 4*minRecent), spare: make([]recentFrame, 4*minRecent)}
}

// Seen tells whether the frame was there before within the time. It keeps no reference to it.
func (d *Dedup) Seen(f *Frame) bool {
	head := uint64(f.WireLen) | uint64(f.TPID)<<32 | uint64(f.TCI)<<48
	d.content = max(maphash.Bytes(d.seed, f.Data)^head*0x9e3779b97f4a7c15, 1)
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

// Content is a number for the bytes of the frame that Seen took last, the same for the same bytes.
func (d *Dedup) Content() uint64 { return d.content }

// slot is where a content is, or the free one where it belongs.
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

// forget removes the frames that are too old at a time, all if they are too many. Where they fill the
// table, the next one is larger.
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
	next := len(d.recent) // so that there is always room
	if 4*d.used > next && next < 4*maxRecent {
		next *= 2
	}
	if len(d.spare) < next {
		d.spare = make([]recentFrame, next)
	}
}
