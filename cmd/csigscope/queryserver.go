package main

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/aggregate/query/model"
)

// serverColumns are those of cells that a server answers with.
var serverColumns = []string{
	"src_group", "dst_group", "kind", "state", "observations", "mean", "min", "max", "unit",
	"untouched", "trimmed", "heavy", "heavy_share", "mode", "mode_count", "mode_share", "runner_up", "runner_up_count",
}

// serverRow is a cell under serverColumns.
func serverRow(c *model.Cell) []any {
	row := []any{c.Src, c.Dst, c.Kind, c.State, c.Observations}
	unit := any(nil)
	for _, m := range []*model.Measure{c.Mean, c.Min, c.Max} {
		v, u, ok := m.Value()
		if !ok {
			row = append(row, nil)
			continue
		}
		row, unit = append(row, v), u
	}
	row = append(row, unit, c.Untouched, c.Trimmed, c.Heavy, c.HeavyRatio)
	row = append(row, bottleneckRow(c.Mode, true)...)
	return append(row, bottleneckRow(c.RunnerUp, false)...)
}

func bottleneckRow(b *model.Bottleneck, withShare bool) []any {
	var row []any
	if b == nil {
		row = []any{nil, nil, nil}
	} else {
		row = []any{b.Location, b.Heavy, b.ShareRatio}
	}
	if !withShare {
		return row[:2]
	}
	return row
}

// serverFlags ask a running csigscope instead of a store.
type serverFlags struct {
	server  string
	windows int
	watch   bool
}

// askServer lets the command of cells ask a server, where one is named.
func askServer(cmd *cobra.Command) *cobra.Command {
	var f serverFlags
	cmd.Flags().StringVar(&f.server, "server", "", "ask the query API at this `URL`, such as http://127.0.0.1:9465 of collect --api-listen, for the last windows (--from and --to: history) instead of a store")
	cmd.Flags().IntVar(&f.windows, "windows", 1, "with --server: how many of the last windows are added up")
	cmd.Flags().BoolVar(&f.watch, "watch", false, "with --server: go on with each window that closes, as query watch does")
	addCredentialFlags(cmd)
	stored := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.server == "" {
			if f.watch {
				return usageError{errors.New("--watch: needs the --server whose windows close")}
			}
			return stored(cmd, args)
		}
		for _, name := range []string{"store", "step", "resolution", "top"} {
			if cmd.Flags().Changed(name) {
				return usageError{fmt.Errorf("--%s: is of a store, and --server names none: leave out one of them", name)}
			}
		}
		c, err := newServerClient(cmd, f.server)
		if err != nil {
			return err
		}
		parameters := flagValues(cmd, "signal", "level", "src", "dst", "from", "to")
		parameters.Set("windows", strconv.Itoa(f.windows))
		if f.watch {
			return asked(c.Watch(cmd.Context(), parameters, (&watching{cmd: cmd, output: flagText(cmd, "output")}).handle))
		}
		page, err := c.AllCells(cmd.Context(), parameters)
		if err != nil {
			return asked(err)
		}
		t := table{columns: serverColumns}
		for i := range page.Values {
			t.rows = append(t.rows, serverRow(&page.Values[i]))
		}
		return t.write(cmd.OutOrStdout(), flagText(cmd, "output"))
	}
	return cmd
}

// flagValues are the flags that are not empty, as parameters.
func flagValues(cmd *cobra.Command, names ...string) url.Values {
	values := url.Values{}
	for _, name := range names {
		if text := flagText(cmd, name); text != "" {
			values.Set(name, text)
		}
	}
	return values
}

func flagText(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// asked makes what the server finds wrong with a question a mistake in usage.
func asked(err error) error {
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == 422 {
		return usageError{err}
	}
	return err
}

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
		Args: usageArgs(cobra.NoArgs),
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
		c, err := newServerClient(cmd, server)
		if err != nil {
			return err
		}
		w := &watching{cmd: cmd, output: output, left: count}
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
	t := table{columns: append([]string{"window_start"}, serverColumns...)}
	for i := range cells {
		t.rows = append(t.rows, append([]any{stamp(start)}, serverRow(&cells[i])...))
	}
	if w.output != "csv" || !w.printed {
		w.printed = true
		return t.write(w.cmd.OutOrStdout(), w.output)
	}
	var text strings.Builder
	if err := t.write(&text, w.output); err != nil {
		return err
	}
	_, rows, _ := strings.Cut(text.String(), "\n")
	fmt.Fprint(w.cmd.OutOrStdout(), rows)
	return nil
}
