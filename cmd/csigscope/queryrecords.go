package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/answers"
	"github.com/csigscope/csigscope/aggregate/store"
)

func newQueryFlows() *cobra.Command {
	cmd := newQuestionCommand("flows", "Flows by how often they were heavily loaded", (*answers.Question).Flows)
	cmd.Long = `flows lists who suffers: the flows with the most heavy observations, and the location that
most of those name. A row of a flow counts its heavy observations alone. "others" are all
that is left: the clear observations, and those of flows that are not named, cell by cell
where a cell names a flow and in the group overflow of all other cells. Together they are
all observations, but for min and max, which are those of the whole cells.

Each window of 1 s or 1 min names the worst flows of each signal and kind (flows: {top:
100} in the configuration; 0 for none). Up to flows: {budget: 4096} flows a window their
numbers are exact; beyond that they are what was counted at least, as they are where a
replay cuts a window with more than 1024 flows. Those that export sees are handed over; a
collector takes up to 10,000 rows of a stream's window (window_flows among the limits of its
section ingest) and adds the rest to the others.`
	return cmd
}

func newQueryFindings() *cobra.Command {
	var dsn, output, from, to string
	var filter store.FindingFilter
	var top int
	cmd := &cobra.Command{
		Use:   "findings",
		Short: "What broke the protocol or the configuration, the most severe first",
		Example: `  csigscope query findings --severity error,warning
  csigscope query findings --device leaf3 --from 2026-01-20T09:00:00Z -o json`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	addStoreFlag(cmd, &dsn)
	addOutputFlag(cmd, &output)
	flags.StringVar(&from, "from", "", "begin of the range (`TIME`, RFC 3339), default all that is stored, or a server's last hour")
	flags.StringVar(&to, "to", "", "end of the range (`TIME`, RFC 3339)")
	flags.StringSliceVar(&filter.Severities, "severity", nil, "only these `SEVERITIES`: info, warning, error")
	flags.StringSliceVar(&filter.Kinds, "kind", nil, "only these `KINDS`")
	flags.StringSliceVar(&filter.Devices, "device", nil, "only about these `DEVICES`")
	flags.IntVar(&top, "top", 100, "how many at most")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if top < 1 {
			return usageError{fmt.Errorf("--top %d: expected at least 1", top)}
		}
		severities := []string{store.SeverityInfo, store.SeverityWarning, store.SeverityError}
		for _, s := range filter.Severities {
			if !slices.Contains(severities, s) {
				return usageError{fmt.Errorf("--severity %q: expected %s", s, strings.Join(severities, ", "))}
			}
		}
		begin, end := store.Everything()
		if err := parseRange(from, to, &begin, &end); err != nil {
			return err
		}
		db, err := openForReading(cmd, dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		t, err := answers.Findings(cmd.Context(), db.store, begin, end, filter, top)
		if err != nil {
			return err
		}
		if len(t.Rows) == 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: there are no such findings")
		}
		return t.Write(cmd.OutOrStdout(), output)
	}
	return askServer(cmd, serverQuestion{parameters: []string{"from", "to", "severity", "kind", "device", "top"}, ask: answers.ServedFindings})
}
