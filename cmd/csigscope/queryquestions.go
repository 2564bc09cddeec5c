package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/answers"
	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/table"
)

// questionFlags are the common flags of all questions.
type questionFlags struct {
	asking
	out   output
	times timeRange
	cells cellFlags
	sort  string

	otherwise string // the default range; empty: lastWindows
}

// Default ranges.
const (
	lastWindows = "all data, or the last windows of a collector"
	lastHour    = "all data, or the last stored hour of a collector"
)

// questioner sends a question to a server.
type questioner func(context.Context, *client.Client, url.Values) (*answers.Answer, error)

// command returns a command that asks about a range; the named flags are the parameters.
func (f *questionFlags) command(use, short string, ask questioner, parameters ...string) *cobra.Command {
	cmd := f.question(use, short, func(cmd *cobra.Command, c *client.Client) (*answers.Answer, error) {
		values, err := f.times.parameters(cmd, c, parameters...)
		if err != nil {
			return nil, err
		}
		a, err := ask(cmd.Context(), c, values)
		if err == nil && a.Empty() {
			err = noteEmpty(cmd, c)
		}
		return a, err
	})
	f.times.add(cmd, cmp.Or(f.otherwise, lastWindows))
	return cmd
}

// question returns a command that prints an answer.
func (f *questionFlags) question(use, short string, ask func(*cobra.Command, *client.Client) (*answers.Answer, error)) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: noArgs}
	f.out.add(cmd, tabular.ListingFormats()...)
	f.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return f.run(cmd, func(c *client.Client) error {
			a, err := ask(cmd, c)
			if err != nil {
				return err
			}
			if f.sort != "" {
				if err := a.Sort(f.sort); err != nil {
					return usageError{fmt.Errorf("--sort: %w", err)}
				}
			}
			return f.out.write(cmd, func(w io.Writer) error { return a.Write(w, f.out.format) })
		})
	}
	return cmd
}

// addSort adds the order of the rows. The help names column as an example.
func (f *questionFlags) addSort(cmd *cobra.Command, column string) {
	cmd.Flags().StringVar(&f.sort, "sort", answers.Worst, "order of the rows: worst, or a `COLUMN` such as "+column+"; -COLUMN has the largest first")
}

// addState adds a filter by state.
func addState(cmd *cobra.Command) {
	cmd.Flags().StringSlice("state", nil, "only cells in these `STATES`: congested, brief, clear, too_few, not_judged, no_data")
}

// addTop adds the maximum number of rows.
func addTop(cmd *cobra.Command, top int, what string) {
	cmd.Flags().Int("top", top, "maximum number of "+what)
	before(cmd, func([]string) error {
		if n, err := cmd.Flags().GetInt("top"); err != nil || n < 1 {
			return fmt.Errorf("--top %d: expected at least 1", n)
		}
		return nil
	})
}

// addWindows adds the number of windows in memory.
func addWindows(cmd *cobra.Command, windows int) {
	cmd.Flags().Int("windows", windows, "number of a collector's last windows to read")
	for _, other := range []string{"since", "from", "to"} {
		if cmd.Flags().Lookup(other) != nil {
			exclusive(cmd.Flags(), "windows", other)
		}
	}
}

// addStep adds the length of the windows of history.
func addStep(cmd *cobra.Command) {
	cmd.Flags().Duration("step", 0, "length of the windows of history, such as 10s; default about 120 windows")
	before(cmd, func([]string) error {
		if step, err := cmd.Flags().GetDuration("step"); err != nil || step < 0 || step == 0 && cmd.Flags().Changed("step") {
			return fmt.Errorf("--step %s: expected a time above 0", step)
		}
		return nil
	})
}

