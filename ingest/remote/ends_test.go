package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/ingest/wire"
)

// distant is a ledger whose directory does not answer while it is away, except for calls that
// the store's outbox absorbs.
type distant struct {
	*ledger
	away    atomic.Bool
	earlier atomic.Int32
}

func (d *distant) wait(ctx context.Context) error {
	if !d.away.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (d *distant) WriteEpoch(ctx context.Context, epoch uint64, text string) error {
	return errors.Join(d.wait(ctx), d.ledger.WriteEpoch(ctx, epoch, text))
}

func (d *distant) Names(ctx context.Context, groups []aggregate.GroupID, locations []aggregate.LocationID) ([]fabric.Name, error) {
	if err := d.wait(ctx); err != nil {
		return nil, err
	}
	return d.ledger.Names(ctx, groups, locations)
}

func (d *distant) PinNames(ctx context.Context, list []fabric.Name) error {
	return errors.Join(d.wait(ctx), d.ledger.PinNames(ctx, list))
}

func (d *distant) BeginRuns(ctx context.Context, list []Run) error {
	return errors.Join(d.wait(ctx), d.ledger.BeginRuns(ctx, list))
}

func (d *distant) EndRuns(ctx context.Context, list []Run) error {
	if err := d.wait(ctx); err != nil {
		return err
	}
	return d.ledger.EndRuns(ctx, list)
}

func (d *distant) EndEarlier(ctx context.Context, _ []Run) error {
	if err := d.wait(ctx); err != nil {
		return err
	}
	d.earlier.Add(1)
	return nil
}

// distantServer returns a running collector for requests inside a synctest bubble.
func distantServer(t *testing.T) (*Server, *distant, context.CancelFunc) {
	t.Helper()
	cfg := testConfig(t)
	cfg.Logger, cfg.CommitEvery = nil, 100*time.Millisecond
	d := &distant{ledger: newLedger()}
	s, err := NewServer(cfg, d, d)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { s.work(ctx) })
	stop := func() { cancel(); done.Wait() }
	return s, d, stop
}

// handIn passes an exporter's request as ServeHTTP does, and returns the time it took.
func handIn(t *testing.T, s *Server, exporter string, m *wire.PushRequest) (*wire.PushResponse, time.Duration, error) {
	t.Helper()
	e, began := s.client(exporter, &s.limits, false), time.Now()
	defer e.inFlight.Add(-1)
	ctx, cancel := context.WithTimeout(t.Context(), s.cfg.Timeout)
	defer cancel()
	answer, err := s.take(ctx, callOfTest(e), proto.CloneOf(m))
	return answer, time.Since(began), err
}

// pushOf returns a request with a block of a stream and with records of it.
func pushOf(t *testing.T, stream string, seq uint64, records ...*wire.Record) *wire.PushRequest {
	m := validRequest(t, seq)
	m.Blocks[0].Stream = stream
	for _, r := range records {
		r.Stream, r.Incarnation, r.Epoch, r.Description = stream, 7, m.Descriptions[0].GetEpoch(), m.Descriptions[0].GetId()
	}
	m.Records = records
	return m
}

func newEndRecord() *wire.Record { return &wire.Record{What: &wire.Record_End{End: &wire.End{}}} }

func newTapRecord() *wire.Record {
	return &wire.Record{What: &wire.Record_Tap{Tap: validTap(time.Now())}}
}

// TestEndHoldsNobody: while a store without an outbox is down, an exporter ends and reports it
// repeatedly. Other exporters' blocks are acknowledged as before; the end is stored when the
// store is back.
func TestEndHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, stop := distantServer(t)
		defer stop()
		for _, exporter := range []string{"a", "b"} {
			if answer, _, err := handIn(t, s, exporter, pushOf(t, "eth0", 1, newTapRecord())); err != nil || answer.GetOutcomes()[1] != wire.Outcome_OUTCOME_STORED {
				t.Fatalf("%v, %v", answer, err)
			}
		}
		synctest.Wait() // until earlier runs have ended
		d.away.Store(true)
		end := pushOf(t, "eth0", 2, newEndRecord())
		var ending sync.WaitGroup
		ending.Go(func() {
			for range 8 {
				answer, took, err := handIn(t, s, "a", end)
				if err != nil || answer.GetOutcomes()[0] > wire.Outcome_OUTCOME_REPEAT || answer.GetOutcomes()[1] != wire.Outcome_OUTCOME_UNSPECIFIED || took >= s.cfg.Timeout {
					t.Errorf("end: %v, %v after %s, want it not taken in time", answer, err, took)
				}
				time.Sleep(10 * time.Second)
			}
		})
		for seq := range uint64(90) {
			time.Sleep(time.Second)
			answer, took, err := handIn(t, s, "b", pushOf(t, "eth0", seq+2, newTapRecord()))
			if err != nil || answer.GetOutcomes()[0] != wire.Outcome_OUTCOME_STORED || answer.GetOutcomes()[1] != wire.Outcome_OUTCOME_STORED || took > time.Second {
				t.Fatalf("block %d of another exporter: %v, %v after %s", seq, answer, err, took)
			}
		}
		ending.Wait()
		d.away.Store(false)
		for {
			answer, _, err := handIn(t, s, "a", end)
			if err != nil {
				t.Fatal(err)
			}
			if answer.GetOutcomes()[1] == wire.Outcome_OUTCOME_STORED {
				break
			}
		}
		synctest.Wait()
		if len(d.ended) != 1 {
			t.Errorf("ended %v", d.ended)
		}
	})
}

