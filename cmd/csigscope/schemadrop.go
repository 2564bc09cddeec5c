package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/store"
)

func newSchemaDrop() *cobra.Command {
	var dsn string
	var box outboxFlags
	var yes bool
	cmd := &cobra.Command{
		Use:   "drop",
		Short: "Delete a database with all that was stored in it",
		Long: `Delete a database with all that was stored in it. It says what will be lost and asks
first; where nobody can answer, it needs --yes. A database that holds anything that
csigscope did not make is refused. One from before version 1 of the schema, which all
other commands refuse, is dropped.`,
		Example: "  csigscope schema drop --store embedded:old-data",
		Args:    noArgs,
	}
	addStoreFlag(cmd, &dsn)
	box.add(cmd.Flags())
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		db, err := connect(cmd, dsn, toDrop, &box)
		if err != nil {
			return err
		}
		if db == nil {
			return usageError{fmt.Errorf("schema drop: --store none has nothing to drop")}
		}
		defer db.Close()
		contents, err := db.store.Contents(cmd.Context())
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "Database %s of %s:\n", db.target.Database, db.target)
		printContents(out, &contents)
		if !yes {
			if err := askToDrop(cmd, db.target.Database); err != nil {
				return err
			}
		}
		if err := db.store.Drop(cmd.Context()); err != nil {
			return err
		}
		fmt.Fprintln(out, "dropped")
		return nil
	}
	return cmd
}

func printContents(w io.Writer, c *store.Contents) {
	for _, t := range c.Tables {
		fmt.Fprintf(w, "  %-14s %d rows\n", t.Name, t.Rows)
	}
	if c.Waiting > 0 {
		fmt.Fprintf(w, "  %-14s %d rows\n", "outbox", c.Waiting)
	}
	if c.First.IsZero() {
		fmt.Fprintln(w, "  nothing is stored")
		return
	}
	fmt.Fprintf(w, "  windows from %s to %s, %.1f MB on disk\n", c.First.UTC().Format(time.RFC3339), c.Last.UTC().Format(time.RFC3339), float64(c.Bytes)/1e6)
}

// askToDrop wants the name of the database from a person at a terminal.
func askToDrop(cmd *cobra.Command, database string) error {
	if in, ok := cmd.InOrStdin().(io.Writer); !ok || !isTerminal(in) {
		return usageError{fmt.Errorf("schema drop: nobody to ask: give --yes to delete all of this")}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "All of it will be lost. Type %s to go on: ", database)
	return confirm(cmd.InOrStdin(), database)
}

// maxAnswer bounds what is read of a person's answer.
const maxAnswer = 1024

func confirm(in io.Reader, want string) error {
	answer, err := bufio.NewReader(io.LimitReader(in, maxAnswer)).ReadString('\n')
	if strings.TrimSpace(answer) == want {
		return nil
	}
	if err != nil && err != io.EOF {
		return fmt.Errorf("read answer: %w", err)
	}
	return fmt.Errorf("nothing was dropped: expected %s, got %q", want, strings.TrimSpace(answer))
}
