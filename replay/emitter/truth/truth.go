// Package truth records the simulation's true state, writes it to File, and reads it back. It knows
// the lines of that file. It must never know frames, nor how observations are aggregated or stored:
// tests compare those packages with it.
//
// File has one JSON object per line; Read parses it. In order:
//
//   - kind header (Header): the scenario, the units, and a definition of each number.
//   - kind device and fault (Behavior): one for each port that differs from a complete device's, or
//     host that forges tags, with from and to.
//   - for each window, kind cell (Cell): the tags and reflections of one signal between two racks
//     as written, after quantization and faults, with the resulting mode of the bottleneck. If a
//     device may be unfaithful or trim packets, each line also has faithful, the senders' tags as
//     complete devices would have written them with the same queues (the true bottleneck),
//     and agree, the number of observations in which both are equal. A tag that names no configured
//     port is counted at "lm:N". Stripped and discarded tags yield no observation; ports count
//     them.
//   - then kind physical (Physical): for each cell, the tightest port by the ports' own state. If
//     it contradicts the cell's lines, the reason is a device, another estimate of bandwidth, or
//     averaging over other intervals.
//   - then kind port (Port): load, bytes, longest queue, and the number of packets that were
//     dropped, trimmed, discarded, stripped of their tag or given one.
//   - at the end, kind flow (Flow): the ports on the path of each connection's data and
//     acknowledgements, and the fate of its packets.
//
// Memory is bounded by the scenario's cells, ports and flows: only two windows are kept at a time.
package truth

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/exact"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

var storedUnits = map[csig.Unit]string{csig.BitPerSecond: "kbit/s", csig.Ratio: "ppm", csig.Nanosecond: "ns"}

// Recorder records the present window and the next one. A port's last packet of a window is known
// only when it arrives at the next hop, shortly after the window's end.
type Recorder struct {
	scenario *scenario.Scenario
	topology *scenario.Topology
	signals  []scenario.Signal
	cells    [][2]int32 // pairs of racks
	order    []int32    // cells in file order
	location []aggregate.LocationID

	file   *os.File // nil if there is none
	header int      // length of the first line in bytes
	out    *bufio.Writer
	json   *json.Encoder

	windowNS int64
	startNS  int64 // Unix time of the simulation's start
	window   int64 // number of the present window since 1970
	End      int64 // end of the present window, ps since the start
	grace    int64
	side     int // 0 or 1: where the present window is counted; the next one is counted in the other
	sides    [2][]tally
	faithful [2][]tally // tags of a faithful fabric; watchful runs only
	watchful bool
	tightest []tightest // by cell
	Partials uint64
}

// New returns a recorder that discards its lines until Create gives it a file.
func New(s *scenario.Scenario, t *scenario.Topology, signals []scenario.Signal, cells [][2]int32) *Recorder {
	tr := &Recorder{
		scenario: s, topology: t, signals: signals, cells: cells,
		out:      bufio.NewWriter(io.Discard),
		windowNS: s.Window.Nanoseconds(), startNS: s.Start.UnixNano(), grace: exact.Picoseconds(s.Grace(t)),
	}
	tr.json = json.NewEncoder(tr.out)
	tr.window = tr.startNS / tr.windowNS
	tr.End = ((tr.window+1)*tr.windowNS - tr.startNS) * 1000
	for i := range tr.sides {
		tr.sides[i] = make([]tally, len(cells)*len(signals)*2)
	}
	tr.watchful = s.Watchful()
	if tr.watchful {
		for i := range tr.faithful {
			tr.faithful[i] = make([]tally, len(cells)*len(signals)*2)
		}
	}
	tr.tightest = make([]tightest, len(cells))
	for i := range cells {
		tr.order = append(tr.order, int32(i))
	}
	slices.SortFunc(tr.order, func(a, b int32) int {
		return slices.Compare(cells[a][:], cells[b][:])
	})
	for i := range t.Ports {
		tr.location = append(tr.location, fabric.PortLocationID(t.Ports[i].Device, t.Ports[i].Port))
	}
	return tr
}

// Side returns where an event at time now is counted, 0 or 1: windows take turns, and only the present
// one and the next are open.
func (t *Recorder) Side(now int64) int {
	if now >= t.End {
		return t.side ^ 1
	}
	return t.side
}

// Sent adds a packet's time on a link, and its bytes in proportion to the time in each window.
func (t *Recorder) Sent(p *[2]PortStats, from, to int64, bytes uint64) {
	first := &p[t.side]
	switch {
	case to <= t.End:
		first.busy += to - from
		first.bytes += bytes
	case from >= t.End:
		p[t.side^1].busy += to - from
		p[t.side^1].bytes += bytes
	default:
		part := exact.MulDiv(bytes, uint64(t.End-from), uint64(to-from))
		first.busy += t.End - from
		first.bytes += part
		p[t.side^1].busy += to - t.End
		p[t.side^1].bytes += bytes - part
	}
}

// Due reports whether the present window is complete.
func (t *Recorder) Due(now int64) bool { return now >= t.End+t.grace }

