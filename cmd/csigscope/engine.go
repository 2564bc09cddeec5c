package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

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
		Args:   noArgs,
	}
	cmd.Flags().StringVar(&o.Dir, "dir", "", "data `FOLDER`")
	cmd.Flags().StringVar(&o.Library, "library", "", "engine library `FILE`")
	cmd.Flags().StringVar(&o.Listen, "listen", "", "also answer read-only queries on this loopback `ADDRESS`")
	cmd.Flags().Uint64Var(&o.MaxMemory, "max-memory", 0, "memory limit in `BYTES`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// A Ctrl-C reaches every process of the terminal; the parent's last rows are
		// still to be written then. The engine ends when nobody is attached.
		ctx, stop := signal.NotifyContext(context.WithoutCancel(cmd.Context()), syscall.SIGTERM)
		defer stop()
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
		return chdb.Serve(ctx, o)
	}
	return cmd
}
