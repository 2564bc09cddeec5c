package remote

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/wire"
)

// TestFlowsVerified: exporters' flows are queried like all others, and errors that a collector
// cannot see in one part of a window are found in the store.
func TestFlowsVerified(t *testing.T) {
	engine, _ := startEngine(t, t.TempDir())
	db, err := openStore(t.Context(), engine, t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	s := startCollector(t, testConfig(t), storeSink{db}, "")
	c := startClient(t, clientConfig(t, s.url))
	b := testBlock(newRand(t, 1), time.Now().Add(-5*time.Second), partRows+30)
	stream := c.stream(t, "eth0")
	for range 2 {
		if err := stream.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.End(t.Context(), b.Epoch); err != nil {
		t.Fatal(err)
	}
	c.flush(t)
	if found := verifyFlows(t, db); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
	from := time.Unix(0, b.WindowStart)
	got, err := db.Flows(t.Context(), store.FlowQuestion{Signal: csig.Signal(b.Flows[0].Signal), From: from, To: from.Add(time.Second), Limit: 5000})
	if err != nil {
		t.Fatal(err)
	}
	named, heavy := 0, uint64(0)
	for _, f := range got {
		if heavy += f.Heavy; f.Src.IsValid() {
			named++
		}
	}
	sums := flowTotals(b.Flows)[pairOf(&b.Flows[0])]
	if want := len(b.Flows) / 3 / 2; named < want || heavy != 2*sums.heavy {
		t.Errorf("%d flows with others that are %d times heavy, want at least %d and %d", named, heavy, want, 2*sums.heavy)
	}

	// These flows claim to belong to rows that never arrive.
	m := validRequest(t, 1)
	m.Blocks[0].Stream, m.Blocks[0].Flows.Blocks = "eth1", 2
	m.Blocks[0].Flows.Observations[0] += 1000
	end := &wire.Record{
		Stream: "eth1", Incarnation: m.GetBlocks()[0].GetIncarnation(), Epoch: m.GetBlocks()[0].GetEpoch(),
		Description: m.GetBlocks()[0].GetDescription(), What: &wire.Record_End{End: &wire.End{}},
	}
	m.Records = append(m.Records, end)
	if answer, err := pushTo(t, s, m); err != nil || answer.GetOutcomes()[0] != wire.Outcome_OUTCOME_STORED {
		t.Fatalf("%v, %v", answer, err)
	}
	if found := verifyFlows(t, db); len(found) != 1 || !strings.Contains(found[0].Check, "not those of their window") {
		t.Errorf("found %+v", found)
	}
}

// verifyFlows returns the errors that the store finds in flows.
func verifyFlows(t *testing.T, db *store.Store) (found []store.Finding) {
	t.Helper()
	err := db.Verify(t.Context(), store.VerifyOptions{Now: time.Now()}, func(f store.Finding) error {
		if f.Table == "flows" && !strings.Contains(f.Check, "without a name") {
			found = append(found, f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
