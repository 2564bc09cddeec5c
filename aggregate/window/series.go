package window

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// seriesKey is a row's key and further common properties of observations: several series can share
// one row.
type seriesKey struct {
	src, dst aggregate.GroupID
	loc      aggregate.LocationID
	// Inclusive range of heavy codes, empty when lo > hi. It depends on the location's speed.
	heavyLo, heavyHi uint32
	signalIndex      uint8 // index of layout and T
	kind             decode.Kind
	class            obsClass
	evidence         aggregate.Evidence // of loc
	overflow         bool
}

// series fills a cache line, because rows and new windows read it in no order.
type series struct {
	seriesKey
	signal    csig.Signal
	wide      bool
	heavyMask uint32 // compact: bit c is set when code c is heavy
	cell      uint32 // dense number of (signal, kind, source, destination)
	_         [12]byte
}

// seriesBrief is the part of a series that is read for each heavy observation, and for each entry
// of a closed window.
type seriesBrief struct {
	loc      aggregate.LocationID
	cell     uint32
	signal   csig.Signal
	class    obsClass
	overflow bool
}

// counts reports whether codes of the series enter distributions.
func (s *series) counts() bool { return s.class != classTrimmed && s.class != classCount }

func (s *series) encoding() aggregate.Encoding { return aggregate.Encoding(s.signalIndex >> 4) }

// compareRows orders series by the key of their row; equal ones share a row.
func compareRows(a, b *series) int {
	switch {
	case a.signal != b.signal:
		return cmp.Compare(a.signal, b.signal)
	case a.kind != b.kind:
		return cmp.Compare(a.kind, b.kind)
	case a.signalIndex>>4 != b.signalIndex>>4:
		return cmp.Compare(a.signalIndex>>4, b.signalIndex>>4)
	case a.src != b.src:
		return cmp.Compare(a.src, b.src)
	case a.dst != b.dst:
		return cmp.Compare(a.dst, b.dst)
	}
	return cmp.Compare(a.loc, b.loc)
}

// count records that a series has been counted in this life.
func (t *seriesTable) count(id uint32) {
	if t.lives[id] != t.life {
		t.lives[id] = t.life
		t.current++
	}
}

func (t *seriesTable) nextLife() {
	t.life++
	t.current = 0
}

// seriesTable numbers series densely, in the order in which they appear.
type seriesTable struct {
	signals *[numSignalInfos]signalInfo
	maxKeys int
	seeds   [2]uint64 // of hashes: nobody can craft colliding traffic

	list   []series
	brief  []seriesBrief // by series
	heavy  []uint32      // by series: heavyMask
	lives  []uint32      // by series: the life in which it was last counted
	ids    denseIndex    // of list
	cells  denseIndex
	firsts []uint32 // by cell: the first of its series
	own    int      // series that are not overflow

	// A life lasts from one reset of the shard to the next. Series of earlier lives are kept while
	// there is room.
	life    uint32
	current int // series that were counted in this life

	// The order of rows, updated by sort: order lists series, and rank is the position of a series'
	// row, equal for series that share one.
	order, rank []uint32
}

func newSeriesTable(info *[numSignalInfos]signalInfo, maxKeys int) seriesTable {
	return seriesTable{
		signals: info, maxKeys: maxKeys, seeds: [2]uint64{rand.Uint64(), rand.Uint64()},
	}
}

// id returns the number of the series, or of its overflow series once the budget is used up.
func (t *seriesTable) id(k seriesKey) uint32 {
	hash := t.hash(&k)
	if id, ok := t.ids.find(hash, func(id uint32) bool { return t.list[id].seriesKey == k }); ok {
		return id
	}
	if t.own >= t.maxKeys && !k.overflow {
		k.src, k.dst, k.loc, k.overflow = aggregate.OverflowGroup, aggregate.OverflowGroup, aggregate.OverflowLocation, true
		k.evidence = 0
		return t.id(k)
	}
	return t.insert(k, hash)
}

// hash returns the hash of a series' key.
func (t *seriesTable) hash(k *seriesKey) uint64 {
	heavy := uint64(k.heavyHi)<<32 | uint64(k.heavyLo)
	rest := uint64(k.signalIndex)<<24 | uint64(k.kind)<<16 | uint64(k.class)<<8 | uint64(k.evidence)
	return mix(t.hashCell(uint64(k.kind), k.src, k.dst)^uint64(k.loc), mix(heavy^t.seeds[0], rest^t.seeds[1]))
}

// hashCell returns the hash of a cell. kind may have the signal in its upper bits.
func (t *seriesTable) hashCell(kind uint64, src, dst aggregate.GroupID) uint64 {
	return mix(uint64(src)^t.seeds[0], bits.RotateLeft64(uint64(dst), 32)^kind^t.seeds[1])
}

