package remote

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/wire"
)

// FuzzPush sends arbitrary bytes to a collector: it accepts consistent and plausible items,
// counts all of them, and treats the same items as repeats the second time.
func FuzzPush(f *testing.F) {
	start := time.Unix(1.8e9, 0)
	for _, rows := range []int{1, 5, 100} {
		d := testDescription()
		described := d.toWire()
		b := wholeToWire(testBlock(newRand(f, uint64(rows)), start, rows))
		b.Stream, b.Incarnation, b.Seq, b.Description = "eth0", 7, 1, described.GetId()
		f.Add(encode(f, &wire.PushRequest{Descriptions: []*wire.Description{described}, Blocks: []*wire.Block{b}}))
	}
	for _, change := range []func(*wire.Block){
		func(b *wire.Block) { b.Observations[0], b.Trimmed[0] = 1<<63, 1<<63 },
		func(b *wire.Block) { b.Observations[0], b.Trimmed[0] = b.Observations[0]+1<<37, b.Trimmed[0]+1<<37 },
		func(b *wire.Block) { b.Max[1], b.Sum[1] = 5e6, b.Sum[1]+5e6-b.Max[1] }, // ratios
		func(b *wire.Block) { b.Bytes[0] = 1<<64 - 1 },
		func(b *wire.Block) { b.HeavySum[0] = b.Sum[0] },
	} {
		b := wholeToWire(testBlock(newRand(f, 3), start, 60))
		b.Stream, b.Incarnation, b.Seq, b.Flows = "eth0", 7, 1, nil
		d := testDescription()
		described := d.toWire()
		b.Description = described.GetId()
		change(b)
		f.Add(encode(f, &wire.PushRequest{Descriptions: []*wire.Description{described}, Blocks: []*wire.Block{b}}))
	}
	o := observationsToWire(observations(f, 1, 30))
	o.TimeNs[0] = start.UnixNano()
	o.Stream, o.Incarnation, o.Seq = "nic", 7, 1
	f.Add(encode(f, &wire.PushRequest{Observations: []*wire.Observations{o}}))
	more := proto.CloneOf(o)
	more.Seq, more.TimeNs[1] = 2, -int64(time.Minute) // before the first
	f.Add(encode(f, &wire.PushRequest{Observations: []*wire.Observations{o, more, more}}))
	l := newLedger()
	s, err := NewServer(ServerConfig{
		Auth: edge.Auth{Anonymous: edge.Peer{Name: "tester"}}, Observations: observing(f), Now: func() time.Time { return start },
		Admission: Admission{Limits: Limits{RowRate: 1e12, MaxWindowRows: 40}}, CommitEvery: time.Nanosecond,
	}, l, l)
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.Cleanup(cancel)
	go s.announces.run(ctx)
	go s.commits.run(ctx)
	go s.recordGroup.run(ctx)
	go s.ends.run(ctx)
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &wire.PushRequest{}
		if unmarshal(data, m) != nil {
			return
		}
		e := newExporter("tester", &s.limits)
		answer, err := s.take(ctx, callOfTest(e), proto.CloneOf(m))
		if err != nil {
			return
		}
		before := l.blocks
		again, err := s.take(ctx, callOfTest(e), m)
		if err != nil || len(again.GetOutcomes()) != len(answer.GetOutcomes()) {
			t.Fatalf("again: %v, %v", again, err)
		}
		for i, o := range answer.GetOutcomes() {
			if o == wire.Outcome_OUTCOME_STORED && again.GetOutcomes()[i] != wire.Outcome_OUTCOME_REPEAT && again.GetOutcomes()[i] != wire.Outcome_OUTCOME_STALE {
				t.Errorf("item %d was stored and is %s again", i, again.GetOutcomes()[i])
			}
		}
		if l.wrong != nil {
			t.Errorf("written: %v", l.wrong)
		}
		if l.blocks != before {
			t.Error("a repeat was written")
		}
		checkConservation(t, e.counts.snapshot())
		l.crash()
		clear(l.rows)
	})
}

// FuzzAnswer gives a client arbitrary bytes as an answer.
func FuzzAnswer(f *testing.F) {
	f.Add(encode(f, &wire.PushResponse{Outcomes: []wire.Outcome{1, 2, 3}, Describe: []uint64{7}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &wire.PushResponse{}
		if (rawCodec{}).Unmarshal(data, m) != nil {
			return
		}
		batch := &pushBatch{items: 3}
		if err := checkAnswer(batch, m); (err == nil) != (len(m.GetOutcomes()) == 3) {
			t.Error(err)
		}
	})
}