func newQueryVerdict() *cobra.Command {
	var f questionFlags
	cmd := f.command("verdict", "Where the fabric chokes, in words", answers.Verdict, "top", "windows")
	cmd.Long = `verdict merges all signals and says which places limit the cells of the range, those with the most
heavy observations first. If many heavy observations name at least half of the uplinks of a device,
or of the links into it, verdict names these ports together as one place. A place that is congested
at the end of the range has "since"; others have the times between which they were congested: "on
and off" if nothing was heavy there for a while in between. If nothing was congested, verdict says
how much was observed and judged, and calls the fabric healthy only if all expected taps sent data.
A store expects the taps with rows in the range, and live ones that wrote in the day before its end;
csigscope report also expects those of the fabric file. -o json has everything about a place, with
its cells and the worst value of each signal. Without a time range, a collector answers about the
windows in its memory, the last minute. With -o wide and csv, a statement has several rows, which list its signals and
beside them its cells: those of one row do not belong together. The other columns repeat.`
	cmd.Example = `  csigscope query verdict
  csigscope query verdict --since 15m
  csigscope query verdict --server http://127.0.0.1:9465 --windows 10 -o json`
	addTop(cmd, 10, "statements")
	addWindows(cmd, table.DefaultWindows)
	return cmd
}

func newQueryCells() *cobra.Command {
	var f questionFlags
	cmd := f.command("cells", "Mean and mode of the bottleneck of each cell over the range, the worst first", answers.Cells,
		"signal", "level", "src", "dst", "state", "windows")
	cmd.Long = `cells lists each pair of source and destination groups with observations in the range. With -o wide,
json, ndjson or csv, trend is how much higher the mean is in the later half of the range than in the
earlier half. It is empty if a half has no value: ask a collector with --windows 2 or more.`
	f.cells.add(cmd)
	f.cells.addEnds(cmd)
	f.addSort(cmd, "mean")
	addState(cmd)
	addWindows(cmd, 1)
	return cmd
}

func newQueryLocations() *cobra.Command {
	var f questionFlags
	cmd := f.command("locations", "Locations by how often heavy observations name them", answers.Locations, "signal", "level", "top", "windows")
	f.cells.add(cmd)
	f.addSort(cmd, "heavy_mean")
	addTop(cmd, 20, "locations")
	addWindows(cmd, 1)
	return cmd
}

func newQueryTimeline() *cobra.Command {
	var f questionFlags
	cmd := f.command("timeline", "Observed and congested cells, heavy observations and their locations, window by window", answers.Timeline,
		"signal", "level", "src", "dst", "step", "top", "windows")
	cmd.Long = `timeline sums up each window: the number of cells with observations and of congested ones, the
heavy observations, and the locations that they name most. --src and --dst choose the cells, but the
locations are always those of all cells. With one source and one destination that contain no other
groups, -o json, ndjson and wide also have their cell in each window.`
	f.cells.add(cmd)
	f.cells.addEnds(cmd)
	addStep(cmd)
	addTop(cmd, 3, "locations of each window")
	addWindows(cmd, 60)
	return cmd
}

func newQueryLinks() *cobra.Command {
	var f questionFlags
	cmd := f.command("links", "Ports of the fabric: their room as tags show it, and the cells and flows that depend on them", answers.Links,
		"signal", "link", "device", "peer", "state", "top", "windows")
	cmd.Long = `links lists each port of the fabric file, and all other locations that tags name. A tag names only
the tightest hop of its path: mean, min, max, last and observations come from the tags that name the
link. passed counts the tags that certainly passed the port and name another hop, or none. bound is
a limit that these tags prove: when they passed, the port had at least that room (for a delay: at
most that delay), if its device writes tags. among counts observations that name a set of ports
including this one. trend is how much higher the mean is in the later half of the range. cells and
flows count those whose observations name the link; -o wide lists its cells with the most heavy
observations, a line for each.

Without a fabric file, links are the locations that tags name, without capacity, peer and bound.`
	cmd.Example = `  csigscope query links --state congested
  csigscope query links --device leaf3 --signal min_abw -o wide
  csigscope query links --server http://127.0.0.1:9465 --top 20`
	f.cells.addSignal(cmd)
	flags := cmd.Flags()
	flags.StringSlice("link", nil, "only these `LINKS`")
	flags.StringSlice("device", nil, "only links that leave these `DEVICES`")
	flags.StringSlice("peer", nil, "only links into these `DEVICES` or hosts")
	flags.StringSlice("state", nil, "only links in these `STATES`: congested, brief, clear, too_few, not_judged, no_data")
	f.addSort(cmd, "mean")
	addTop(cmd, 1000, "links")
	addWindows(cmd, 10)
	return cmd
}

