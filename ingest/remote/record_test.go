package remote

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/wire"
)

// validTap returns consistent counts.
func validTap(now time.Time) *wire.Tap {
	return &wire.Tap{
		Seq: 3, Name: "eth0", Place: "receiver", Interface: "eth0", Link: "Ethernet", Timestamps: "software", TickNs: 1,
		FromNs: now.UnixNano() - 1e9, ToNs: now.UnixNano(), Packets: 10, Bytes: 1000, Frames: map[string]uint64{"ok": 9, "no_tag": 1},
		Tags: 6, Reflections: 3, Observations: 9, Stored: 5, Overflow: 2, Late: 1, Rejected: map[string]uint64{"place": 1}, Untouched: 7,
		KernelDrops: 2, SkewNs: -5, SuperFrames: 1,
	}
}

func validGap(now time.Time) *wire.Gap {
	return &wire.Gap{FromNs: now.UnixNano() - 2e9, ToNs: now.UnixNano(), Reason: "restart"}
}

// TestRecords: records of a stream reach the directory after its blocks, under its identity,
// once.
func TestRecords(t *testing.T) {
	l := newLedger()
	s := startCollector(t, testConfig(t), l, "")
	c := startClient(t, clientConfig(t, s.url))
	st, err := c.StreamOf("eth0/0", 7)
	if err != nil {
		t.Fatal(err)
	}
	d, now := testDescription(), time.Now()
	for range 2 {
		for _, tell := range []func() error{
			func() error {
				return st.record(d.Epoch(), &wire.Record{What: &wire.Record_Begin{Begin: &wire.Begin{}}})
			},
			func() error { return st.WriteBlock(t.Context(), testBlock(newRand(t, 1), now, 10)) },
			func() error { return st.Tap(t.Context(), d.Epoch(), validTap(now)) },
			func() error { return st.Gap(t.Context(), d.Epoch(), validGap(now)) },
			func() error { return st.End(t.Context(), d.Epoch()) },
		} {
			if err := tell(); err != nil {
				t.Fatal(err)
			}
		}
		c.flush(t)
	}
	run := Run{aggregate.Source{Producer: Producer("tester", "eth0/0"), Incarnation: 7, Epoch: d.Epoch()}, "tester", "eth0/0"}
	if l.runs[run] != 2 || l.ended[run] != 2 || len(l.taps) != 1 || len(l.gaps) != 1 {
		t.Errorf("runs %v, ended %v, taps %v, gaps %v", l.runs, l.ended, l.taps, l.gaps)
	}
	if got := l.taps[tapKey{run, 3}]; !proto.Equal(got, validTap(now)) {
		t.Errorf("tap %v", got)
	}
	if got := l.gaps[gapKey{run.Source, now.UnixNano() - 2e9, 0, "restart", 0}]; !proto.Equal(got, validGap(now)) {
		t.Errorf("gap %v", got)
	}
	if err := st.End(t.Context(), d.Epoch()+1); err == nil || !strings.Contains(err.Error(), "call Describe before") {
		t.Errorf("end under a configuration that nobody described: %v", err)
	}
	checkConservation(t, s.Stats().Total)
	if got := c.Stats(); got.Stored != 10 || got.Waiting != 0 || len(got.Refused) != 0 || len(got.Lost) != 0 {
		t.Errorf("%+v, want 10 stored", got)
	}
}

// TestRecordsWait: records that the directory does not accept are sent again, while blocks are
// stored once.
func TestRecordsWait(t *testing.T) {
	l := newLedger()
	s := startCollector(t, testConfig(t), l, "")
	client := clientConfig(t, s.url)
	client.Logger = nil
	c := startClient(t, client)
	st, d, now := c.stream(t, "eth0"), testDescription(), time.Now()
	if err := st.WriteBlock(t.Context(), testBlock(newRand(t, 1), now, 10)); err != nil {
		t.Fatal(err)
	}
	c.flush(t)
	l.mu.Lock()
	l.fails = errSink
	l.mu.Unlock()
	if err := st.Gap(t.Context(), d.Epoch(), validGap(now)); err != nil {
		t.Fatal(err)
	}
	for s.Stats().Total.Refused[ReasonSink] == 0 {
		time.Sleep(time.Millisecond)
	}
	if got := c.Stats(); got.Waiting != 1 {
		t.Errorf("%+v, want 1 waiting", got)
	}
	l.mu.Lock()
	l.fails = nil
	l.mu.Unlock()
	c.flush(t)
	if len(l.gaps) != 1 || s.Stats().Total.StoredItems != 2 {
		t.Errorf("gaps %v, %+v", l.gaps, s.Stats().Total)
	}
}

