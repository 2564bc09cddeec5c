package store

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
)

// TestRecordsWait: taps, flows and findings wait for an unreachable server, also for the next
// command, and are sent again to a server that lost them.
func TestRecordsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), &Outbox{Dir: t.TempDir()}
		f.setErr(errAway)
		s := storeBefore(t, f, o)
		source := aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}
		const many = maxRecordRows + 1
		taps := make([]TapRow, many)
		for i := range taps {
			taps[i] = aTap(source, uint64(i), testStart)
		}
		if err := errors.Join(
			s.WriteTaps(t.Context(), taps),
			s.WriteFindings(t.Context(), []FindingRow{aFinding(source, 1, testStart), aFinding(source, 2, testStart)}),
			writeFlows(t.Context(), s, []FlowRow{aFlow(source, 1, testStart, 1)}),
		); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		if len(f.records) != 0 {
			t.Fatalf("sent %v to a server that is away", f.records)
		}
		f.setErr(nil)
		s = storeBefore(t, f, o)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := map[string]int{"taps": many, "findings": 2, "flows": 1}
		if diff := cmp.Diff(want, f.records); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		f.setErr(errAway)
		if err := s.WriteTaps(t.Context(), []TapRow{aTap(source, many, testStart)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		f.setErr(nil)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want["taps"], want["findings"] = many+many+1, 2+2
		if diff := cmp.Diff(want, f.records); diff != "" {
			t.Errorf("after an outage (-want +got):\n%s", diff)
		}
		closeStore(t, s)
	})
}

// TestFlowsGiveWay: in a full outbox flows make room for partials and for each other, and leave
// gaps in flows only.
func TestFlowsGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), smallOutbox(t)
		s := storeBefore(t, f, o)
		s.deliveries[0].live.Store(true)
		f.setErr(errAway)
		source := aggregate.Source{Producer: 5, Incarnation: 2, Epoch: 3}
		written := 0
		flows := func(n int) {
			for range n {
				written += 10
				rows := make([]FlowRow, 10)
				for i := range rows {
					rows[i] = aFlow(source, uint64(written+i), testStart, uint16(i))
				}
				if err := writeFlows(t.Context(), s, rows); err != nil {
					t.Fatal(err)
				}
			}
		}
		flows(100)
		for seq := range uint64(60) {
			put(t, s, 1, seq, 10*time.Millisecond, 40)
		}
		flows(10)
		if err := s.WriteTaps(t.Context(), []TapRow{aTap(source, 1, testStart)}); err != nil {
			t.Fatal(err)
		}
		f.setErr(nil)
		for range 2 {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		lost := uint64(0)
		for g := range f.gaps {
			if g.Producer != 5 || g.Resolution != 0 || g.Observations != 0 || g.Reason != "full" {
				t.Errorf("gap %+v, want flows", g)
			}
			lost += g.Rows
		}
		if f.raw != 60*40 || lost == 0 || f.records["flows"]+int(lost) != written || f.records["taps"] != 1 {
			t.Errorf("%d partials, %v, %d flows in gaps, want 2400 and %d flows together", f.raw, f.records, lost, written)
		}
		closeStore(t, s)
	})
}

// TestNewerRecord: records of a newer program wait for it.
func TestNewerRecord(t *testing.T) {
	for payload, want := range map[string]error{
		`[{"Seq":1}]`:              nil,
		`[{"Seq":1,"Colour":"?"}]`: errNewerBatch,
		`{}`:                       errNewerBatch,
	} {
		if _, err := decodeRecords(tapsClass, []byte(payload)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", payload, err, want)
		}
	}
	if _, err := decodeRecords(numClasses, nil); !errors.Is(err, errNewerBatch) {
		t.Errorf("unknown class: %v", err)
	}
}

// TestRecordsOnEngine: the engine stores records that went through an outbox.
func TestRecordsOnEngine(t *testing.T) {
	s := openWithOutbox(t)
	source := aggregate.Source{Producer: 1, Incarnation: 2, Epoch: 3}
	finding := aFinding(source, 1, testStart)
	finding.Evidence = strings.Repeat("\x00é\\", 100)
	for range 2 {
		if err := errors.Join(
			s.WriteTaps(t.Context(), []TapRow{aTap(source, 1, testStart)}),
			writeFlows(t.Context(), s, []FlowRow{aFlow(source, 1, testStart, 1)}),
			s.WriteFindings(t.Context(), []FindingRow{finding}),
		); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	from, to := testStart, testStart.Add(time.Minute)
	taps, err := s.Taps(t.Context(), from, to)
	if err != nil || len(taps) != 1 || taps[0].Packets != 10 || taps[0].Rejected["orphan"] != 2 {
		t.Errorf("taps %+v, %v", taps, err)
	}
	flows, err := s.Flows(t.Context(), FlowQuestion{Signal: aFlow(source, 1, from, 1).Signal, From: from, To: to, Limit: 5})
	if err != nil || len(flows) != 1 || flows[0].Flow != aFlow(source, 1, from, 1).Flow {
		t.Errorf("flows %+v, %v", flows, err)
	}
	findings, err := s.Findings(t.Context(), FindingQuestion{From: from, To: to, Limit: 5})
	if err != nil || len(findings) != 1 || findings[0].Evidence != finding.Evidence || findings[0].Packets[1] != 1<<63 {
		t.Errorf("findings %+v, %v", findings, err)
	}
}
