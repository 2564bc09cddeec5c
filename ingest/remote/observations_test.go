package remote

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/wire"
)

// observing configures aggregation without a topology.
func observing(t testing.TB) *window.Config {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	return &window.Config{
		Domain: domain, Resolver: fabric.None(domain), Source: aggregate.Source{Epoch: 77}, Tap: window.Tap{Tags: true, Reflections: true}, MaxSeries: 1 << 12,
	}
}

// observations returns random tags and reflections of some seconds.
func observations(t testing.TB, seed uint64, n int) []decode.Observation {
	rng := newRand(t, seed)
	begin := time.Now().Add(-10 * time.Second)
	var list []decode.Observation
	for i := range n {
		o := decode.Observation{
			TimeNS: begin.Add(time.Duration(i) * 3 * time.Second / time.Duration(n)).UnixNano(), Bytes: uint32(64 + rng.IntN(1400)),
			Src: netip.AddrFrom4([4]byte{10, 0, byte(rng.IntN(4)), 1}).As16(), Dst: netip.AddrFrom4([4]byte{10, 0, byte(rng.IntN(4)), 2}).As16(),
			SrcPort: uint16(rng.IntN(1 << 16)), DstPort: 4791, Proto: 17, Kind: decode.Tag, Flags: decode.HasAddrs | decode.HasPorts,
			Tag: csig.Tag{Layout: csig.LayoutAt(i % csig.NumLayouts), T: uint8(rng.IntN(3)), S: uint32(rng.IntN(32)), LM: uint16(rng.IntN(60))},
		}
		if i%5 == 0 {
			o.Kind, o.Proto, o.Flags, o.Ack = decode.Reflection, 6, o.Flags|decode.HasAck, rng.Uint32()
		}
		list = append(list, o)
	}
	return list
}

func observationsToWire(obs []decode.Observation) *wire.Observations {
	m := &wire.Observations{}
	last := int64(0)
	for i := range obs {
		o := &obs[i]
		m.TimeNs = append(m.TimeNs, o.TimeNS-last)
		last = o.TimeNS
		m.Source = append(m.Source, o.Src[:]...)
		m.Destination = append(m.Destination, o.Dst[:]...)
		m.SourcePort = append(m.SourcePort, uint32(o.SrcPort))
		m.DestinationPort = append(m.DestinationPort, uint32(o.DstPort))
		m.Protocol = append(m.Protocol, o.Proto)
		m.Kind = append(m.Kind, uint8(o.Kind))
		m.Encoding = append(m.Encoding, uint8(o.Tag.Layout.Index()))
		m.Type = append(m.Type, o.Tag.T)
		m.Value = append(m.Value, o.Tag.S)
		m.Locator = append(m.Locator, uint32(o.Tag.LM))
		flags := uint8(0)
		if o.Tag.D {
			flags |= flagTrimmed
		}
		if o.Flags&decode.HasAck != 0 {
			flags |= flagAck
		}
		m.Flags = append(m.Flags, flags)
		m.FrameBytes = append(m.FrameBytes, o.Bytes)
		m.Acknowledgement = append(m.Acknowledgement, o.Ack)
	}
	return m
}

