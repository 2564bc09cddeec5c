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
		Long: `check reads both files as all other commands do and says what is wrong in them, with lines;
then the exit code is 2. What is allowed and yet looks like a mistake, such as an address of
a host in no group, is a warning on standard error.`,
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
		for _, warning := range n.fabric.Warnings() {
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
