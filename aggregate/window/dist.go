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

// distribution counts the codes of a window's wide entries by csig.DistIndex. The codes of an entry
// lie in few octaves, so an entry allocates only the pages that it needs, and none for its first
// observation: in traffic that does not aggregate, many entries have no other. Counts are modulo
// 256; carried holds the rest. The zero value is empty and ready for use.
type distribution struct {
	entries []distPages          // by wide entry
	pages   [][pageBuckets]uint8 // those beyond the length are zeroed; no entry uses the first one
	carried table32              // page*pageBuckets + bucket to the number of 256 observations
}

// distPages fills a cache line.
type distPages struct {
	page    [csig.DistIndexes / pageBuckets]uint32 // 0 for a page that the entry does not have
	carries uint16                                 // bit p is set when the distribution's carried has a bucket of page p
	first   uint16                                 // the only observation's bucket, plus 1; paged once there are more
}

const paged = csig.DistIndexes + 1

// addPage appends the empty entries of a page of series.
func (d *distribution) addPage() {
	d.entries = extend(d.entries, pageSeries)
	clear(d.entries[len(d.entries)-pageSeries:])
	if len(d.pages) == 0 {
		d.pages = extend(d.pages, 1)
	}
}

// page returns the number of an entry's page, and allocates the page if it has none.
func (d *distribution) page(e *distPages, at uint32) uint32 {
	p := e.page[at]
	if p == 0 {
		p = uint32(len(d.pages))
		d.pages = extend(d.pages, 1)
		e.page[at] = p
	}
	return p
}

// touchEntry and touchPage prefetch the memory that count will use, one after the other.
func (d *distribution) touchEntry(entry uint32) uint32 { return uint32(d.entries[entry].first) }

func (d *distribution) touchPage(entry, bucket uint32) uint8 {
	return d.pages[d.entries[entry].page[bucket/pageBuckets]][bucket%pageBuckets]
}

// count counts an observation.
func (d *distribution) count(entry, bucket uint32) {
	e := &d.entries[entry]
	if e.first != paged {
		if e.first == 0 {
			e.first = uint16(bucket + 1)
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
func (d *distribution) spill(e *distPages) {
	if first := uint32(e.first); first-1 < csig.DistIndexes {
		d.pages[d.page(e, (first-1)/pageBuckets)][(first-1)%pageBuckets] = 1
	}
	e.first = paged
}

// carry counts 256 observations n times in a bucket whose page the entry has.
func (d *distribution) carry(e *distPages, bucket uint32, n uint64) {
	at := bucket / pageBuckets
	e.carries |= 1 << at
	slot, _ := d.carried.at(e.page[at]*pageBuckets + bucket%pageBuckets)
	*slot += n
}

// merge adds the counts of an entry of another window.
func (d *distribution) merge(entry uint32, o *distribution, from uint32) {
	e, f := &d.entries[entry], &o.entries[from]
	if f.first != paged {
		if f.first > 0 {
			d.count(entry, uint32(f.first-1))
		}
		return
	}
	if e.first != paged {
		d.spill(e)
	}
	for at, page := range f.page {
		if page == 0 {
			continue
		}
		to, add := &d.pages[d.page(e, uint32(at))], &o.pages[page]
		for i := 0; i < pageBuckets; i += 8 {
			sum, over := addBytes(binary.LittleEndian.Uint64(to[i:]), binary.LittleEndian.Uint64(add[i:]))
			binary.LittleEndian.PutUint64(to[i:], sum)
			for ; over != 0; over &= over - 1 {
				d.carry(e, uint32(at*pageBuckets+i+bits.TrailingZeros64(over)/8), 1)
			}
		}
		if f.carries>>at&1 == 0 {
			continue
		}
		for i := range uint32(pageBuckets) {
			if n := o.carried.get(page*pageBuckets + i); n > 0 {
				d.carry(e, uint32(at)*pageBuckets+i, n)
			}
		}
	}
}

// addTo adds an entry's counts, each times the weight, to the distribution of a row.
func (d *distribution) addTo(to *aggregate.Dist, entry uint32, weight uint64) {
	e := &d.entries[entry]
	if e.first != paged {
		if e.first > 0 {
			to.Add(uint32(e.first-1), weight)
		}
		return
	}
	for at, page := range e.page {
		if page == 0 {
			continue
		}
		counts := &d.pages[page]
		if e.carries>>at&1 != 0 {
			for i := range uint32(pageBuckets) {
				if n := d.carried.get(page*pageBuckets + i); n > 0 {
					to.Add(uint32(at)*pageBuckets+i, n<<8*weight)
				}
			}
		}
		for i := 0; i < pageBuckets; i += 8 {
			for used := binary.LittleEndian.Uint64(counts[i:]); used != 0; {
				b := bits.TrailingZeros64(used) / 8
				used &^= 0xff << (8 * b)
				to.Add(uint32(at*pageBuckets+i+b), uint64(counts[i+b])*weight)
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
