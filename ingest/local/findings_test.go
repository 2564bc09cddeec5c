package local_test

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/ingest/local"
)

// TestFindingsOverReloads: findings keep counting over reloads that change the authorized
// senders.
func TestFindingsOverReloads(t *testing.T) {
	rec := record(t)
	var more atomic.Int64
	open := func(path string) local.Source {
		f := openFile(t, path)
		f.size, f.more = 20, &more
		return f
	}
	plan := func(epoch uint64, senders string, open func(string) local.Source) local.Plan {
		p := rec.plan(t, epoch, open)
		p.Finding = &finding.Config{Domain: rec.domain, Locator: rec.fabric(t), Senders: []netip.Prefix{netip.MustParsePrefix(senders)}, MaxSubjects: 3}
		return p
	}
	again := func(string) local.Source { return nil }
	j := newJournal(t)
	p, err := local.New(config(j), plan(1, "192.0.2.0/24", open))
	if err != nil {
		t.Fatal(err)
	}
	wait := start(t.Context(), t, p)
	for _, next := range []struct {
		epoch   uint64
		senders string
	}{{1, "198.51.100.0/24"}, {2, "192.0.2.0/24"}} { // the first has the same epoch
		more.Add(400)
		if err := p.Reload(t.Context(), plan(next.epoch, next.senders, again), nil); err != nil {
			t.Fatal(err)
		}
	}
	more.Store(1 << 60)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	s := p.Stats()
	found := uint64(0)
	for i := range s.Rings {
		subjects := 0
		for _, f := range s.Rings[i].Findings {
			if f.Kind != finding.UnauthorisedSender || f.From > f.To || f.From == 0 || len(f.Packets) > 0 {
				t.Errorf("%+v", f)
			}
			found += f.Count
			subjects++
		}
		if subjects == 0 || subjects > 4 {
			t.Errorf("%s has %d subjects, want 1 to 3 and all others", s.Rings[i].Name, subjects)
		}
	}
	c := s.Counts()
	if found != c.Stored+c.Overflow {
		t.Errorf("%d observations are found, %d were counted", found, c.Stored+c.Overflow)
	}
}