// TestNewNamesWait: while a store without an outbox is down, blocks of new runs or under new
// names wait, and those of known runs are acknowledged, even in the same request. Requests that
// ended before the store is back are not written then.
func TestNewNamesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, stop := distantServer(t)
		defer stop()
		if _, _, err := handIn(t, s, "b", pushOf(t, "eth0", 1)); err != nil {
			t.Fatal(err)
		}
		d.away.Store(true)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			for n := range 10 {
				m := validRequest(t, 1)
				g := &wire.Group{Id: uint64(fabric.GroupIDOf("rack7")), Name: "rack7", Order: uint32(n)}
				m.Descriptions[0].Groups = append(m.Descriptions[0].Groups, g)
				if answer, _, err := handIn(t, s, "a", m); err == nil {
					t.Errorf("a new name: %v", answer)
				}
			}
		})
		for seq := range uint64(10) {
			m := pushOf(t, "eth0", seq+2, newTapRecord())
			m.Blocks = append(m.Blocks, pushOf(t, "eth1", seq+1).GetBlocks()...)
			answer, took, err := handIn(t, s, "b", m)
			want := []wire.Outcome{wire.Outcome_OUTCOME_STORED, wire.Outcome_OUTCOME_UNSPECIFIED, wire.Outcome_OUTCOME_STORED}
			if err != nil || fmt.Sprint(answer.GetOutcomes()) != fmt.Sprint(want) || took >= s.cfg.Timeout {
				t.Fatalf("%v, %v after %s, want %v", answer, err, took, want)
			}
		}
		waiting.Wait()
		s.announces.mu.Lock()
		if r := s.announces.next; r != nil && len(r.items) > 0 {
			t.Errorf("%d announcements wait for nobody", len(r.items))
		}
		s.announces.mu.Unlock()
		checkConservation(t, s.Stats().Total)
		d.away.Store(false)
		time.Sleep(s.cfg.Timeout)
		if answer, _, err := handIn(t, s, "b", pushOf(t, "eth1", 1)); err != nil || answer.GetOutcomes()[0] != wire.Outcome_OUTCOME_STORED {
			t.Errorf("when the store is back: %v, %v", answer, err)
		}
		synctest.Wait()
		if d.earlier.Load() == 0 {
			t.Error("earlier runs are not ended")
		}
	})
}

// TestClientsThatLeave: an exporter that hangs up while its request waits is not a fault of the store.
func TestClientsThatLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, stop := distantServer(t)
		defer stop()
		if _, _, err := handIn(t, s, "a", pushOf(t, "eth0", 1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until earlier runs have ended
		d.away.Store(true)
		both := pushOf(t, "eth0", 3)
		both.Blocks = append(both.Blocks, pushOf(t, "eth2", 1).GetBlocks()...)
		for i, m := range []*wire.PushRequest{pushOf(t, "eth0", 2, newEndRecord()), pushOf(t, "eth1", 1), both} {
			ctx, hangUp := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, hangUp)
			e := s.client("a", &s.limits, false)
			_, err := s.take(ctx, callOfTest(e), m)
			e.inFlight.Add(-1)
			if r := s.Stats().Total.Refused; r[ReasonLeft] != uint64(i+1) || r[ReasonSink]+r[ReasonEnds] != 0 {
				t.Errorf("request %d: %v, refused %v, want only %s, once for each request", i, err, r, ReasonLeft)
			}
		}
		if _, _, err := handIn(t, s, "a", pushOf(t, "eth1", 1)); err == nil || s.Stats().Total.Refused[ReasonSink] == 0 {
			t.Errorf("a store that does not answer: %v, %v", err, s.Stats().Total.Refused)
		}
		checkConservation(t, s.Stats().Total)
	})
}
