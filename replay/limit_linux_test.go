package replay_test

import (
	"encoding/binary"
	"math/bits"

	"github.com/csigscope/csigscope/capture"
)

// limit is a lower bound on a packet's cost for given traffic on a machine, with replay's reader:
// it reads fields at known offsets and touches each cache line of the result once, after
// prefetching those of 256 packets. It checks no header, closes no window, writes no row, and its
// tables are complete in advance. The additional time of a replay is the price of its result, or
// waste.
type limit struct {
	traffic
	index []uint32 // by source, destination, locator and signal; 0 for none
	cells []limitCell
	flows []limitCell // size is a power of two; indexed by hash
	items [capture.BatchSize]limitItem
	sum   uint64 // keeps prefetching reads alive
}

// limitCell is one cache line.
type limitCell struct {
	bytes uint64
	used  uint32
	_     uint32
	hist  [48]uint8
}

// limitItem is a parsed packet.
type limitItem struct {
	cell, flow, bytes uint32
	code              uint16
}

func newLimit(t *traffic) *limit {
	return &limit{
		traffic: *t,
		index:   make([]uint32, t.groups*t.groups*trafficLocators*2),
		cells:   make([]limitCell, 1),
		flows:   make([]limitCell, 1<<bits.Len(uint(2*t.flows))),
	}
}

// run reads the traffic's capture.
func (l *limit) run(path string) (packets uint64, err error) {
	return eachBatch(path, func(frames []capture.Frame) {
		l.parse(frames)
		l.count(l.items[:len(frames)])
	})
}

// parse avoids unpredictable branches.
func (l *limit) parse(frames []capture.Frame) {
	tagLen := 4
	if l.wide {
		tagLen = 8
	}
	for i := range frames {
		b, it := frames[i].Data, &l.items[i]
		signal, locator, code := uint32(b[14]>>5), uint32(b[15]&127), binary.BigEndian.Uint16(b[14:])>>7&31
		if l.wide {
			signal, locator, code = uint32(b[16]>>4), uint32(b[15]>>1), binary.BigEndian.Uint16(b[17:])
		}
		ip := b[12+tagLen:]
		v6 := int(ip[1] >> 7) // 0x0800 or 0x86dd
		from, size := 2+12-4*v6, 4+12*v6
		src := binary.BigEndian.Uint16(ip[from+1+5*v6:])
		dst := binary.BigEndian.Uint16(ip[from+size+1+5*v6:]) &^ (1 << 15)
		host := uint32(ip[from+size-1])<<8 | uint32(ip[from+2*size-1])
		ports := binary.BigEndian.Uint32(ip[2+20+20*v6:])
		it.cell = ((uint32(src)*uint32(l.groups)+uint32(dst))*trafficLocators+locator-1)*2 + signal - 1
		hash := uint64(host)<<32 ^ uint64(ports)<<16 ^ uint64(src)<<20 ^ uint64(dst)
		it.flow = uint32(hash * 0x9e3779b97f4a7c15 >> (65 - bits.Len(uint(len(l.flows)))))
		it.bytes, it.code = frames[i].WireLen, code
	}
}

func (l *limit) count(items []limitItem) {
	for i := range items {
		it := &items[i]
		n := l.index[it.cell]
		if n == 0 {
			n = uint32(len(l.cells))
			l.cells, l.index[it.cell] = append(l.cells, limitCell{}), n
		}
		it.cell = n
	}
	for i := range items {
		l.sum += l.cells[items[i].cell].bytes + l.flows[items[i].flow].bytes
	}
	for i := range items {
		it := &items[i]
		for _, c := range []*limitCell{&l.cells[it.cell], &l.flows[it.flow]} {
			c.bytes += uint64(it.bytes)
			c.used |= 1 << (it.code & 31)
			c.hist[it.code&31]++
		}
	}
}
