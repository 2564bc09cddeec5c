package table

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// worstSpans is how many pieces the sliding range of a Worst is made of: it forgets a
// piece at a time.
const worstSpans = 6

// Worst follows which locations heavily loaded packets name most, over a sliding range
// of closed windows of one resolution: what alerts look at. It is a Sink, safe for
// concurrent use. Its memory is bounded whatever the traffic is.
type Worst struct {
	resolution int64
	span       int64 // ns
	maxKeys    int

	mu    sync.Mutex
	spans [worstSpans]worstSpan // by number modulo worstSpans
}

// worstSpan adds up the windows that begin in one piece of time.
type worstSpan struct {
	number    int64 // of the piece since 1970
	totals    map[signalKind]worstTotal
	locations map[worstKey]uint64 // heavy observations
}

type worstTotal struct{ observations, heavy uint64 }

type signalKind struct {
	signal csig.Signal
	kind   decode.Kind
}

type worstKey struct {
	signalKind
	location aggregate.LocationID
}

// WorstSignal is what a signal's observations of one kind came to. Tags and reflections
// measure the same paths, and are never added up.
type WorstSignal struct {
	Signal              csig.Signal
	Kind                decode.Kind
	Observations, Heavy uint64
	Locations           []WorstLocation // most heavy observations first, then lower location
}

// WorstLocation is a location and the heavy observations that name it.
type WorstLocation struct {
	Location aggregate.LocationID
	Heavy    uint64
}

// NewWorst makes a Worst of the blocks at the resolution, over about the last length of
// time: between 5/6 of it and all of it. It holds at most maxKeys locations and signals
// in each sixth; what comes after those counts for OverflowLocation.
func NewWorst(resolution, length time.Duration, maxKeys int) *Worst {
	return &Worst{resolution: int64(resolution), span: max(int64(length)/worstSpans, int64(resolution)), maxKeys: maxKeys}
}

// WriteBlock adds the block's rows, if it is of the resolution and not from before the
// range. It never fails.
func (w *Worst) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if b.Resolution != w.resolution || b.WindowStart < 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.at(b.WindowStart / w.span)
	if s == nil {
		return nil
	}
	for i := range b.Len() {
		k := signalKind{csig.Signal(b.Signal[i]), decode.Kind(b.Kind[i])}
		if !k.signal.HasValue() {
			continue
		}
		total := s.totals[k]
		total.observations = aggregate.AddSat(total.observations, b.Observations[i])
		total.heavy = aggregate.AddSat(total.heavy, b.Heavy[i])
		s.totals[k] = total
		if b.Heavy[i] > 0 && k.signal.Aggregation().Locates() && aggregate.LocationID(b.Location[i]) != aggregate.NoLocation {
			s.add(worstKey{k, aggregate.LocationID(b.Location[i])}, b.Heavy[i], w.maxKeys)
		}
	}
	return nil
}

// at is the piece of that number, nil when time has gone on to a later one.
func (w *Worst) at(number int64) *worstSpan {
	s := &w.spans[number%worstSpans]
	switch {
	case s.totals != nil && number < s.number:
		return nil
	case s.totals == nil || number > s.number:
		*s = worstSpan{number: number, totals: make(map[signalKind]worstTotal), locations: make(map[worstKey]uint64)}
	}
	return s
}

func (s *worstSpan) add(k worstKey, heavy uint64, maxKeys int) {
	if _, ok := s.locations[k]; !ok && len(s.locations) >= maxKeys {
		k.location = aggregate.OverflowLocation
	}
	s.locations[k] = aggregate.AddSat(s.locations[k], heavy)
}

// Top gives the n worst locations of each signal in the range that ends at a time (Unix
// ns, by the clock that the windows' times come from), ordered by signal and kind. A
// signal without an observation in the range is not there.
func (w *Worst) Top(now int64, n int) []WorstSignal {
	last := now / w.span
	totals := make(map[signalKind]worstTotal)
	locations := make(map[worstKey]uint64)
	w.mu.Lock()
	for i := range w.spans {
		s := &w.spans[i]
		if s.totals == nil || s.number > last || s.number <= last-worstSpans {
			continue
		}
		for k, t := range s.totals {
			sum := totals[k]
			sum.observations = aggregate.AddSat(sum.observations, t.observations)
			sum.heavy = aggregate.AddSat(sum.heavy, t.heavy)
			totals[k] = sum
		}
		for k, heavy := range s.locations {
			locations[k] = aggregate.AddSat(locations[k], heavy)
		}
	}
	w.mu.Unlock()
	signals := make(map[signalKind]*WorstSignal, len(totals))
	for k, t := range totals {
		signals[k] = &WorstSignal{Signal: k.signal, Kind: k.kind, Observations: t.observations, Heavy: t.heavy}
	}
	for k, heavy := range locations {
		at := signals[k.signalKind]
		at.Locations = append(at.Locations, WorstLocation{Location: k.location, Heavy: heavy})
	}
	return sortWorst(signals, n)
}

func sortWorst(signals map[signalKind]*WorstSignal, n int) []WorstSignal {
	out := make([]WorstSignal, 0, len(signals))
	for _, s := range signals {
		slices.SortFunc(s.Locations, func(a, b WorstLocation) int {
			return cmp.Or(cmp.Compare(b.Heavy, a.Heavy), cmp.Compare(a.Location, b.Location))
		})
		s.Locations = s.Locations[:min(n, len(s.Locations))]
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b WorstSignal) int {
		return cmp.Or(cmp.Compare(a.Signal, b.Signal), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}
