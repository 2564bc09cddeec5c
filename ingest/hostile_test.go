package ingest

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/ingest/credential"
	"github.com/csigscope/csigscope/ingest/credential/credentialtest"
	"github.com/csigscope/csigscope/ingest/wire"
)

// validRequest is one that a collector takes, with its description.
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

// pushTo hands a request to a collector over the network.
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

// outcomeOf is that of a request with one item.
func outcomeOf(t testing.TB, s *collector, m *wire.PushRequest) wire.Outcome {
	t.Helper()
	answer, err := pushTo(t, s, m)
	if err != nil || len(answer.GetOutcomes()) != 1 {
		t.Fatalf("%v, %v, want one outcome", answer, err)
	}
	return answer.GetOutcomes()[0]
}

// post sends any bytes as a request.
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

// TestCutRequests: a request that is cut anywhere is refused, or is a shorter one.
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

// TestFlippedBits: whatever the collector takes of a damaged request holds together.
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
	e := s.exporter("tester")
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

// TestOversized: too much is refused and counted, and costs nothing.
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
		{"exporter", "", encode(t, &wire.PushRequest{Exporter: strings.Repeat("x", credential.MaxNameBytes+1)}), ReasonMalformed},
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

// TestReplays: a repeat is answered and not counted; what is long past is refused.
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
	for n := range uint64(maxLives) {
		m := validRequest(t, 1)
		m.Blocks[0].Incarnation = 8 + n
		if got := outcomeOf(t, s, m); got != wire.Outcome_OUTCOME_STORED {
			t.Errorf("incarnation %d: %s", 8+n, got)
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

// TestForeignProducer: nobody writes under a producer that is another one's.
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

// TestInvalidBlocks: what no aggregator makes is refused for good, and the rest of the
// request is taken.
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

func TestTimes(t *testing.T) {
	for _, tc := range []struct {
		off  time.Duration
		want wire.Outcome
	}{
		{0, wire.Outcome_OUTCOME_STORED},
		{50 * time.Second, wire.Outcome_OUTCOME_STORED},
		{90 * time.Second, wire.Outcome_OUTCOME_FUTURE},
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

// TestJSONIsNotTaken: the library's JSON knows no bounds.
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
	ca := credentialtest.NewAuthority(t)
	l := newLedger()
	cfg := testConfig(t)
	cfg.Auth = Auth{TLS: ca.Server()}
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
