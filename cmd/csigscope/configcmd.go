package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and print the configuration",
	}
	var path string
	check := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration file and the fabric file",
		Long: `check validates both files as each command that reads them does: what it calls good, no
command refuses. Mistakes are reported with their lines and keys, and the exit code is 2.
A value that is allowed and looks like a mistake, such as an address of a host in no group,
is a warning on standard error. Files that the configuration names, such as certificates,
are not read, but for those of the store.`,
		Example: "  csigscope config check --config csigscope.yaml --fabric fabric.yaml",
		Args:    noArgs,
	}
	var fabricPath string
	check.Flags().StringVar(&path, "config", "", "configuration `FILE` (YAML)")
	check.Flags().StringVar(&fabricPath, "fabric", "", "fabric `FILE` (YAML)")
	check.RunE = func(cmd *cobra.Command, _ []string) error {
		n, err := openNetwork(path, fabricPath)
		if err != nil {
			return err
		}
		if _, err := n.config.Store.target(); err != nil {
			return usageError{fmt.Errorf("check %q: %w", path, err)}
		}
		warnings := n.fabric.Warnings()
		if err := n.config.Collect.Ingest.checkListen(false); err != nil {
			warnings = append(warnings, err.Error()+": collect refuses that without --ingest-dangerously-exposed")
		}
		for _, warning := range warnings {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning:", warning)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "configuration is good: epoch %016x\n", n.epoch)
		return nil
	}
	dump := &cobra.Command{
		Use:     "dump",
		Short:   "Print the configuration with all defaults filled in, but without the store's password",
		Example: "  csigscope config dump > csigscope.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(path)
			if err != nil {
				return err
			}
			return dumpConfig(cmd.OutOrStdout(), c.merge())
		},
	}
	dump.Flags().StringVar(&path, "config", "", "configuration `FILE` (YAML)")
	cmd.AddCommand(check, dump)
	return cmd
}

func dumpConfig(w io.Writer, c config) error {
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(c); err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	return nil
}
