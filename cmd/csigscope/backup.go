package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
)

func newSchemaBackup() *cobra.Command {
	var dsn string
	cmd := &cobra.Command{
		Use:   "backup FOLDER",
		Short: "Copy the embedded store into a new folder",
		Long: `backup copies what the embedded store holds into a folder that does not exist yet, with
checksums, while other commands go on storing: each table as it is at one moment. It is
ClickHouse's BACKUP; of a ClickHouse server make backups with its own means.`,
		Example: `  csigscope schema backup /backup/csigscope-2026-01-22
  csigscope schema restore /backup/csigscope-2026-01-22 --store embedded:elsewhere`,
		Args: usageArgs(cobra.ExactArgs(1)),
	}
	addStoreFlag(cmd, &dsn)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		db, err := openEmbedded(cmd, dsn, mustExist)
		if err != nil {
			return err
		}
		defer db.Close()
		if err := db.engine.Backup(cmd.Context(), db.target.Database, args[0]); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is backed up in %s\n", db.target, args[0])
		return db.Close()
	}
	return cmd
}

func newSchemaRestore() *cobra.Command {
	var dsn string
	cmd := &cobra.Command{
		Use:   "restore FOLDER",
		Short: "Fill a new embedded store from a backup",
		Long: `restore fills an embedded store that holds nothing yet from a folder that schema backup
has written, checks all of it against its checksums, and brings it to this version's
schema. A backup that is damaged is refused, and leaves the store empty.`,
		Example: "  csigscope schema restore /backup/csigscope-2026-01-22 --store embedded:elsewhere",
		Args:    usageArgs(cobra.ExactArgs(1)),
	}
	addStoreFlag(cmd, &dsn)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		db, err := openEmbedded(cmd, dsn, makeMissing)
		if err != nil {
			return err
		}
		defer db.Close()
		err = db.engine.Restore(cmd.Context(), db.target.Database, args[0])
		if errors.Is(err, chdb.ErrNotEmpty) {
			return fmt.Errorf("%w: name a new folder with --store embedded:DIR", err)
		}
		if err != nil {
			return err
		}
		if err := db.store.Migrate(cmd.Context()); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is restored from %s\n", db.target, args[0])
		return db.Close()
	}
	return cmd
}

// openEmbedded opens a store for what only the embedded engine does.
func openEmbedded(cmd *cobra.Command, dsn string, exists bool) (*openedStore, error) {
	db, err := connectStore(cmd, dsn, exists)
	if err != nil {
		return nil, err
	}
	if db == nil || db.engine == nil {
		if db != nil {
			err = db.Close()
		}
		return nil, errors.Join(usageError{fmt.Errorf("%s: --store %s is not the embedded store", cmd.CommandPath(), dsn)}, err)
	}
	return db, nil
}
