package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/store"
)

func newSchemaVerify() *cobra.Command {
	var dsn, output string
	var o store.VerifyOptions
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that what is stored adds up",
		Long: `Check what must hold of all stored rows, whatever was measured, and print what does
not: 1 s rows add up to 1 min rows and fine rows to no more than 1 s rows (where the run is
done and neither has expired), what taps counted as stored is there or in gaps, the
numbers of each row fit together, no identity is of two records, and rows belong to a
run, a configuration, groups and locations that are known. Every row is read, in pieces
of a day or less.

The kind "info" is worth knowing and no fault: runs that a later one superseded, rows
that were written more than once and count once, rows that were lost and are in gaps. With faults the exit code is 3.`,
		Args: noArgs,
	}
	addStoreFlag(cmd, &dsn)
	addOutputFlag(cmd, &output)
	cmd.Flags().DurationVar(&o.Grace, "grace", time.Hour, "how long a run may be under way before it counts as one that never ended")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Grace <= 0 {
			return usageError{fmt.Errorf("--grace %s: expected a time above 0", o.Grace)}
		}
		db, err := connectStore(cmd, dsn, mustExist)
		if err != nil {
			return err
		}
		if db == nil {
			return usageError{fmt.Errorf("schema verify: --store none has nothing to verify")}
		}
		defer db.Close()
		o.Now = time.Now()
		t := tabular.Listing{Columns: []string{"kind", "check", "table", "day", "count", "example"}}
		faults := 0
		err = db.store.Verify(cmd.Context(), o, func(f store.Finding) error {
			kind := "info"
			if !f.Info {
				kind = "fault"
				faults++
			}
			day := any(nil)
			if !f.Day.IsZero() {
				day = f.Day.Format(time.DateOnly)
			}
			t.Rows = append(t.Rows, []any{kind, f.Check, f.Table, day, f.Count, f.Example})
			return nil
		})
		if err != nil {
			return err
		}
		if err := t.Write(cmd.OutOrStdout(), output); err != nil {
			return err
		}
		if faults > 0 {
			return findingsError{fmt.Errorf("schema verify: %d faults in %s", faults, db.target)}
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "all that is stored in %s adds up\n", db.target)
		return nil
	}
	return cmd
}
