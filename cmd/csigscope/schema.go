package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/answers"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
)

func newSchemaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Look after the store: migrate, check, trim, back up, restore or delete it",
	}
	cmd.AddCommand(
		newSchemaPrint(), newSchemaMigrate(), newSchemaStatus(), newSchemaVerify(), newSchemaTrim(), newSchemaUnpin(), newSchemaDrop(), newSchemaGrants(),
		newSchemaBackup(), newSchemaRestore(),
	)
	return cmd
}

// asItIs opens the store that --store names without changing its schema; lacks completes the
// error for --store none. A box is for commands that write.
func asItIs(how opening, box *outboxFlags, lacks string) opener {
	return func(cmd *cobra.Command, dsn string) (*openedStore, error) {
		db, err := connect(cmd, dsn, how, box, 0)
		if err == nil && db == nil {
			err = usageError{fmt.Errorf("%s: --store none has %s", strings.TrimPrefix(cmd.CommandPath(), "csigscope "), lacks)}
		}
		return db, err
	}
}

// embedded opens the embedded store, for commands that do not apply to a server.
func embedded(how opening, box *outboxFlags) opener {
	return func(cmd *cobra.Command, dsn string) (*openedStore, error) {
		db, err := connect(cmd, dsn, how, box, 0)
		if err != nil || db != nil && db.engine != nil {
			return db, err
		}
		if db != nil {
			err = db.Close()
		}
		return nil, errors.Join(usageError{fmt.Errorf("%s: --store %s is not the embedded store", cmd.CommandPath(), dsn)}, err)
	}
}

func newSchemaPrint() *cobra.Command {
	var database, cluster string
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print all statements of the schema",
		Long: `Print all statements of the schema.

With --cluster they are those that schema migrate runs on each server of a cluster, whose
servers define the macros {shard} and {replica}: replicated tables, and distributed ones
that read the partials and flows of all shards. All rows of an incarnation (a producer from its
start to its end in one process) are on the shard that the table shards names; csigscope writes
them to its *_local tables.`,
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
	var box outboxFlags
	var retention []string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring a database to this version's schema, set how long rows are kept, and send rows that wait in the outbox",
		Example: `  csigscope schema migrate --store clickhouse://csigscope@db.example:9000/csigscope
  csigscope schema migrate --retention fine=2h,1s=30d`,
		Args: noArgs,
	}
	open := func(cmd *cobra.Command, dsn string) (*openedStore, error) {
		keep, err := parseRetention(retention)
		if err != nil {
			return nil, usageError{fmt.Errorf("--retention: %w", err)}
		}
		db, err := openStore(cmd, dsn, &box, keep)
		if err == nil && db == nil {
			err = usageError{fmt.Errorf("schema migrate: --store none has no schema")}
		}
		return db, err
	}
	withStore(cmd, open, func(cmd *cobra.Command, db *openedStore, _ []string) error {
		if err := db.store.Flush(cmd.Context()); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is up to date\n", db.target)
		return db.Close()
	})
	box.add(cmd.Flags())
	cmd.Flags().StringSliceVar(&retention, "retention", nil,
		"how long rows are kept after they were written, by `RESOLUTION=TIME`: fine, 1s and 1m; a new database has fine=6h,1s=14d,1m=400d; holds until it is changed, here or by a command whose configuration file says otherwise")
	return cmd
}

func newSchemaStatus() *cobra.Command {
	var out output
	cmd := &cobra.Command{Use: "status", Short: "List the migrations and which of them a database has", Args: noArgs}
	out.add(cmd, tabular.ListingFormats()...)
	return withStore(cmd, asItIs(mustExist, nil, "no schema"), func(cmd *cobra.Command, db *openedStore, _ []string) error {
		status, err := db.store.Status(cmd.Context())
		if err != nil {
			return err
		}
		return out.list(cmd, answers.Migrations(status))
	})
}

