package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagsFromEnvironment sets each flag that the command line leaves alone from the
// variable CSIGSCOPE_FLAG_NAME, if there is one.
func flagsFromEnvironment(flags *pflag.FlagSet) error {
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		name := "CSIGSCOPE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := os.LookupEnv(name)
		if !ok || f.Changed || f.Name == "help" || failed != nil {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			failed = usageError{fmt.Errorf("environment variable %s: %w", name, plainFlagError(err))}
		}
	})
	return failed
}

// noArgs refuses arguments. Most are files that a flag was forgotten before.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var hint string
	if cmd.Flags().Lookup("config") != nil {
		hint = ": a configuration file goes behind --config"
	}
	if cmd.Flags().Lookup("fabric") != nil {
		hint += ", a fabric file behind --fabric"
	}
	return usageError{fmt.Errorf("%s: unexpected argument %q%s (see %s --help)", cmd.Name(), args[0], hint, cmd.CommandPath())}
}

// folderArg asks for one folder.
func folderArg(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError{fmt.Errorf("%s: expected one FOLDER, got %d (see %s --help)", cmd.Name(), len(args), cmd.CommandPath())}
	}
	return nil
}

// filesArgs asks for at least one file.
func filesArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("%s: no capture file given (see %s --help)", cmd.Name(), cmd.CommandPath())}
	}
	return nil
}

// newLogger logs warnings to w, and with --verbose everything.
func newLogger(cmd *cobra.Command, w io.Writer) *slog.Logger {
	level := slog.LevelWarn
	if verbose, err := cmd.Flags().GetBool("verbose"); err == nil && verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}
