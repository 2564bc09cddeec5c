package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/client"
)

func newQueryExport() *cobra.Command {
	var server, what, out string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Cells, windows, flows or findings as CSV, Parquet or Arrow",
		Long: `export writes a table that a running csigscope has been asked for: cells over the whole
range, by each window of it, flows or findings. Without --from and --to cells and windows
are those in memory. A table that is not complete, since it has too many rows or takes too
long, is written as far as it goes, and the exit code is 1.`,
		Example: `  csigscope query export --signal min_abw > cells.csv
  csigscope query export --table windows --from 2026-01-20T09:00:00Z --to 2026-01-20T10:00:00Z --step 1s --format parquet --out windows.parquet
  csigscope query export --table flows --signal max_delay --format arrow --out flows.arrows`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&server, "server", defaultServer, "`URL` of the query API, such as that of collect --api-listen or query serve")
	flags.StringVar(&what, "table", "cells", "cells, windows, flows or findings")
	flags.String("format", "csv", "csv, parquet or arrow (a stream of record batches)")
	flags.StringVar(&out, "out", "", "`FILE` to write, default standard output")
	flags.String("signal", "min_abw_ratio", "min_abw, min_abw_ratio, max_delay, max_nqd or type_N; not of findings")
	flags.String("level", "location", "where modes are taken: location, set, device or stage; of cells and windows")
	flags.String("src", "", "only from this source `GROUP`, or a group in it; not of findings")
	flags.String("dst", "", "only to this destination `GROUP`, or a group in it; not of findings")
	flags.String("from", "", "begin of the history (`TIME`, RFC 3339)")
	flags.String("to", "", "end of the history (`TIME`, RFC 3339)")
	flags.String("step", "", "`LENGTH` of the windows of history, such as 10s")
	flags.Int("windows", 1, "how many of the last windows in memory are taken")
	addCredentialFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		table, parameters, ok := exportOf(what)
		if !ok {
			return usageError{fmt.Errorf("--table %q: expected cells, windows, flows or findings", what)}
		}
		c, err := newServerClient(cmd, server)
		if err != nil {
			return err
		}
		values := flagValues(cmd, parameters...)
		if what == "windows" {
			values.Set("table", what)
		}
		return writeExport(cmd, c, table, values, out)
	}
	return cmd
}

// exportOf is the server's table of that name, and the flags that it takes as parameters.
func exportOf(name string) (table string, parameters []string, ok bool) {
	switch name {
	case "cells", "windows":
		return client.TableCells, []string{"format", "signal", "level", "src", "dst", "from", "to", "step", "windows"}, true
	case "flows":
		return client.TableFlows, []string{"format", "signal", "src", "dst", "from", "to"}, true
	case "findings":
		return client.TableFindings, []string{"format", "from", "to"}, true
	}
	return "", nil, false
}

// writeExport writes a table to a file, or to standard output where it has no name.
func writeExport(cmd *cobra.Command, c *client.Client, table string, parameters url.Values, path string) error {
	to := cmd.OutOrStdout()
	file := &lazyFile{path: path}
	if path != "" {
		to = file
	}
	buffered := bufio.NewWriterSize(to, 1<<16)
	end, err := c.Export(cmd.Context(), table, parameters, buffered)
	if err != nil {
		return errors.Join(asked(err), file.close())
	}
	if err := errors.Join(buffered.Flush(), file.close()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	if !end.Complete {
		return fmt.Errorf("write table: %d rows, cut off by the limit on %s: take a shorter range, a longer step, or --src and --dst", end.Rows, end.CutBy)
	}
	return nil
}

// lazyFile is made when something is written: a question that is refused leaves what was
// there before.
type lazyFile struct {
	path string
	file *os.File
}

// Write implements io.Writer.
func (f *lazyFile) Write(b []byte) (int, error) {
	if f.file == nil {
		var err error
		if f.file, err = os.Create(f.path); err != nil {
			return 0, err
		}
	}
	return f.file.Write(b)
}

func (f *lazyFile) close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