func newQueryTopology() *cobra.Command {
	var f questionFlags
	cmd := f.question("topology", "Ports of the fabric file, or the shortest paths of a pair of groups", func(cmd *cobra.Command, c *client.Client) (*answers.Answer, error) {
		a, err := answers.Topology(cmd.Context(), c, flagValues(cmd, "src", "dst"))
		if err == nil && a.Empty() {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: the configuration has no such paths or ports: was there a fabric file?")
		}
		return a, err
	})
	cmd.Example = `  csigscope query topology
  csigscope query topology --src rack1 --dst rack2`
	f.cells.addGroups(cmd, "source `GROUP`: lists the paths of a pair, with --dst", "destination `GROUP`")
	return cmd
}

func newQueryFlows() *cobra.Command {
	f := questionFlags{otherwise: lastHour}
	cmd := f.command("flows", "Flows by their number of heavy observations", topAsLimit(answers.Flows),
		"signal", "src", "dst", "location", "link", "window", "windows", "top")
	cmd.Long = `flows lists the flows with the most heavy observations, and the location that most of these
observations name. The row of a flow counts only its heavy observations. All other observations
are in rows "others": one for each cell, from the windows that store a flow of it, and one in the
group overflow for the rest. A row counts its tags if it has any, else its reflections. The rows of
tags add up to all tags; only min and max of "others" are those of the whole cells.

Each window of 1 s or 1 min stores the worst flows of each signal and kind (flows: {top: 100} in the
configuration; 0 for none). Their numbers are exact up to flows: {budget: 4096} flows in a window,
and lower bounds beyond. They are lower bounds too if replay cuts a file into chunks within a window
with more than 1024 flows. A collector takes up to 10,000 rows of flows for each window of an
exporter's stream (collect.ingest.limits.window_flows), and adds the rest to the others. If the
kernel counted the packets of a flow (--capture ebpf), its numbers are estimates from as many
observations as the column sampled says.

With --windows, a collector answers from memory.`
	cmd.Example = `  csigscope query flows --signal max_delay --top 10
  csigscope query flows --link leaf3:up1 --windows 10 --server http://127.0.0.1:9465`
	f.cells.addSignal(cmd)
	f.cells.addEnds(cmd)
	f.addSort(cmd, "mean")
	flags := cmd.Flags()
	flags.StringSlice("location", nil, "only flows whose heavy observations name these `LOCATIONS` most")
	flags.StringSlice("link", nil, "only flows whose location is one of these `PORTS`, or a set with one of them")
	flags.String("window", "1s", "length of the windows that name flows: 1s or 1m")
	addWindows(cmd, 0)
	flags.Lookup("windows").Usage += " from its memory"
	addTop(cmd, 100, "flows")
	return cmd
}

// topAsLimit requests only the first page, with top rows.
func topAsLimit(ask questioner) questioner {
	return func(ctx context.Context, c *client.Client, values url.Values) (*answers.Answer, error) {
		if top, ok := values["top"]; ok {
			delete(values, "top")
			values["limit"] = top
		}
		a, err := ask(ctx, c, values)
		if refused, ok := errors.AsType[*client.Error](err); ok {
			if text, wrong := strings.CutPrefix(refused.Detail, "limit: "); wrong {
				refused.Detail = "--top: " + text
				return nil, refused
			}
		}
		return a, err
	}
}

