// Package truth keeps what the simulation says is true, writes it to File, and reads it. It must
// never know frames, and never how observations are aggregated or stored: tests hold those
// packages against it.
//
// File has one JSON object a line; Read reads it. In order:
//
//   - kind header (Header): the scenario, units, and the definition of each number.
//   - kind device and fault (Behavior): one for each port that behaves otherwise
//     than a complete device, or host that forges tags, with from and to.
//   - for each window, kind cell (Cell): what the tags and the reflections of one
//     signal between two racks say as they were written, after quantization and after
//     faults, and the mode of the bottleneck that follows from it. Where some device may
//     be unfaithful, or tags may be frozen, each line also has faithful, the same for what
//     devices with complete support would have written into the senders' tags with the
//     same queues (the true bottleneck), and agree, the number of observations in which
//     both are the same. A tag that names no port by what is configured is counted at
//     "lm:N". Stripped and discarded tags make no observation at all: ports count them.
//   - then kind physical (Physical): for each cell, the port that was physically tightest
//     by its own state. Where it contradicts the cell's lines, a meter, a device or the
//     averaging over other intervals is why.
//   - then kind port (Port): load, bytes, longest queue, and packets dropped,
//     trimmed, discarded, stripped of their tag or given one.
//   - in the end, kind flow (Flow): the ports that each connection's data and
//     acknowledgements passed, and where its packets are.
//
// Memory for the truth is bounded by the cells, ports and flows of the scenario: only two
// windows are kept at a time.
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

// Recorder keeps what happens in the present window and in the next one: a port's last
// packet of a window is known only when it arrives at the next hop, a little after
// the window's end.
type Recorder struct {
	scenario *scenario.Scenario
	topology *scenario.Topology
	signals  []scenario.Signal
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
	End      int64 // of the present window, ps since the start
	grace    int64
	half     int // which of the two halves is the present one
	halves   [2][]tally
	faithful [2][]tally // of what a faithful fabric would have written; watchful runs only
	watchful bool
	tightest []tightest // by cell
	Partials uint64
}

// New keeps the truth to itself until it has a file.
func New(s *scenario.Scenario, t *scenario.Topology, signals []scenario.Signal, cells [][2]int32) *Recorder {
	tr := &Recorder{
		scenario: s, topology: t, signals: signals, cells: cells,
		out:      bufio.NewWriter(io.Discard),
		windowNS: s.Window.Nanoseconds(), startNS: s.Start.UnixNano(), grace: exact.Picoseconds(s.Grace(t)),
	}
	tr.json = json.NewEncoder(tr.out)
	tr.window = tr.startNS / tr.windowNS
	tr.End = ((tr.window+1)*tr.windowNS - tr.startNS) * 1000
	for i := range tr.halves {
		tr.halves[i] = make([]tally, len(cells)*len(signals)*2)
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

// Side is which half an event at the time now belongs to.
func (t *Recorder) Side(now int64) int {
	if now >= t.End {
		return t.half ^ 1
	}
	return t.half
}

// Sent books a packet's time on a link, and its bytes in proportion.
func (t *Recorder) Sent(p *[2]PortStats, from, to int64, bytes uint64) {
	first := &p[t.half]
	switch {
	case to <= t.End:
		first.busy += to - from
		first.bytes += bytes
	case from >= t.End:
		p[t.half^1].busy += to - from
		p[t.half^1].bytes += bytes
	default:
		part := exact.MulDiv(bytes, uint64(t.End-from), uint64(to-from))
		first.busy += t.End - from
		first.bytes += part
		p[t.half^1].busy += to - t.End
		p[t.half^1].bytes += bytes - part
	}
}

// Due tells whether the present window can be written.
func (t *Recorder) Due(now int64) bool { return now >= t.End+t.grace }

// CloseWindow writes the present window and turns to the next. counts gives it those of a port:
// those of switches come first, then the interfaces of hosts, which the file leaves out. paths
// are those of the window, as closePhysical takes them.
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
		stats := &counts(i)[t.half]
		if err := t.json.Encode(t.portLine(start, i, stats)); err != nil {
			return fmt.Errorf("write truth: %w", err)
		}
	}
	for i := range len(t.topology.Ports) + len(t.topology.NICs) {
		counts(i)[t.half] = PortStats{}
	}
	t.half ^= 1
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

// FileBuffer is how many bytes of a file wait to be written together.
const FileBuffer = 1 << 20

// Create makes the truth write its lines to a file.
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

// What the counts of a tap may grow by in the header.
const (
	tapCounts = 5
	maxDigits = 20
)

// headerLine is the first line of the file with a line end, filled up with blanks to
// the size. It is written again when it is known what taps did.
func (t *Recorder) headerLine(taps []Tap, size int) ([]byte, error) {
	line, err := json.Marshal(newHeader(t.scenario, taps))
	if err != nil {
		return nil, fmt.Errorf("write truth: %w", err)
	}
	line = append(line, bytes.Repeat([]byte{' '}, max(size-len(line)-1, 0))...)
	return append(line, '\n'), nil
}

// Close writes what taps did into the header and ends the file, if there is one.
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

// Behaviors writes which ports are not those of complete devices, and when. items are those of the
// scenario, ports those that each selects.
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

// Flow writes where a flow went.
func (t *Recorder) Flow(line Flow) error {
	if err := t.json.Encode(line); err != nil {
		return fmt.Errorf("write truth: %w", err)
	}
	return nil
}

// PortStats is the truth about a port in one window.
type PortStats struct {
	bytes    uint64
	busy     int64  // ps
	Drops    uint64 // by a full buffer
	MaxQueue uint64

	Discards, Stripped, Inserted, Trimmed uint64
}