// TestObservations: the collector stores the same rows that a shard makes of the observations,
// and a repeated batch gives the same rows.
func TestObservations(t *testing.T) {
	l := newLedger()
	cfg := testConfig(t)
	cfg.Observations = observing(t)
	first, second := startCollector(t, cfg, l, ""), startCollector(t, cfg, l, "")
	var want values
	rejected := uint64(0)
	for i := range uint64(5) {
		obs := observations(t, i, 3000)
		m := observationsToWire(obs)
		m.Stream, m.Incarnation, m.Seq = "nic", 4, i+1
		if _, err := pushTo(t, first, &wire.PushRequest{Observations: []*wire.Observations{m}}); err != nil {
			t.Fatal(err)
		}
		var blocks []*aggregate.Block
		shard, err := window.NewShard(*cfg.Observations, collect{&blocks})
		if err != nil {
			t.Fatal(err)
		}
		if err := shard.Add(t.Context(), obs); err != nil {
			t.Fatal(err)
		}
		if err := shard.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		want.add(totalsOf(blocks...))
		counts := shard.Counts()
		for _, n := range counts.Rejected {
			rejected += n
		}
	}
	got := l.totals()[observedProducer("tester", "nic")]
	st := first.Stats().Total
	if got != want || st.Observed != 15000 || st.Rejected != rejected || got.observations != 2*(15000-rejected) {
		t.Errorf("%+v, want %+v; %+v, %d rejected", got, want, st, rejected)
	}
	checkConservation(t, st)
	request := &wire.PushRequest{Observations: []*wire.Observations{observationsToWire(observations(t, 9, 1000))}}
	o := request.Observations[0]
	o.Stream, o.Incarnation, o.Seq = "nic", 5, 1
	for _, s := range []*collector{first, second, second} {
		if _, err := pushTo(t, s, request); err != nil {
			t.Fatal(err)
		}
	}
	again := l.totals()[observedProducer("tester", "nic")].observations - got.observations
	if l.changed || again == 0 || again > 2000 {
		t.Errorf("%d observations of a batch that came three times", again)
	}
}

func TestInvalidObservations(t *testing.T) {
	l := newLedger()
	cfg := testConfig(t)
	cfg.Logger, cfg.Observations = nil, observing(t)
	s := startCollector(t, cfg, l, "")
	for name, change := range map[string]func(*wire.Observations){
		"column":  func(o *wire.Observations) { o.Value = o.Value[1:] },
		"none":    func(o *wire.Observations) { *o = wire.Observations{Stream: "nic", Incarnation: 1, Seq: 1} },
		"address": func(o *wire.Observations) { o.Source = o.Source[16:] },
		"time":    func(o *wire.Observations) { o.TimeNs[0] = -1 },
		"span":    func(o *wire.Observations) { o.TimeNs[5] = -int64(10 * time.Minute) },
		"kind":    func(o *wire.Observations) { o.Kind[0] = 0 },
		"layout":  func(o *wire.Observations) { o.Encoding[0] = csig.NumLayouts },
		"type":    func(o *wire.Observations) { o.Type[0] = 8 },
		"value":   func(o *wire.Observations) { o.Value[0] = 32 },
		"locator": func(o *wire.Observations) { o.Locator[0] = 1 << 7 },
		"flags":   func(o *wire.Observations) { o.Flags[0] = 4 },
		"port":    func(o *wire.Observations) { o.SourcePort[0] = 1 << 16 },
		"seq":     func(o *wire.Observations) { o.Seq = maxSeq + 1 },
	} {
		o := observationsToWire(observations(t, 1, 20))
		o.Stream, o.Incarnation, o.Seq = "nic", 1, 1
		change(o)
		if got := outcomeOf(t, s, &wire.PushRequest{Observations: []*wire.Observations{o}}); got != wire.Outcome_OUTCOME_INVALID {
			t.Errorf("%s: %s", name, got)
		}
	}
	if l.blocks != 0 {
		t.Error("something was stored")
	}
	for want, change := range map[string]func(*wire.Observations){
		"acknowledgement has 19 values: expected 20, as many as kind has":                      func(o *wire.Observations) { o.Acknowledgement = o.Acknowledgement[1:] },
		"source and destination have 319 and 320 bytes: expected 320, 16 for each observation": func(o *wire.Observations) { o.Source = o.Source[1:] },
	} {
		o := observationsToWire(observations(t, 1, 20))
		change(o)
		if _, err := observationsOf(o, nil); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	cfg.Observations = nil
	o := observationsToWire(observations(t, 1, 20))
	o.Stream, o.Incarnation, o.Seq = "nic", 1, 1
	if got := outcomeOf(t, startCollector(t, cfg, l, ""), &wire.PushRequest{Observations: []*wire.Observations{o}}); got != wire.Outcome_OUTCOME_UNSUPPORTED {
		t.Errorf("%s, want unsupported", got)
	}
}

// troubledSink fails once, at a block of the batches or at their Sync, or calls leave at the first
// block.
type troubledSink struct {
	*ledger
	mu       sync.Mutex
	failAt   int // number of the block, from 1
	failSync bool
	leave    func()
}

func (s *troubledSink) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failAt--; s.failAt == 0 {
		return errSink
	}
	if s.leave != nil {
		s.leave()
	}
	return s.ledger.WriteBlock(ctx, b)
}

