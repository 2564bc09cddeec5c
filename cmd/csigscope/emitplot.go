package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/csigscope/csigscope/replay/emitter"
	"github.com/csigscope/csigscope/replay/flowplot"
)

// plotFlows draws the flows of a run that was traced, and prints their totals. Runs
// of many flows are traced only.
func plotFlows(out io.Writer, dir, name string, report *emitter.Report) (err error) {
	if report.Flows > flowplot.MaxFlows {
		fmt.Fprintf(out, "%s says what each flow did; more than %d flows are not drawn\n", report.FlowTrace, flowplot.MaxFlows)
		return nil
	}
	run, err := flowplot.Read(dir, report.Captures)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, flowplot.File)
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write plot: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := run.WriteSVG(f, "scenario "+name); err != nil {
		return err
	}
	if err := run.WriteText(out); err != nil {
		return err
	}
	fmt.Fprintf(out, "rates, delays and bottlenecks over time are in %s\n", path)
	return nil
}