func newSchemaVerify() *cobra.Command {
	var out output
	var o store.VerifyOptions
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that stored rows add up",
		Long: `Check that all stored rows are consistent, and print violations. 1 s rows have to add up to 1 min
rows, and fine rows to no more than 1 s rows (if the run is done and neither has expired).
Observations that taps counted as stored have to be there or in gaps, the numbers of each row have
to fit together, and no two records may have the same identity. The run, the configuration, the
groups and the location of each row have to be known. A run is one replay of a capture, or one
process that captures. verify reads every row, in pieces of a day or less.

Rows of the kind "info" are no faults: runs that a later one superseded, rows that were written
more than once and count once, lost rows that are in gaps. The exit code is 3 if there are faults.`,
		Args: noArgs,
	}
	out.add(cmd, tabular.ListingFormats()...)
	cmd.Flags().DurationVar(&o.Grace, "grace", time.Hour, "how long a run may be under way before it counts as one that never ended")
	before(cmd, func([]string) error {
		if o.Grace <= 0 {
			return fmt.Errorf("--grace %s: expected a time above 0", o.Grace)
		}
		return nil
	})
	return withStore(cmd, asItIs(mustExist, nil, "nothing to verify"), func(cmd *cobra.Command, db *openedStore, _ []string) error {
		o.Now = time.Now()
		t, faults, err := answers.Verified(cmd.Context(), db.store, o)
		if err != nil {
			return err
		}
		if err := out.list(cmd, t); err != nil {
			return err
		}
		if faults > 0 {
			return findingsError{fmt.Errorf("schema verify: %d faults in %s", faults, db.target)}
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "everything stored in %s adds up\n", db.target)
		return nil
	})
}

func newSchemaTrim() *cobra.Command {
	var out output
	var box outboxFlags
	var budget int64
	cmd := &cobra.Command{
		Use:   "trim --max-disk SIZE",
		Short: "Delete the oldest windows until a database fits its disk budget",
		Long: `Delete the oldest windows until a database, with all of its tables, takes no more disk than its
budget: first fine windows, an hour at a time; then 1 s windows with their flows, a day at a time;
then flows of 1 min windows, and rows of taps and findings, a month at a time. 1 min windows are
never deleted. trim prints each deletion and records it in the table gaps, so that "schema verify"
still compares the rows that are left with the counts of taps. The default budget is that of the
configuration file (store: max_disk), within which query serve, demo, replay and collect keep the
database while they run.`,
		Example: "  csigscope schema trim --max-disk 50GB",
		Args:    noArgs,
	}
	withStore(cmd, asItIs(mustExist, &box, "nothing to trim"), func(cmd *cobra.Command, db *openedStore, _ []string) error {
		budget = cmp.Or(budget, int64(db.config.MaxDisk))
		if budget == 0 {
			return usageError{errors.New("--max-disk: expected a size such as 50GB, since the configuration file has none")}
		}
		dropped, err := db.store.Trim(cmd.Context(), uint64(budget))
		return errors.Join(out.list(cmd, answers.Dropped(dropped)), err)
	})
	box.add(cmd.Flags())
	out.add(cmd, tabular.ListingFormats()...)
	addByteFlag(cmd.Flags(), &budget, "max-disk", 0, "`SIZE` such as 50GB or 200GiB, default max_disk of the configuration file")
	return cmd
}

func newSchemaUnpin() *cobra.Command {
	var out output
	var all bool
	cmd := &cobra.Command{
		Use:   "unpin NAME...",
		Short: "Take the next description of groups and locations from any exporter",
		Long: `Take the next description of groups and locations from any exporter. A collector without a fabric
file pins the first exporter's description of a name (its level, parent, capacity, device, set and
ports): it refuses other descriptions, which the finding contested-name shows. After unpin, running
collectors take a refused description within seconds; of several, the one that they refused first.
--all unpins the descriptions of exporters; names unpin those of fabric files as well. A running
collector keeps to its own fabric file in any case.`,
		Example: `  csigscope query findings
  csigscope schema unpin leaf3:up1 "leaf3 up"`,
	}
	out.add(cmd, tabular.ListingFormats()...)
	cmd.Flags().BoolVar(&all, "all", false, "unpin all names that exporters have described")
	before(cmd, func(names []string) error {
		if all == (len(names) > 0) {
			return errors.New("schema unpin: expected names of groups and locations, or --all")
		}
		return nil
	})
	return withStore(cmd, asItIs(mustExist, nil, "no names"), func(cmd *cobra.Command, db *openedStore, names []string) error {
		list, err := db.store.Unpin(cmd.Context(), names)
		if err != nil {
			return err
		}
		if len(list) == 0 && !all {
			return fmt.Errorf("unpin names: none of them is pinned: see the evidence of csigscope query findings for how they are spelled")
		}
		return out.list(cmd, answers.Unpinned(list))
	})
}

