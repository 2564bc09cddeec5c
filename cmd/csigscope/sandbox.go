package main

import (
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/daemon"
)

// restricted opens a store in a process that gives up all files except those that folders
// returns. The embedded engine is started after the restriction, which then applies to it as
// well, and to its restarts. A server is connected before the restriction: the file with its
// password is read once.
func restricted(
	cmd *cobra.Command, f *operationsFlags, folders func() (allowed daemon.Folders, embedded bool, err error), open func() (*openedStore, error),
) (*openedStore, error) {
	if f.noSandbox {
		return open()
	}
	allowed, embedded, err := folders()
	if err != nil {
		return nil, err
	}
	logger := newLogger(cmd, cmd.ErrOrStderr())
	if embedded {
		if err := daemon.Restrict(allowed, logger); err != nil {
			return nil, err
		}
		return open()
	}
	db, err := open()
	if err != nil || db == nil {
		return nil, err
	}
	if err := daemon.Restrict(allowed, logger); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// openRestricted opens a store for reading. The process keeps access to the files of the store,
// and to the folders of files that are reloaded later.
func openRestricted(cmd *cobra.Command, dsn string, f *operationsFlags, files ...string) (*openedStore, error) {
	folders := func() (daemon.Folders, bool, error) {
		allowed, embedded, err := engineFolders(cmd, dsn)
		allowed.Read = append(allowed.Read, daemon.Holding(files...)...)
		return allowed, embedded, err
	}
	return restricted(cmd, f, folders, func() (*openedStore, error) { return openForReadingIn(cmd, dsn, f.engineMemory) })
}

// openStore opens the store of collect. The process keeps access to the files of the store, and
// to the folders of files that are reloaded later.
func (f *collectFlags) openStore(cmd *cobra.Command, n *network) (*openedStore, error) {
	folders := func() (daemon.Folders, bool, error) { return f.folders(cmd, n) }
	return restricted(cmd, &f.ops, folders, func() (*openedStore, error) { return openStoreLater(cmd, f.dsn, &f.box, f.ops.engineMemory) })
}

// engineFolders returns the folders of the embedded engine and of the configuration, which is
// read once more; for a server, the folders of its TLS files, with embedded false.
func engineFolders(cmd *cobra.Command, dsn string) (f daemon.Folders, embedded bool, err error) {
	_, target, _, err := storeTarget(cmd, dsn)
	if err != nil {
		return f, false, err
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
	f.Write, f.Read, err = chdb.Folders(dir, "")
	if path, _ := cmd.Flags().GetString("config"); path != "" {
		f.Read = append(f.Read, filepath.Dir(path))
	}
	return f, true, err
}

// folders returns the folders that collect needs, and creates those to write. embedded is true
// for an embedded store.
func (f *collectFlags) folders(cmd *cobra.Command, n *network) (allowed daemon.Folders, embedded bool, err error) {
	c, target, _, err := storeTarget(cmd, f.dsn)
	if err != nil {
		return allowed, false, err
	}
	ingest := &n.Config.Collect.Ingest
	files := []string{f.network.config, f.network.fabric, ingest.Tokens, ingest.TLS.Cert, ingest.TLS.Key, ingest.TLS.CA}
	files = append(files, n.Config.Collect.Peers.Files()...)
	if f.api != "" {
		files = append(files, n.Config.API.Files()...)
	}
	allowed.Read = daemon.Holding(files...)
	switch target.Kind {
	case store.KindNone:
		return allowed, false, nil
	case store.KindServer:
		allowed.Read = append(allowed.Read, daemon.Holding(target.Files...)...)
	case store.KindEmbedded:
		embedded = true
		if target.Dir, err = embeddedFolder(target); err != nil {
			return allowed, true, err
		}
		write, read, err := chdb.Folders(target.Dir, "")
		if err != nil {
			return allowed, true, err
		}
		allowed.Write, allowed.Read = append(allowed.Write, write...), append(allowed.Read, read...)
	}
	if c.Outbox.Dir != config.NoOutbox {
		dir, err := c.Outbox.Folder(target, dataFolder)
		if err != nil {
			return allowed, embedded, err
		}
		allowed.Write = append(allowed.Write, dir)
	}
	return allowed, embedded, allowed.Make()
}

// restrict gives up all files except the spool's and those in the folders of files that are
// reloaded later.
func (f *exportFlags) restrict(cmd *cobra.Command, c *config.Export, spool string) error {
	if f.ops.noSandbox {
		return nil
	}
	allowed := daemon.Folders{
		Read:  daemon.Holding(append(c.Files(), f.network.config, f.network.fabric)...),
		Write: []string{spool},
	}
	if err := allowed.Make(); err != nil {
		return err
	}
	return daemon.Restrict(allowed, newLogger(cmd, cmd.ErrOrStderr()))
}
