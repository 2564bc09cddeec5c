package window

import (
	"encoding/binary"
	"math/bits"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// pageBuckets is the length of a page: the buckets of an octave of codes, in a cache line of
// counts.
const pageBuckets = 64

// distribution counts the codes of a window's wide entries by csig.DistIndex. An entry lists its first
// observations. If there are more, it counts them in pages; since the codes of an entry lie in few
// octaves, it allocates only the pages that it needs. Counts are modulo 256; carried holds the
// rest. The zero value is empty and ready for use.
type distribution struct {
	entries []distEntry          // by wide entry
	pages   [][pageBuckets]uint8 // those beyond the length are zeroed; no entry uses the first one
	carried table32              // page*pageBuckets + bucket to its carries, each of 256 observations
}

// distEntry fills a cache line.
type distEntry struct {
	data    [4 * csig.DistIndexes / pageBuckets]byte // the buckets of observations, 2 bytes each; once paged the numbers of pages, 4 bytes each
	carries uint16                                   // bit p is set when the distribution's carried has a bucket of page p
	listed  uint16                                   // number of observations in data; paged once there are more than listLen
}

const (
	listLen = 2 * csig.DistIndexes / pageBuckets
	paged   = listLen + 1
)

// bucket returns the bucket of a listed observation.
func (e *distEntry) bucket(i int) uint32 { return uint32(binary.LittleEndian.Uint16(e.data[2*i:])) }

// page returns the number of a page of a paged entry, 0 for one that it does not have.
func (e *distEntry) page(at uint32) uint32 { return binary.LittleEndian.Uint32(e.data[4*at:]) }

// addPage appends the empty entries of a page of series.
func (d *distribution) addPage() {
	d.entries = extend(d.entries, pageSeries)
	clear(d.entries[len(d.entries)-pageSeries:])
	if len(d.pages) == 0 {
		d.pages = extend(d.pages, 1)
	}
}

// page returns the number of a paged entry's page, and allocates the page if it has none.
func (d *distribution) page(e *distEntry, at uint32) uint32 {
	p := e.page(at)
	if p == 0 {
		p = uint32(len(d.pages))
		d.pages = extend(d.pages, 1)
		binary.LittleEndian.PutUint32(e.data[4*at:], p)
	}
	return p
}

// touchEntry and touchPage prefetch the memory that count will use.
func (d *distribution) touchEntry(entry uint32) uint32 { return uint32(d.entries[entry].listed) }

func (d *distribution) touchPage(entry, bucket uint32) uint8 {
	e := &d.entries[entry]
	p := e.page(bucket / pageBuckets)
	if e.listed != paged {
		p = 0
	}
	return d.pages[p][bucket%pageBuckets]
}

// count counts an observation.
func (d *distribution) count(entry, bucket uint32) {
	e := &d.entries[entry]
	if e.listed != paged {
		if n := e.listed; n < listLen {
			binary.LittleEndian.PutUint16(e.data[2*n:], uint16(bucket))
			e.listed++
			return
		}
		d.spill(e)
	}
	p := d.page(e, bucket/pageBuckets)
	n := &d.pages[p][bucket%pageBuckets]
	if *n++; *n == 0 {
		d.carry(e, bucket, 1)
	}
}

// spill moves the entry to pages.
func (d *distribution) spill(e *distEntry) {
	list := *e
	*e = distEntry{listed: paged}
	for i := range int(list.listed) {
		b := list.bucket(i)
		d.pages[d.page(e, b/pageBuckets)][b%pageBuckets]++
	}
}

// carry counts 256 observations n times in a bucket whose page the entry has.
func (d *distribution) carry(e *distEntry, bucket uint32, n uint64) {
	at := bucket / pageBuckets
	e.carries |= 1 << at
	slot, _ := d.carried.at(e.page(at)*pageBuckets + bucket%pageBuckets)
	*slot += n
}

// merge adds the counts of an entry of another window.
func (d *distribution) merge(entry uint32, o *distribution, from uint32) {
	e, f := &d.entries[entry], &o.entries[from]
	if f.listed != paged {
		for i := range int(f.listed) {
			d.count(entry, f.bucket(i))
		}
		return
	}
	if e.listed != paged {
		d.spill(e)
	}
	for at := range uint32(csig.DistIndexes / pageBuckets) {
		page := f.page(at)
		if page == 0 {
			continue
		}
		to, add := &d.pages[d.page(e, at)], &o.pages[page]
		for i := uint32(0); i < pageBuckets; i += 8 {
			sum, over := addBytes(binary.LittleEndian.Uint64(to[i:]), binary.LittleEndian.Uint64(add[i:]))
			binary.LittleEndian.PutUint64(to[i:], sum)
			for ; over != 0; over &= over - 1 {
				d.carry(e, at*pageBuckets+i+uint32(bits.TrailingZeros64(over)/8), 1)
			}
		}
		if f.carries>>at&1 == 0 {
			continue
		}
		for i := range uint32(pageBuckets) {
			if n := o.carried.get(page*pageBuckets + i); n > 0 {
				d.carry(e, at*pageBuckets+i, n)
			}
		}
	}
}

// addTo adds an entry's counts, each times the weight, to the distribution of a row.
func (d *distribution) addTo(to *aggregate.Dist, entry uint32, weight uint64) {
	e := &d.entries[entry]
	if e.listed != paged {
		for i := range int(e.listed) {
			to.Add(e.bucket(i), weight)
		}
		return
	}
	for at := range uint32(csig.DistIndexes / pageBuckets) {
		page := e.page(at)
		if page == 0 {
			continue
		}
		counts := &d.pages[page]
		if e.carries>>at&1 != 0 {
			for i := range uint32(pageBuckets) {
				if n := d.carried.get(page*pageBuckets + i); n > 0 {
					to.Add(at*pageBuckets+i, n<<8*weight)
				}
			}
		}
		for i := uint32(0); i < pageBuckets; i += 8 {
			for used := binary.LittleEndian.Uint64(counts[i:]); used != 0; {
				b := uint32(bits.TrailingZeros64(used) / 8)
				used &^= 0xff << (8 * b)
				to.Add(at*pageBuckets+i+b, uint64(counts[i+b])*weight)
			}
		}
	}
}

// reset empties the distribution and keeps its memory, unless it was hardly used.
func (d *distribution) reset() {
	clear(d.pages)
	d.entries, d.pages = shrink(d.entries), shrink(d.pages)
	d.carried.reset()
}

func (d *distribution) bytes() uint64 {
	return uint64(cap(d.entries)+cap(d.pages))*64 + d.carried.bytes()
}
