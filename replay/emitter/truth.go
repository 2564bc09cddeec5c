package emitter

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

var storedUnits = map[csig.Unit]string{csig.BitPerSecond: "kbit/s", csig.Ratio: "ppm", csig.Nanosecond: "ns"}

// truth keeps what happens in the present window and in the next one: a port's last
// packet of a window is known only when it arrives at the next hop, a little after
// the window's end.
type truth struct {
	scenario *Scenario
	topology *topology
	signals  []signal
	cells    [][2]int32 // racks
	order    []int32    // of cells in the file
	location []aggregate.LocationID

	file   *os.File // nil without one
	header int      // bytes of its first line
	out    *bufio.Writer
	json   *json.Encoder

	windowNS int64
	startNS  int64 // Unix time of the simulation's start
	window   int64 // number of the present window since 1970
	end      int64 // of the present window, ps since the start
	grace    int64
	half     int // which of the two halves is the present one
	halves   [2][]tally
	partials uint64
}

// tally adds up one cell, signal and source in one window.
type tally struct {
	observations, untouched, heavy, sum, heavySum uint64
	ports                                         []portTally // as met
}

type portTally struct {
	port              int32
	all               uint64 // observations that the port wrote
	heavy, sumOfHeavy uint64
}

// newTruth keeps the truth to itself until it has a file.
func newTruth(s *Scenario, t *topology, signals []signal, cells [][2]int32) *truth {
	tr := &truth{
		scenario: s, topology: t, signals: signals, cells: cells,
		out:      bufio.NewWriter(io.Discard),
		windowNS: s.Window.Nanoseconds(), startNS: s.Start.UnixNano(), grace: ps(s.grace(t)),
	}
	tr.json = json.NewEncoder(tr.out)
	tr.window = tr.startNS / tr.windowNS
	tr.end = ((tr.window+1)*tr.windowNS - tr.startNS) * 1000
	for i := range tr.halves {
		tr.halves[i] = make([]tally, len(cells)*len(signals)*2)
	}
	for i := range cells {
		tr.order = append(tr.order, int32(i))
	}
	slices.SortFunc(tr.order, func(a, b int32) int {
		return slices.Compare(cells[a][:], cells[b][:])
	})
	for i := range t.ports {
		tr.location = append(tr.location, fabric.PortLocationID(t.ports[i].device, t.ports[i].port))
	}
	return tr
}

// side is which half an event at the time now belongs to.
func (t *truth) side(now int64) int {
	if now >= t.end {
		return t.half ^ 1
	}
	return t.half
}

// sent books a packet's time on a link, and its bytes in proportion.
func (t *truth) sent(p *port, from, to int64, bytes uint64) {
	first := &p.stats[t.half]
	switch {
	case to <= t.end:
		first.busy += to - from
		first.bytes += bytes
	case from >= t.end:
		p.stats[t.half^1].busy += to - from
		p.stats[t.half^1].bytes += bytes
	default:
		part := mulDiv(bytes, uint64(t.end-from), uint64(to-from))
		first.busy += t.end - from
		first.bytes += part
		p.stats[t.half^1].busy += to - t.end
		p.stats[t.half^1].bytes += bytes - part
	}
}

// observe counts a tag (source 0) or a reflection (source 1) of a cell.
func (t *truth) observe(now int64, cell int32, m *mark, source int) {
	a := &t.halves[t.side(now)][(int(cell)*len(t.signals)+int(m.signal))*2+source]
	s := &t.signals[m.signal]
	value := s.table.Value(m.code)
	a.observations++
	a.sum += value
	if m.writer == none {
		a.untouched++
		return
	}
	p := a.port(m.writer)
	p.all++
	if s.heavy[m.writer].has(m.code) {
		a.heavy++
		a.heavySum += value
		p.heavy++
		p.sumOfHeavy += value
	}
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

// due tells whether the present window can be written.
func (t *truth) due(now int64) bool { return now >= t.end+t.grace }

// closeWindow writes the present window and turns to the next.
func (t *truth) closeWindow(ports []port) error {
	start := time.Unix(0, t.window*t.windowNS).UTC()
	half := t.halves[t.half]
	for _, cell := range t.order {
		for i := range t.signals {
			for source := range 2 {
				a := &half[(int(cell)*len(t.signals)+i)*2+source]
				if a.observations == 0 {
					continue
				}
				line := t.cellLine(start, cell, i, source, a)
				if err := t.json.Encode(line); err != nil {
					return fmt.Errorf("write truth: %w", err)
				}
				a.reset()
			}
		}
	}
	for i := range t.topology.ports {
		stats := &ports[i].stats[t.half]
		if err := t.json.Encode(t.portLine(start, i, stats)); err != nil {
			return fmt.Errorf("write truth: %w", err)
		}
	}
	for i := range ports {
		ports[i].stats[t.half] = portStats{}
	}
	t.half ^= 1
	t.window++
	t.end += t.windowNS * 1000
	return nil
}

var sourceNames = [2]string{"tag", "reflection"}

func (t *truth) cellLine(start time.Time, cell int32, signal, source int, a *tally) TruthCell {
	racks := t.cells[cell]
	line := TruthCell{
		Kind: TruthCellKind, WindowStart: start, WindowNS: t.windowNS,
		Source: sourceNames[source], Signal: t.signals[signal].kind.String(),
		SrcGroup: t.topology.rackName(int(racks[0])), DstGroup: t.topology.rackName(int(racks[1])),
		Observations: a.observations, Untouched: a.untouched, Heavy: a.heavy, Sum: a.sum, HeavySum: a.heavySum,
	}
	t.partials += uint64(len(a.ports))
	if a.untouched > 0 {
		t.partials++
	}
	if a.heavy == 0 {
		return line
	}
	best := slices.MinFunc(a.ports, func(x, y portTally) int { return t.compare(x, y, t.signals[signal].direction) })
	line.Ports = map[string]uint64{}
	for _, p := range a.ports {
		if p.heavy == 0 {
			continue
		}
		line.Ports[t.topology.ports[p.port].name()] = p.heavy
		if p.heavy == best.heavy {
			line.Ties = append(line.Ties, t.topology.ports[p.port].name())
		}
	}
	slices.Sort(line.Ties)
	if len(line.Ties) == 1 {
		line.Ties = nil
	}
	line.Bottleneck, line.Stage = t.topology.ports[best.port].name(), t.topology.ports[best.port].stage
	line.BottleneckCount = best.heavy
	line.BottleneckValue = float64(best.sumOfHeavy) / float64(best.heavy)
	return line
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
	return cmp.Or(byMean, cmp.Compare(t.location[x.port], t.location[y.port]))
}

func (t *truth) portLine(start time.Time, i int, s *portStats) TruthPort {
	p := &t.topology.ports[i]
	return TruthPort{
		Kind: TruthPortKind, WindowStart: start, Port: p.name(), Bytes: s.bytes, CapacityKbps: uint64(p.speed),
		Load: float64(s.busy) / float64(t.windowNS*1000), Drops: s.drops, MaxQueueBytes: s.maxQueue,
	}
}