func newSchemaDrop() *cobra.Command {
	var box outboxFlags
	var yes bool
	cmd := &cobra.Command{
		Use:   "drop",
		Short: "Delete a database with all its rows",
		Long: `Delete a database with all its rows. drop lists the rows and asks first; without a terminal it
needs --yes. It refuses a database that holds anything that csigscope did not make. It also drops a
database from before version 1 of the schema, which all other commands refuse.`,
		Example: "  csigscope schema drop --store embedded:old-data",
		Args:    noArgs,
	}
	withStore(cmd, asItIs(toDrop, &box, "nothing to drop"), func(cmd *cobra.Command, db *openedStore, _ []string) error {
		contents, err := db.store.Contents(cmd.Context())
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "Database %s of %s:\n", db.target.Database, db.target)
		contents.WriteText(out)
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
	})
	box.add(cmd.Flags())
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// askToDrop asks a person at a terminal for the name of the database.
func askToDrop(cmd *cobra.Command, database string) error {
	if in, ok := cmd.InOrStdin().(io.Writer); !ok || !isTerminal(in) {
		return usageError{fmt.Errorf("schema drop: cannot ask without a terminal: give --yes to delete all of this")}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "All of it will be lost. Type %s to go on: ", database)
	return confirm(cmd.InOrStdin(), database)
}

func confirm(in io.Reader, want string) error {
	answer, err := firstLine(in)
	if strings.TrimSpace(answer) == want {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return fmt.Errorf("nothing was dropped: expected %s, got %q", want, strings.TrimSpace(answer))
}

// maxAnswer is the maximum length of a person's answer, in bytes.
const maxAnswer = 1024

// firstLine reads a person's answer.
func firstLine(in io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(in, maxAnswer)).ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return strings.TrimRight(line, "\r\n"), err
}

func newSchemaGrants() *cobra.Command {
	var g store.Grants
	var access string
	var password bool
	var memory int64
	cmd := &cobra.Command{
		Use:   "grants --user NAME",
		Short: "Print the SQL that gives a user access to the database",
		Long: `Print the SQL that gives a user of a ClickHouse server access to the database, for an
administrator to run: a role, and for a reader a settings profile and a quota, which
bound the cost of its queries.

With --password-stdin the user is created; the password is printed as a salted hash.
Without, the user must exist. A writer may store rows, an owner may also run schema
migrate and schema drop.

With --cluster, run the statements on every server of the cluster.`,
		Example: `  csigscope schema grants --user grafana
  csigscope schema grants --user grafana --password-stdin < password.txt | clickhouse-client --multiquery`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&g.User, "user", "", "`NAME` of the user (required)")
	flags.StringVar(&access, "access", string(store.AccessReader), "what the user may do: reader, writer or owner")
	flags.StringVar(&g.Database, "database", store.DefaultDatabase, "`NAME` of the database")
	flags.BoolVar(&g.Cluster, "cluster", false, "the database is on a cluster")
	flags.BoolVar(&password, "password-stdin", false, "create the user, with the first line of standard input as its password")
	flags.DurationVar(&g.Limits.Time, "max-time", 30*time.Second, "longest time of a reader's query")
	flags.Uint64Var(&g.Limits.ReadRows, "max-read-rows", 4e9, "maximum number of rows that a reader's query reads")
	addByteFlag(flags, &memory, "max-memory", 4<<30, "`SIZE` of the memory of a reader's query")
	flags.Uint64Var(&g.Limits.ResultRows, "max-result-rows", 1<<20, "maximum number of rows of an answer")
	flags.Uint64Var(&g.QueriesPerHour, "queries-per-hour", 36_000, "maximum number of queries of a reader per hour")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		g.Access, g.Limits.Memory = store.Access(access), uint64(memory)
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

// readPassword reads the first line, which must not be empty.
func readPassword(in io.Reader, g *store.Grants) error {
	password, err := firstLine(in)
	if err != nil {
		return fmt.Errorf("read password: %w", err)
	}
	if password == "" {
		return usageError{errors.New("--password-stdin: expected a password in the first line of standard input")}
	}
	g.SetPassword(password)
	return nil
}

func newSchemaBackup() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup FOLDER",
		Short: "Copy the embedded store into a new folder",
		Long: `backup copies the embedded store into a folder that does not exist yet, with checksums. Other
commands can store meanwhile: each table is copied as of one moment. It is ClickHouse's BACKUP;
back up a ClickHouse server with its own means.`,
		Example: `  csigscope schema backup /backup/csigscope-2026-01-22
  csigscope schema restore /backup/csigscope-2026-01-22 --store embedded:elsewhere`,
		Args: oneArg("FOLDER"),
	}
	return withStore(cmd, embedded(mustExist, nil), func(cmd *cobra.Command, db *openedStore, args []string) error {
		if err := db.engine.Backup(cmd.Context(), db.target.Database, args[0]); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is backed up in %s\n", db.target, args[0])
		return db.Close()
	})
}

