package main

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/daemon"
	"github.com/csigscope/csigscope/replay"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and print the configuration",
		Long: `One YAML file configures all commands (--config FILE); the fabric file describes the network
(--fabric FILE). dump prints a file to edit, with the main keys and their defaults. Default lists of
csig are comments in it, since as keys they would replace those of the fabric file. The reference
(REFERENCE.md; man csigscope) lists all keys.`,
	}
	cmd.AddCommand(newConfigCheck(), newConfigDump())
	return cmd
}

func newConfigCheck() *cobra.Command {
	var f networkFlags
	var seen []string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration file and the fabric file",
		Long: `check validates both files with the code of the commands. Mistakes are reported with their lines and
keys, and the exit code is 2. A value that is allowed and looks like a mistake, such as an address
of a host in no group, is a warning on standard error. So is each list in the section csig of the
configuration that replaces entries of the fabric file.

A file that passes has no mistake in itself. A command may still refuse it: too little memory for
its parts, an exposed address without the flag for it, no store to write to, nothing to capture, or
a file that the configuration names, such as a certificate. check reads only those of the store.

With --seen, check reads captures of taps inside the fabric (place mid, at), and prints for how
many of their flows the paths and the ECMP hashes of the fabric file are right. It prints nothing
about flows if the file has neither.`,
		Example: `  csigscope config check --config csigscope.yaml --fabric fabric.yaml
  csigscope config check --fabric fabric.yaml --seen spine1.pcapng`,
		Args: noArgs,
	}
	f.add(cmd.Flags())
	cmd.Flags().StringSliceVar(&seen, "seen", nil, "captures `FILE`,... of taps inside the fabric")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		n, err := openNetwork(f.config, f.fabric)
		if err != nil {
			return err
		}
		if _, err := n.Config.Store.DSN.Target(); err != nil {
			return usageError{fmt.Errorf("check %q: %w", f.config, err)}
		}
		if err := n.CheckCounting(config.TapDefaults{Place: "receiver"}); err != nil {
			return usageError{fmt.Errorf("check %q: %w", f.config, err)}
		}
		missing, warnings := n.Fabric.Review()
		for _, list := range n.Replaced {
			warnings = append(warnings, fmt.Sprintf("csig: %s: the configuration replaces entries of the fabric file", list))
		}
		if err := n.Config.Collect.Ingest.CheckListen(); err != nil {
			warnings = append(warnings, err.Error()+": collect refuses that without --ingest-dangerously-exposed")
		}
		printReview(cmd, missing, warnings)
		fmt.Fprintf(cmd.OutOrStdout(), "configuration is good: epoch %016x\n", n.Epoch)
		if len(seen) > 0 {
			return predict(cmd, n, seen)
		}
		return nil
	}
	return cmd
}

// predict prints how well the fabric file predicts where captures saw flows.
func predict(cmd *cobra.Command, n *network, captures []string) error {
	var f pipelineFlags
	f.taps.place, f.workers = "receiver", runtime.NumCPU()
	c, err := f.config(captures, n)
	if err != nil {
		return err
	}
	c.Sink, c.Logger = aggregate.Sinks{}, slog.New(slog.DiscardHandler)
	r, err := replay.New(c)
	if err != nil {
		return err
	}
	if err := r.Run(cmd.Context()); err != nil {
		return err
	}
	if !n.Fabric.UseSightings() {
		return fmt.Errorf("check %q: no flow was seen: expected captures of taps that the fabric file places (place: mid, at)", captures)
	}
	for _, p := range n.Fabric.Predictions() {
		if p.Seen > 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: right for %d of %d flows at taps (%.2f %%)\n", p.By, p.Right, p.Seen, 100*float64(p.Right)/float64(p.Seen))
		}
	}
	return nil
}

func newConfigDump() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:     "dump",
		Short:   "Print the configuration and the defaults of its main keys, without the store's password",
		Example: "  csigscope config dump > csigscope.yaml",
		Args:    noArgs,
	}
	cmd.Flags().StringVar(&path, "config", "", "configuration `FILE` (YAML)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := loadConfig(path)
		if err != nil {
			return err
		}
		if err := c.Dump(cmd.OutOrStdout()); err != nil {
			return err
		}
		if l := daemon.FindMemoryLimit(uint64(c.MemoryLimit), os.DirFS("/"), os.Getenv); l.Bytes+l.Go > 0 {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "# memory limit here, of all processes together: %d MiB, by %s (GOMEMLIMIT: %d MiB)\n", l.Bytes>>20, l.String(), l.Go>>20)
		}
		return err
	}
	return cmd
}