func newQueryFindings() *cobra.Command {
	f := questionFlags{otherwise: lastHour}
	f.times.everything = true
	cmd := f.command("findings", "Violations of the protocol or the configuration, the most severe first", topAsLimit(answers.Findings),
		"severity", "kind", "device", "location", "top")
	cmd.Example = `  csigscope query findings --severity error,warning
  csigscope query findings --kind rogue-insertion --device leaf3
  csigscope query findings --server http://127.0.0.1:9465 --since 15m`
	flags := cmd.Flags()
	flags.StringSlice("severity", nil, "only findings of these `SEVERITIES`: "+strings.Join(severities, ", "))
	flags.StringSlice("kind", nil, "only these `KINDS` of findings")
	flags.StringSlice("device", nil, "only findings about these `DEVICES`")
	flags.StringSlice("location", nil, "only findings about these `LOCATIONS`")
	f.addSort(cmd, "count")
	addTop(cmd, 100, "findings")
	before(cmd, func([]string) error {
		list, err := flags.GetStringSlice("severity")
		for _, s := range list {
			if !slices.Contains(severities, s) {
				return fmt.Errorf("--severity %q: expected %s", s, strings.Join(severities, ", "))
			}
		}
		return err
	})
	return cmd
}

func newQueryPath() *cobra.Command {
	var f questionFlags
	cmd := f.command("path", "Room left between a source and a destination, and the limiting location", answers.Path, "signal", "level", "src", "dst", "windows")
	cmd.Long = `path shows the room left between one source and destination, the limiting location with its
candidate ports, and how sure, old and complete the answer is. -o wide has a line for each of the
shortest paths by the fabric file, those with the most room first.`
	cmd.Example = `  csigscope query path --src rack1 --dst rack2
  csigscope query path --src rack1 --dst rack2 --server http://127.0.0.1:9465 -o json
  csigscope query path --src rack1 --dst rack2 --signal min_abw --from 2026-01-20T09:00:00Z --to 2026-01-20T10:00:00Z`
	f.cells.add(cmd)
	const several = ", such as a rack; one that contains others, such as a pod, is refused if several of them have data"
	f.cells.addGroups(cmd, "source `GROUP`"+several, "destination `GROUP`"+several)
	addWindows(cmd, 10)
	return cmd
}

func newQueryWindows() *cobra.Command {
	var f questionFlags
	cmd := &cobra.Command{Use: "windows", Short: "Mean and mode of the bottleneck of each cell in each window of the range", Args: noArgs}
	f.out.add(cmd, tabular.ListingFormats()...)
	f.times.add(cmd, lastWindows)
	f.cells.add(cmd)
	f.cells.addEnds(cmd)
	f.add(cmd)
	addState(cmd)
	addWindows(cmd, 1)
	addStep(cmd)
	cmd.Flags().Lookup("step").Usage = "length of the windows of history, such as 10s; default 1s"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return f.run(cmd, func(c *client.Client) error {
			values, err := f.times.parameters(cmd, c, "signal", "level", "src", "dst", "state", "windows", "step")
			if err != nil {
				return err
			}
			if values.Has("from") && !values.Has("step") {
				values.Set("step", time.Second.String())
			}
			return f.exported(cmd, c, func(w io.Writer) (*client.Exported, error) {
				return answers.Windows(cmd.Context(), c, values, w, f.out.format)
			})
		})
	}
	return cmd
}

// exported writes a table, and returns an error if it was cut off.
func (f *questionFlags) exported(cmd *cobra.Command, c *client.Client, export func(io.Writer) (*client.Exported, error)) error {
	var end *client.Exported
	err := f.out.write(cmd, func(w io.Writer) (err error) {
		buffered := bufio.NewWriterSize(w, 1<<16)
		if end, err = export(buffered); err != nil {
			return err
		}
		return buffered.Flush()
	})
	if err != nil {
		return err
	}
	if end.Rows == 0 {
		if err := noteEmpty(cmd, c); err != nil {
			return err
		}
	}
	if !end.Complete {
		return fmt.Errorf("write table: %d rows, cut off by the limit on %s: take a shorter range, a longer step, or --src and --dst", end.Rows, end.CutBy)
	}
	return nil
}