func newSchemaRestore() *cobra.Command {
	var box outboxFlags
	var discard bool
	cmd := &cobra.Command{
		Use:   "restore FOLDER",
		Short: "Fill a new embedded store from a backup",
		Long: `restore fills an embedded store that holds nothing yet from a folder that schema backup
has written, checks all of it against its checksums, and brings it to this version's
schema. A damaged backup is refused, and leaves the store empty.

If the outbox of the store still exists, restore sends the rows that wait there, and the rows that
the store took in the last minutes (--outbox-retention) and that the backup lacks. It counts the
runs that came back without their names: replay their captures again. With --discard-outbox the
store holds the rows of the backup and no others.`,
		Example: `  csigscope schema restore /backup/csigscope-2026-01-22 --store embedded:elsewhere
  csigscope schema restore /backup/csigscope-2026-01-22 --discard-outbox`,
		Args: oneArg("FOLDER"),
	}
	withStore(cmd, embedded(makeMissing, &box), func(cmd *cobra.Command, db *openedStore, args []string) error {
		return restore(cmd, db, args[0], discard)
	})
	box.add(cmd.Flags())
	cmd.Flags().BoolVar(&discard, "discard-outbox", false, "discard the rows in the store's outbox, instead of sending those that the backup lacks")
	return cmd
}

// restore fills an empty store from a backup, and reconciles it with its outbox.
func restore(cmd *cobra.Command, db *openedStore, folder string, discard bool) error {
	err := db.engine.Restore(cmd.Context(), db.target.Database, folder)
	if errors.Is(err, chdb.ErrNotEmpty) {
		return fmt.Errorf("%w: name a new folder with --store embedded:DIR", err)
	}
	if err != nil {
		return err
	}
	lost := uint64(0)
	if discard {
		if lost, err = db.store.DiscardOutbox(); err != nil { // before Migrate, which starts sending
			return err
		}
	}
	if err := db.store.Migrate(cmd.Context()); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s is restored from %s\n", db.target, folder)
	if discard {
		fmt.Fprintf(out, "the outbox is discarded, with %d rows that were never stored\n", lost)
		return db.Close()
	}
	done, err := db.store.Drain(cmd.Context())
	if err != nil {
		return fmt.Errorf("send rows that the backup lacks: %w", err)
	}
	done.WriteText(out)
	return db.Close()
}

// retentionNames are the resolutions in the order of the store's tables.
var retentionNames = []string{"fine", "1s", "1m"}

// parseRetention parses a list of RESOLUTION=TIME.
func parseRetention(list []string) (store.Retention, error) {
	var keep store.Retention
	for _, item := range list {
		name, text, _ := strings.Cut(item, "=")
		i := slices.Index(retentionNames, name)
		if i < 0 {
			return keep, fmt.Errorf("%q: expected fine=TIME, 1s=TIME or 1m=TIME", item)
		}
		var d config.Duration
		if err := d.Set(text); err != nil || d == 0 {
			return keep, fmt.Errorf("%q: expected a time such as 6h or 14d", item)
		}
		if err := store.CheckRetention(time.Duration(d)); err != nil {
			return keep, fmt.Errorf("%q: %w", item, err)
		}
		keep[i] = time.Duration(d)
	}
	return keep, nil
}
