// Command csigscope collects CSIG tags and reflections, finds the bottlenecks of a fabric, and
// shows them.
//
// It knows flags, configuration and wiring. It must never hold logic: the package that knows
// the subject does a command's work.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/daemon"
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

// findingsError ends a command that succeeded and found problems.
type findingsError struct{ error }

func (e findingsError) Unwrap() error { return e.error }

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// ownEnd is the annotation of commands that decide themselves about the end at a second signal.
const ownEnd = "own-end"

// run runs a command until it ends, ctx ends or a signal arrives, and returns its exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = unknownCommand(cmd, cmd.Flags().Args()) // --help beside a name that no command has
	}
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintln(errOut, "csigscope: interrupted")
		return exitFailed
	}
	fmt.Fprintln(errOut, "csigscope:", err)
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

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 done, and problems found (conform,
fabric import, report --fail-on, schema verify, trace).`,
		Example: `  csigscope demo                                  # everything at once, in a browser
  csigscope emit --scenario demo --out captures   # packets of a simulated fabric
  csigscope replay captures/*.pcapng --fabric captures/fabric.yaml
  csigscope query cells --signal min_abw_ratio
  csigscope decode capture.pcap | head`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Annotations[ownEnd] == "" {
				daemon.ExitOnSecond(cmd.Context(), exitFailed, func() string { return "incomplete and temporary files may be left" })
			}
			return flagsFromEnvironment(cmd)
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", plainFlagError(err), cmd.CommandPath())}
	})
	addGroup(root, "try", "Trying it:", newDemoCommand(), newEmitCommand())
	addGroup(root, "captures", "Captures:", newDecodeCommand(), newReplayCommand(), newReportCommand(), newConformCommand(), newTraceCommand())
	addGroup(root, "live", "Live:", newCollectCommand(), newExportCommand())
	addGroup(root, "stored", "Stored rows:", newQueryCommand(), newDashboardsCommand(), newSchemaCommand())
	addGroup(root, "tool", "This tool:", newFabricCommand(), newConfigCommand(), newVersionCommand())
	root.SetHelpCommandGroupID("tool")
	root.SetCompletionCommandGroupID("tool")
	root.AddCommand(newEngineCommand(), newReferenceCommand(root))
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	refuseUnknown(root)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.PersistentFlags().BoolP("verbose", "v", false, "log progress to standard error")
	return root
}

// addGroup adds commands under a title of their own in the help.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = id
	}
	root.AddCommand(commands...)
}

// refuseUnknown makes commands with only subcommands reject unknown ones, with --help and in `help
// NAME` too. cobra would print the help and succeed, but a script that runs `schema migrat` has to
// fail.
func refuseUnknown(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if unknownCommand(cmd, cmd.Flags().Args()) == nil { // run returns the error
			help(cmd, args)
		}
	})
	refuseUnknownBelow(root)
}

func refuseUnknownBelow(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		refuseUnknownBelow(sub)
	}
	if cmd.Name() == "help" {
		cmd.Run, cmd.RunE = nil, func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err == nil {
				err = unknownCommand(topic, rest)
			}
			if err != nil {
				return err
			}
			topic.InitDefaultHelpFlag()
			return topic.Help()
		}
	}
	if !cmd.HasSubCommands() || cmd.Runnable() {
		return
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := unknownCommand(cmd, args); err != nil {
			return err
		}
		return cmd.Help()
	}
	// Hide from the help that such commands can be run.
	cmd.SetUsageTemplate(strings.Replace(cmd.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
}

// unknownCommand returns an error if args name no subcommand of a command that has some.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || !cmd.HasSubCommands() {
		return nil
	}
	see := cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = 2 // cobra's default for its own suggestions
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		return usageError{fmt.Errorf("unknown command %q of %s: did you mean %s? (see %s)", args[0], cmd.CommandPath(), strings.Join(like, " or "), see)}
	}
	return usageError{fmt.Errorf("unknown command %q of %s (see %s)", args[0], cmd.CommandPath(), see)}
}

// version is set by the linker to the built tag or commit.
var version = "unknown"

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and how it was built",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "csigscope %s\n", version)
			fmt.Fprintf(out, "built with %s for %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, d := range info.Deps {
					switch d.Path {
					case "github.com/google/gopacket", "github.com/ClickHouse/clickhouse-go/v2":
						fmt.Fprintf(out, "%s %s\n", d.Path, d.Version)
					}
				}
			}
			return nil
		},
	}
}
