package main

import (
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/daemon"
)

// openRestricted opens a store for reading, in a process that gives up all files but those
// of the store, and in the folders of further files, which are read again later. The
// embedded engine is started after that: it is restricted as well, and may be started again
// at any time. A server is reached before that: the file with its password is read once.
func openRestricted(cmd *cobra.Command, dsn string, f *operationsFlags, files ...string) (*openedStore, error) {
	if f.noSandbox {
		return openForReading(cmd, dsn)
	}
	logger := newLogger(cmd, cmd.ErrOrStderr())
	folders, embedded, err := engineFolders(cmd, dsn)
	if err != nil {
		return nil, err
	}
	folders.Read = append(folders.Read, daemon.Holding(files...)...)
	if embedded {
		if err := daemon.Restrict(folders, logger); err != nil {
			return nil, err
		}
		return openForReading(cmd, dsn)
	}
	db, err := openForReading(cmd, dsn)
	if err != nil {
		return nil, err
	}
	if err := daemon.Restrict(folders, logger); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// engineFolders are what the embedded engine needs, and the configuration, which is read
// once more; of a server the TLS files, with embedded false.
func engineFolders(cmd *cobra.Command, dsn string) (f daemon.Folders, embedded bool, err error) {
	config, err := storeSettings(cmd, dsn)
	if err != nil {
		return f, false, err
	}
	target, err := config.target()
	if err != nil {
		return f, false, usageError{err}
	}
	if target.Kind != store.KindEmbedded {
		f.Read = daemon.Holding(target.Files...)
		return f, false, nil
	}
	dir, err := embeddedFolder(target)
	if err != nil {
		return f, false, err
	}
	if err := checkStoreExists(dir, target); err != nil {
		return f, false, err
	}
	f.Write, f.Read, err = chdb.Places(dir, "")
	if path, _ := cmd.Flags().GetString("config"); path != "" {
		f.Read = append(f.Read, filepath.Dir(path))
	}
	return f, true, err
}