func newQueryExport() *cobra.Command {
	var f questionFlags
	var what string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Cells, windows, flows or findings as CSV, JSON lines, Parquet or Arrow",
		Long: `export writes a table: cells over the whole range, cells of each window, flows or findings. If a
table has too many rows or takes too long, export writes its first rows and exits with 1.`,
		Example: `  csigscope query export --signal min_abw > cells.csv
  csigscope query export --table windows --from 2026-01-20T09:00:00Z --to 2026-01-20T10:00:00Z --step 1s -o parquet --out windows.parquet
  csigscope query export --table flows --signal max_delay --server http://127.0.0.1:9465 -o arrow --out flows.arrows`,
		Args: noArgs,
	}
	f.out.add(cmd, string(tabular.CSV), string(tabular.NDJSON), string(tabular.Parquet), string(tabular.Arrow))
	f.cells.add(cmd)
	f.cells.addEnds(cmd)
	f.times.add(cmd, lastWindows+" (its last stored hour for flows and findings)")
	f.add(cmd)
	cmd.Flags().StringVar(&what, "table", "cells", "cells, windows, flows or findings")
	addStep(cmd)
	addWindows(cmd, 1)
	for _, name := range []string{"flows", "findings"} {
		_, parameters, _ := exportOf(name)
		needless(cmd.Flags(), "table="+name, slices.DeleteFunc(slices.Clone(cellParameters), func(p string) bool { return slices.Contains(parameters, p) })...)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		table, parameters, ok := exportOf(what)
		if !ok {
			return usageError{fmt.Errorf("--table %q: expected cells, windows, flows or findings", what)}
		}
		for _, name := range cellParameters {
			if cmd.Flags().Changed(name) && !slices.Contains(parameters, name) {
				return usageError{fmt.Errorf("--%s: leave it out with --table %s, which does not depend on it", name, what)}
			}
		}
		return f.run(cmd, func(c *client.Client) error {
			values, err := f.times.parameters(cmd, c, parameters...)
			if err != nil {
				return err
			}
			values.Set("format", f.out.format)
			if what == "windows" {
				values.Set("table", what)
			}
			return f.exported(cmd, c, func(w io.Writer) (*client.Exported, error) { return c.Export(cmd.Context(), table, values, w) })
		})
	}
	return cmd
}

// cellParameters are the flags of export that a table of cells takes as parameters. Other tables
// take some of them.
var cellParameters = []string{"signal", "level", "src", "dst", "step", "windows"}

// exportOf returns the server's table of that name, and the flags that it takes as parameters.
func exportOf(name string) (table string, parameters []string, ok bool) {
	switch name {
	case "cells", "windows":
		return client.TableCells, cellParameters, true
	case "flows":
		return client.TableFlows, []string{"signal", "src", "dst"}, true
	case "findings":
		return client.TableFindings, nil, true
	}
	return "", nil, false
}

// defaultServer is the usual address of collect --api-listen.
const defaultServer = "http://127.0.0.1:9465"

