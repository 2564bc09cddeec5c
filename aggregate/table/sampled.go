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

// SampledSeries counts the observations of cells in short steps, in sampled stretches of a range of
// any length, to show fast periods. It is an aggregate.Sink of the blocks of one resolution, safe
// for concurrent use.
//
// It is no Table because it must not widen: a period that is shorter than a step cannot be found.
// At its bounds it thins instead. Stretches of equal length are numbered by time; if there are too
// many, or they take too much memory, only those remain whose number is a multiple of 2, then of 4,
// and so on. So the choice depends on the blocks alone, and not on their order.
type SampledSeries struct {
	resolution   time.Duration
	step, length int64 // ns
	most         int   // stretches
	limit        int   // bytes

	mu    sync.Mutex
	every int64 // held stretches have multiples of it as numbers, a power of 2
	held  map[int64]map[aggregate.CellKey]series
	bytes int // of all, approximately
}

// SampledStep is the number of observations of a cell in a step. Steps without an observation are
// left out.
type SampledStep struct {
	Start               int64 // Unix ns
	Observations, Heavy uint64
}

// series are the steps of a cell in a stretch, in pages that are allocated at their first
// observation.
type series []*[pageSteps]seriesCount

// seriesCount saturates instead of wrapping.
type seriesCount struct{ all, heavy uint32 }

// Memory use of a SampledSeries.
const (
	pageSteps    = 64
	pageBytes    = pageSteps * 8
	pointerBytes = 8
	seriesBytes  = 128 // of a cell's series, with the empty slots of its map

	maxEvery = 1 << 40 // if not even one of that many stretches fits, none does
)

// NewSampledSeries makes a SampledSeries for blocks at the resolution. A stretch has that many steps, at least 1, each
// a multiple of the resolution. It holds at most that many stretches, in about limit bytes.
func NewSampledSeries(resolution, step time.Duration, steps, most, limit int) *SampledSeries {
	return &SampledSeries{
		resolution: resolution, step: int64(step), length: int64(step) * int64(max(steps, 1)), most: most, limit: limit,
		every: 1, held: make(map[int64]map[aggregate.CellKey]series),
	}
}

// WriteBlock adds the block's rows, if they are in a held stretch. It never fails.
func (s *SampledSeries) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if b.Resolution != int64(s.resolution) || b.Len() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	number := floorDiv(b.WindowStart, s.length)
	if s.every > maxEvery || number%s.every != 0 {
		return nil
	}
	cells := s.held[number]
	if cells == nil {
		cells = make(map[aggregate.CellKey]series)
		s.held[number] = cells
	}
	at := int((b.WindowStart - number*s.length) / s.step)
	for i := range b.Len() {
		if csig.Signal(b.Signal[i]).HasValue() {
			c := s.count(cells, b.Cell(i), at)
			c.all = uint32(min(uint64(c.all)+min(b.Observations[i], math.MaxUint32), math.MaxUint32))
			c.heavy = uint32(min(uint64(c.heavy)+min(b.Heavy[i], math.MaxUint32), math.MaxUint32))
		}
	}
	for s.every <= maxEvery && (len(s.held) > s.most || s.bytes > s.limit) {
		s.thin()
	}
	return nil
}

// count returns the counter of a cell in a step of a stretch.
func (s *SampledSeries) count(cells map[aggregate.CellKey]series, k aggregate.CellKey, at int) *seriesCount {
	one := cells[k]
	if one == nil {
		one = make(series, (s.length/s.step+pageSteps-1)/pageSteps)
		cells[k] = one
		s.bytes += seriesBytes + len(one)*pointerBytes
	}
	if one[at/pageSteps] == nil {
		one[at/pageSteps] = new([pageSteps]seriesCount)
		s.bytes += pageBytes
	}
	return &one[at/pageSteps][at%pageSteps]
}

// thin forgets every other held stretch; at last all.
func (s *SampledSeries) thin() {
	s.every *= 2
	for number, cells := range s.held {
		if s.every <= maxEvery && number%s.every == 0 {
			continue
		}
		delete(s.held, number)
		for _, one := range cells {
			s.bytes -= seriesBytes + len(one)*pointerBytes
			for _, page := range one {
				if page != nil {
					s.bytes -= pageBytes
				}
			}
		}
	}
}

// Step returns the length of a step.
func (s *SampledSeries) Step() time.Duration { return time.Duration(s.step) }

// Length returns the duration of a stretch.
func (s *SampledSeries) Length() time.Duration { return time.Duration(s.length) }

// Full reports whether there was no memory for any stretch, so that none is left. If only few
// stretches have observations, it may be that none of them has a number that remains.
func (s *SampledSeries) Full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.every > 1 && len(s.held) == 0
}

// Starts returns the starts of the stretches with observations, ascending, Unix ns.
func (s *SampledSeries) Starts() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	starts := slices.Sorted(maps.Keys(s.held))
	for i := range starts {
		starts[i] *= s.length
	}
	return starts
}

// Of returns the steps of a cell in the stretch that begins at start, ascending.
func (s *SampledSeries) Of(start int64, sig csig.Signal, c aggregate.CellID) (list []SampledStep) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.held[floorDiv(start, s.length)][aggregate.CellKey{Signal: sig, Kind: c.Kind, Src: c.Src, Dst: c.Dst}]
	for p, page := range one {
		if page == nil {
			continue
		}
		for i, n := range page {
			if n.all > 0 {
				list = append(list, SampledStep{start + int64(p*pageSteps+i)*s.step, uint64(n.all), uint64(n.heavy)})
			}
		}
	}
	return list
}

// floorDiv returns a / b, rounded down also before 1970.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
