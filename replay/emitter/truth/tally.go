package truth

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// Mark is the tag or the reflection that a packet carries, with the memory of who
// wrote it, which no packet has.
type Mark struct {
	Code   uint32 // of the quantization table
	Writer int32  // port that replaced the tag last; scenario.None if it is untouched
	// What a faithful fabric would have written, kept where any port is not, and flags:
	// the D bit and others that no packet has.
	Faith       uint32 // code in the low bits
	FaithWriter int32
	LM          uint16
	Signal      uint8 // index in Scenario.Signals
	Set         bool  // the packet carries one
}

// Flags of Mark.Faith, above the 20 bits of codes.
const (
	FlagTrimmed  = 1 << 31 // the D bit
	FlagCut      = 1 << 30 // trimmed by the queue that it is in
	FlagInserted = 1 << 29 // no sender made the tag
	FlagReserved = 1 << 28 // a reserved bit is set
	FlagDoubled  = 1 << 27 // another tag stands before it
	faithBits    = 1<<20 - 1
)

// Is tells whether the mark has a flag.
func (m *Mark) Is(flag uint32) bool { return m.Faith&flag != 0 }

// FaithCode is the code that a faithful fabric would have written.
func (m *Mark) FaithCode() uint32 { return m.Faith & faithBits }

// SetFaith sets the code that a faithful fabric would have written, and its writer.
func (m *Mark) SetFaith(code uint32, writer int32) {
	m.Faith, m.FaithWriter = m.Faith&^faithBits|code, writer
}

// SameOnWire tells whether receivers can tell two marks apart.
func (m *Mark) SameOnWire(o *Mark) bool {
	return m.Set == o.Set && m.Code == o.Code && m.LM == o.LM && m.Signal == o.Signal &&
		(m.Writer == scenario.None) == (o.Writer == scenario.None) && m.Is(FlagTrimmed) == o.Is(FlagTrimmed) &&
		m.Is(FlagReserved) == o.Is(FlagReserved)
}

// Forged is the writer of a tag whose sender did not write the initial value.
const Forged = -2

// tally adds up one cell, signal and source in one window.
type tally struct {
	observations, untouched, heavy, sum, heavySum uint64
	trimmed, inserted, agree                      uint64
	ports                                         []portTally // as met
}

// portTally is what tags named one location: a port, or locator metadata that is no
// single port's (see named).
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
func (a *tally) count(value uint64, code uint32, location int32, heavy *scenario.CodeRange) {
	p := a.port(location)
	p.all++
	if heavy.Has(code) {
		a.heavy++
		a.heavySum += value
		p.heavy++
		p.sumOfHeavy += value
	}
}

// Observe counts a tag (source 0) or a reflection (source 1) of a cell.
func (t *Recorder) Observe(now int64, cell int32, m *Mark, source int) {
	half, index := t.Side(now), (int(cell)*len(t.signals)+int(m.Signal))*2+source
	a := &t.halves[half][index]
	if t.watchful {
		t.watch(a, &t.faithful[half][index], m)
		return
	}
	s := &t.signals[m.Signal]
	value := s.Table.Value(m.Code)
	a.observations++
	a.sum += value
	if m.Writer == scenario.None {
		a.untouched++
		return
	}
	a.count(value, m.Code, m.Writer, &s.Heavy[m.Writer])
}

// watch counts what was written beside what a faithful fabric would have written.
func (t *Recorder) watch(a, faithful *tally, m *Mark) {
	s := &t.signals[m.Signal]
	if m.Is(FlagInserted) {
		a.inserted++
	} else {
		lm := uint16(0)
		if m.FaithWriter != scenario.None {
			lm = s.Metadata[m.FaithWriter]
		}
		if m.Code == m.FaithCode() && m.LM&s.LmMask == lm&s.LmMask {
			a.agree++
		}
		faithful.add(s, m, m.FaithCode(), m.FaithWriter, m.FaithWriter)
	}
	a.add(s, m, m.Code, m.Writer, named(s, m))
}

// add counts a mark by a code and who wrote it. Of trimmed packets only the number
// counts: their value is that of a part of the path.
func (a *tally) add(s *scenario.Signal, m *Mark, code uint32, writer, location int32) {
	a.observations++
	if m.Is(FlagTrimmed) {
		a.trimmed++
		return
	}
	value := s.Table.Value(code)
	a.sum += value
	if writer == scenario.None || s.Table.Raw(code) == s.Table.Initial() {
		a.untouched++
		return
	}
	a.count(value, code, location, s.HeavyAt(location))
}

// closeCell writes one cell, signal and source of the present window.
func (t *Recorder) closeCell(start time.Time, cell int32, signal, source int) error {
	index := (int(cell)*len(t.signals)+signal)*2 + source
	a := &t.halves[t.half][index]
	if a.observations == 0 {
		return nil
	}
	line := t.cellLine(start, cell, signal, source, a)
	if t.watchful {
		f := &t.faithful[t.half][index]
		m := t.mode(signal, f)
		line.Faithful = &Faithful{Observations: f.observations, Mode: m}
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

func (t *Recorder) cellLine(start time.Time, cell int32, signal, source int, a *tally) Cell {
	racks := t.cells[cell]
	t.Partials += uint64(len(a.ports))
	if a.untouched > 0 {
		t.Partials++
	}
	return Cell{
		Kind: CellKind, WindowStart: start, WindowNS: t.windowNS,
		Source: sourceNames[source], Signal: t.signals[signal].Kind.String(),
		SrcGroup: t.topology.RackName(int(racks[0])), DstGroup: t.topology.RackName(int(racks[1])),
		Observations: a.observations, Trimmed: a.trimmed, Inserted: a.inserted, Mode: t.mode(signal, a),
	}
}

// mode is what a tally says of bottlenecks.
func (t *Recorder) mode(signal int, a *tally) Mode {
	line := Mode{Untouched: a.untouched, Heavy: a.heavy, Sum: a.sum, HeavySum: a.heavySum}
	if a.heavy == 0 {
		return line
	}
	best := slices.MinFunc(a.ports, func(x, y portTally) int { return t.compare(x, y, t.signals[signal].Direction) })
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
		line.Stage = t.topology.Ports[best.port].Stage
	}
	line.BottleneckCount = best.heavy
	value := float64(best.sumOfHeavy) / float64(best.heavy)
	line.BottleneckValue = &value
	return line
}

// locationName is a port, or "lm:N" for locator metadata that is no single port's.
func (t *Recorder) locationName(location int32) string {
	if location < 0 {
		return fmt.Sprintf("lm:%d", lmOf(location))
	}
	return t.topology.Ports[location].Name()
}

// compare orders ports as candidates for the mode, the mode first.
func (t *Recorder) compare(x, y portTally, d csig.Direction) int {
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
func (t *Recorder) locationID(location int32) aggregate.LocationID {
	if location < 0 {
		return ^aggregate.LocationID(0)
	}
	return t.location[location]
}

// lmBase and below are locations that are no single port: lmBase minus the locator
// metadata.
const lmBase = -16

func lmOf(location int32) uint16 { return uint16(lmBase - location) }

// named is the location that a tag names: the port that wrote it, if it wrote what it
// is configured with, otherwise the only port that is configured with the LM.
func named(s *scenario.Signal, m *Mark) int32 {
	lm := m.LM & s.LmMask
	if m.Writer >= 0 && s.Metadata[m.Writer]&s.LmMask == lm {
		return m.Writer
	}
	if p, ok := s.ByLM[lm]; ok && p != scenario.SeveralPorts {
		return p
	}
	return lmBase - int32(lm)
}
