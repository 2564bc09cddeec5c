package store

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestFlowsEncoded: flows come back from the outbox unchanged; those of a later program wait for it.
func TestFlowsEncoded(t *testing.T) {
	source := aggregate.Source{Producer: 1<<63 + 1, Incarnation: 2, Epoch: 3}
	rows := []FlowRow{aFlow(source, 4, testStart, 5), aFlow(source, 4, testStart, 6), {Source: source, Seq: 1<<64 - 1, Resolution: 1e9, SrcGroup: 7, Observations: 1 << 60}}
	rows[1].Flow = Flow{Src: netip.IPv6Unspecified(), Dst: netip.IPv6Unspecified(), Proto: 58} // zeros are values
	encoded := encodeFlows(rows)
	got, err := decodeFlows(encoded)
	if err != nil {
		t.Fatal(err)
	}
	compare := cmp.Comparer(func(a, b Flow) bool { return a == b })
	if diff := cmp.Diff(rows, got, compare); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for n := range encoded {
		if cut, err := decodeFlows(encoded[:n]); (n == 0 || (n-1)%flowRowBytes != 0) && !errors.Is(err, errFlows) {
			t.Errorf("%d of %d bytes: %d rows, %v", n, len(encoded), len(cut), err)
		}
	}
	earlier := []byte{flowFormatEarlier}
	for i := range rows {
		earlier = append(earlier, encoded[1+i*flowRowBytes:][:flowRowBytes-8]...)
		rows[i].Sampled = 0
	}
	if got, err = decodeFlows(earlier); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rows, got, compare); diff != "" {
		t.Errorf("of an earlier program (-want +got):\n%s", diff)
	}
	if _, err := decodeRecords(flowsClass, []byte{flowFormat + 1}); !errors.Is(err, errNewerBatch) {
		t.Errorf("of a later program: %v", err)
	}
}

// withFlows is a block with a flow and the sum of all others.
func withFlows(seq uint64) *aggregate.Block {
	b := blockOf([]row{{
		resolution: int64(time.Second), window: testStart.UnixNano(), source: aggregate.Source{Producer: 1}, seq: seq,
		signal: uint8(csig.MaxDelay), kind: uint8(decode.Tag), src: 10, dst: 11, observations: 6,
	}})
	rest := aggregate.FlowRow{Signal: b.Signal[0], Kind: b.Kind[0], SrcGroup: b.SrcGroup[0], DstGroup: b.DstGroup[0]}
	named := rest
	named.Flow = flow.Flow{Src: [16]byte{15: 1}, Dst: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 2}, SrcPort: 3, DstPort: 4, Proto: 6}
	named.Observations, named.Heavy, named.Measured, named.Sum, named.Min, named.Max = 1, 1, 1, 9, 9, 9
	rest.Observations = 5
	b.Flows = []aggregate.FlowRow{named, rest}
	return b
}

// TestFlowsOfBlocks: flows of blocks reach the server with the block's rows, once, with and without
// an outbox, which has them on disk after Sync.
func TestFlowsOfBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, o := newFakeServer(), &Outbox{Dir: t.TempDir()}
		f.setErr(errAway)
		s := storeBefore(t, f, o)
		for i := range 3 {
			b := withFlows(uint64(i))
			if err := s.WriteBlock(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := s.WriterStats().Waiting; n < 6 {
			t.Errorf("%d rows wait in the outbox, expected the flows among them", n)
		}
		closeStore(t, s)
		f.setErr(nil)
		s = storeBefore(t, f, o)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.records["flows"] != 6 {
			t.Errorf("sent %v, expected 6 flows", f.records)
		}
		closeStore(t, s)
	})
}

// TestFlowsLost: flows that the server lost are sent again, once.
func TestFlowsLost(t *testing.T) {
	s := openWithOutbox(t)
	for seq := range uint64(3) {
		if err := s.WriteBlock(t.Context(), withFlows(seq)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	truncate(t, s, "flows")
	for range 2 {
		if !s.deliveries[0].verify(t.Context()) {
			t.Fatal("the server could not be asked")
		}
		if got := rawRows(t, s, "flows"); got != 6 {
			t.Errorf("%d flows are stored, want 6", got)
		}
	}
}

// TestFlowsStored: a query returns the flows of a stored block.
func TestFlowsStored(t *testing.T) {
	s := openStore(t)
	b := withFlows(1)
	for range 2 {
		if err := s.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	from := time.Unix(0, b.WindowStart).UTC()
	got, err := s.Flows(t.Context(), FlowQuestion{
		Signal: csig.Signal(b.Signal[0]), From: from, To: from.Add(time.Duration(b.Resolution)), Resolution: time.Duration(b.Resolution), Limit: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Src.String() != "::1" || got[0].Dst.String() != "10.0.0.2" || got[0].Heavy != 1 || got[0].Kind != decode.Kind(b.Kind[0]) ||
		got[1].Src.IsValid() || got[1].Observations != 5 {
		t.Errorf("got %+v", got)
	}
}