func newQueryWatch() *cobra.Command {
	var out output
	var cells cellFlags
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Follow the cells as windows end",
		Long: `watch asks the query API of a running csigscope. It prints the present cells, and then the cells
of each window: when it ends, when it becomes final, and when late packets change it. As JSON it
prints the events of the API, except heartbeats. After a connection breaks, watch connects again and
resumes. If it missed too much, it says so on standard error and prints all cells again. The column
final is true once only late packets may change the window (collect.lateness of the configuration);
durable is true if the window was already on disk when it was listed.

--resolution follows windows below 1 s, if windows.resolutions of the collector's configuration has
that length. They hold only cells with heavy observations, unless windows.fine_heavy_only is false,
with the states that windows of 1 s give them.`,
		Example: `  csigscope query watch --server http://127.0.0.1:9465
  csigscope query watch --server http://127.0.0.1:9465 --resolution 100ms
  csigscope query watch --server http://127.0.0.1:9465 --signal max_delay --state congested -o ndjson`,
		Args: noArgs,
	}
	out.addFormat(cmd, tabular.ListingFormats()...)
	cells.add(cmd)
	cells.addEnds(cmd)
	addState(cmd)
	cmd.Flags().Duration("resolution", time.Second, "length of the windows: 1s, or a shorter one that the collector has")
	followWith(cmd, "listings of a window, not counting the first snapshot", func(c *client.Client, count int) error {
		values := flagValues(cmd, "signal", "level", "src", "dst", "state", "resolution")
		return answers.Watch(cmd.Context(), c, values, count, cmd.OutOrStdout(), out.format, cmd.ErrOrStderr())
	})
	return cmd
}

func newQueryChanges() *cobra.Command {
	var out output
	var cells cellFlags
	cmd := &cobra.Command{
		Use:   "changes",
		Short: "Follow onsets, moves and ends of congestion, and silent taps",
		Long: `changes asks the query API of a running csigscope. It prints the present state: congested cells,
silent taps, and cells that lack data of these taps. Then it prints one line for each change:
onset, cleared and moved of a cell, tap_lost, tap_back, tap_forgotten, coverage_lost and
coverage_back. The time is the end of the newest window, which may be provisional. As ndjson it
prints the events of the API, except heartbeats. After a connection breaks, changes connects again
and resumes. When it prints the whole state again, as after the first window or if it missed too
much, it says so on standard error.`,
		Example: `  csigscope query changes --server http://127.0.0.1:9465
  csigscope query changes --server http://127.0.0.1:9465 --link leaf3:up1 --state congested -o ndjson`,
		Args: noArgs,
	}
	out.addFormat(cmd, "text", "ndjson")
	cells.addSignal(cmd)
	cells.addEnds(cmd)
	addState(cmd)
	addWindows(cmd, 1)
	cmd.Flags().Lookup("windows").Usage = "number of last windows that decide the location of a cell: with more, it moves later and less often"
	cmd.Flags().StringSlice("link", nil, "only cells that one of these `PORTS` may limit, now or earlier")
	followWith(cmd, "changes, not counting the present state", func(c *client.Client, count int) error {
		values := flagValues(cmd, "signal", "windows", "src", "dst", "link", "state")
		return answers.Changes(cmd.Context(), c, values, count, cmd.OutOrStdout(), out.format, cmd.ErrOrStderr())
	})
	return cmd
}

// followWith makes a command follow a stream of a server; f prints it and ends after count
// items.
func followWith(cmd *cobra.Command, what string, f func(c *client.Client, count int) error) {
	var server string
	var count int
	flags := cmd.Flags()
	flags.IntVar(&count, "count", 0, "end after this many "+what+"; 0: run until interrupted")
	flags.StringVar(&server, "server", defaultServer, "`URL` of the query API, such as the address of collect --api-listen")
	addCredentialFlags(cmd)
	before(cmd, func([]string) error {
		if count < 0 {
			return fmt.Errorf("--count %d: expected at least 1, or 0 to run until interrupted", count)
		}
		return nil
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := newServerClient(cmd, server)
		if err != nil {
			return err
		}
		c.Retrying = func(why error, wait time.Duration) {
			fmt.Fprintf(cmd.ErrOrStderr(), "csigscope: %s: trying again in %s\n", asked(why), wait)
		}
		if err = f(c, count); count == 0 && errors.Is(err, context.Canceled) {
			return nil // an interrupt ends following
		}
		return asked(err)
	}
}
