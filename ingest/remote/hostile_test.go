package remote

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"math"
	"math/bits"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/edge/edgetest"
	"github.com/csigscope/csigscope/ingest/wire"
)

// validRequest returns a request that a collector accepts, with its description.
func validRequest(t testing.TB, seq uint64) *wire.PushRequest {
	d := testDescription()
	described := d.toWire()
	b := wholeToWire(testBlock(newRand(t, seq), time.Now(), 5))
	b.Stream, b.Incarnation, b.Seq, b.Description = "eth0", 7, seq, described.GetId()
	return &wire.PushRequest{Descriptions: []*wire.Description{described}, Blocks: []*wire.Block{b}}
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	text, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// pushTo sends a request to a collector over the network.
func pushTo(t testing.TB, s *collector, m *wire.PushRequest) (*wire.PushResponse, error) {
	t.Helper()
	client := wire.NewIngestServiceClient(http.DefaultClient, s.url)
	defer http.DefaultClient.CloseIdleConnections()
	answer, err := client.Push(t.Context(), connect.NewRequest(m))
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

// outcomeOf sends a request with one item and returns its outcome.
func outcomeOf(t testing.TB, s *collector, m *wire.PushRequest) wire.Outcome {
	t.Helper()
	answer, err := pushTo(t, s, m)
	if err != nil || len(answer.GetOutcomes()) != 1 {
		t.Fatalf("%v, %v, want one outcome", answer, err)
	}
	return answer.GetOutcomes()[0]
}

// post sends arbitrary bytes as a request.
func post(t testing.TB, s *collector, encoding string, body []byte) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+wire.IngestServicePushProcedure, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/proto")
	if encoding != "" {
		r.Header.Set("Content-Encoding", encoding)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

// TestCutRequests: a request cut at any byte is refused, or is a valid shorter one.
func TestCutRequests(t *testing.T) {
	whole := encode(t, validRequest(t, 1))
	for n := range whole {
		m := &wire.PushRequest{}
		if err := unmarshal(whole[:n], m); err != nil {
			continue
		}
		for _, b := range m.GetBlocks() {
			if _, err := fromWire(b); err != nil {
				t.Fatalf("cut at %d: a whole block is broken: %v", n, err)
			}
		}
	}
	if err := unmarshal(whole, &wire.PushRequest{}); err != nil {
		t.Error(err)
	}
}

// TestFlippedBits: everything that the collector accepts of a damaged request is consistent.
func TestFlippedBits(t *testing.T) {
	l := newLedger()
	cfg := testConfig(t)
	cfg.Logger = nil
	cfg.Limits.RequestRate = 1e6
	s, err := NewServer(cfg, l, l)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go s.announces.run(ctx)
	e := s.client("tester", &s.limits, false)
	whole := encode(t, validRequest(t, 1))
	for n := range whole {
		for bit := range 8 {
			data := bytes.Clone(whole)
			data[n] ^= 1 << bit
			m := &wire.PushRequest{}
			if unmarshal(data, m) != nil {
				continue
			}
			p := &push{Server: s, e: e, answer: &wire.PushResponse{}}
			p.admit(m)
			for _, it := range p.items {
				for _, b := range it.blocks {
					if _, err := fromWire(toWire(b, 0, b.Len())); err != nil {
						t.Fatalf("byte %d, bit %d: %v", n, bit, err)
					}
				}
			}
			p.finish(false)
		}
	}
	checkConservation(t, s.Stats().Total)
}

// TestOversized: too large requests are refused and counted, and cost nothing.
func TestOversized(t *testing.T) {
	l, log := newLedger(), &logBuffer{}
	cfg := testConfig(t)
	cfg.Logger = log.logger()
	s := startCollector(t, cfg, l, "")
	zeros := make([]byte, 64<<20)
	var zip, zst bytes.Buffer
	z := gzip.NewWriter(&zip)
	_, _ = z.Write(zeros)
	_ = z.Close()
	e, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = e.Write(zeros)
	_ = e.Close()
	blocks := &wire.PushRequest{}
	for range maxItems + 1 {
		blocks.Blocks = append(blocks.Blocks, &wire.Block{})
	}
	long := validRequest(t, 1)
	long.Blocks[0].Stream = strings.Repeat("x", maxStreamBytes+1)
	names := validRequest(t, 1)
	for range maxMessageNames + 1 {
		names.Descriptions[0].Groups = append(names.Descriptions[0].Groups, &wire.Group{})
	}
	for _, tc := range []struct {
		name, encoding string
		body           []byte
		reason         Reason
	}{
		{"large", "", zeros[:3<<20], ReasonOversized},
		{"gzip", "gzip", zip.Bytes(), ReasonOversized},
		{"zstd", "zstd", zst.Bytes(), ReasonOversized},
		{"rows", "", encode(t, &wire.PushRequest{Blocks: []*wire.Block{{Signal: make([]byte, maxRows+1)}}}), ReasonMalformed},
		{"blocks", "", encode(t, blocks), ReasonMalformed},
		{"stream", "", encode(t, long), ReasonMalformed},
		{"names", "", encode(t, names), ReasonMalformed},
		{"text", "", encode(t, &wire.PushRequest{Descriptions: []*wire.Description{{Text: strings.Repeat("x", maxTextBytes+1)}}}), ReasonMalformed},
		{"exporter", "", encode(t, &wire.PushRequest{Exporter: strings.Repeat("x", edge.MaxNameBytes+1)}), ReasonMalformed},
		{"nonsense", "", []byte("nonsense"), ReasonMalformed},
		{"bad gzip", "gzip", []byte("nonsense"), ReasonMalformed},
		{"bad zstd", "zstd", []byte("nonsense"), ReasonMalformed},
	} {
		before := s.Stats().Total.Refused[tc.reason]
		if status := post(t, s, tc.encoding, tc.body); status < 400 {
			t.Errorf("%s: status %d", tc.name, status)
		}
		if after := s.Stats().Total.Refused[tc.reason]; after != before+1 {
			t.Errorf("%s: not counted as %s: %+v", tc.name, tc.reason, s.Stats().Total.Refused)
		}
	}
	if text := log.String(); !strings.Contains(text, "exporter=tester reason=oversized") && !strings.Contains(text, "reason=oversized exporter=tester") {
		t.Errorf("log %s", text)
	}
	if l.blocks != 0 || len(l.groups) != 0 {
		t.Error("something was taken")
	}
}

// TestReplays: a repeat is acknowledged but not counted; a number that is too old is refused.
func TestReplays(t *testing.T) {
	l, log := newLedger(), &logBuffer{}
	cfg := testConfig(t)
	cfg.Logger = log.logger()
	s := startCollector(t, cfg, l, "")
	for _, want := range []wire.Outcome{wire.Outcome_OUTCOME_STORED, wire.Outcome_OUTCOME_REPEAT, wire.Outcome_OUTCOME_REPEAT} {
		if got := outcomeOf(t, s, validRequest(t, 1)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if l.blocks != 1 {
		t.Errorf("%d blocks written, want 1", l.blocks)
	}
	if got := outcomeOf(t, s, validRequest(t, maxInFlightBlocks+1)); got != wire.Outcome_OUTCOME_STORED {
		t.Errorf("new number: %s", got)
	}
	if got := outcomeOf(t, s, validRequest(t, 1)); got != wire.Outcome_OUTCOME_STALE {
		t.Errorf("old number: %s", got)
	}
	for n := range uint64(maxIncarnations) {
		m := validRequest(t, 1)
		m.Blocks[0].Incarnation = 8 + n
		if got := outcomeOf(t, s, m); got != wire.Outcome_OUTCOME_STORED {
			t.Errorf("incarnation %d: %s", 8+n, got)
		}
		if n > 0 {
			continue
		}
		if got := outcomeOf(t, s, validRequest(t, maxInFlightBlocks)); got != wire.Outcome_OUTCOME_STORED {
			t.Errorf("a number of the lower incarnation: %s", got)
		}
	}
	if got := outcomeOf(t, s, validRequest(t, 2)); got != wire.Outcome_OUTCOME_STALE {
		t.Errorf("old incarnation: %s", got)
	}
	st := s.Stats().Total
	if checkConservation(t, st); st.RepeatedItems != 2 || st.Refused[ReasonStale] != 2 {
		t.Errorf("%+v, want 2 repeats and 2 stale", st)
	}
	if text := log.String(); !strings.Contains(text, "reason=stale") || !strings.Contains(text, "exporter=tester") {
		t.Errorf("log %s", text)
	}
}

// TestForeignProducer: nobody can write under another exporter's producer.
func TestForeignProducer(t *testing.T) {
	cfg, log := testConfig(t), &logBuffer{}
	cfg.Logger = log.logger()
	s := startCollector(t, cfg, newLedger(), "")
	s.owners[Producer("tester", "eth0")] = "somebody else" // as if hashes collided
	if got := outcomeOf(t, s, validRequest(t, 1)); got != wire.Outcome_OUTCOME_FOREIGN {
		t.Errorf("%s, want foreign", got)
	}
	if n := s.Stats().Total.Refused[ReasonForeign]; n != 1 {
		t.Errorf("%d counted, want 1", n)
	}
	if text := log.String(); !strings.Contains(text, "reason=foreign") || !strings.Contains(text, "exporter=tester") {
		t.Errorf("log %s", text)
	}
	if Producer("a", "bc") == Producer("ab", "c") || Producer("a", "b") == observedProducer("a", "b") {
		t.Error("producers of different streams are the same")
	}
}

// TestInvalidBlocks: a block that no aggregator could have produced is refused for good, and
// the rest of the request is accepted.
func TestInvalidBlocks(t *testing.T) {
	for name, change := range map[string]func(*wire.Block){
		"column":       func(b *wire.Block) { b.Sum = b.Sum[1:] },
		"no rows":      func(b *wire.Block) { *b = wire.Block{Stream: "eth0", Incarnation: 1, Seq: 9, ResolutionNs: 1e9} },
		"resolution":   func(b *wire.Block) { b.ResolutionNs = 2e9 },
		"alignment":    func(b *wire.Block) { b.WindowStartNs++ },
		"signal":       func(b *wire.Block) { b.Signal[0] = 255 },
		"kind":         func(b *wire.Block) { b.Kind[0] = 3 },
		"encoding":     func(b *wire.Block) { b.Encoding[0] = 9 },
		"heavy":        func(b *wire.Block) { b.Heavy[0] = b.Observations[0] + 1 },
		"sum":          func(b *wire.Block) { b.Sum[0] = b.Max[0]*b.Observations[0] + 1 },
		"min":          func(b *wire.Block) { b.Min[0] = b.Max[0] + 1 },
		"distribution": func(b *wire.Block) { b.DistCount[0] = 1 << 60 },
		"bucket":       func(b *wire.Block) { b.DistCode[0] = 5000 },
		"bucket order": func(b *wire.Block) { b.DistCode[0], b.DistCode[1] = b.DistCode[1], b.DistCode[0] },
		"zero bucket":  func(b *wire.Block) { b.DistCount[0] = 0 },
		"dist size":    func(b *wire.Block) { b.DistSize[0]++ },
		"observations": func(b *wire.Block) { b.Observations[0] = 0 },
		"duplicate key": func(b *wire.Block) {
			b.SrcGroup[3], b.DstGroup[3], b.Location[3], b.Signal[3] = b.SrcGroup[0], b.DstGroup[0], b.Location[0], b.Signal[0]
		},
		"incarnation": func(b *wire.Block) { b.Incarnation = 0 },
		"seq":         func(b *wire.Block) { b.Seq = 0 },
		"stream":      func(b *wire.Block) { b.Stream = "\n" },
		"epoch":       func(b *wire.Block) { b.Epoch++ },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			cfg.Logger = nil
			l := newLedger()
			s := startCollector(t, cfg, l, "")
			m := validRequest(t, 1)
			good := validRequest(t, 2).Blocks[0]
			change(m.Blocks[0])
			m.Blocks = append(m.Blocks, good)
			answer, err := pushTo(t, s, m)
			if err != nil {
				t.Fatal(err)
			}
			if o := answer.GetOutcomes(); len(o) != 2 || o[0] != wire.Outcome_OUTCOME_INVALID || o[1] != wire.Outcome_OUTCOME_STORED {
				t.Errorf("%v, want the first refused and the second stored", o)
			}
			checkConservation(t, s.Stats().Total)
		})
	}
}

// TestImpossibleItems: counts beyond any network and values beyond their unit are refused for
// good, each item on its own, and are not stored.
func TestImpossibleItems(t *testing.T) {
	now := time.Now()
	// counts gives the first row n observations of a value.
	counts := func(b *wire.Block, n, value uint64) {
		size := b.DistSize[0]
		b.DistSize[0], b.DistCode, b.DistCount = 1, b.DistCode[size-1:], b.DistCount[size-1:]
		b.DistCount[0], b.Observations[0], b.Samples[0], b.Bytes[0] = n, n, n, 64*n
		b.Min[0], b.Max[0], b.Sum[0] = value, value, mulSat(n, value)
		b.Untouched[0], b.Trimmed[0], b.Unjudged[0], b.Heavy[0], b.HeavySum[0] = 0, 0, 0, 0, 0
	}
	value := func(signal csig.Signal, v uint64) func(*wire.PushRequest) {
		return func(m *wire.PushRequest) {
			b := m.Blocks[0]
			b.Flows, b.Signal[0] = nil, uint8(signal)
			counts(b, 3, v)
			if signal == csig.MaxNQD {
				b.Encoding[0] = uint8(csig.Layout{Format: csig.Compact, Profile: csig.UEC050}.Index())
			}
		}
	}
	rows := func(change func(b *wire.Block)) func(*wire.PushRequest) {
		return func(m *wire.PushRequest) {
			m.Blocks[0].Flows = nil
			change(m.Blocks[0])
		}
	}
	record := func(r *wire.Record) func(*wire.PushRequest) {
		return func(m *wire.PushRequest) {
			r.Stream, r.Incarnation, r.Epoch, r.Description = "eth0", 7, m.Descriptions[0].GetEpoch(), m.Descriptions[0].GetId()
			m.Blocks, m.Records = nil, []*wire.Record{r}
		}
	}
	tap := func(change func(*wire.Tap)) func(*wire.PushRequest) {
		tap := validTap(now)
		change(tap)
		return record(&wire.Record{What: &wire.Record_Tap{Tap: tap}})
	}
	for _, tc := range []struct {
		name   string
		change func(*wire.PushRequest)
		want   wire.Outcome
	}{
		{"the most packets", rows(func(b *wire.Block) { counts(b, 1<<38-10_000, 0); b.Bytes[0] = 0 }), wire.Outcome_OUTCOME_STORED},
		{"2^63 observations", rows(func(b *wire.Block) { counts(b, 1<<63, 1); b.Bytes[0] = 1 }), wire.Outcome_OUTCOME_IMPOSSIBLE},
		{"one packet too many", rows(func(b *wire.Block) { counts(b, 1<<38+1, 0); b.Bytes[0] = 1 }), wire.Outcome_OUTCOME_IMPOSSIBLE},
		{"too many in rows together", rows(func(b *wire.Block) {
			for i := range b.Trimmed {
				b.Trimmed[i] += 1 << 36
				b.Observations[i] += 1 << 36
			}
		}), wire.Outcome_OUTCOME_IMPOSSIBLE},
		{"samples of none", rows(func(b *wire.Block) { b.Samples[0] = b.Observations[0] + 1 }), wire.Outcome_OUTCOME_INVALID},
		{"unjudged beyond the values", rows(func(b *wire.Block) { b.Unjudged[0] = b.Observations[0] + 1 }), wire.Outcome_OUTCOME_INVALID},
		{"unjudged of some rows", rows(func(b *wire.Block) { b.Unjudged = b.Unjudged[1:] }), wire.Outcome_OUTCOME_INVALID},
		{"evidence that does not exist", rows(func(b *wire.Block) { b.Evidence[0] = 8 }), wire.Outcome_OUTCOME_INVALID},
		{"evidence of some rows", rows(func(b *wire.Block) { b.Evidence = b.Evidence[1:] }), wire.Outcome_OUTCOME_INVALID},
		{"samples of some rows", rows(func(b *wire.Block) { b.Samples = b.Samples[1:] }), wire.Outcome_OUTCOME_INVALID},
		{"bytes", rows(func(b *wire.Block) { b.Bytes[0] = 1<<44 + 1 }), wire.Outcome_OUTCOME_IMPOSSIBLE},
		{"a ratio of 1", value(csig.MinABWRatio, 1e6), wire.Outcome_OUTCOME_STORED},
		{"a ratio of 5", value(csig.MinABWRatio, 5e6), wire.Outcome_OUTCOME_IMPOSSIBLE},
		{"a queue of 5", value(csig.MaxNQD, 5e6), wire.Outcome_OUTCOME_IMPOSSIBLE},
		{"a delay of an hour", value(csig.MaxDelay, 3600e9), wire.Outcome_OUTCOME_IMPOSSIBLE},
		{"2 Pbit/s", value(csig.MinABW, 2e12), wire.Outcome_OUTCOME_IMPOSSIBLE},
		{"a sum without values", rows(func(b *wire.Block) { counts(b, 1<<30, 1<<36); b.Sum[0] = 0 }), wire.Outcome_OUTCOME_INVALID},
		{"a heavy sum without values", rows(func(b *wire.Block) { counts(b, 9, 5); b.HeavySum[0] = 45 }), wire.Outcome_OUTCOME_INVALID},
		{"values without counts", rows(func(b *wire.Block) { b.Observations[0]++ }), wire.Outcome_OUTCOME_INVALID},
		{"a wide bucket of a compact tag", rows(func(b *wire.Block) { counts(b, 3, 1); b.DistCode[0] = 32 }), wire.Outcome_OUTCOME_INVALID},
		{"a signal that the layout has not", rows(func(b *wire.Block) { b.Signal[0] = uint8(csig.MaxNQD) }), wire.Outcome_OUTCOME_INVALID},
		{"flows", func(m *wire.PushRequest) {
			f := m.Blocks[0].Flows
			f.Blocks = 2
			f.Observations[0] = 1 << 63
		}, wire.Outcome_OUTCOME_IMPOSSIBLE},
		{"a flow's ratio", func(m *wire.PushRequest) {
			f := m.Blocks[0].Flows
			i := bytes.IndexByte(f.Signal, byte(csig.MinABWRatio))
			f.Blocks = 2
			f.Measured[i], f.Heavy[i], f.HeavySum[i], f.LocationHeavy[i] = 1, 0, 0, 0
			f.Min[i], f.Max[i], f.Sum[i] = 5e6, 5e6, 5e6
		}, wire.Outcome_OUTCOME_IMPOSSIBLE},
		{"observations", func(m *wire.PushRequest) {
			o := observationsToWire(observations(t, 1, 30))
			o.Stream, o.Incarnation, o.Seq, o.TimeNs[0] = "nic", 7, 1, now.UnixNano()
			o.FrameBytes[3] = 1 << 31
			m.Blocks, m.Observations = nil, []*wire.Observations{o}
		}, wire.Outcome_OUTCOME_IMPOSSIBLE},
		{"a tap's packets", tap(func(t *wire.Tap) { t.Packets, t.Frames = 1<<60, map[string]uint64{"ok": 1 << 60} }), wire.Outcome_OUTCOME_IMPOSSIBLE},
		{"a tap's drops", tap(func(t *wire.Tap) { t.KernelDrops = 1 << 60 }), wire.Outcome_OUTCOME_IMPOSSIBLE},
		{"a tap's bytes", tap(func(t *wire.Tap) { t.Bytes = 1 << 60 }), wire.Outcome_OUTCOME_IMPOSSIBLE},
		{"a tap's clock", tap(func(t *wire.Tap) { t.TickNs = math.NaN() }), wire.Outcome_OUTCOME_INVALID},
		{"a gap", record(&wire.Record{What: &wire.Record_Gap{Gap: &wire.Gap{
			FromNs: now.UnixNano() - 1e9, ToNs: now.UnixNano(), Reason: "drops", Observations: 1 << 60,
		}}}), wire.Outcome_OUTCOME_IMPOSSIBLE},
		{"a finding", record(&wire.Record{What: &wire.Record_Tap{Tap: validTap(now)}, Findings: []*wire.Finding{{
			Kind: "orphan-tag", Severity: "info", FromNs: now.UnixNano() - 1e9, ToNs: now.UnixNano(), Count: 1 << 60,
		}}}), wire.Outcome_OUTCOME_IMPOSSIBLE},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, l := testConfig(t), newLedger()
			cfg.Logger, cfg.Observations = nil, observing(t)
			s := startCollector(t, cfg, l, "")
			m := validRequest(t, 1)
			tc.change(m)
			if got := outcomeOf(t, s, m); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			st := s.Stats().Total
			checkConservation(t, st)
			if refused := st.Refused[ReasonImpossible] == 1; refused != (tc.want == wire.Outcome_OUTCOME_IMPOSSIBLE) {
				t.Errorf("refused %v", st.Refused)
			}
			if n := len(l.rows) + len(l.taps) + len(l.gaps); n > 0 != (tc.want == wire.Outcome_OUTCOME_STORED) {
				t.Errorf("%d rows stored", n)
			}
		})
	}
}

func mulSat(a, b uint64) uint64 {
	if hi, lo := bits.Mul64(a, b); hi == 0 {
		return lo
	}
	return math.MaxUint64
}

func TestTimes(t *testing.T) {
	for _, tc := range []struct {
		off  time.Duration
		want wire.Outcome
	}{
		{0, wire.Outcome_OUTCOME_STORED},
		{time.Second, wire.Outcome_OUTCOME_STORED},
		{10 * time.Second, wire.Outcome_OUTCOME_FUTURE},
		{-6 * 24 * time.Hour, wire.Outcome_OUTCOME_STORED},
		{-8 * 24 * time.Hour, wire.Outcome_OUTCOME_PAST},
	} {
		s := startCollector(t, testConfig(t), newLedger(), "")
		m := validRequest(t, 1)
		m.Blocks[0].WindowStartNs += tc.off.Nanoseconds()
		if got := outcomeOf(t, s, m); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.off, got, tc.want)
		}
	}
}

