package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
)

// storeTargets describes the values of --store.
const storeTargets = "embedded[:DIR] (DIR is ~/.local/share/csigscope/store unless given) or clickhouse://USER@HOST:PORT/DB?secure=true&ca=FILE"

// addStoreFlag adds --store, and --config if the command has none: the file's store section
// applies to all commands.
func addStoreFlag(cmd *cobra.Command, dsn *string) {
	addStoreConfigFlag(cmd)
	cmd.Flags().StringVar(dsn, "store", store.KindEmbedded, "the store: "+storeTargets)
}

func addStoreConfigFlag(cmd *cobra.Command) {
	if cmd.Flags().Lookup("config") == nil {
		cmd.Flags().String("config", "", "configuration `FILE` (YAML), for its sections store and states")
	}
}

// outboxFlags are the flags of commands that write to the store; commands that only read have
// none. They override the file's section store.outbox.
type outboxFlags struct{}

func (*outboxFlags) add(flags *pflag.FlagSet) {
	config.Flag(flags, "outbox", "store.outbox.dir")
	config.Flag(flags, "outbox-size", "store.outbox.size")
	config.Flag(flags, "outbox-retention", "store.outbox.retention")
}

// addClickHouseFlag is for commands that keep the store open.
func addClickHouseFlag(cmd *cobra.Command, address *string) {
	cmd.Flags().StringVar(address, "clickhouse-listen", "",
		"answer other programs over ClickHouse's HTTP interface, read-only, at this loopback `ADDRESS` such as 127.0.0.1:8123")
}

// openedStore is a store and, if it is embedded, its engine.
type openedStore struct {
	store      *store.Store
	engine     *chdb.Engine
	target     store.Target
	config     config.Store
	thresholds aggregate.Thresholds
	logger     *slog.Logger

	stopTrim func() // nil without a trim loop
	left     uint64 // rows in outboxes, after Close
}

// opening is the way in which connect opens a store.
type opening int

const (
	makeMissing     opening = iota // makes an embedded store that does not exist
	mustExist                      // fails without one
	toDrop                         // fails without one; also accepts a schema from before version 1
	serverMayBeAway                // makeMissing, but with an outbox waits only serverPatience for a server
)

// serverPatience is how long a command waits for a server before it continues without it.
const serverPatience = 5 * time.Second

// openStore opens the store of --store for writing, through the outbox, and updates its schema
// and its retention: times in keep override those of the file. It returns nil for --store none.
func openStore(cmd *cobra.Command, dsn string, f *outboxFlags, keep store.Retention) (*openedStore, error) {
	db, err := connect(cmd, dsn, makeMissing, f, 0)
	if err != nil || db == nil {
		return nil, err
	}
	return db, db.migrate(cmd, keep)
}

// openStoreLater is openStore without the need for a running server: rows wait in the outbox
// until it is up. Without an outbox, it has to be up.
func openStoreLater(cmd *cobra.Command, dsn string, f *outboxFlags, engineMemory uint64) (*openedStore, error) {
	db, err := connect(cmd, dsn, serverMayBeAway, f, engineMemory)
	if err != nil || db == nil || db.config.Outbox.Dir != config.NoOutbox {
		return db, err
	}
	return db, db.migrate(cmd, store.Retention{})
}

