package emitter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// Names of the files beside the captures.
const (
	FabricFile = "fabric.yaml"
	TruthFile  = "truth.ndjson"
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
	Simulated time.Duration
	Elapsed   time.Duration
}

// TapReport is what one tap did.
type TapReport struct {
	Name, Place string
	TapStats
}

// Progress is called from time to time on the goroutine that simulates, with the
// share that is done (0 to 1) and the packets captured so far.
type Progress func(done float64, packets uint64)

// Run simulates the scenario and writes its captures, FabricFile and TruthFile into
// dir, which it makes if necessary; files of the same names are replaced. It blocks
// until the run is complete or ctx ends; the files of a run that fails stay and are
// incomplete. progress may be nil.
func Run(ctx context.Context, s Scenario, dir string, progress Progress) (Report, error) {
	return emit(ctx, s, progress, func(m *sim, r *Report) error {
		if err := writeNetwork(m, r, dir); err != nil {
			return err
		}
		if err := m.taps.createFiles(&m.scenario, dir); err != nil {
			return err
		}
		r.Captures = m.taps.paths()
		return m.openTrace(r, dir)
	})
}

// Write simulates the scenario like Run and writes one pcapng of all taps to w, each
// an interface of it, whatever the scenario says of files; there is neither a fabric
// file nor a truth. It keeps a buffer of 1 MiB.
func Write(ctx context.Context, s Scenario, w io.Writer, progress Progress) (Report, error) {
	s.Classic, s.SingleFile, s.Compress = false, true, ""
	return emit(ctx, s, progress, func(m *sim, _ *Report) error {
		return m.taps.output(&m.scenario, nopCloser{w}, "stream", m.taps.list)
	})
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// Fabric is what Run writes as FabricFile.
func Fabric(s Scenario) (*fabric.Spec, error) {
	s = s.withDefaults()
	if err := s.check(); err != nil {
		return nil, err
	}
	t, err := newTopology(&s)
	if err != nil {
		return nil, err
	}
	return fabricSpec(&s, t)
}

// emit simulates the scenario. open makes the outputs of the simulator, which has
// none of its own.
func emit(ctx context.Context, s Scenario, progress Progress, open func(m *sim, r *Report) error) (Report, error) {
	begin := time.Now()
	s = s.withDefaults()
	if err := s.check(); err != nil {
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
		closed := errors.Join(m.taps.close(), m.truth.close(m.taps), m.closeTrace(), m.closeCounters())
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
	r.Flows = max(len(s.flows), s.scenario.RandomFlows)
	r.Sent, r.Delivered, r.Dropped = s.sent, s.delivered, s.dropped
	r.InFlight = s.sent - s.delivered - s.dropped
	r.Captured, r.CapturedBytes, r.Partials = s.captured, s.capturedBytes, s.truth.partials
	for i := range s.taps.list {
		t := &s.taps.list[i]
		r.Taps = append(r.Taps, TapReport{Name: t.Name, Place: t.place, TapStats: t.stats})
	}
}

// build makes the simulator of a scenario that was checked. Its truth is told to
// nobody and its taps capture nothing until they have outputs.
func build(s Scenario) (*sim, error) {
	t, err := newTopology(&s)
	if err != nil {
		return nil, err
	}
	_, domain, err := describe(&s, t)
	if err != nil {
		return nil, err
	}
	signals, err := newSignals(&s, t, domain)
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
	if m.taps, err = newTaps(&s, m.points); err != nil {
		return nil, err
	}
	m.truth = newTruth(&m.scenario, t, signals, b.cellList)
	return m, nil
}

// writeNetwork writes the fabric file, and opens the truth and the counters beside it.
func writeNetwork(m *sim, r *Report, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	r.Fabric, r.Truth = filepath.Join(dir, FabricFile), filepath.Join(dir, TruthFile)
	if _, err := writeFabric(r.Fabric, &m.scenario, m.topology); err != nil {
		return err
	}
	if err := m.openCounters(r, dir); err != nil {
		return err
	}
	return m.truth.create(r.Truth, m.taps)
}

// describe makes the fabric file and compiles the domain that it describes.
func describe(s *Scenario, t *topology) (*fabric.Spec, *csig.Domain, error) {
	spec, err := fabricSpec(s, t)
	if err != nil {
		return nil, nil, err
	}
	domain, err := csig.DefaultSpec().Overlay(spec.CSIG).Compile()
	return spec, domain, err
}

// writeFabric writes the fabric file and compiles the domain that it describes.
func writeFabric(path string, s *Scenario, t *topology) (*csig.Domain, error) {
	spec, domain, err := describe(s, t)
	if err != nil {
		return nil, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create fabric file: %w", err)
	}
	out := bufio.NewWriter(file)
	err = spec.Write(out)
	if err == nil {
		err = out.Flush()
	}
	return domain, errors.Join(err, file.Close())
}
