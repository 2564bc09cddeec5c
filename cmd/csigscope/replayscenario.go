package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/replay"
	"github.com/csigscope/csigscope/replay/emitter"
)

// chosen tells whether a scenario was asked for.
func (f *emitFlags) chosen() bool { return f.scenario != "" || f.file != "" }

// replayScenario replays what a scenario's taps capture while it is simulated.
func replayScenario(cmd *cobra.Command, of *emitFlags, f *replayFlags, config string, to *replayTarget) error {
	s, err := of.build(cmd)
	if err != nil {
		return err
	}
	spec, err := emitter.Fabric(s)
	if err != nil {
		return usageError{err}
	}
	n, err := newNetwork(config, spec, s.Name)
	if err != nil {
		return err
	}
	c, err := f.config(nil, n)
	if err != nil {
		return err
	}
	id, err := s.ID()
	if err != nil {
		return err
	}
	_, err = withEmitProgress(cmd, func(p emitter.Progress) (emitter.Report, error) {
		c.Stream = &replay.Stream{Name: s.Name, ID: id, Write: func(ctx context.Context, w io.Writer) error {
			_, err := emitter.Write(ctx, s, w, p)
			return err
		}}
		return emitter.Report{}, replayFiles(cmd, c, n, to)
	})
	return err
}