func (s *troubledSink) Sync(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failSync {
		s.failSync = false
		return errSink
	}
	return s.ledger.Sync(ctx)
}

// TestObservationsAcrossReload: a batch that is sent again after a reload counts once, under one
// configuration: the earlier one once the sink has rows of it.
func TestObservationsAcrossReload(t *testing.T) {
	const before, after = 77, 78
	for _, test := range []struct {
		name    string
		trouble func(s *troubledSink, leave func())
		epoch   uint64 // of all rows
	}{
		{"an answer that gets lost", func(*troubledSink, func()) {}, before},
		{"rows that are not durable", func(s *troubledSink, _ func()) { s.failSync = true }, before},
		{"a half-written batch", func(s *troubledSink, _ func()) { s.failAt = 3 }, before},
		{"a client that leaves", func(s *troubledSink, leave func()) { s.leave = leave }, before},
		{"nothing written", func(s *troubledSink, _ func()) { s.failAt = 1 }, after},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLedger()
			sink := &troubledSink{ledger: l}
			cfg := testConfig(t)
			cfg.Logger, cfg.Observations = nil, observing(t)
			s := startCollector(t, cfg, sink, "")
			push := func(ctx context.Context, m *wire.Observations) (wire.Outcome, error) {
				e := s.client("tester", s.admitted.Load().of("tester"), false)
				defer e.inFlight.Add(-1)
				answer, err := s.take(ctx, callOfTest(e), &wire.PushRequest{Observations: []*wire.Observations{proto.CloneOf(m)}})
				if err != nil {
					return 0, err
				}
				return answer.GetOutcomes()[0], nil
			}
			begun := observationsToWire(observations(t, 1, 10)) // announces the run
			begun.Stream, begun.Incarnation, begun.Seq = "nic", 1, 1
			if o, err := push(t.Context(), begun); o != wire.Outcome_OUTCOME_STORED {
				t.Fatal(o, err)
			}
			counted := l.totals()[observedProducer("tester", "nic")].observations

			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			test.trouble(sink, leave)
			obs := observations(t, 2, 3000)
			m := observationsToWire(obs)
			m.Stream, m.Incarnation, m.Seq = "nic", 1, 2
			if o, err := push(ctx, m); err != nil && connect.CodeOf(err) != connect.CodeUnavailable || err == nil && o != wire.Outcome_OUTCOME_STORED {
				t.Fatal(o, err)
			}
			reloaded := observing(t)
			reloaded.Source.Epoch, reloaded.Resolutions = after, []time.Duration{100 * time.Millisecond, time.Second}
			if err := s.Use(cfg.Admission, reloaded); err != nil {
				t.Fatal(err)
			}
			if _, err := push(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if o, err := push(t.Context(), m); o != wire.Outcome_OUTCOME_REPEAT {
				t.Error("the last repeat:", o, err)
			}
			seconds := uint64(0)
			for id, v := range l.rows {
				if id.seq>>blocksBits != 2 {
					continue
				}
				if id.Epoch != test.epoch {
					t.Fatalf("a row under epoch %d, want %d", id.Epoch, test.epoch)
				}
				if id.resolution == int64(time.Second) {
					seconds += v.observations
				}
			}
			st := s.Stats().Total
			checkConservation(t, st)
			if in := seconds + counted/2 + st.Rejected; l.changed || seconds == 0 || in != 3010 {
				t.Errorf("%d observations in windows of 1 s, %d rejected: %d of 3010 accounted for", seconds, st.Rejected, in)
			}
			if st.Observed != 10+3000*(st.Items-1) || st.StoredObservations != 3010 {
				t.Errorf("%+v", st)
			}
			next := observationsToWire(observations(t, 3, 10))
			next.Stream, next.Incarnation, next.Seq = "nic", 1, 3
			if o, err := push(t.Context(), next); o != wire.Outcome_OUTCOME_STORED || !l.has(after) {
				t.Error("after the reload:", o, err)
			}
		})
	}
}

// forgetfulSink discards all blocks at the first Sync, which fails.
type forgetfulSink struct {
	*ledger
	discarded atomic.Bool
}

