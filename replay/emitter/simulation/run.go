package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/frames"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// Report sums up a run. Sent = Delivered + Dropped + InFlight.
type Report struct {
	Flows     int
	Sent      uint64 // packets, including acknowledgements
	Delivered uint64
	Dropped   uint64 // by full buffers, and by devices that discard tagged packets
	InFlight  uint64 // at the end of the run
	Captured  uint64
	// CapturedBytes is the sum of captured lengths, without record headers.
	CapturedBytes uint64
	// Partials is the number of distinct (window, cell, signal, source, port) among the
	// observations, where untouched observations count as one more port.
	Partials uint64

	Captures  []string // paths of the capture files
	Fabric    string   // path of the fabric file
	Truth     string   // path of the truth file
	FlowTrace string   // path of the flow trace; empty if there is none
	Counters  string   // path of the ports' counters; empty if there are none
	Taps      []TapReport
	Idle      []int // indexes of workloads that start after the end of the run and sent nothing
	Simulated time.Duration
	Elapsed   time.Duration
}

// WriteText prints packet counts and, for taps with errors, capture counts. captured describes the
// captured packets' destination.
func (r *Report) WriteText(w io.Writer, captured string) {
	fmt.Fprintf(w, "%d packets sent, %d delivered, %d dropped, %d in flight; %d %s in %.1f s\n",
		r.Sent, r.Delivered, r.Dropped, r.InFlight, r.Captured, captured, r.Elapsed.Seconds())
	for _, i := range r.Idle {
		fmt.Fprintf(w, "workloads[%d] sent nothing: it starts after the end of the run\n", i)
	}
	var bad frames.TapStats
	for _, t := range r.Taps {
		bad.Frames += t.Frames
		bad.Lost += t.Lost
		bad.Duplicated += t.Duplicated
		bad.Reordered += t.Reordered
	}
	if bad.Lost+bad.Duplicated+bad.Reordered > 0 {
		fmt.Fprintf(w, "of %d frames, taps lost %d, duplicated %d and reordered %d\n", bad.Frames, bad.Lost, bad.Duplicated, bad.Reordered)
	}
}

// TapReport holds one tap's counts.
type TapReport struct {
	Name, Place string
	frames.TapStats
}

// Progress is called from time to time on the simulating goroutine, with the completed share (0 to
// 1) and the number of packets captured so far.
type Progress func(done float64, packets uint64)

// Run simulates the scenario and writes its captures, scenario.FabricFile and truth.File into dir.
// It creates dir if necessary and replaces existing files. It blocks until the run is complete or
// ctx ends. If the run fails, its incomplete files stay. progress may be nil.
func Run(ctx context.Context, s scenario.Scenario, dir string, progress Progress) (Report, error) {
	return emit(ctx, s, progress, func(m *sim, r *Report) error {
		if err := writeNetwork(m, r, dir); err != nil {
			return err
		}
		if err := m.taps.CreateFiles(&m.scenario, dir); err != nil {
			return err
		}
		r.Captures = m.taps.Paths()
		return m.openTrace(r, dir)
	})
}

