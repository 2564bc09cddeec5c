package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/answers"
)

func newQueryExtent() *cobra.Command {
	var dsn, output string
	cmd := &cobra.Command{Use: "extent", Short: "What is stored: time range, signals, resolutions", Args: noArgs}
	addStoreFlag(cmd, &dsn)
	addOutputFlag(cmd, &output)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		db, err := openForReading(cmd, dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		e, err := db.store.Extent(cmd.Context())
		if err != nil {
			return err
		}
		partial, err := notePartial(cmd.Context(), cmd.ErrOrStderr(), db)
		if err != nil {
			return err
		}
		if e.Observations == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: nothing is stored in %s yet\n", db.target)
		}
		return answers.Extent(e, partial).Write(cmd.OutOrStdout(), output)
	}
	return cmd
}
