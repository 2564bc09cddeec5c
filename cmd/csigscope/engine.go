package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
)

// newEngineCommand is what the child process of the embedded engine runs.
func newEngineCommand() *cobra.Command {
	var o chdb.ServerOptions
	cmd := &cobra.Command{
		Use:    "engine --dir DIR",
		Short:  "Run the embedded ClickHouse engine over a data folder",
		Hidden: true,
		Args:   usageArgs(cobra.NoArgs),
	}
	cmd.Flags().StringVar(&o.Dir, "dir", "", "data `FOLDER`")
	cmd.Flags().StringVar(&o.Library, "library", "", "engine library `FILE`")
	cmd.Flags().StringVar(&o.Listen, "listen", "", "also answer read-only queries on this loopback `ADDRESS`")
	cmd.Flags().Uint64Var(&o.MaxMemory, "max-memory", 0, "memory limit in `BYTES`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
		return chdb.Serve(cmd.Context(), o)
	}
	return cmd
}