// TestHostileRecords: inconsistent records are refused, each for its reason.
func TestHostileRecords(t *testing.T) {
	now := time.Now()
	d := testDescription()
	description := d.toWire()
	for _, c := range []struct {
		name   string
		spoil  func(r *wire.Record)
		expect wire.Outcome
	}{
		{"sound", func(*wire.Record) {}, wire.Outcome_OUTCOME_STORED},
		{"a gap", func(r *wire.Record) { r.What = &wire.Record_Gap{Gap: validGap(now)} }, wire.Outcome_OUTCOME_STORED},
		{"nothing", func(r *wire.Record) { r.What = nil }, wire.Outcome_OUTCOME_INVALID},
		{"no incarnation", func(r *wire.Record) { r.Incarnation = 0 }, wire.Outcome_OUTCOME_INVALID},
		{"no stream", func(r *wire.Record) { r.Stream = "" }, wire.Outcome_OUTCOME_INVALID},
		{"another epoch", func(r *wire.Record) { r.Epoch++ }, wire.Outcome_OUTCOME_INVALID},
		{"not described", func(r *wire.Record) { r.Description++ }, wire.Outcome_OUTCOME_UNDESCRIBED},
		{"no name", func(r *wire.Record) { r.GetTap().Name = "" }, wire.Outcome_OUTCOME_INVALID},
		{"a name that spoils a log", func(r *wire.Record) { r.GetTap().Name = "a\nb" }, wire.Outcome_OUTCOME_INVALID},
		{"packets of no reason", func(r *wire.Record) { r.GetTap().Packets++ }, wire.Outcome_OUTCOME_INVALID},
		{"observations that are nowhere", func(r *wire.Record) { r.GetTap().Observations++; r.GetTap().Tags++ }, wire.Outcome_OUTCOME_INVALID},
		{"observations of no kind", func(r *wire.Record) { r.GetTap().Tags-- }, wire.Outcome_OUTCOME_INVALID},
		{"more untouched than stored", func(r *wire.Record) { r.GetTap().Trimmed = 1 }, wire.Outcome_OUTCOME_INVALID},
		{"a reason that spoils a table", func(r *wire.Record) { r.GetTap().Rejected = map[string]uint64{"No'": 1} }, wire.Outcome_OUTCOME_INVALID},
		{"from after to", func(r *wire.Record) { r.GetTap().FromNs = r.GetTap().ToNs + 1 }, wire.Outcome_OUTCOME_INVALID},
		{"of the future", func(r *wire.Record) { r.GetTap().FromNs += 3600e9; r.GetTap().ToNs += 3600e9 }, wire.Outcome_OUTCOME_FUTURE},
		{"a gap of windows that were ahead", func(r *wire.Record) {
			r.What = &wire.Record_Gap{Gap: validGap(now.Add(6 * 24 * time.Hour))}
		}, wire.Outcome_OUTCOME_STORED},
		{"a gap far ahead", func(r *wire.Record) { r.What = &wire.Record_Gap{Gap: validGap(now.Add(8 * 24 * time.Hour))} }, wire.Outcome_OUTCOME_FUTURE},
		{"of the past", func(r *wire.Record) { r.GetTap().FromNs, r.GetTap().ToNs = 1, 1e9 }, wire.Outcome_OUTCOME_PAST},
		{"up to no time that a store has", func(r *wire.Record) { r.GetTap().ToNs = aggregate.EndOfTime }, wire.Outcome_OUTCOME_INVALID},
		{"a gap for no reason", func(r *wire.Record) {
			r.What = &wire.Record_Gap{Gap: &wire.Gap{FromNs: 1, ToNs: now.UnixNano()}}
		}, wire.Outcome_OUTCOME_INVALID},
		{"a gap of observations in no rows", func(r *wire.Record) {
			g := validGap(now)
			g.Reason, g.Observations = "full", 1
			r.What = &wire.Record_Gap{Gap: g}
		}, wire.Outcome_OUTCOME_INVALID},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig(t)
			cfg.Logger = nil
			l := newLedger()
			s := startCollector(t, cfg, l, "")
			r := &wire.Record{Stream: "eth0", Incarnation: 1, Epoch: d.Epoch(), Description: description.GetId(), What: &wire.Record_Tap{Tap: validTap(now)}}
			c.spoil(r)
			m := &wire.PushRequest{Descriptions: []*wire.Description{description}, Records: []*wire.Record{r}}
			if got := outcomeOf(t, s, m); got != c.expect {
				t.Errorf("%s, want %s", got, c.expect)
			}
			if n := len(l.taps) + len(l.gaps); n > 0 != (c.expect == wire.Outcome_OUTCOME_STORED) {
				t.Errorf("%d rows", n)
			}
			checkConservation(t, s.Stats().Total)
		})
	}
}