func (s *forgetfulSink) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	if !s.discarded.Load() {
		return nil
	}
	return s.ledger.WriteBlock(ctx, b)
}

func (s *forgetfulSink) Sync(ctx context.Context) error {
	if !s.discarded.Swap(true) {
		return errSink
	}
	return s.ledger.Sync(ctx)
}

// TestObservationsAreWrittenOnce: a batch that is sent again has all its rows, also if the sink of blocks discarded its own.
func TestObservationsAreWrittenOnce(t *testing.T) {
	l, cfg := newLedger(), testConfig(t)
	sink := &forgetfulSink{ledger: l}
	cfg.Logger, cfg.Observations, cfg.Batches = nil, observing(t), l
	s := startCollector(t, cfg, sink, "")
	m := observationsToWire(observations(t, 1, 100))
	m.Stream, m.Incarnation, m.Seq = "nic", 1, 1
	e := s.client("tester", s.admitted.Load().of("tester"), false)
	defer e.inFlight.Add(-1)
	push := func() error {
		_, err := s.take(t.Context(), callOfTest(e), &wire.PushRequest{Observations: []*wire.Observations{proto.CloneOf(m)}})
		return err
	}
	if err := push(); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Fatalf("%v, want unavailable", err)
	}
	if err := push(); err != nil {
		t.Fatal(err)
	}
	seconds := uint64(0)
	for id, v := range l.rows {
		if id.resolution == int64(time.Second) {
			seconds += v.observations
		}
	}
	if got := s.Stats().Total; seconds+got.Rejected != 100 || got.StoredItems != 1 {
		t.Errorf("%d observations in windows of 1 s, %+v", seconds, got)
	}
}

// has reports whether there are rows under an epoch.
func (l *ledger) has(epoch uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.rows {
		if id.Epoch == epoch {
			return true
		}
	}
	return false
}

// TestObservationsDuringReloads: each observation counts once while the configuration changes all the time.
func TestObservationsDuringReloads(t *testing.T) {
	const streams, batches, size = 4, 30, 200
	l := newLedger()
	cfg := testConfig(t)
	cfg.Logger, cfg.Observations = nil, observing(t)
	cfg.Limits.RequestRate, cfg.Limits.MaxInFlight = 1e6, 2*streams
	s := startCollector(t, cfg, l, "")
	done := make(chan struct{})
	var reloading, pushing sync.WaitGroup
	reloading.Go(func() {
		for epoch := uint64(100); ; epoch++ {
			select {
			case <-done:
				return
			default:
			}
			next := observing(t)
			next.Source.Epoch, next.MaxSeries = epoch, 20 // the rest goes to overflow rows
			if err := s.Use(cfg.Admission, next); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range streams {
		pushing.Go(func() {
			for k := range batches {
				m := observationsToWire(observations(t, uint64(i*batches+k), size))
				m.Stream, m.Incarnation, m.Seq = string(rune('a'+i)), 1, uint64(k+1)
				for _, want := range []wire.Outcome{wire.Outcome_OUTCOME_STORED, wire.Outcome_OUTCOME_REPEAT} {
					if answer, err := pushTo(t, s, &wire.PushRequest{Observations: []*wire.Observations{m}}); err != nil || answer.GetOutcomes()[0] != want {
						t.Errorf("batch %d: %v, %v, want %s", k+1, answer.GetOutcomes(), err, want)
					}
				}
			}
		})
	}
	pushing.Wait()
	close(done)
	reloading.Wait()
	seconds, overflow := uint64(0), uint64(0)
	for id, v := range l.rows {
		if id.resolution == int64(time.Second) {
			seconds += v.observations
			if id.location == uint64(aggregate.OverflowLocation) {
				overflow += v.observations
			}
		}
	}
	st := s.Stats().Total
	checkConservation(t, st)
	if seconds+st.Rejected != streams*batches*size || overflow != st.OverflowObservations || overflow == 0 || l.changed || l.wrong != nil {
		t.Errorf("%d observations stored, %d of them in overflow rows, %d rejected, of %d: %+v, %v", seconds, overflow, st.Rejected, streams*batches*size, st, l.wrong)
	}
}
