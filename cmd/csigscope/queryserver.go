package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csigscope/csigscope/aggregate/query/answers"
	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
)

// defaultServer is where collect --api-listen answers as a rule.
const defaultServer = "http://127.0.0.1:9465"

// serverQuestion is how a command that asks a store asks a running csigscope instead.
type serverQuestion struct {
	parameters []string // flags that are parameters of the same names
	windows    int      // default of --windows; 0: there is none
	ask        func(context.Context, *client.Client, url.Values) (*tabular.Listing, error)
}

// askServer lets a command ask a server, where one is named.
func askServer(cmd *cobra.Command, out *output, q serverQuestion) {
	var server string
	flags := cmd.Flags()
	const about = "ask the query API at this `URL`, such as http://127.0.0.1:9465 of collect --api-listen, instead of a store"
	if q.windows == 0 {
		flags.StringVar(&server, "server", "", about)
	} else {
		flags.StringVar(&server, "server", "", about+": for the last windows (--from and --to: history)")
		flags.Int("windows", q.windows, "with --server: how many of the last windows are taken")
		q.parameters = append(q.parameters, "windows")
	}
	addCredentialFlags(cmd)
	stored := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if server == "" {
			return stored(cmd, args)
		}
		if err := ofServer(cmd, q.parameters); err != nil {
			return err
		}
		c, err := newServerClient(cmd, server)
		if err != nil {
			return err
		}
		t, err := q.ask(cmd.Context(), c, flagValues(cmd, q.parameters...))
		if err != nil {
			return asked(err)
		}
		if len(t.Rows) == 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: the server has no rows that match: --from and --to ask for history; see also "+server+"/api/v1/health")
		}
		return out.list(cmd, t)
	}
}

// ofServer refuses flags that a server is not asked with.
func ofServer(cmd *cobra.Command, parameters []string) (err error) {
	others := []string{"server", "output", "out", "token-file", "server-ca", "client-cert", "client-key"}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && !slices.Contains(parameters, f.Name) && !slices.Contains(others, f.Name) {
			err = usageError{fmt.Errorf("--%s: is of a store, and --server names none: leave out one of them", f.Name)}
		}
	})
	return err
}

// flagValues are the flags that were given, as parameters.
func flagValues(cmd *cobra.Command, names ...string) url.Values {
	values := url.Values{}
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		parameter := strings.ReplaceAll(name, "-", "_")
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values[parameter] = list.GetSlice()
		} else if text := f.Value.String(); text != "" {
			values.Set(parameter, text)
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

// asked makes errors of questions that the server refuses errors of usage, and adds a hint where
// no server answers.
func asked(err error) error {
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == 422 {
		return usageError{err}
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: nothing serves there: start collect with --api-listen, query serve or demo, or name the address of one with --server", err)
	}
	return err
}

// withServer makes a command run with the server that --server names.
func withServer(cmd *cobra.Command, run func(cmd *cobra.Command, c *client.Client) error) *cobra.Command {
	var server string
	cmd.Flags().StringVar(&server, "server", defaultServer, "`URL` of the query API, such as that of collect --api-listen or query serve")
	addCredentialFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := newServerClient(cmd, server)
		if err != nil {
			return err
		}
		return asked(run(cmd, c))
	}
	return cmd
}

func newQueryPath() *cobra.Command {
	var out output
	var cells cellFlags
	var times timeRange
	cmd := &cobra.Command{
		Use:   "path",
		Short: "Room left between a source and a destination, and the limiting location",
		Long: `path asks the query API of a running csigscope for one source and destination: the room
that is left, the limiting location with the ports that it may be, how sure that is, how
old, and how complete. With --from and --to it asks for history.`,
		Example: `  csigscope query path --src rack1 --dst rack2
  csigscope query path --src rack1 --dst rack2 --signal min_abw --from 2026-01-20T09:00:00Z --to 2026-01-20T10:00:00Z -o json`,
		Args: noArgs,
	}
	out.add(cmd, tabular.ListingFormats()...)
	cells.add(cmd)
	times.add(cmd, "that of the last windows")
	cmd.Flags().Int("windows", 10, "how many of the last windows are added up")
	return withServer(cmd, func(cmd *cobra.Command, c *client.Client) error {
		p, err := c.Path(cmd.Context(), flagValues(cmd, "signal", "level", "src", "dst", "from", "to", "windows"))
		if err != nil {
			return err
		}
		return out.list(cmd, answers.Path(p))
	})
}