// migrate updates schema and retention, or closes the store.
func (db *openedStore) migrate(cmd *cobra.Command, keep store.Retention) error {
	for g, d := range db.config.Retention.Keep() {
		keep[g] = cmp.Or(keep[g], d)
	}
	err := db.store.Migrate(cmd.Context())
	if err == nil {
		err = db.store.SetRetention(cmd.Context(), keep)
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	return nil
}

// connect opens the store of --store. Only with serverMayBeAway and an outbox does it update the schema and the
// retention, in the background. Without f it is for reading only. engineMemory limits an embedded engine that it starts, in bytes; 0: the engine's
// default.
func connect(cmd *cobra.Command, dsn string, how opening, f *outboxFlags, engineMemory uint64) (*openedStore, error) {
	c, target, thresholds, err := storeTarget(cmd, dsn)
	if err != nil {
		return nil, err
	}
	db := &openedStore{target: target, config: c, thresholds: thresholds, logger: newLogger(cmd, cmd.ErrOrStderr())}
	o := store.Options{Database: target.Database, Logger: db.logger, Limits: c.LimitsOf(target.Limits), Thresholds: thresholds, ToDrop: how == toDrop}
	switch target.Kind {
	case store.KindNone:
		return nil, nil
	case store.KindEmbedded:
		if err := db.startEngine(cmd.Context(), how, engineMemory); err != nil {
			return nil, err
		}
		db.askEngine(&o)
	default:
		o.Writer, o.At, o.Cluster = target.Options, target.At, c.Cluster
	}
	if f != nil {
		if o.Outbox, err = c.Outbox.Options(db.target, dataFolder); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	if how == serverMayBeAway && o.Outbox != nil {
		o.Later = &store.Later{Patience: serverPatience, Retention: c.Retention.Keep()}
		if db.engine != nil {
			o.Later.Started = db.engine.Wait
		}
	}
	db.store, err = store.Open(cmd.Context(), o)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// storeTarget returns storeSettings and the store that they name.
func storeTarget(cmd *cobra.Command, dsn string) (c config.Store, target store.Target, t aggregate.Thresholds, err error) {
	if c, t, err = storeSettings(cmd, dsn); err != nil {
		return c, target, t, err
	}
	target, err = orUsage(c.DSN.Target())
	return c, target, t, err
}

// storeSettings returns the section store of the command's configuration file, overridden by
// the command's flags, with the target of the command line if --store is given or dsn is not its default. It also
// returns the thresholds of the states.
func storeSettings(cmd *cobra.Command, dsn string) (config.Store, aggregate.Thresholds, error) {
	path, err := cmd.Flags().GetString("config")
	if err != nil {
		return config.Store{}, aggregate.Thresholds{}, fmt.Errorf("find configuration: %w", err)
	}
	c, err := loadConfig(path)
	if err != nil {
		return config.Store{}, aggregate.Thresholds{}, err
	}
	c.Override(cmd.Flags())
	flag := cmd.Flags().Lookup("store")
	if flag.Changed || dsn != flag.DefValue {
		c.Store.DSN = config.NewDSN(dsn)
	}
	return c.Store, c.States.Thresholds(), nil
}

// keepTrimmed trims the store to the configured disk budget until it is closed.
func (db *openedStore) keepTrimmed(ctx context.Context) {
	if db.config.MaxDisk == 0 || db.stopTrim != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := db.store.RunTrim(ctx, uint64(db.config.MaxDisk), time.Duration(db.config.TrimEvery)); err != nil {
			db.logger.Error("the store will grow beyond its disk budget (store.max_disk): fix the cause and restart", slog.Any("error", err))
		}
	}()
	db.stopTrim = func() {
		cancel()
		<-done
		if n := db.store.TrimStats(); n.Partitions > 0 {
			db.logger.Warn("the store was trimmed to its disk budget",
				slog.Uint64("partitions", n.Partitions), slog.Uint64("rows", n.Rows), slog.Uint64("bytes", n.Bytes))
		}
	}
}

// startEngine attaches to the embedded engine over the target's folder, or starts it as a child
// process of this binary.
func (db *openedStore) startEngine(ctx context.Context, how opening, memory uint64) error {
	dir, err := embeddedFolder(db.target)
	if err != nil {
		return err
	}
	db.target.Dir = dir
	if how == mustExist || how == toDrop {
		if err := checkStoreExists(dir, db.target); err != nil {
			return err
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own executable: %w", err)
	}
	start := chdb.Start
	if how == serverMayBeAway && db.config.Outbox.Dir != config.NoOutbox {
		start = chdb.StartLater
	}
	db.engine, err = start(ctx, chdb.Options{
		Dir: dir, Command: []string{exe, "engine", "--dir", dir}, MaxMemory: memory, Logger: db.logger,
	})
	if err != nil {
		return fmt.Errorf("start store: %w", err)
	}
	return nil
}

// askEngine connects a store's options to the engine, with a separate user for each purpose.
func (db *openedStore) askEngine(o *store.Options) {
	o.Writer = db.engine.ClickHouseOptions(chdb.RoleWriter)
	o.Migrator = db.engine.ClickHouseOptions(chdb.RoleMigrator)
	o.Reader = db.engine.ClickHouseOptions(chdb.RoleReader)
}

func checkStoreExists(dir string, target store.Target) error {
	_, err := os.Stat(filepath.Join(dir, "data"))
	return storeError(err, dir, target)
}

// storeError explains an error of looking into the folder of an embedded store.
func storeError(err error, dir string, target store.Target) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("open store %s: nothing is stored in %s: run csigscope replay first, or name another with --store (the systemd units have theirs in /var/lib/csigscope/store)", target, dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("open store %s: %w: run as the user that owns it, or ask its server with --server", target, err)
	case err != nil:
		return fmt.Errorf("open store %s: %w", target, err)
	}
	return nil
}

// embeddedFolder returns the folder of an embedded store.
func embeddedFolder(target store.Target) (string, error) {
	if target.Dir != "" {
		return target.Dir, nil
	}
	data, err := dataFolder()
	if err != nil {
		return "", usageError{fmt.Errorf("%w: name one with --store embedded:DIR", err)}
	}
	return filepath.Join(data, "store"), nil
}

// listen opens the embedded engine to other programs at a loopback address, until the store is
// closed, and prints the address; "" does nothing.
func (db *openedStore) listen(cmd *cobra.Command, address string) error {
	if address == "" {
		return nil
	}
	if db.engine == nil {
		return usageError{fmt.Errorf("--clickhouse-listen: %s is a server of its own: point clients there, or use --store embedded", db.target)}
	}
	address, err := db.engine.Listen(cmd.Context(), address)
	switch {
	case errors.Is(err, chdb.ErrAddress):
		return usageError{fmt.Errorf("--clickhouse-listen: %w", err)}
	case err != nil:
		return fmt.Errorf("--clickhouse-listen: %w", err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "ClickHouse clients can read at %s, database %s (no password)\n", address, db.target.Database)
	return nil
}

// dataFolder returns the folder for csigscope's persistent data.
func dataFolder() (string, error) {
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "csigscope"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", usageError{fmt.Errorf("find data folder: %w", err)}
	}
	return filepath.Join(home, ".local", "share", "csigscope"), nil
}

// Close writes buffered rows and detaches from the engine. A second call does nothing.
func (db *openedStore) Close() error {
	var failed error
	if db.stopTrim != nil {
		db.stopTrim()
		db.stopTrim = nil
	}
	if db.store != nil {
		failed = db.store.Close()
		db.left, db.store = db.store.Left(), nil
	}
	if db.engine != nil {
		failed = errors.Join(failed, db.engine.Close())
		db.engine = nil
	}
	return failed
}

// newEngineCommand returns the command of the embedded engine's child process.
func newEngineCommand() *cobra.Command {
	var o chdb.ServerOptions
	cmd := &cobra.Command{
		Use:    "engine --dir DIR",
		Short:  "Run the embedded ClickHouse engine over a data folder",
		Hidden: true,
		Args:   noArgs,
		// It closes its data folder, however many signals come.
		Annotations: map[string]string{ownEnd: "true"},
	}
	cmd.Flags().StringVar(&o.Dir, "dir", "", "data `FOLDER`")
	cmd.Flags().StringVar(&o.Library, "library", "", "engine library `FILE`")
	cmd.Flags().StringVar(&o.Listen, "listen", "", "also answer read-only queries on this loopback `ADDRESS`")
	cmd.Flags().Uint64Var(&o.MaxMemory, "max-memory", 0, "memory limit in `BYTES`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// A Ctrl-C reaches every process of the terminal, but the parent still has to write its
		// last rows. The engine ends when nobody is attached.
		ctx, stop := signal.NotifyContext(context.WithoutCancel(cmd.Context()), syscall.SIGTERM)
		defer stop()
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
		return chdb.Serve(ctx, o)
	}
	return cmd
}
