package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

// doors control whether connections to a server fail or hang.
type doors struct {
	shut, hanging atomic.Bool
}

// through routes connections to the engine through the doors.
func (d *doors) through(o *clickhouse.Options) *clickhouse.Options {
	transport := o.TransportFunc
	o.TransportFunc = func(t *http.Transport) (http.RoundTripper, error) {
		way, err := transport(t)
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if d.hanging.Load() {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			if d.shut.Load() {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			}
			return way.RoundTrip(r)
		}), err
	}
	return o
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// laterOptions open a store with an outbox whose engine is unreachable until the doors are
// opened.
func laterOptions(t *testing.T, engine *chdb.Engine) (Options, *doors) {
	t.Helper()
	d := new(doors)
	d.shut.Store(true)
	o := optionsOf(t, engine)
	o.Writer, o.Migrator, o.Reader = d.through(o.Writer), d.through(o.Migrator), d.through(o.Reader)
	if at := o.At; at != nil {
		o.At = func(address string) (*clickhouse.Options, error) {
			to, err := at(address)
			return d.through(to), err
		}
	}
	o.Outbox = &Outbox{Dir: t.TempDir()}
	o.Later = &Later{Patience: time.Hour}
	return o, d
}

// writeAway writes rows of a live run, and the records that accompany them in the outbox.
func writeAway(t *testing.T, s *Store, of aggregate.Source) []row {
	t.Helper()
	g := traffic{resolution: time.Second, windows: 5, groups: 3, locations: 4, signals: allSignals[:2]}
	rows := g.rows(rand.New(rand.NewPCG(4, 4)), of)
	for _, b := range blocks(rows) {
		if err := s.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	from := testStart
	err := errors.Join(
		s.Sync(t.Context()),
		s.WriteTaps(t.Context(), []TapRow{{Source: of, Seq: 1, Name: "eth1", Place: "receiver", From: from.UnixNano(), To: from.Add(time.Second).UnixNano(), Packets: 7}}),
		s.WriteGaps(t.Context(), []Gap{{Source: of, From: from, To: from.Add(time.Second), Reason: GapDrops, Observations: 3}}),
	)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestServerComesLater: a store takes rows before its server has ever answered. Once it does, it
// gets the schema, the retention, the rows, their accompanying records, and the waiting names.
func TestServerComesLater(t *testing.T) {
	t.Parallel()
	o, doors := laterOptions(t, startEngine(t, t.TempDir()))
	o.Later.Retention = Retention{fineTable: 3 * time.Hour}
	s := open(t, o)
	if err := s.Ready(t.Context()); !errors.Is(err, ErrNotReady) || !errors.Is(err, ErrUnreachable) {
		t.Errorf("ready while the server is away: %v, want ErrNotReady and ErrUnreachable", err)
	}
	if _, err := s.Cells(t.Context(), testQuestion()); !errors.Is(err, ErrNotReady) {
		t.Errorf("a question while the server is away: %v, want ErrNotReady", err)
	}
	of := aggregate.Source{Producer: 5, Incarnation: 1, Epoch: 9}
	run := Run{Source: of, Mode: RunLive, Name: "eth1"}
	if err := errors.Join(s.WriteEpoch(t.Context(), of.Epoch, "\xff"), s.WriteGroups(t.Context(), []fabric.Group{{ID: 77, Name: "rack"}}), s.BeginRun(t.Context(), run)); err != nil {
		t.Fatal(err)
	}
	rows := writeAway(t, s, of)
	if err := s.EndRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if got := s.WriterStats().Waiting; got < uint64(len(rows)) {
		t.Errorf("%d rows wait, want at least %d", got, len(rows))
	}
	doors.shut.Store(false)
	if err := errors.Join(s.Flush(t.Context()), s.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	writeAncestry(t, s)
	compareStored(t, s, rows, time.Second)
	status, err := s.Status(t.Context())
	for _, m := range status {
		if err != nil || !m.Current {
			t.Errorf("migration %+v, %v, want it applied", m, err)
		}
	}
	if kept, err := s.Retention(t.Context()); err != nil || kept[fineTable] != 3*time.Hour {
		t.Errorf("retention %v, %v", kept, err)
	}
	taps, err := s.Taps(t.Context(), testStart, testStart.Add(time.Minute))
	if err != nil || len(taps) != 1 || taps[0].Packets != 7 {
		t.Errorf("taps %+v, %v", taps, err)
	}
	if got := storedGaps(t, s); len(got) != 1 || got[0].Observations != 3 {
		t.Errorf("gaps %+v", got)
	}
	if groups, err := s.Groups(t.Context()); err != nil || len(groups) != 1 || groups[0].Name != "rack" {
		t.Errorf("groups %+v, %v", groups, err)
	}
	got := readStrings(t, s, "SELECT concat(state, ' ', mode, ' ', name) FROM csigscope.runs FINAL ORDER BY state")
	if want := []string{"started live eth1", "done live eth1"}; !slices.Equal(got, want) {
		t.Errorf("runs %q, want %q", got, want)
	}
	if text, err := s.LatestEpoch(t.Context(), ""); err != nil || text != "\xff" {
		t.Errorf("configuration %q, %v", text, err)
	}
}

// TestServerNeverComes: rows of a store whose server never answered, and of one closed before the
// first answer, are sent by the next store.
func TestServerNeverComes(t *testing.T) {
	t.Parallel()
	o, doors := laterOptions(t, chdbtest.Start(t))
	var all []row
	for producer, hangs := range []bool{false, true} {
		doors.hanging.Store(hangs)
		o.Later.Patience = time.Hour
		if hangs {
			o.Later.Patience = time.Millisecond
		}
		s, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		rows := writeAway(t, s, aggregate.Source{Producer: uint64(producer + 1)})
		all = append(all, rows...)
		if err := s.Close(); err != nil || s.Left() < uint64(len(rows)) {
			t.Errorf("hanging %t: %v, %d rows left, want at least %d", hangs, err, s.Left(), len(rows))
		}
	}
	doors.hanging.Store(false)
	doors.shut.Store(false)
	s := open(t, o)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	writeAncestry(t, s)
	compareStored(t, s, all, time.Second)
}

// TestRefusedLater: a server that turns out to have a schema from before version 1 is refused,
// and rows wait until that is fixed.
func TestRefusedLater(t *testing.T) {
	t.Parallel()
	engine := chdbtest.Start(t)
	direct := optionsOf(t, engine)
	before := open(t, direct)
	for _, statement := range earlierStore {
		if err := before.migrator.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	o, doors := laterOptions(t, engine)
	s := open(t, o)
	rows := writeAway(t, s, aggregate.Source{Producer: 5})
	doors.shut.Store(false)
	if err := s.Flush(t.Context()); !errors.Is(err, ErrEarlierSchema) {
		t.Errorf("flush: %v, want ErrEarlierSchema", err)
	}
	if err := s.Ready(t.Context()); !errors.Is(err, ErrEarlierSchema) || !strings.Contains(err.Error(), "rows wait in the outbox") {
		t.Errorf("ready: %v, want ErrEarlierSchema, and that rows wait", err)
	}
	if st := s.WriterStatus(); st.Waiting < uint64(len(rows)) || st.Rows != 0 || !errors.Is(st.Failure, ErrEarlierSchema) {
		t.Errorf("status %+v, want %d rows that wait", st, len(rows))
	}
	direct.ToDrop = true
	if err := open(t, direct).Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.server.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	writeAncestry(t, s)
	compareStored(t, s, rows, time.Second)
}

// TestRefusedAtOnce: if the server answers at once and refuses the store, Open fails, and so it
// does if the start fails.
func TestRefusedAtOnce(t *testing.T) {
	t.Parallel()
	engine := chdbtest.Start(t)
	failed := errors.New("the engine process ended before it answered")
	for name, tt := range map[string]struct {
		change func(*Options)
		want   error
	}{
		"missing rights": {func(o *Options) { o.Migrator = optionsOf(t, engine).Reader }, nil},
		"failed start":   {func(o *Options) { o.Later.Started = func(context.Context) error { return failed } }, failed},
		"retention":      {func(o *Options) { o.Later.Retention[secondTable] = time.Second }, ErrRetention},
		"no outbox":      {func(o *Options) { o.Outbox = nil }, nil},
	} {
		o, doors := laterOptions(t, engine)
		doors.shut.Store(false)
		tt.change(&o)
		s, err := Open(t.Context(), o)
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if s != nil {
			_ = s.Close()
		}
	}
}

// TestStalled: a store is not ready once rows have waited long in the outbox, even though the
// attempt to send them hangs and has not failed.
func TestStalled(t *testing.T) {
	t.Parallel()
	o, doors := laterOptions(t, startEngine(t, t.TempDir()))
	doors.shut.Store(false)
	var ahead atomic.Int64
	o.Later, o.Outbox.Now = nil, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	s := open(t, o)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	doors.hanging.Store(true)
	writeAway(t, s, aggregate.Source{Producer: 5, Incarnation: 1, Epoch: 9})
	if err := s.Ready(t.Context()); err != nil || s.WriterStatus().Stalled {
		t.Errorf("right after rows came: %v, %+v", err, s.WriterStatus())
	}
	ahead.Store(int64(stalledAfter + time.Minute))
	if err := s.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "wait in the outbox, the oldest for") || !s.WriterStatus().Stalled {
		t.Errorf("rows have waited: %v, %+v", err, s.WriterStatus())
	}
	doors.hanging.Store(false)
}
