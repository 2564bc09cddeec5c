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
		Args: folderArg,
	}
	addStoreFlag(cmd, &dsn)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		db, err := openEmbedded(cmd, dsn, mustExist, nil)
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
	var box outboxFlags
	var discard bool
	cmd := &cobra.Command{
		Use:   "restore FOLDER",
		Short: "Fill a new embedded store from a backup",
		Long: `restore fills an embedded store that holds nothing yet from a folder that schema backup
has written, checks all of it against its checksums, and brings it to this version's
schema. A backup that is damaged is refused, and leaves the store empty.

Where the outbox of the store is still there, what it holds is newer than the backup or in
it: rows that wait are sent, and so are rows that the store took in the last minutes
(--outbox-keep) and that the backup lacks. Runs that came back without their names are
counted: replay their captures again. To have the backup and nothing else, give
--discard-outbox.`,
		Example: `  csigscope schema restore /backup/csigscope-2026-01-22 --store embedded:elsewhere
  csigscope schema restore /backup/csigscope-2026-01-22 --discard-outbox`,
		Args: folderArg,
	}
	addStoreFlag(cmd, &dsn)
	box.add(cmd.Flags())
	cmd.Flags().BoolVar(&discard, "discard-outbox", false, "forget what is in the store's outbox, instead of sending what the backup lacks")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		db, err := openEmbedded(cmd, dsn, makeMissing, &box)
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
		lost := uint64(0)
		if discard {
			if lost, err = db.store.DiscardOutbox(); err != nil { // before Migrate, which begins to send
				return err
			}
		}
		if err := db.store.Migrate(cmd.Context()); err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "%s is restored from %s\n", db.target, args[0])
		if discard {
			fmt.Fprintf(out, "the outbox is discarded, with %d rows that were never stored\n", lost)
		} else if err := db.settle(cmd); err != nil {
			return err
		}
		return db.Close()
	}
	return cmd
}

// settle makes a restored store and its outbox agree, and tells how.
func (db *openedStore) settle(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	done, err := db.store.Settle(cmd.Context())
	if err != nil {
		return fmt.Errorf("send what the backup lacks: %w", err)
	}
	if done.Sent > 0 || done.Resent > 0 {
		fmt.Fprintf(out, "from the outbox: %d rows that had waited, %d batches that the backup lacks\n", done.Sent, done.Resent)
	}
	if done.Strangers > 0 {
		fmt.Fprintf(out, "%d runs came back without their names, perhaps in part: replay their captures again (schema verify names them)\n", done.Strangers)
	}
	return nil
}

// openEmbedded opens a store for what only the embedded engine does.
func openEmbedded(cmd *cobra.Command, dsn string, how opening, box *outboxFlags) (*openedStore, error) {
	db, err := connect(cmd, dsn, how, box)
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