// TestJSONIsNotTaken: the library's JSON codec has no limits.
func TestJSONIsNotTaken(t *testing.T) {
	s := startCollector(t, testConfig(t), newLedger(), "")
	client := wire.NewIngestServiceClient(http.DefaultClient, s.url, connect.WithProtoJSON())
	defer http.DefaultClient.CloseIdleConnections()
	if _, err := client.Push(t.Context(), connect.NewRequest(validRequest(t, 1))); err == nil {
		t.Error("JSON was taken")
	}
}

// TestGRPC: the same collector speaks gRPC.
func TestGRPC(t *testing.T) {
	ca := edgetest.NewAuthority(t)
	l := newLedger()
	cfg := testConfig(t)
	cfg.Auth, cfg.Permits = edge.Auth{TLS: ca.Server()}, everybody
	s := startCollector(t, cfg, l, "")
	client := clientConfig(t, s.url)
	client.TLS = ca.Issue("host1", time.Now().Add(time.Hour))
	c, err := OpenClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answer, err := wire.NewIngestServiceClient(c.http, s.url, connect.WithGRPC()).Push(t.Context(), connect.NewRequest(validRequest(t, 1)))
	if err != nil || answer.Msg.GetOutcomes()[0] != wire.Outcome_OUTCOME_STORED {
		t.Errorf("%v, %v", answer, err)
	}
	large := &wire.PushRequest{Blocks: []*wire.Block{{DistCount: make([]uint64, 3<<20)}}}
	_, err = wire.NewIngestServiceClient(c.http, s.url, connect.WithGRPC()).Push(t.Context(), connect.NewRequest(large))
	if connect.CodeOf(err) != connect.CodeResourceExhausted || s.Stats().Total.Refused[ReasonOversized] != 1 {
		t.Errorf("oversized: %v, %+v", err, s.Stats().Total.Refused)
	}
}
