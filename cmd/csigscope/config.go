package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/cmd/csigscope/internal/daemon"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and print the configuration",
	}
	cmd.AddCommand(newConfigCheck(), newConfigDump())
	return cmd
}

func newConfigCheck() *cobra.Command {
	var f networkFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration file and the fabric file",
		Long: `check validates both files as each command that reads them does: a file that passes is
refused by no command. Mistakes are reported with their lines and keys, and the exit code
is 2. A value that is allowed and looks like a mistake, such as an address of a host in no
group, is a warning on standard error. Files that the configuration names, such as
certificates, are not read, but for those of the store.`,
		Example: "  csigscope config check --config csigscope.yaml --fabric fabric.yaml",
		Args:    noArgs,
	}
	f.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		n, err := openNetwork(f.config, f.fabric)
		if err != nil {
			return err
		}
		if _, err := n.Config.Store.DSN.Target(); err != nil {
			return usageError{fmt.Errorf("check %q: %w", f.config, err)}
		}
		warnings := n.Fabric.Warnings()
		if err := n.Config.Collect.Ingest.CheckListen(); err != nil {
			warnings = append(warnings, err.Error()+": collect refuses that without --ingest-dangerously-exposed")
		}
		for _, warning := range warnings {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning:", warning)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "configuration is good: epoch %016x\n", n.Epoch)
		return nil
	}
	return cmd
}

func newConfigDump() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:     "dump",
		Short:   "Print the configuration with all defaults filled in, but without the store's password",
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
