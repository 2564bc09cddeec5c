package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/answers"
	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/aggregate/query/model"
)

func newQueryWatch() *cobra.Command {
	var server, output, signal, level, src, dst, state string
	var count int
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Follow the cells as windows close",
		Long: `watch asks the query API of a running csigscope for the cells as they are, and then
prints those of each window that closes, or changes since late packets came. A connection
that breaks off is opened again and goes on where it was. Where something is missing in
between, a line on standard error says so, and all cells are printed anew.`,
		Example: `  csigscope query watch --server http://127.0.0.1:9465
  csigscope query watch --server http://127.0.0.1:9465 --signal max_delay --state congested -o ndjson`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	addOutputFlag(cmd, &output)
	flags.StringVar(&server, "server", "http://127.0.0.1:9465", "`URL` of the query API, such as that of collect --api-listen")
	flags.StringVar(&signal, "signal", "min_abw_ratio", "min_abw, min_abw_ratio, max_delay, max_nqd or type_N")
	flags.StringVar(&level, "level", "location", "where modes are taken: location, set, device or stage")
	flags.StringVar(&src, "src", "", "only cells from this source `GROUP`, or a group in it")
	flags.StringVar(&dst, "dst", "", "only cells to this destination `GROUP`, or a group in it")
	flags.StringVar(&state, "state", "", "only cells in this `STATE`: congested, clear or too_few")
	addCredentialFlags(cmd)
	flags.IntVar(&count, "count", 0, "end after so many windows, the snapshot apart; 0 is never")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if count < 0 {
			return usageError{fmt.Errorf("--count %d: expected at least 1, or 0 to go on", count)}
		}
		c, err := newServerClient(cmd, server)
		if err != nil {
			return err
		}
		w := &watching{cmd: cmd, output: output, left: count}
		c.Retrying = w.retrying
		err = c.Watch(cmd.Context(), flagValues(cmd, "signal", "level", "src", "dst", "state"), w.handle)
		if errors.Is(err, errEnough) {
			return nil
		}
		return asked(err)
	}
	return cmd
}

// watching prints what is watched.
type watching struct {
	cmd     *cobra.Command
	output  string
	left    int
	printed bool
}

// errEnough ends a watch that was to end.
var errEnough = errors.New("as many windows as were asked for")

// retrying says that nothing comes, and why.
func (w *watching) retrying(why error, wait time.Duration) {
	fmt.Fprintf(w.cmd.ErrOrStderr(), "csigscope: %s: trying again in %s\n", asked(why), wait)
}

func (w *watching) handle(e *client.Event) error {
	switch {
	case e.Gap != nil:
		fmt.Fprintf(w.cmd.ErrOrStderr(), "csigscope: %s: %d revisions are missing (%s), all cells follow\n", e.Name, e.Gap.Missed, e.Gap.Reason)
	case e.Snapshot != nil && len(e.Snapshot.Values) > 0:
		return w.print(e.Snapshot.From, e.Snapshot.Values)
	case e.Window != nil:
		if err := w.print(e.Window.Start, e.Window.Values); err != nil {
			return err
		}
		if w.left--; w.left == 0 {
			return errEnough
		}
	}
	return nil
}

// print writes cells under the start of their window. CSV has one line of columns.
func (w *watching) print(start time.Time, cells []model.Cell) error {
	t := answers.Window(start, cells)
	t.Continued, w.printed = w.printed, true
	return t.Write(w.cmd.OutOrStdout(), w.output)
}
