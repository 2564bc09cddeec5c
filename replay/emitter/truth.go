package emitter

import (
	"bufio"
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
	faithful [2][]tally // of what a faithful fabric would have written; watchful runs only
	watchful bool
	partials uint64
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
	tr.watchful = s.watchful()
	if tr.watchful {
		for i := range tr.faithful {
			tr.faithful[i] = make([]tally, len(cells)*len(signals)*2)
		}
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

// due tells whether the present window can be written.
func (t *truth) due(now int64) bool { return now >= t.end+t.grace }

// closeWindow writes the present window and turns to the next.
func (t *truth) closeWindow(ports []port) error {
	start := time.Unix(0, t.window*t.windowNS).UTC()
	for _, cell := range t.order {
		for i := range t.signals {
			for source := range 2 {
				if err := t.closeCell(start, cell, i, source); err != nil {
					return err
				}
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

func (t *truth) portLine(start time.Time, i int, s *portStats) TruthPort {
	p := &t.topology.ports[i]
	return TruthPort{
		Kind: TruthPortKind, WindowStart: start, Port: p.name(), Bytes: s.bytes, CapacityKbps: uint64(p.speed),
		Load: float64(s.busy) / float64(t.windowNS*1000), Drops: s.drops, MaxQueueBytes: s.maxQueue,
		Trimmed: s.trimmed, Discards: s.discards, Stripped: s.stripped, Inserted: s.inserted,
	}
}
