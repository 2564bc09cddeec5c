package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate/store"
)

// Store configures where rows go, for commands with --store. It is not part of the epoch.
type Store struct {
	DSN       DSN         `yaml:"dsn" help:"the store, as --store names it: none, embedded[:DIR] or clickhouse://USER@HOST:PORT/DB"`
	Cluster   string      `yaml:"cluster,omitempty" default:"none: the database is on one server" help:"cluster of the server's remote_servers that the database is sharded over; for a clickhouse:// dsn"`
	Limits    StoreLimits `yaml:"limits"`
	Retention Retention   `yaml:"retention,omitempty"`
	MaxDisk   Bytes       `yaml:"max_disk,omitempty" default:"none" help:"disk budget that long-running commands keep to, by deleting the oldest rows of the shortest windows; in a cluster, the budget of each shard"`
	TrimEvery Duration    `yaml:"trim_every" range:"1s.." help:"time between two checks of the disk budget"`
	Outbox    Outbox      `yaml:"outbox"`
}

// StoreLimits bounds each query; see store.Limits.
type StoreLimits struct {
	Time       Duration `yaml:"time" range:"1ms.." help:"time of a query; limits in the dsn take precedence over these"`
	ReadRows   Quantity `yaml:"read_rows" help:"rows that a query reads"`
	Memory     Bytes    `yaml:"memory" help:"memory of a query"`
	ResultRows Quantity `yaml:"result_rows" help:"rows of an answer"`
}

// Retention is how long rows are kept after they were written. Nil values were not given: the
// database keeps its own.
type Retention struct {
	Fine   *Duration `yaml:"fine,omitempty" range:"1h..18250d" default:"as the database has it; 6h in a new one" help:"how long rows below 1s are kept, in whole seconds"`
	Second *Duration `yaml:"1s,omitempty" range:"1h..18250d" default:"as the database has it; 14d in a new one" help:"how long rows of 1s are kept"`
	Minute *Duration `yaml:"1m,omitempty" range:"1h..18250d" default:"as the database has it; 400d in a new one" help:"how long rows of 1m are kept"`
}

// Outbox configures where rows wait on disk for the store. Flags may override its keys.
type Outbox struct {
	Dir       string   `yaml:"dir,omitempty" unit:"folder" default:"in the embedded store's folder, for a server in the user's data folder" help:"folder in which rows wait on disk until the store has them, or none"`
	Size      Bytes    `yaml:"size" range:"64MiB.." help:"largest size of the outbox; when it is full, collect drops flows first, then the oldest rows of the shortest windows, and replay waits for the store"`
	Retention Duration `yaml:"retention" range:"0s..1h" help:"how long rows are kept after the store took them, to be sent again if it comes back without them"`
	// Interval is nil for the default, which depends on the store.
	Interval *Duration `yaml:"interval,omitempty" range:"0s..10m" default:"10s for a server, 1s for an embedded store" help:"how long rows wait to be sent together with others"`
}

func defaultStore() Store {
	return Store{
		DSN:       DSN{text: store.KindEmbedded},
		Limits:    StoreLimits{Time: Duration(30 * time.Second), ReadRows: 4e9, Memory: 4 << 30, ResultRows: 1 << 20},
		TrimEvery: Duration(store.DefaultTrimEvery),
		Outbox:    defaultOutbox(),
	}
}

func defaultOutbox() Outbox {
	return Outbox{Size: store.DefaultOutboxBytes, Retention: Duration(store.DefaultOutboxKeep)}
}

// NoOutbox is the folder that turns the outbox off.
const NoOutbox = "none"

func (c *Store) check() error {
	if c.Cluster != "" {
		if err := store.CheckCluster(c.Cluster); err != nil {
			return fmt.Errorf("store: cluster: %w", err)
		}
	}
	for _, r := range []struct {
		key   string
		value *Duration
	}{{"fine", c.Retention.Fine}, {"1s", c.Retention.Second}, {"1m", c.Retention.Minute}} {
		if r.value == nil {
			continue
		}
		if err := store.CheckRetention(time.Duration(*r.value)); err != nil {
			return fmt.Errorf("store: retention: %s: %s: %w", r.key, r.value, err)
		}
	}
	return nil
}

// LimitsOf returns the limits of a target, completed by those of the section.
func (c *Store) LimitsOf(target store.Limits) store.Limits {
	return store.Limits{
		Time: cmp.Or(target.Time, time.Duration(c.Limits.Time)), ReadRows: cmp.Or(target.ReadRows, uint64(c.Limits.ReadRows)),
		Memory: cmp.Or(target.Memory, uint64(c.Limits.Memory)), ResultRows: cmp.Or(target.ResultRows, uint64(c.Limits.ResultRows)),
	}
}

// Keep returns the retention; 0 for values that were not given.
func (c *Retention) Keep() store.Retention {
	return store.Retention{c.Fine.or(0), c.Second.or(0), c.Minute.or(0)}
}

// Options returns the outbox for a target, nil for none. data returns the folder for persistent
// data.
func (c *Outbox) Options(target store.Target, data func() (string, error)) (*store.Outbox, error) {
	if c.Dir == NoOutbox {
		return nil, nil
	}
	dir, err := c.Folder(target, data)
	if err != nil {
		return nil, err
	}
	interval := store.ServerInterval
	if target.Kind == store.KindEmbedded {
		interval = store.EmbeddedInterval
	}
	o := &store.Outbox{Dir: dir, MaxBytes: int64(c.Size), Keep: time.Duration(c.Retention), Interval: c.Interval.or(interval)}
	if c.Retention == 0 {
		o.Keep = -1
	}
	return o, nil
}

// Folder returns the folder in which rows for a target wait. Each store has its own, since rows
// for one store must not go to another.
func (c *Outbox) Folder(target store.Target, data func() (string, error)) (string, error) {
	embedded := target.Kind == store.KindEmbedded
	if embedded && c.Dir == "" {
		return filepath.Join(target.Dir, "outbox"), nil
	}
	base := c.Dir
	if base == "" {
		dir, err := data()
		if err != nil {
			return "", fmt.Errorf("find folder for the outbox: %w: name one with --outbox DIR, or --outbox none", err)
		}
		base = filepath.Join(dir, "outbox")
	}
	var name string
	if embedded {
		path, err := filepath.Abs(target.Dir)
		if err != nil {
			return "", fmt.Errorf("name outbox of %s: %w", target, err)
		}
		name = path
	} else {
		name = fmt.Sprint(target.Options.Addr, "/", target.Database)
	}
	return filepath.Join(base, fmt.Sprintf("%016x", xxhash.Sum64String(name))), nil
}
