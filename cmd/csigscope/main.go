// Command csigscope collects CSIG tags and reflections, works out where the
// bottlenecks of a fabric are, and shows them.
//
// It knows flags, configuration and wiring. It must never hold logic: what a
// command does is in the package that knows the matter.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/store"
)

// Exit codes of every command.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	exitFound  = 3
)

// usageError is a mistake on the command line or in a configuration file.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// findingsError ends a command that did its work and found something wrong.
type findingsError struct{ error }

func (e findingsError) Unwrap() error { return e.error }

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "csigscope: interrupted")
		return exitFailed
	}
	fmt.Fprintln(os.Stderr, "csigscope:", err)
	if _, ok := errors.AsType[usageError](err); ok || errors.Is(err, store.ErrQuestion) {
		return exitUsage
	}
	if _, ok := errors.AsType[findingsError](err); ok {
		return exitFound
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "csigscope",
		Short: "See where a CSIG fabric chokes",
		Long: `csigscope reads CSIG (Congestion Signaling) tags and reflections from packets,
works out the bottleneck of every source-destination pair over time, stores it
in ClickHouse, and shows it as heatmaps.

Every flag can also be given in the environment, by command and flag: --listen of query
serve as CSIGSCOPE_QUERY_SERVE_LISTEN. --config is CSIGSCOPE_CONFIG for all commands, and
--verbose CSIGSCOPE_VERBOSE. A flag comes first, then the environment, then the
configuration file, then the default.

Durations are written like 500ms, 10s or 1h30m, sizes like 64MiB (without a unit in
bytes), times like 2026-01-05T09:30:00Z.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 done with findings.`,
		Example: `  csigscope demo                                  # everything at once, in a browser
  csigscope emit --scenario demo --out captures   # packets of a simulated fabric
  csigscope replay captures/*.pcapng --fabric captures/fabric.yaml
  csigscope query cells --signal min_abw_ratio
  csigscope decode capture.pcap | head`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return flagsFromEnvironment(cmd)
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", plainFlagError(err), cmd.CommandPath())}
	})
	addGroup(root, "try", "Trying it:", newDemoCommand(), newEmitCommand())
	addGroup(root, "captures", "Captures:", newDecodeCommand(), newReplayCommand(), newReportCommand(), newConformCommand(), newTraceCommand())
	addGroup(root, "live", "Live:", newCollectCommand(), newExportCommand())
	addGroup(root, "stored", "What is stored:", newQueryCommand(), newDashboardsCommand(), newSchemaCommand())
	addGroup(root, "tool", "This tool:", newConfigCommand(), newVersionCommand())
	root.SetHelpCommandGroupID("tool")
	root.SetCompletionCommandGroupID("tool")
	root.AddCommand(newEngineCommand(), newReferenceCommand(root))
	refuseUnknown(root)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.PersistentFlags().BoolP("verbose", "v", false, "log what is going on to standard error")
	return root
}
