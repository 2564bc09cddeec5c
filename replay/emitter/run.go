package emitter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

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
	Simulated time.Duration
	Elapsed   time.Duration
}

// Run simulates the scenario and writes its captures, FabricFile and TruthFile into
// dir, which it makes if necessary; files of the same names are replaced. It blocks
// until the run is complete or ctx ends; the files of a run that fails stay and are
// incomplete. progress, unless nil, is called from time
// to time on the same goroutine, with the share that is done (0 to 1) and the
// packets captured so far.
func Run(ctx context.Context, s Scenario, dir string, progress func(done float64, packets uint64)) (Report, error) {
	begin := time.Now()
	s = s.withDefaults()
	if err := s.check(); err != nil {
		return Report{}, err
	}
	if progress == nil {
		progress = func(float64, uint64) {}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Report{}, fmt.Errorf("create folder: %w", err)
	}
	r, err := emit(ctx, s, dir, progress)
	if err != nil {
		return r, fmt.Errorf("emit %q: %w", s.Name, err)
	}
	progress(1, r.Captured)
	r.Elapsed = time.Since(begin)
	return r, nil
}

func emit(ctx context.Context, s Scenario, dir string, progress func(float64, uint64)) (Report, error) {
	r := Report{Fabric: filepath.Join(dir, FabricFile), Truth: filepath.Join(dir, TruthFile)}
	t, err := newTopology(&s)
	if err != nil {
		return r, err
	}
	domain, err := writeFabric(r.Fabric, &s, t)
	if err != nil {
		return r, err
	}
	m, cells, err := assemble(s, t, domain)
	if err != nil {
		return r, err
	}
	if m.truth, err = createTruth(r.Truth, &m.scenario, t, m.signals, cells); err != nil {
		return r, err
	}
	if err = m.taps.createFiles(&s, dir); err != nil {
		return r, errors.Join(err, m.truth.close())
	}
	r.Captures = m.taps.paths()
	if s.RandomFlows > 0 {
		err = m.randomFlows(ctx, progress)
	} else {
		err = m.run(ctx, progress)
	}
	err = errors.Join(err, m.taps.close(), m.truth.close())
	r.Simulated = time.Duration(m.now / 1000)
	r.Flows = max(len(m.flows), s.RandomFlows)
	r.Sent, r.Delivered, r.Dropped = m.sent, m.delivered, m.dropped
	r.InFlight = m.sent - m.delivered - m.dropped
	r.Captured, r.CapturedBytes, r.Partials = m.captured, m.capturedBytes, m.truth.partials
	return r, err
}

// assemble makes the simulator without its outputs.
func assemble(s Scenario, t *topology, d *csig.Domain) (*sim, [][2]int32, error) {
	signals, err := newSignals(&s, t, d)
	if err != nil {
		return nil, nil, err
	}
	b, err := buildFlows(&s, t)
	if err != nil {
		return nil, nil, err
	}
	m, err := newSim(s, t, b.flows, signals, d)
	if err != nil {
		return nil, nil, err
	}
	m.taps, err = newTaps(&s, m.points)
	return m, b.cellList, err
}

// writeFabric writes the fabric file and compiles the domain that it describes.
func writeFabric(path string, s *Scenario, t *topology) (*csig.Domain, error) {
	spec, err := fabricSpec(s, t)
	if err != nil {
		return nil, err
	}
	domain, err := csig.DefaultSpec().Overlay(spec.CSIG).Compile()
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
