package flowplot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// MaxFlows is the maximum number of flows in a plot.
const MaxFlows = 64

// Run holds the flows of a run.
type Run struct {
	Interval time.Duration
	Start    time.Time
	Flows    []Flow
}

// Flow is one flow with its samples, one for each interval of the run.
type Flow struct {
	truth.TraceFlow
	Samples []Sample
}

// Sample sums up a flow in one interval.
type Sample struct {
	truth.TraceSample
	// Reflections of max(PD), and the heavy ones by the location that they name.
	Reflections uint64
	Heavy       map[string]uint64
}

// Read reads the flow trace, the fabric file and the captures of a run.
func Read(dir string, captures []string) (*Run, error) {
	r, err := readFlows(filepath.Join(dir, truth.TraceFile))
	if err != nil {
		return nil, err
	}
	spec, err := fabric.Load(filepath.Join(dir, scenario.FabricFile))
	if err != nil {
		return nil, fmt.Errorf("plot flows: %w", err)
	}
	domain, err := csig.DefaultSpec().Overlay(spec.CSIG).Compile()
	if err != nil {
		return nil, fmt.Errorf("plot flows: %w", err)
	}
	f, err := fabric.New(spec, domain)
	if err != nil {
		return nil, fmt.Errorf("plot flows: %w", err)
	}
	return r, r.addBottlenecks(f, domain, captures)
}

func readFlows(path string) (*Run, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("plot flows: %w", err)
	}
	defer file.Close()
	var r Run
	err = truth.ReadTrace(file, truth.TraceVisitor{
		Flow: func(l truth.TraceFlow) error {
			if len(r.Flows) == MaxFlows {
				return fmt.Errorf("more than %d flows", MaxFlows)
			}
			r.Flows = append(r.Flows, Flow{TraceFlow: l})
			return nil
		},
		Sample: func(l truth.TraceSample) error {
			if l.Flow < 1 || l.Flow > len(r.Flows) || l.IntervalNS <= 0 {
				return fmt.Errorf("flow %d, interval_ns %d: expected a flow from 1 to %d and an interval", l.Flow, l.IntervalNS, len(r.Flows))
			}
			if r.Interval == 0 {
				r.Interval, r.Start = time.Duration(l.IntervalNS), l.Start
			}
			f := &r.Flows[l.Flow-1]
			f.Samples = append(f.Samples, Sample{TraceSample: l, Heavy: map[string]uint64{}})
			return nil
		},
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("plot flows %q: %w", path, err)
	case r.Interval == 0:
		return nil, fmt.Errorf("plot flows %q: %w", path, errors.New("no samples"))
	}
	return &r, nil
}

// Bottleneck returns the location that most heavy reflections of the sample name, and their number.
// On a tie it is the first in alphabetical order; without heavy reflections it is "".
func (s *Sample) Bottleneck() (location string, n uint64) { return mode(s.Heavy) }

func mode(counts map[string]uint64) (location string, n uint64) {
	for name, count := range counts {
		if count > n || (count == n && name < location) {
			location, n = name, count
		}
	}
	return location, n
}