// cell returns the dense number of a series' cell.
func (t *seriesTable) cell(s *series) uint32 {
	hash := t.hashCell(uint64(s.kind)<<16|uint64(s.signal), s.src, s.dst)
	n, ok := t.cells.find(hash, func(n uint32) bool {
		o := &t.list[t.firsts[n]]
		return o.signal == s.signal && o.kind == s.kind && o.src == s.src && o.dst == s.dst
	})
	if !ok {
		n = uint32(len(t.firsts))
		t.firsts = append(t.firsts, uint32(len(t.list)))
		t.cells.insert(hash, n)
	}
	return n
}

func (t *seriesTable) insert(k seriesKey, hash uint64) uint32 {
	id := uint32(len(t.list))
	info := &t.signals[k.signalIndex]
	s := series{seriesKey: k, signal: info.signal, wide: info.wide}
	if !info.wide {
		for c := k.heavyLo; c <= k.heavyHi; c++ {
			s.heavyMask |= 1 << c
		}
	}
	s.cell = t.cell(&s)
	t.current++
	t.list = extend(t.list, 1)
	t.list[id] = s
	t.heavy = extend(t.heavy, 1)
	t.heavy[id] = s.heavyMask
	t.lives = extend(t.lives, 1)
	t.lives[id] = t.life
	t.brief = extend(t.brief, 1)
	t.brief[id] = seriesBrief{s.loc, s.cell, s.signal, s.class, s.overflow}
	t.ids.insert(hash, id)
	if !k.overflow {
		t.own++
	}
	return id
}

// sort updates order and rank for all series: it sorts new ones and merges them into the sorted
// ones.
func (t *seriesTable) sort() {
	old := len(t.order)
	if old == len(t.list) {
		return
	}
	fresh := make([]uint32, 0, len(t.list)-old)
	for i := old; i < len(t.list); i++ {
		fresh = append(fresh, uint32(i))
	}
	// Series of one row are ordered by number, so that the order is total.
	compare := func(a, b uint32) int {
		return cmp.Or(compareRows(&t.list[a], &t.list[b]), cmp.Compare(a, b))
	}
	slices.SortFunc(fresh, compare)
	t.order = append(t.order, fresh...)
	to, head := len(t.order)-1, old-1
	for tail := len(fresh) - 1; tail >= 0; to-- {
		if head >= 0 && compare(t.order[head], fresh[tail]) > 0 {
			t.order[to] = t.order[head]
			head--
			continue
		}
		t.order[to] = fresh[tail]
		tail--
	}
	t.setRanks()
}

// sortPicked sorts some series, each in the upper half of a number, as sort would, and replaces
// them by ranks among themselves.
func (t *seriesTable) sortPicked(picked []uint64) {
	slices.SortFunc(picked, func(a, b uint64) int {
		return cmp.Or(compareRows(&t.list[a>>32], &t.list[b>>32]), cmp.Compare(uint32(a), uint32(b)))
	})
	rank, last := uint64(0), uint64(0)
	for i, p := range picked {
		if id := p >> 32; i > 0 && compareRows(&t.list[last], &t.list[id]) != 0 {
			rank++
		}
		last = p >> 32
		picked[i] = rank<<32 | p&(1<<32-1)
	}
}

func (t *seriesTable) setRanks() {
	t.rank = slices.Grow(t.rank[:0], len(t.list))[:len(t.list)]
	rank := uint32(0)
	for i, id := range t.order {
		if i > 0 && compareRows(&t.list[t.order[i-1]], &t.list[id]) != 0 {
			rank++
		}
		t.rank[id] = rank
	}
}

// forget drops all series and keeps their memory.
func (t *seriesTable) forget() {
	t.ids.reset()
	t.cells.reset()
	t.firsts = t.firsts[:0]
	t.list, t.brief, t.heavy, t.lives, t.order, t.rank = t.list[:0], t.brief[:0], t.heavy[:0], t.lives[:0], t.order[:0], t.rank[:0]
	t.own, t.current = 0, 0
}

// retain drops the series that are not live and renumbers the others in their
// order. It returns the new numbers by old number.
func (t *seriesTable) retain(live []bool) []uint32 {
	kept := newSeriesTable(t.signals, t.maxKeys)
	kept.life = t.life
	renumbered := make([]uint32, len(t.list))
	for i := range t.list {
		if live[i] {
			renumbered[i] = kept.insert(t.list[i].seriesKey, kept.hash(&t.list[i].seriesKey))
		}
	}
	*t = kept
	return renumbered
}

// cellOf returns the dense number of a series' cell.
func (t *seriesTable) cellOf(id uint32) uint32 { return t.brief[id].cell }

func (t *seriesTable) bytes() uint64 {
	const seriesBytes = 64 + 16 + 4 + 4
	return uint64(cap(t.list))*seriesBytes + uint64(cap(t.order)+cap(t.rank)+cap(t.firsts))*4 + t.ids.bytes() + t.cells.bytes()
}
