package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/daemon"
)

// openStore opens the store of collect, in a process that gives up all files but those of
// the store, of checkpoints, and in the folders of what is read again later. The embedded
// engine is started after that, as by openRestricted; a server is reached before.
func (f *collectFlags) openStore(cmd *cobra.Command, c *collectConfig, a *apiConfig) (*openedStore, error) {
	if f.ops.noSandbox {
		return openStoreLater(cmd, f.dsn, &f.box)
	}
	folders, embedded, err := f.folders(cmd, c, a)
	if err != nil {
		return nil, err
	}
	logger := newLogger(cmd, cmd.ErrOrStderr())
	if embedded {
		if err := daemon.Restrict(folders, logger); err != nil {
			return nil, err
		}
		return openStoreLater(cmd, f.dsn, &f.box)
	}
	db, err := openStoreLater(cmd, f.dsn, &f.box)
	if err != nil || db == nil {
		return nil, err
	}
	if err := daemon.Restrict(folders, logger); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// folders are what collect needs; those to write are made. embedded is true for an
// embedded store.
func (f *collectFlags) folders(cmd *cobra.Command, c *collectConfig, a *apiConfig) (allowed daemon.Folders, embedded bool, err error) {
	config, err := storeSettings(cmd, f.dsn)
	if err != nil {
		return allowed, false, err
	}
	db := openedStore{config: config, outbox: f.box.over(config.Outbox)}
	if db.target, err = config.target(); err != nil {
		return allowed, false, usageError{err}
	}
	tls := &c.Ingest.TLS
	files := []string{f.network.config, f.network.fabric, c.Ingest.Tokens, tls.Cert, tls.Key, tls.CA}
	if f.api != "" {
		files = append(files, a.files()...)
	}
	allowed.Read = daemon.Holding(files...)
	switch db.target.Kind {
	case store.KindNone:
		return allowed, false, nil
	case store.KindServer:
		allowed.Read = append(allowed.Read, daemon.Holding(db.target.Files...)...)
	case store.KindEmbedded:
		embedded = true
		if db.target.Dir, err = embeddedFolder(db.target); err != nil {
			return allowed, true, err
		}
		write, read, err := chdb.Places(db.target.Dir, "")
		if err != nil {
			return allowed, true, err
		}
		allowed.Write, allowed.Read = append(allowed.Write, write...), append(allowed.Read, read...)
	}
	if db.outbox.dir != "none" {
		dir, err := db.outbox.folder(db.target)
		if err != nil {
			return allowed, embedded, err
		}
		allowed.Write = append(allowed.Write, dir)
	}
	if c.Checkpoint.Every.d > 0 {
		dir := c.Checkpoint.Dir
		if dir == "" {
			if dir, err = db.checkpointFolder(); err != nil {
				return allowed, embedded, err
			}
		}
		allowed.Write = append(allowed.Write, dir)
	}
	return allowed, embedded, allowed.Make()
}

// restrict gives up all files but those of the spool, and in the folders of what is read
// again later.
func (f *exportFlags) restrict(cmd *cobra.Command, c *exportConfig, spool string) error {
	if f.ops.noSandbox {
		return nil
	}
	allowed := daemon.Folders{
		Read:  daemon.Holding(f.network.config, f.network.fabric, c.TokenFile, c.TLS.Cert, c.TLS.Key, c.TLS.CA),
		Write: []string{spool},
	}
	if err := allowed.Make(); err != nil {
		return err
	}
	return daemon.Restrict(allowed, newLogger(cmd, cmd.ErrOrStderr()))
}
