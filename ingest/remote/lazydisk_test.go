package remote

import "github.com/csigscope/csigscope/aggregate/store/outbox"

// lazyDisk does not sync: hundreds of simulated exporters would wait for the one disk of this
// machine, while real ones have a disk each. Its files survive a killed process.
type lazyDisk struct{ outbox.OS }

func (lazyDisk) SyncDir(string) error { return nil }

func (lazyDisk) Open(name string, flag int) (outbox.File, error) {
	f, err := outbox.OS{}.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return lazyFile{f}, nil
}

type lazyFile struct{ outbox.File }

func (lazyFile) Sync() error { return nil }
