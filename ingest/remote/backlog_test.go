package remote

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

// memoryKeeper keeps what waits as a disk does.
type memoryKeeper struct {
	mu    sync.Mutex
	text  []byte
	fails error
}

func (k *memoryKeeper) Load() ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text, nil
}

func (k *memoryKeeper) Save(text []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fails == nil {
		k.text = slices.Clone(text)
	}
	return k.fails
}

func (k *memoryKeeper) empty() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.text) == 0
}

// waitingCollector runs a collector whose directory is away, and whose names wait.
func waitingCollector(t *testing.T, l *ledger, k *memoryKeeper) (*collector, *ledger) {
	t.Helper()
	cfg := testConfig(t)
	cfg.Waiting = k
	rows := newLedger()
	s, err := NewServer(cfg, rows, l)
	if err != nil {
		t.Fatal(err)
	}
	s.backlog.patience = time.Millisecond
	return serveHere(t, s), rows
}

func (l *ledger) setFails(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = err
}

// TestNamesWaitForTheDirectory: rows of exporters are taken while the directory is away, also
// by a collector that was started meanwhile. When it is back it has the configurations, the
// runs, and the names as those described them that came first; what it had otherwise before
// holds, and is a dispute.
func TestNamesWaitForTheDirectory(t *testing.T) {
	l, k := newLedger(), &memoryKeeper{}
	first, other := testDescription(), rewritten()
	// The directory has one name from before, as the other exporter describes it.
	before := namesOf(other.toWire(), "host0")[0]
	l.pins[nameKeyOf(&before)], l.groups[before.Group.ID] = before, *before.Group
	l.setFails(errors.New("away"))

	s, rows := waitingCollector(t, l, k)
	pushAs(t, s, "host1", describing(t, first, 1))
	pushAs(t, s, "host2", describing(t, other, 1))
	if st := s.Stats(); st.Total.Refused[ReasonContested] != 2 || len(rows.totals()) != 2 || k.empty() {
		t.Errorf("%d names are contested, want 2; rows of %d streams, want 2", st.Total.Refused[ReasonContested], len(rows.totals()))
	}
	s.stop()

	s, rows = waitingCollector(t, l, k)
	pushAs(t, s, "host1", describing(t, first, 2))
	if len(rows.totals()) != 1 {
		t.Error("a collector that was started while the directory is away takes no rows")
	}
	l.setFails(nil)
	for !k.empty() { // until the test's own time is up
		time.Sleep(time.Millisecond)
	}
	l.mu.Lock()
	runs, texts := len(l.runs), len(l.epochs)
	group, location := l.groups[first.Groups[0].ID], l.locations[first.Locations[0].ID]
	l.mu.Unlock()
	if runs != 2 || texts != 2 {
		t.Errorf("%d runs and %d configurations, want 2 of each", runs, texts)
	}
	if group != other.Groups[0] || location.Capacity != first.Locations[0].Capacity {
		t.Errorf("group %+v, location %+v: want what was there, and what came first", group, location)
	}
	if n := s.Stats().Total.Refused[ReasonContested]; n != 1 {
		t.Errorf("%d names are contested, want the group", n)
	}
	pushAs(t, s, "host3", describing(t, first, 1))
	if !k.empty() {
		t.Error("names wait while the directory is there")
	}
}

// TestNamesWaitOnDisk: rows are not taken while their names are nowhere on disk.
func TestNamesWaitOnDisk(t *testing.T) {
	l, k := newLedger(), &memoryKeeper{fails: errors.New("disk full")}
	l.setFails(errors.New("away"))
	s, _ := waitingCollector(t, l, k)
	e := s.exporter("host1", &s.limits)
	defer e.inFlight.Add(-1)
	for range 2 {
		answer, err := s.take(t.Context(), &call{exporter: e, release: func() {}}, describing(t, testDescription(), 1))
		if err == nil {
			t.Errorf("answered %v, want an error: the exporter comes again", answer)
		}
	}
	k.mu.Lock()
	k.fails = nil
	k.mu.Unlock()
	pushAs(t, s, "host1", describing(t, testDescription(), 1))
	if k.empty() {
		t.Error("names are not on disk")
	}
}
