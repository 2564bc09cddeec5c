package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/store"
)

func newSchemaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print, apply, verify and drop the ClickHouse schema, unpin names, back up and restore the embedded store",
	}
	cmd.AddCommand(
		newSchemaPrint(), newSchemaMigrate(), newSchemaStatus(), newSchemaVerify(), newSchemaTrim(), newSchemaUnpin(), newSchemaDrop(), newSchemaGrants(),
		newSchemaBackup(), newSchemaRestore(),
	)
	return cmd
}

func newSchemaUnpin() *cobra.Command {
	var dsn, output string
	var all bool
	cmd := &cobra.Command{
		Use:   "unpin NAME...",
		Short: "Take the next description of groups and locations, whichever exporter gives it",
		Long: `Take the next description of groups and locations, whichever exporter gives it. Where
collect has no fabric file, what the first exporter says of a name (its level, parent,
capacity, device, set and ports) is pinned: others that say otherwise are refused, which the
finding contested-name shows. Collectors that run take such a description within seconds; of
several, the one that was refused first. --all unpins what exporters have described, names
what fabric files say as well; a collector that runs keeps to its own file in any case.`,
		Example: `  csigscope query findings
  csigscope schema unpin leaf3:up1 "leaf3 up"`,
	}
	addStoreFlag(cmd, &dsn)
	addOutputFlag(cmd, &output)
	cmd.Flags().BoolVar(&all, "all", false, "unpin all names that exporters have described")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		if all == (len(names) > 0) {
			return usageError{fmt.Errorf("schema unpin: expected names of groups and locations, or --all")}
		}
		db, err := connect(cmd, dsn, mustExist, nil)
		if err != nil {
			return err
		}
		if db == nil {
			return usageError{fmt.Errorf("schema unpin: --store none has no names")}
		}
		defer db.Close()
		list, err := db.store.Unpin(cmd.Context(), names)
		if err != nil {
			return err
		}
		if len(list) == 0 && !all {
			return fmt.Errorf("unpin names: none of them is pinned: see the evidence of csigscope query findings for how they are spelled")
		}
		t := tabular.Listing{Columns: []string{"kind", "name", "exporter", "pinned"}}
		for _, u := range list {
			t.Rows = append(t.Rows, []any{u.Kind, u.Name, u.Exporter, u.At.UTC().Format(time.RFC3339)})
		}
		return t.Write(cmd.OutOrStdout(), output)
	}
	return cmd
}

func newSchemaPrint() *cobra.Command {
	var database, cluster string
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print all statements of the schema",
		Long: `Print all statements of the schema.

With --cluster they are those of a cluster whose servers define the macros {shard} and
{replica}: replicated tables, and distributed ones over the partials of all shards. All
rows of a producer belong on one shard, which cityHash64(producer) chooses; write to its
partials_*_local tables with insert_quorum = 'auto', or to the distributed tables with
distributed_foreground_insert = 1. csigscope itself writes to one server and does not
choose shards yet. The statements are tested to parse; they were never run on a cluster.`,
		Example: "  csigscope schema print --database csigscope | less",
		Args:    noArgs,
	}
	cmd.Flags().StringVar(&cluster, "cluster", "", "`NAME` of the cluster to print the schema for")
	cmd.Flags().StringVar(&database, "database", store.DefaultDatabase, "`NAME` of the database")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		statements, err := store.Statements(database)
		if cluster != "" {
			statements, err = store.ClusterStatements(database, cluster)
		}
		if err != nil {
			return usageError{err}
		}
		for _, s := range statements {
			fmt.Fprintf(cmd.OutOrStdout(), "%s;\n\n", s)
		}
		return nil
	}
	return cmd
}

func newSchemaMigrate() *cobra.Command {
	var dsn string
	var box outboxFlags
	var keep []string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring a database to this version's schema, set how long rows are kept, and send what waits in the outbox",
		Example: `  csigscope schema migrate --store clickhouse://csigscope@db.example:9000/csigscope
  csigscope schema migrate --keep fine=2h,1s=30d`,
		Args: noArgs,
	}
	addStoreFlag(cmd, &dsn)
	box.add(cmd.Flags())
	cmd.Flags().StringSliceVar(&keep, "keep", nil,
		"how long rows are kept after they were written, by `RESOLUTION=TIME`: fine, 1s and 1m; at first fine=6h,1s=14d,1m=400d; holds until it is changed, here or by a command whose configuration file says otherwise")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		retention, err := parseRetention(keep)
		if err != nil {
			return usageError{fmt.Errorf("--keep: %w", err)}
		}
		db, err := openStoreKeeping(cmd, dsn, &box, retention)
		if err != nil {
			return err
		}
		if db == nil {
			return usageError{fmt.Errorf("schema migrate: --store none has no schema")}
		}
		defer db.Close()
		if err := db.store.Flush(cmd.Context()); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is up to date\n", db.target)
		return db.Close()
	}
	return cmd
}

func newSchemaStatus() *cobra.Command {
	var dsn, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List the migrations and which of them a database has",
		Args:  noArgs,
	}
	addStoreFlag(cmd, &dsn)
	addOutputFlag(cmd, &output)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		db, err := connectStore(cmd, dsn, mustExist)
		if err != nil {
			return err
		}
		if db == nil {
			return usageError{fmt.Errorf("schema status: --store none has no schema")}
		}
		defer db.Close()
		status, err := db.store.Status(cmd.Context())
		if err != nil {
			return err
		}
		t := tabular.Listing{Columns: []string{"version", "name", "applied", "current"}}
		for _, m := range status {
			applied := any(nil)
			if !m.Applied.IsZero() {
				applied = m.Applied.UTC().Format(time.RFC3339)
			}
			version := any(m.Version)
			if m.Version == 0 {
				version = nil
			}
			t.Rows = append(t.Rows, []any{version, m.Name, applied, m.Current})
		}
		return t.Write(cmd.OutOrStdout(), output)
	}
	return cmd
}
