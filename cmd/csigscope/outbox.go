package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/spf13/pflag"

	"github.com/csigscope/csigscope/aggregate/store"
)

// outboxFlags say where rows wait on disk for the store.
type outboxFlags struct {
	dir  string
	size int64
	keep time.Duration

	flags *pflag.FlagSet
}

const (
	// minOutboxBytes is room for the largest batches.
	minOutboxBytes = 64 << 20
	// maxOutboxKeep is well below the shortest retention of a table: rows that have
	// expired there must not come back.
	maxOutboxKeep = time.Hour
)

func (f *outboxFlags) add(flags *pflag.FlagSet) {
	f.flags = flags
	flags.StringVar(&f.dir, "outbox", "", "`FOLDER` in which rows wait on disk until the store has them, or none (default in the embedded store's folder, for a server in the user's data folder)")
	addByteFlag(flags, &f.size, "outbox-size", store.DefaultOutboxBytes, "largest `SIZE` of the outbox, such as 4GiB; when it is full, replays wait for the store")
	flags.DurationVar(&f.keep, "outbox-keep", store.DefaultOutboxKeep, "how long rows are kept after the store took them, to be sent again if it comes back without them; at most 1h")
}

// over are the flags that were given, and for the others what the file says.
func (f *outboxFlags) over(c outboxConfig) outboxFlags {
	o := *f
	left := func(name string) bool { return !f.flags.Changed(name) }
	if left("outbox") && c.Dir != "" {
		o.dir = c.Dir
	}
	if left("outbox-size") && !c.Size.IsZero() {
		o.size = int64(c.Size.n)
	}
	if left("outbox-keep") && !c.Keep.IsZero() {
		o.keep = c.Keep.d
	}
	return o
}

func checkOutboxSize(n int64) error {
	if n < minOutboxBytes {
		return fmt.Errorf("expected at least %dMiB", minOutboxBytes>>20)
	}
	return nil
}

func checkOutboxKeep(d time.Duration) error {
	if d < 0 || d > maxOutboxKeep {
		return fmt.Errorf("expected 0 to %s", maxOutboxKeep)
	}
	return nil
}

// options are nil for no outbox. Each store has a folder of its own, since what waits
// for one must not go to another.
func (f *outboxFlags) options(target store.Target) (*store.Outbox, error) {
	if f.dir == "none" {
		return nil, nil
	}
	if err := checkOutboxSize(f.size); err != nil {
		return nil, usageError{fmt.Errorf("--outbox-size %d: %w", f.size, err)}
	}
	if err := checkOutboxKeep(f.keep); err != nil {
		return nil, usageError{fmt.Errorf("--outbox-keep %s: %w", f.keep, err)}
	}
	dir, err := f.folder(target)
	if err != nil {
		return nil, err
	}
	o := &store.Outbox{Dir: dir, MaxBytes: f.size, Keep: f.keep, Interval: store.ServerInterval}
	if target.Kind == store.KindEmbedded {
		o.Interval = store.EmbeddedInterval
	}
	if f.keep == 0 {
		o.Keep = -1
	}
	return o, nil
}

func (f *outboxFlags) folder(target store.Target) (string, error) {
	embedded := target.Kind == store.KindEmbedded
	if embedded && f.dir == "" {
		return filepath.Join(target.Dir, "outbox"), nil
	}
	base := f.dir
	if base == "" {
		data, err := dataFolder()
		if err != nil {
			return "", fmt.Errorf("find folder for the outbox: %w, or --outbox DIR, or --outbox none", err)
		}
		base = filepath.Join(data, "outbox")
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
