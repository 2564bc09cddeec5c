package query

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store"
)

// FromStore reads from ClickHouse, Metered. The store must outlive the reader. Requests to one
// reader share some of the rows that it reads.
func FromStore(s *store.Store) Reader { return Metered(storeReader{s, &restored{}}, time.Now) }

// storeReader answers with the store's own methods, and knows the topology.
type storeReader struct {
	*store.Store
	topology *restored
}

// restored is the topology in the last text read, or in one before it.
type restored struct {
	mu     sync.Mutex
	text   string
	fabric *fabric.Fabric // nil if neither the text nor an earlier one has one
}

// Topology implements Wired: it is in the last stored configuration with a fabric file.
func (r storeReader) Topology(ctx context.Context) (*fabric.Fabric, error) {
	text, err := r.LatestEpoch(ctx, "")
	if err != nil {
		return nil, err
	}
	r.topology.mu.Lock()
	defer r.topology.mu.Unlock()
	if text == r.topology.text {
		return r.topology.fabric, nil
	}
	f := restore(text)
	if f == nil {
		with, err := r.LatestEpoch(ctx, fabric.RestoreLine)
		if err != nil {
			return nil, err
		}
		f = restore(with)
	}
	r.topology.text, r.topology.fabric = text, f
	return f, nil
}

// restore returns the topology in a text, nil if there is none: another version may write other
// texts.
func restore(text string) *fabric.Fabric {
	if f, err := fabric.Restore(text); err == nil && f.TopologyRevision() != "" {
		return f
	}
	return nil
}

// Peers implements Linker.
func (r storeReader) Peers(ctx context.Context) (map[string]string, error) {
	f, err := r.Topology(ctx)
	if f == nil || err != nil {
		return nil, err
	}
	peers := make(map[string]string)
	for _, port := range f.Ports() {
		peers[port.Name] = port.Peer
	}
	return peers, nil
}

// asked separates errors that the client can fix from failures.
func asked(err error) error {
	switch {
	case errors.Is(err, store.ErrQuestion):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case errors.Is(err, store.ErrTooManyRows), errors.Is(err, store.ErrLimit):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, store.ErrUnreachable), errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrNotReady), errors.Is(err, store.ErrMalformedAnswer):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
