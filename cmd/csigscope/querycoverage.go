package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/answers"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/store"
)

func newQueryCoverage() *cobra.Command {
	var by string
	cmd := newQuestionCommand("coverage", "How much of the range is known, by window or cell", func(q *answers.Question, ctx context.Context) (*tabular.Listing, error) {
		switch by {
		case "window":
			return q.CoverageWindows(ctx)
		case "cell":
			return q.CoverageCells(ctx)
		}
		return nil, usageError{fmt.Errorf("--by %q: expected window or cell", by)}
	})
	cmd.Long = `coverage tells what answers are made of. By window, over all signals: observations by
kind, those that no hop touched, trimmed ones and those past a producer's key budget, how
many producers there were, and what is missing: rows that were taken and never stored
leave gaps. gap_share is the part of the window that is missing of at least one producer,
lost how many observations are missing, with those that the kernel had no room for and those
missing in the numbers of mirror sessions, each packet for one.
A window that is not listed was silent.

By cell, of one signal: the same, and covered, the share of the range's stored windows in
which the cell was observed at all, the least first.`
	cmd.Flags().StringVar(&by, "by", "window", "window or cell")
	return cmd
}

func newQueryTaps() *cobra.Command {
	var dsn, output, from, to string
	cmd := &cobra.Command{
		Use:   "taps",
		Short: "What each tap took in, and what became of it",
		Long: `taps lists what taps took in over a range, and what became of it: packets by what
decoding them came to, observations = stored + overflow + late + rejected, what the
kernel dropped, how many of its frames receive offload (GRO) made of several, so that
packets and bytes are wrong, and what is missing in the numbers of mirror sessions. A piece of a
capture counts whole if any of it lies in the range. Where files have no names for their
interfaces, a tap is called like its file. A session of a mirror is a tap, called
MIRROR/SWITCH/SESSION; timestamps says whether its times are the switch's.`,
		Args: noArgs,
	}
	addStoreFlag(cmd, &dsn)
	addOutputFlag(cmd, &output)
	cmd.Flags().StringVar(&from, "from", "", "begin of the range (`TIME`, RFC 3339), default that of all")
	cmd.Flags().StringVar(&to, "to", "", "end of the range (`TIME`, RFC 3339), default that of all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		begin, end := store.Everything()
		if err := parseRange(from, to, &begin, &end); err != nil {
			return err
		}
		db, err := openForReading(cmd, dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		rows, err := db.store.Taps(cmd.Context(), begin, end)
		if err != nil {
			return err
		}
		return answers.Taps(rows).Write(cmd.OutOrStdout(), output)
	}
	return cmd
}
