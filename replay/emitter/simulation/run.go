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

// Report is what a run did. Sent = Delivered + Dropped + InFlight.
type Report struct {
	Flows     int
	Sent      uint64 // packets, acknowledgements included
	Delivered uint64
	Dropped   uint64 // by full buffers
	InFlight  uint64 // when the run ended
	Captured  uint64
	// CapturedBytes is the sum of captured lengths, record headers not included.
	CapturedBytes uint64
	// Partials is the number of different (window, cell, signal, source, port) among
	// the observations, with one more for untouched ones.
	Partials uint64

	Captures  []string // paths of the capture files
	Fabric    string   // path of the fabric file
	Truth     string   // path of the truth file
	FlowTrace string   // path of the flow trace; empty without one
	Counters  string   // path of the ports' counters; empty without them
	Taps      []TapReport
	Idle      []int // workloads that start after the end of the run: they sent nothing
	Simulated time.Duration
	Elapsed   time.Duration
}

// WriteText writes for people what became of packets and, where taps were bad, of captures.
// captured says where the captured ones are.
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

// TapReport is what one tap did.
type TapReport struct {
	Name, Place string
	frames.TapStats
}

// Progress is called from time to time on the goroutine that simulates, with the
// share that is done (0 to 1) and the packets captured so far.
type Progress func(done float64, packets uint64)

// Run simulates the scenario and writes its captures, scenario.FabricFile and truth.File
// into dir, which it makes if necessary; files of the same names are replaced. It blocks
// until the run is complete or ctx ends; the files of a run that fails stay and are
// incomplete. progress may be nil.
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

// Write simulates the scenario like Run and writes one pcapng of all taps to w, each
// an interface of it, whatever the scenario says of files; there is neither a fabric
// file nor a truth. It keeps a buffer of 1 MiB.
func Write(ctx context.Context, s scenario.Scenario, w io.Writer, progress Progress) (Report, error) {
	s.Classic, s.SingleFile, s.Compress = false, true, ""
	return emit(ctx, s, progress, func(m *sim, _ *Report) error {
		return m.taps.Output(&m.scenario, nopCloser{w}, "stream", m.taps.List)
	})
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// emit simulates the scenario. open makes the outputs of the simulator, which has
// none of its own.
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
		if err == nil { // else it is what they say as well, once a file
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

// build makes the simulator of a scenario that was checked. Its truth is told to
// nobody and its taps capture nothing until they have outputs.
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

// writeNetwork writes the fabric file, and opens the truth and the counters beside it.
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

// Wire says how Send sends.
type Wire struct {
	// Interface is the network interface that frames leave by.
	Interface string
	// Pace is how many times faster than simulated frames leave; 0 is as fast as they
	// can be made.
	Pace float64
	// Dir takes the fabric file and the truth; none if empty.
	Dir string
}

// Send simulates the scenario like Run, but sends the frames of all taps through an
// interface instead of writing them to files: whole, whatever the snap length, and
// with the losses and duplicates of their taps, whose clocks play no part. It needs
// Linux and CAP_NET_RAW, and an interface whose MTU has room for what stands around
// the packets of hosts. It blocks until the run is complete or ctx ends.
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

// tapLines are the taps as the truth has them.
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

// flowTruth is what the truth says of a flow at the end of the run.
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
