package table

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// Stretches holds some stretches of time in short steps, spread over a range of any length,
// where all of it would be too much: what repeats fast shows in them. It is a Sink of the
// blocks of one resolution, safe for concurrent use.
//
// Stretches of equal length are numbered by time. Where there are too many of them, or they
// take too much memory, only those stay whose number is a multiple of 2, then of 4, and so
// on. So it depends on the blocks alone, and not on their order, which ones these are.
type Stretches struct {
	resolution   time.Duration
	step, length int64 // ns
	most         int   // stretches
	limit        int   // bytes

	mu    sync.Mutex
	every int64 // numbers of stretches that are held are multiples of it, a power of 2
	kept  map[int64]map[aggregate.CellKey]*stretch
	bytes int // of all, about
	full  bool
}

// StretchStep is how often a cell was observed in a step. Steps in which it was not are
// left out.
type StretchStep struct {
	Start               int64 // Unix ns
	Observations, Heavy uint64
}

// stretch are the steps of a cell, in pages that are made where something was observed.
type stretch struct {
	pages []*[pageSteps]stretchCount
}

// stretchCount does not wrap: both end at the most that they hold.
type stretchCount struct{ all, heavy uint32 }

// What a Stretches is made of.
const (
	pageSteps    = 64
	pageBytes    = pageSteps * 8
	pointerBytes = 8
	seriesBytes  = 128 // of a cell's stretch, with the empty slots of its map

	maxEvery = 1 << 40 // where not even one of so many stretches fits, none does
)

// NewStretches makes Stretches of the blocks at a resolution: of so many steps each, at
// least 1, which are a multiple of the resolution, and at most so many of them, in about
// limit bytes.
func NewStretches(resolution, step time.Duration, steps, most, limit int) *Stretches {
	return &Stretches{
		resolution: resolution, step: int64(step), length: int64(step) * int64(max(steps, 1)), most: most, limit: limit,
		every: 1, kept: make(map[int64]map[aggregate.CellKey]*stretch),
	}
}

// WriteBlock adds the block's rows, if it is of the resolution and of a stretch that is
// held. It never fails.
func (s *Stretches) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if b.Resolution != int64(s.resolution) || b.Len() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	number := floorDiv(b.WindowStart, s.length)
	if s.full || number%s.every != 0 {
		return nil
	}
	cells := s.kept[number]
	if cells == nil {
		cells = make(map[aggregate.CellKey]*stretch)
		s.kept[number] = cells
	}
	at := int((b.WindowStart - number*s.length) / s.step)
	for i := range b.Len() {
		if signal := csig.Signal(b.Signal[i]); signal.HasValue() {
			k := b.Cell(i)
			s.of(cells, k).add(s, at, b.Observations[i], b.Heavy[i])
		}
	}
	for !s.full && (len(s.kept) > s.most || s.bytes > s.limit) {
		s.thin()
	}
	return nil
}

// pages is how many a cell's stretch has at most.
func (s *Stretches) pages() int { return int((s.length/s.step + pageSteps - 1) / pageSteps) }

// of is the stretch of a cell.
func (s *Stretches) of(cells map[aggregate.CellKey]*stretch, k aggregate.CellKey) *stretch {
	one := cells[k]
	if one == nil {
		one = &stretch{pages: make([]*[pageSteps]stretchCount, s.pages())}
		cells[k] = one
		s.bytes += seriesBytes + len(one.pages)*pointerBytes
	}
	return one
}

func (t *stretch) add(s *Stretches, at int, all, heavy uint64) {
	page := t.pages[at/pageSteps]
	if page == nil {
		page = new([pageSteps]stretchCount)
		t.pages[at/pageSteps] = page
		s.bytes += pageBytes
	}
	c := &page[at%pageSteps]
	c.all = uint32(min(uint64(c.all)+min(all, math.MaxUint32), math.MaxUint32))
	c.heavy = uint32(min(uint64(c.heavy)+min(heavy, math.MaxUint32), math.MaxUint32))
}

// thin forgets every other stretch, or more where those are forgotten already.
func (s *Stretches) thin() {
	if s.every *= 2; s.every > maxEvery {
		s.full = true
	}
	for number, cells := range s.kept {
		if !s.full && number%s.every == 0 {
			continue
		}
		delete(s.kept, number)
		for _, one := range cells {
			s.bytes -= seriesBytes + len(one.pages)*pointerBytes
			for _, page := range one.pages {
				if page != nil {
					s.bytes -= pageBytes
				}
			}
		}
	}
}

// Step is the length of a step.
func (s *Stretches) Step() time.Duration { return time.Duration(s.step) }

// Length is that of a stretch.
func (s *Stretches) Length() time.Duration { return time.Duration(s.length) }

// Full tells whether there was no memory for any stretch, so that none is left. Where time
// was observed in few places alone, it may be that none of them has a number that stays.
func (s *Stretches) Full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.every > 1 && len(s.kept) == 0
}

// Starts are those of the stretches in which anything was observed, ascending, Unix ns.
func (s *Stretches) Starts() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	starts := slices.Sorted(maps.Keys(s.kept))
	for i := range starts {
		starts[i] *= s.length
	}
	return starts
}

// Of are the steps of a cell in the stretch that begins at start, ascending.
func (s *Stretches) Of(start int64, sig csig.Signal, c aggregate.CellID) (list []StretchStep) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.kept[floorDiv(start, s.length)][aggregate.CellKey{Signal: sig, Kind: c.Kind, Src: c.Src, Dst: c.Dst}]
	if one == nil {
		return nil
	}
	for p, page := range one.pages {
		if page == nil {
			continue
		}
		for i, n := range page {
			if n.all > 0 {
				list = append(list, StretchStep{start + int64(p*pageSteps+i)*s.step, uint64(n.all), uint64(n.heavy)})
			}
		}
	}
	return list
}

// floorDiv is a / b, rounded down also before 1970.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