// Write simulates the scenario like Run, but writes a single pcapng with one interface per tap to
// w, whatever file settings the scenario has. It writes neither a fabric file nor a truth. It
// buffers up to 1 MiB.
func Write(ctx context.Context, s scenario.Scenario, w io.Writer, progress Progress) (Report, error) {
	s.Classic, s.SingleFile, s.Compress = false, true, ""
	return emit(ctx, s, progress, func(m *sim, _ *Report) error {
		return m.taps.Output(&m.scenario, nopCloser{w}, "stream", m.taps.List)
	})
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// emit simulates the scenario. open creates the simulator's outputs.
func emit(ctx context.Context, s scenario.Scenario, progress Progress, open func(m *sim, r *Report) error) (Report, error) {
	begin := time.Now()
	s = s.WithDefaults()
	if err := s.Check(); err != nil {
		return Report{}, err
	}
	if progress == nil {
		progress = func(float64, uint64) {}
	}
	var r Report
	m, err := build(s)
	if err == nil {
		err = errors.Join(open(m, &r), ctx.Err())
		if err == nil {
			err = m.simulate(ctx, progress)
		}
		closed := errors.Join(m.taps.Close(), m.truth.Close(m.tapLines()), m.closeTrace(), m.closeCounters())
		if err == nil { // otherwise a file's error is the same one
			err = closed
		}
		m.report(&r)
	}
	if err != nil {
		return r, fmt.Errorf("emit %q: %w", s.Name, err)
	}
	progress(1, r.Captured)
	r.Elapsed = time.Since(begin)
	return r, nil
}

func (s *sim) simulate(ctx context.Context, progress Progress) error {
	if s.scenario.RandomFlows > 0 {
		return s.randomFlows(ctx, progress)
	}
	return s.run(ctx, progress)
}

func (s *sim) report(r *Report) {
	r.Simulated = time.Duration(s.now / 1000)
	if s.scenario.RandomFlows == 0 {
		r.Idle = s.scenario.Idle()
	}
	r.Flows = max(len(s.flows), s.scenario.RandomFlows)
	r.Sent, r.Delivered, r.Dropped = s.sent, s.delivered, s.dropped
	r.InFlight = s.sent - s.delivered - s.dropped
	r.Captured, r.CapturedBytes, r.Partials = s.captured, s.capturedBytes, s.truth.Partials
	for i := range s.taps.List {
		t := &s.taps.List[i]
		r.Taps = append(r.Taps, TapReport{Name: t.Name, Place: t.Place, TapStats: t.Stats})
	}
}

// build builds the simulator of a checked scenario. Until outputs are set, its truth is discarded
// and its taps capture nothing.
func build(s scenario.Scenario) (*sim, error) {
	t, err := scenario.NewTopology(&s)
	if err != nil {
		return nil, err
	}
	domain, err := scenario.CompileFabric(&s, t)
	if err != nil {
		return nil, err
	}
	signals, err := scenario.NewSignals(&s, t, domain)
	if err != nil {
		return nil, err
	}
	b, err := buildFlows(&s, t)
	if err != nil {
		return nil, err
	}
	m, err := newSim(s, t, b.flows, signals, domain)
	if err != nil {
		return nil, err
	}
	if m.taps, err = frames.NewTaps(&s, m.points); err != nil {
		return nil, err
	}
	m.truth = truth.New(&m.scenario, t, signals, b.cellList)
	return m, nil
}

// writeNetwork writes the fabric file, and creates the truth and the counters beside it.
func writeNetwork(m *sim, r *Report, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	r.Fabric, r.Truth = filepath.Join(dir, scenario.FabricFile), filepath.Join(dir, truth.File)
	if err := scenario.WriteFabric(r.Fabric, &m.scenario, m.topology); err != nil {
		return err
	}
	if err := m.openCounters(r, dir); err != nil {
		return err
	}
	return m.truth.Create(r.Truth, m.tapLines())
}

// Wire configures Send.
type Wire struct {
	// Interface is the network interface for sending.
	Interface string
	// Pace is the speed relative to simulated time; 0 sends as fast as possible.
	Pace float64
	// Dir receives the fabric file and the truth; none if empty.
	Dir string
}

// Send simulates the scenario like Run, but sends the frames of all taps through an interface
// instead of writing them to files. Frames are sent whole, whatever the snap length, with the taps'
// losses and duplicates but without their clock errors. It needs Linux, CAP_NET_RAW, and an
// interface whose MTU has room for the encapsulation around the hosts' packets. It blocks until the
// run is complete or ctx ends.
func Send(ctx context.Context, s scenario.Scenario, to Wire, progress Progress) (Report, error) {
	if to.Pace < 0 {
		return Report{}, fmt.Errorf("send: pace %v: expected 0 (as fast as possible) or more", to.Pace)
	}
	return emit(ctx, s, progress, func(m *sim, r *Report) error {
		if err := m.taps.SendTo(ctx, to.Interface, to.Pace); err != nil {
			return err
		}
		if to.Dir == "" {
			return nil
		}
		return writeNetwork(m, r, to.Dir)
	})
}

// tapLines returns the taps for the truth.
func (s *sim) tapLines() []truth.Tap {
	var lines []truth.Tap
	for i := range s.taps.List {
		t := &s.taps.List[i]
		lines = append(lines, truth.Tap{
			Name: t.Name, Place: t.Place,
			OffsetNS: t.Offset.Nanoseconds(), DriftPPB: t.Drift, JitterNS: t.Jitter.Nanoseconds(),
			Frames: t.Stats.Frames, Captured: t.Stats.Captured, Lost: t.Stats.Lost,
			Duplicated: t.Stats.Duplicated, Reordered: t.Stats.Reordered,
		})
	}
	return lines
}

// flowTruth returns a flow's line of the truth at the end of the run.
func (s *sim) flowTruth(f *flow) truth.Flow {
	names := func(r *scenario.Route) (list []string) {
		for _, p := range r.Hops() {
			list = append(list, s.topology.Ports[p].Name())
		}
		return list
	}
	version := s.framer.StyleOf(f.style).IP
	return truth.Flow{
		Kind: truth.FlowKind, Src: s.topology.HostName(int(f.src)), Dst: s.topology.HostName(int(f.dst)),
		SrcIP: scenario.AddressOf(version, f.tuple.Src).String(), DstIP: scenario.AddressOf(version, f.tuple.Dst).String(),
		SrcPort: f.tuple.SrcPort, DstPort: f.tuple.DstPort,
		Forward: names(&f.forward), Reverse: names(&f.reverse),
		Sent: f.sent, Delivered: f.delivered, Dropped: f.dropped, Trimmed: f.trimmed,
		InFlight: f.sent - f.delivered - f.dropped,
	}
}
