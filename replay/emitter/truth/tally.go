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

// Tag is a packet's tag or reflection, together with its writer, which real packets do not carry.
type Tag struct {
	Code   uint32 // index in the quantization table
	Writer int32  // last port that replaced the tag; scenario.None if untouched
	// The tag that a faithful fabric would have written, kept if any port is unfaithful, and flags,
	// of which only the D bit, the reserved bits and a second tag are in packets.
	Faith       uint32 // code in the low bits, flags above
	FaithWriter int32
	LM          uint16
	Signal      uint8 // index in Scenario.Signals
	Set         bool  // the packet carries a tag or reflection
}

// Flags of Tag.Faith, above the 20 bits of codes.
const (
	FlagTrimmed  = 1 << 31 // the D bit
	FlagCut      = 1 << 30 // trimmed by the present queue
	FlagInserted = 1 << 29 // the tag has no sender
	FlagReserved = 1 << 28 // a reserved bit is set
	FlagDoubled  = 1 << 27 // another tag precedes this one
	faithBits    = 1<<20 - 1
)

// Is reports whether the tag has the flag.
func (m *Tag) Is(flag uint32) bool { return m.Faith&flag != 0 }

// FaithCode returns the code that a faithful fabric would have written.
func (m *Tag) FaithCode() uint32 { return m.Faith & faithBits }

// SetFaith sets the code that a faithful fabric would have written, and its writer.
func (m *Tag) SetFaith(code uint32, writer int32) {
	m.Faith, m.FaithWriter = m.Faith&^faithBits|code, writer
}

// SameOnWire reports whether two tags look the same to receivers.
func (m *Tag) SameOnWire(o *Tag) bool {
	return m.Set == o.Set && m.Code == o.Code && m.LM == o.LM && m.Signal == o.Signal &&
		(m.Writer == scenario.None) == (o.Writer == scenario.None) && m.Is(FlagTrimmed) == o.Is(FlagTrimmed) &&
		m.Is(FlagReserved) == o.Is(FlagReserved)
}

// Forged is the writer of a tag whose sender wrote a value other than the initial one.
const Forged = -2

// tally sums up one cell, signal and source in one window.
type tally struct {
	observations, untouched, heavy, sum, heavySum uint64
	trimmed, inserted, agree                      uint64
	ports                                         []portTally // in order of first appearance
}

// portTally counts the tags that name one location: a port, or a locator metadata value that
// belongs to no single port (see named).
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

// count adds a value whose tag names a location.
func (a *tally) count(value uint64, code uint32, location int32, heavy scenario.CodeRange) {
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
func (t *Recorder) Observe(now int64, cell int32, m *Tag, source int) {
	side, index := t.Side(now), (int(cell)*len(t.signals)+int(m.Signal))*2+source
	a := &t.sides[side][index]
	if t.watchful {
		t.watch(a, &t.faithful[side][index], m)
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
	a.count(value, m.Code, m.Writer, s.Heavy[m.Writer])
}

// watch counts a tag as written and as a faithful fabric would have written it.
func (t *Recorder) watch(a, faithful *tally, m *Tag) {
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
		faithful.add(s, m, m.FaithCode(), m.FaithWriter, lm)
	}
	a.add(s, m, m.Code, m.Writer, m.LM)
}

// add counts a tag with the given code, writer and LM. Trimmed packets are only counted, since
// their value covers just a part of the path.
func (a *tally) add(s *scenario.Signal, m *Tag, code uint32, writer int32, lm uint16) {
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
	location, heavy := named(s, writer, lm)
	a.count(value, code, location, heavy)
}

// closeCell writes one cell, signal and source of the present window.
func (t *Recorder) closeCell(start time.Time, cell int32, signal, source int) error {
	index := (int(cell)*len(t.signals)+signal)*2 + source
	a := &t.sides[t.side][index]
	if a.observations == 0 {
		return nil
	}
	line := t.cellLine(start, cell, signal, source, a)
	if t.watchful {
		f := &t.faithful[t.side][index]
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

// mode returns the bottleneck mode of a tally.
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

// locationName returns the port's name, or "lm:N" for locator metadata that belongs to no single
// port.
func (t *Recorder) locationName(location int32) string {
	if location < 0 {
		return fmt.Sprintf("lm:%d", uint16(lmBase-location))
	}
	return t.topology.Ports[location].Name()
}

// compare orders ports as candidates for the mode, the mode first.
func (t *Recorder) compare(x, y portTally, d csig.Direction) int {
	if x.heavy != y.heavy || x.heavy == 0 {
		return cmp.Compare(y.heavy, x.heavy)
	}
	// With equal counts, the order of sums is the order of means.
	byMean := cmp.Compare(x.sumOfHeavy, y.sumOfHeavy)
	if d == csig.Max {
		byMean = -byMean
	}
	return cmp.Or(byMean, cmp.Compare(t.locationID(x.port), t.locationID(y.port)), cmp.Compare(x.port, y.port))
}

// locationID sorts locator metadata without a single port after all ports.
func (t *Recorder) locationID(location int32) aggregate.LocationID {
	if location < 0 {
		return ^aggregate.LocationID(0)
	}
	return t.location[location]
}

// lmBase is the highest location that is not a single port: locator metadata N has location
// lmBase-N.
const lmBase = -16

// named returns the location that a tag names and the heavy codes there: its writer, if the writer
// used its configured LM, else the only port configured with that LM.
func named(s *scenario.Signal, writer int32, lm uint16) (location int32, heavy scenario.CodeRange) {
	if lm &= s.LmMask; writer >= 0 && s.Metadata[writer]&s.LmMask == lm {
		return writer, s.Heavy[writer]
	}
	port, heavy := s.Named(lm)
	if port == scenario.SeveralPorts {
		port = lmBase - int32(lm)
	}
	return port, heavy
}