func newQueryExport() *cobra.Command {
	var out output
	var cells cellFlags
	var times timeRange
	var what string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Cells, windows, flows or findings as CSV, Parquet or Arrow",
		Long: `export writes a table that a running csigscope has been asked for: cells over the whole
range, by each window of it, flows or findings. Without --from and --to cells and windows
are those in memory. A table that is not complete, since it has too many rows or takes too
long, is written as far as it goes, and the exit code is 1.`,
		Example: `  csigscope query export --signal min_abw > cells.csv
  csigscope query export --table windows --from 2026-01-20T09:00:00Z --to 2026-01-20T10:00:00Z --step 1s -o parquet --out windows.parquet
  csigscope query export --table flows --signal max_delay -o arrow --out flows.arrows`,
		Args: noArgs,
	}
	out.add(cmd, string(tabular.CSV), string(tabular.Parquet), string(tabular.Arrow))
	cells.add(cmd)
	times.add(cmd, "that of the last windows")
	flags := cmd.Flags()
	flags.StringVar(&what, "table", "cells", "cells, windows, flows or findings")
	flags.String("step", "", "`LENGTH` of the windows of history, such as 10s")
	flags.Int("windows", 1, "how many of the last windows in memory are taken")
	return withServer(cmd, func(cmd *cobra.Command, c *client.Client) error {
		table, parameters, ok := exportOf(what)
		if !ok {
			return usageError{fmt.Errorf("--table %q: expected cells, windows, flows or findings", what)}
		}
		values := flagValues(cmd, parameters...)
		values.Set("format", out.format)
		if what == "windows" {
			values.Set("table", what)
		}
		var end *client.Exported
		err := out.write(cmd, func(w io.Writer) (err error) {
			buffered := bufio.NewWriterSize(w, 1<<16)
			if end, err = c.Export(cmd.Context(), table, values, buffered); err != nil {
				return err
			}
			return buffered.Flush()
		})
		if err == nil && !end.Complete {
			err = fmt.Errorf("write table: %d rows, cut off by the limit on %s: take a shorter range, a longer step, or --src and --dst", end.Rows, end.CutBy)
		}
		return err
	})
}

// exportOf is the server's table of that name, and the flags that it takes as parameters.
func exportOf(name string) (table string, parameters []string, ok bool) {
	switch name {
	case "cells", "windows":
		return client.TableCells, []string{"signal", "level", "src", "dst", "from", "to", "step", "windows"}, true
	case "flows":
		return client.TableFlows, []string{"signal", "src", "dst", "from", "to"}, true
	case "findings":
		return client.TableFindings, []string{"from", "to"}, true
	}
	return "", nil, false
}

func newQueryWatch() *cobra.Command {
	var out output
	var cells cellFlags
	var count int
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Follow the cells as windows close",
		Long: `watch asks the query API of a running csigscope for the cells as they are, and then
prints those of each window that closes, or changes since late packets came. A connection
that breaks off is opened again and resumes. Where revisions are missing in between, a line
on standard error reports it, and all cells are printed again. The column durable is true
if the window was on disk already when it was printed.`,
		Example: `  csigscope query watch --server http://127.0.0.1:9465
  csigscope query watch --server http://127.0.0.1:9465 --signal max_delay --state congested -o ndjson`,
		Args: noArgs,
	}
	out.addFormat(cmd, tabular.ListingFormats()...)
	cells.add(cmd)
	flags := cmd.Flags()
	flags.String("state", "", "only cells in this `STATE`: congested, clear or too_few")
	flags.IntVar(&count, "count", 0, "end after so many windows, the snapshot apart; 0 is never")
	before(cmd, func([]string) error {
		if count < 0 {
			return fmt.Errorf("--count %d: expected at least 1, or 0 to go on", count)
		}
		return nil
	})
	return withServer(cmd, func(cmd *cobra.Command, c *client.Client) error {
		c.Retrying = func(why error, wait time.Duration) {
			fmt.Fprintf(cmd.ErrOrStderr(), "csigscope: %s: trying again in %s\n", asked(why), wait)
		}
		print := func(t *tabular.Listing) error { return out.list(cmd, t) }
		return answers.Watch(cmd.Context(), c, flagValues(cmd, "signal", "level", "src", "dst", "state"), count, print, cmd.ErrOrStderr())
	})
}
