package main

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/store"
)

// saltBytes is the length of the salt of a password's hash.
const saltBytes = 16

func newSchemaGrants() *cobra.Command {
	var g store.Grants
	var access string
	var password bool
	cmd := &cobra.Command{
		Use:   "grants --user NAME",
		Short: "Print the SQL that gives a user access to the database",
		Long: `Print the SQL that gives a user of a ClickHouse server access to the database, for an
administrator to run: a role, and for a reader a settings profile and a quota, which
bound what its queries cost.

With --password-stdin the user is created; the password is printed as a salted hash.
Without, the user must exist. A writer may store rows, an owner may also run schema
migrate and schema drop.`,
		Example: `  csigscope schema grants --user grafana
  csigscope schema grants --user grafana --password-stdin < password.txt | clickhouse-client --multiquery`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&g.User, "user", "", "`NAME` of the user (required)")
	flags.StringVar(&access, "access", string(store.AccessReader), "what the user may do: reader, writer or owner")
	flags.StringVar(&g.Database, "database", store.DefaultDatabase, "`NAME` of the database")
	flags.BoolVar(&password, "password-stdin", false, "create the user, with the first line of standard input as its password")
	flags.DurationVar(&g.Limits.Time, "max-time", 30*time.Second, "longest time of a reader's query")
	flags.Uint64Var(&g.Limits.ReadRows, "max-read-rows", 4e9, "rows that a reader's query reads at most")
	flags.Uint64Var(&g.Limits.Memory, "max-memory", 4<<30, "memory of a reader's query in `BYTES`")
	flags.Uint64Var(&g.Limits.ResultRows, "max-result-rows", 1<<20, "rows of an answer at most")
	flags.Uint64Var(&g.QueriesPerHour, "queries-per-hour", 36_000, "queries of a reader in an hour at most")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		g.Access = store.Access(access)
		if password {
			if err := readPassword(cmd.InOrStdin(), &g); err != nil {
				return err
			}
		}
		statements, err := g.Statements()
		if err != nil {
			return usageError{fmt.Errorf("schema grants: %w", err)}
		}
		for _, s := range statements {
			fmt.Fprintf(cmd.OutOrStdout(), "%s;\n", s)
		}
		return nil
	}
	return cmd
}

// readPassword takes the first line, which must not be empty.
func readPassword(in io.Reader, g *store.Grants) error {
	line, err := bufio.NewReader(io.LimitReader(in, maxAnswer)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read password: %w", err)
	}
	g.Password = strings.TrimRight(line, "\r\n")
	if g.Password == "" {
		return usageError{errors.New("--password-stdin: expected a password in the first line of standard input")}
	}
	g.Salt = make([]byte, saltBytes)
	_, _ = rand.Read(g.Salt) // never fails
	return nil
}