// CloseWindow writes the present window and moves to the next. counts returns a port's counts:
// switch ports come first, then host interfaces, which the file leaves out. paths yields
// each cell of the window with the switch ports that its packets entered, in path order.
func (t *Recorder) CloseWindow(counts func(port int) *[2]PortStats, paths iter.Seq2[int32, []int32]) error {
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
	if err := t.closePhysical(start, paths, counts); err != nil {
		return err
	}
	for i := range t.topology.Ports {
		stats := &counts(i)[t.side]
		if err := t.json.Encode(t.portLine(start, i, stats)); err != nil {
			return fmt.Errorf("write truth: %w", err)
		}
	}
	for i := range len(t.topology.Ports) + len(t.topology.NICs) {
		counts(i)[t.side] = PortStats{}
	}
	t.side ^= 1
	t.window++
	t.End += t.windowNS * 1000
	return nil
}

func (t *Recorder) portLine(start time.Time, i int, s *PortStats) Port {
	p := &t.topology.Ports[i]
	return Port{
		Kind: PortKind, WindowStart: start, Port: p.Name(), Bytes: s.bytes, CapacityKbps: uint64(p.Speed),
		Load: float64(s.busy) / float64(t.windowNS*1000), Drops: s.Drops, MaxQueueBytes: s.MaxQueue,
		Trimmed: s.Trimmed, Discards: s.Discards, Stripped: s.Stripped, Inserted: s.Inserted,
	}
}

// FileBuffer is the write buffer of a file in bytes.
const FileBuffer = 1 << 20

// Create directs the truth's lines to a file.
func (t *Recorder) Create(path string, taps []Tap) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create truth: %w", err)
	}
	t.file, t.out = file, bufio.NewWriterSize(file, FileBuffer)
	t.json = json.NewEncoder(t.out)
	line, err := t.headerLine(taps, 0)
	if err != nil {
		return err
	}
	t.header = len(line) + len(taps)*tapCounts*maxDigits
	line, err = t.headerLine(taps, t.header)
	if err != nil {
		return err
	}
	if _, err := t.out.Write(line); err != nil {
		return fmt.Errorf("write truth: %w", err)
	}
	return nil
}

// Room for a tap's counts to grow in the header.
const (
	tapCounts = 5
	maxDigits = 20
)

// headerLine returns the first line of the file, padded with blanks to size. Close overwrites it
// with the taps' final counts.
func (t *Recorder) headerLine(taps []Tap, size int) ([]byte, error) {
	line, err := json.Marshal(newHeader(t.scenario, taps))
	if err != nil {
		return nil, fmt.Errorf("write truth: %w", err)
	}
	line = append(line, bytes.Repeat([]byte{' '}, max(size-len(line)-1, 0))...)
	return append(line, '\n'), nil
}

// Close writes the taps' counts into the header and closes the file, if there is one.
func (t *Recorder) Close(taps []Tap) error {
	if t.file == nil {
		return nil
	}
	err := t.out.Flush()
	if line, bad := t.headerLine(taps, t.header); bad != nil {
		err = errors.Join(err, bad)
	} else if _, bad := t.file.WriteAt(line, 0); bad != nil {
		err = errors.Join(err, bad)
	}
	if err = errors.Join(err, t.file.Close()); err != nil {
		return fmt.Errorf("close truth: %w", err)
	}
	return nil
}

// Behaviors writes which ports differ from a complete device's, and when. items are the scenario's
// behaviors, ports the ports that each one selects.
func (t *Recorder) Behaviors(items []scenario.Behavior, ports [][]int32) error {
	at := func(d time.Duration) time.Time { return time.Unix(0, t.startNS).UTC().Add(d) }
	for i := range items {
		b := &items[i]
		line := Behavior{Kind: DeviceKind, What: b.Kind, Signals: b.Signals, From: at(b.Start), To: at(b.End)}
		if i >= len(t.scenario.Devices) {
			line.Kind = FaultKind
		}
		if b.End == 0 || b.End > t.scenario.Duration {
			line.To = at(t.scenario.Duration)
		}
		for _, n := range ports[i] {
			if host := int(n) - len(t.topology.Ports); host >= 0 {
				line.Device, line.Port = t.topology.Ports[t.topology.NICs[host]].Peer, ""
			} else {
				line.Device, line.Port = t.topology.Ports[n].Device, t.topology.Ports[n].Name()
			}
			if err := t.json.Encode(line); err != nil {
				return fmt.Errorf("write truth: %w", err)
			}
		}
	}
	return nil
}

// Flow writes one flow.
func (t *Recorder) Flow(line Flow) error {
	if err := t.json.Encode(line); err != nil {
		return fmt.Errorf("write truth: %w", err)
	}
	return nil
}

// PortStats counts a port's traffic in one window.
type PortStats struct {
	bytes    uint64
	busy     int64  // ps
	Drops    uint64 // dropped by a full buffer
	MaxQueue uint64

	Discards, Stripped, Inserted, Trimmed uint64
}