// TestFullSpoolCloses: an exporter that ends with a full spool loses no gap, however much it had
// gathered then.
func TestFullSpoolCloses(t *testing.T) {
	for extra := range 24 {
		l := newLedger()
		client := clientConfig(t, "http://127.0.0.1:1")
		client.Logger, client.MaxBytes, client.FS, client.SpoolEvery = nil, 4*recordBytes, lazyDisk{}, time.Hour
		c := startClient(t, client)
		st, now, want := c.stream(t, "eth0"), time.Now(), uint64(0)
		for i := range 2000 + 16*extra {
			b := testBlock(newRand(t, uint64(i)), now, 10)
			want += totalsOf(b).observations
			if err := st.WriteBlock(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		c.stop()
		client.Collectors = []string{startCollector(t, testConfig(t), l, "").url}
		again := startClient(t, client)
		again.flush(t)
		again.stop()
		lost := uint64(0)
		for _, g := range l.gaps {
			lost += g.GetObservations()
		}
		if stored := l.totals()[Producer("tester", "eth0")].observations; lost == 0 || stored+lost != want {
			t.Errorf("%d more blocks: %d observations stored and %d in gaps, want %d", 16*extra, stored, lost, want)
		}
	}
}

// TestLossesAreTold: gaps report the number of observations in blocks that were dropped from a
// full spool or refused by the collector.
func TestLossesAreTold(t *testing.T) {
	l := newLedger()
	client := clientConfig(t, "http://127.0.0.1:1")
	client.Logger, client.MaxBytes, client.FS = nil, 4*recordBytes, lazyDisk{}
	c := startClient(t, client)
	st, now := c.stream(t, "eth0"), time.Now()
	var blocks []*aggregate.Block
	write := func(at time.Time, n int) {
		t.Helper()
		b := testBlock(newRand(t, uint64(n)), at, 10)
		blocks = append(blocks, b)
		if err := st.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	write(now.Add(-30*24*time.Hour), 0)
	for i := range 2000 {
		write(now, i)
	}
	write(now.Add(-30*24*time.Hour), 1)
	if err := st.End(t.Context(), blocks[0].Epoch); err != nil {
		t.Fatal(err)
	}
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.stop()
	s := startCollector(t, testConfig(t), l, "")
	client.Collectors = []string{s.url}
	again := startClient(t, client)
	again.flush(t)
	for again.Stats().Refused["past"] > 0 && len(l.ended) == 0 {
		time.Sleep(time.Millisecond)
	}
	lost := uint64(0)
	for k, g := range l.gaps {
		if lost += g.GetObservations(); k.Producer != Producer("tester", "eth0") || k.reason != "exporter_full" && k.reason != "exporter_past" || g.GetRows() == 0 {
			t.Errorf("gap %+v: %v", k, g)
		}
	}
	stored, want := l.totals()[Producer("tester", "eth0")].observations, totalsOf(blocks...).observations
	if stored == 0 || stored+lost != want {
		t.Errorf("%d observations stored and %d in gaps, want %d", stored, lost, want)
	}
	if got := again.Stats(); got.Refused["past"] == 0 {
		t.Errorf("%+v", got)
	}
}
