package emitter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// tally adds up one cell, signal and source in one window.
type tally struct {
	observations, untouched, heavy, sum, heavySum uint64
	trimmed, inserted, agree                      uint64
	ports                                         []portTally // as met
}

// portTally is what tags named one location: a port, or locator metadata that is no
// single port's (see truth.named).
type portTally struct {
	port              int32
	all               uint64 // observations that name it
	heavy, sumOfHeavy uint64
}

func (a *tally) port(n int32) *portTally {
	for i := range a.ports {
		if a.ports[i].port == n {
			return &a.ports[i]
		}
	}
	a.ports = append(a.ports, portTally{port: n})
	return &a.ports[len(a.ports)-1]
}

func (a *tally) reset() { *a = tally{ports: a.ports[:0]} }

// count adds a value that names a location.
func (a *tally) count(value uint64, code uint32, location int32, heavy *codes) {
	p := a.port(location)
	p.all++
	if heavy.has(code) {
		a.heavy++
		a.heavySum += value
		p.heavy++
		p.sumOfHeavy += value
	}
}

// observe counts a tag (source 0) or a reflection (source 1) of a cell.
func (t *truth) observe(now int64, cell int32, m *mark, source int) {
	half, index := t.side(now), (int(cell)*len(t.signals)+int(m.signal))*2+source
	a := &t.halves[half][index]
	if t.watchful {
		t.watch(a, &t.faithful[half][index], m)
		return
	}
	s := &t.signals[m.signal]
	value := s.table.Value(m.code)
	a.observations++
	a.sum += value
	if m.writer == none {
		a.untouched++
		return
	}
	a.count(value, m.code, m.writer, &s.heavy[m.writer])
}

// watch counts what was written beside what a faithful fabric would have written.
func (t *truth) watch(a, faithful *tally, m *mark) {
	s := &t.signals[m.signal]
	if m.is(flagInserted) {
		a.inserted++
	} else {
		lm := uint16(0)
		if m.faithWriter != none {
			lm = s.metadata[m.faithWriter]
		}
		if m.code == m.faithCode() && m.lm&s.lmMask == lm&s.lmMask {
			a.agree++
		}
		faithful.add(s, m, m.faithCode(), m.faithWriter, m.faithWriter)
	}
	a.add(s, m, m.code, m.writer, s.named(m))
}

// add counts a mark by a code and who wrote it. Of trimmed packets only the number
// counts: their value is that of a part of the path.
func (a *tally) add(s *signal, m *mark, code uint32, writer, location int32) {
	a.observations++
	if m.is(flagTrimmed) {
		a.trimmed++
		return
	}
	value := s.table.Value(code)
	a.sum += value
	if writer == none || s.table.Raw(code) == s.table.Initial() {
		a.untouched++
		return
	}
	a.count(value, code, location, s.heavyAt(location))
}

// closeCell writes one cell, signal and source of the present window.
func (t *truth) closeCell(start time.Time, cell int32, signal, source int) error {
	index := (int(cell)*len(t.signals)+signal)*2 + source
	a := &t.halves[t.half][index]
	if a.observations == 0 {
		return nil
	}
	line := t.cellLine(start, cell, signal, source, a)
	if t.watchful {
		f := &t.faithful[t.half][index]
		m := t.mode(signal, f)
		line.Faithful = &TruthFaithful{Observations: f.observations, TruthMode: m}
		line.Agree = &a.agree
		defer f.reset()
	}
	defer a.reset()
	if err := t.json.Encode(line); err != nil {
		return fmt.Errorf("write truth: %w", err)
	}
	return nil
}

var sourceNames = [2]string{"tag", "reflection"}

func (t *truth) cellLine(start time.Time, cell int32, signal, source int, a *tally) TruthCell {
	racks := t.cells[cell]
	t.partials += uint64(len(a.ports))
	if a.untouched > 0 {
		t.partials++
	}
	return TruthCell{
		Kind: TruthCellKind, WindowStart: start, WindowNS: t.windowNS,
		Source: sourceNames[source], Signal: t.signals[signal].kind.String(),
		SrcGroup: t.topology.rackName(int(racks[0])), DstGroup: t.topology.rackName(int(racks[1])),
		Observations: a.observations, Trimmed: a.trimmed, Inserted: a.inserted, TruthMode: t.mode(signal, a),
	}
}

// mode is what a tally says of bottlenecks.
func (t *truth) mode(signal int, a *tally) TruthMode {
	line := TruthMode{Untouched: a.untouched, Heavy: a.heavy, Sum: a.sum, HeavySum: a.heavySum}
	if a.heavy == 0 {
		return line
	}
	best := slices.MinFunc(a.ports, func(x, y portTally) int { return t.compare(x, y, t.signals[signal].direction) })
	line.Ports = map[string]uint64{}
	for _, p := range a.ports {
		if p.heavy == 0 {
			continue
		}
		line.Ports[t.locationName(p.port)] = p.heavy
		if p.heavy == best.heavy {
			line.Ties = append(line.Ties, t.locationName(p.port))
		}
	}
	slices.Sort(line.Ties)
	if len(line.Ties) == 1 {
		line.Ties = nil
	}
	line.Bottleneck = t.locationName(best.port)
	if best.port >= 0 {
		line.Stage = t.topology.ports[best.port].stage
	}
	line.BottleneckCount = best.heavy
	line.BottleneckValue = float64(best.sumOfHeavy) / float64(best.heavy)
	return line
}

// locationName is a port, or "lm:N" for locator metadata that is no single port's.
func (t *truth) locationName(location int32) string {
	if location < 0 {
		return fmt.Sprintf("lm:%d", lmOf(location))
	}
	return t.topology.ports[location].name()
}

// compare orders ports as candidates for the mode, the mode first.
func (t *truth) compare(x, y portTally, d csig.Direction) int {
	if x.heavy != y.heavy || x.heavy == 0 {
		return cmp.Compare(y.heavy, x.heavy)
	}
	// Among equal counts the sums order as the means do.
	byMean := cmp.Compare(x.sumOfHeavy, y.sumOfHeavy)
	if d == csig.Max {
		byMean = -byMean
	}
	return cmp.Or(byMean, cmp.Compare(t.locationID(x.port), t.locationID(y.port)), cmp.Compare(x.port, y.port))
}

// locationID of locator metadata that is no port's comes after all ports'.
func (t *truth) locationID(location int32) aggregate.LocationID {
	if location < 0 {
		return ^aggregate.LocationID(0)
	}
	return t.location[location]
}
