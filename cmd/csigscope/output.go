package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/tabular"
)

func checkOutput(format string) error {
	if list := tabular.ListingFormats(); !slices.Contains(list, format) {
		return usageError{fmt.Errorf("output format %q: expected one of %s", format, strings.Join(list, ", "))}
	}
	return nil
}

// writeIndented prints a value as JSON.
func writeIndented(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func addOutputFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", "table", "output `FORMAT`: "+strings.Join(tabular.ListingFormats(), ", "))
	run := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := checkOutput(*format); err != nil {
			return err
		}
		if run != nil {
			return run(cmd, args)
		}
		return nil
	}
}
