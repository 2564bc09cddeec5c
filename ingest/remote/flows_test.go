package remote

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/wire"
)

// flowIdentity is the key by which flow rows are merged.
type flowIdentity struct {
	aggregate.Source
	seq               uint64
	resolution, start int64
	flow.Flow
	flowPair
	src, dst uint64
}

// testFlows returns flows of a block of compact tags: one in some of its rows, and the rests.
func testFlows(b *aggregate.Block) (rows []aggregate.FlowRow) {
	rests := map[flowPair]*aggregate.FlowRow{}
	var order []flowPair
	for i := range b.Len() {
		p := flowPair{b.Signal[i], b.Kind[i]}
		if rests[p] == nil {
			rests[p] = restOf(p)
			order = append(order, p)
		}
		row := aggregate.FlowRow{
			Observations: b.Observations[i], Bytes: b.Bytes[i], Sum: b.Sum[i], Min: b.Min[i], Max: b.Max[i], Heavy: b.Heavy[i], HeavySum: b.HeavySum[i],
		}
		for _, n := range b.DistCount[distStart(b, i):b.DistEnd[i]] {
			row.Measured += n
		}
		rests[p].Add(&row)
		if i%3 != 0 || row.Heavy == 0 || row.HeavySum < row.Max+(row.Heavy-1)*row.Min {
			continue
		}
		f := aggregate.FlowRow{
			Flow:   flow.Flow{Src: [16]byte{15: 1}, Dst: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 2}, SrcPort: uint16(i), DstPort: 4791, Proto: 17},
			Signal: p.signal, Kind: p.kind, SrcGroup: b.SrcGroup[i], DstGroup: b.DstGroup[i], Location: b.Location[i], LocationHeavy: 1,
			Observations: 1, Bytes: 100, Measured: 1, Sum: row.Max, Min: row.Max, Max: row.Max, Heavy: 1, HeavySum: row.Max, Sampled: uint64(i % 2),
		}
		binary.BigEndian.PutUint32(f.Src[4:], uint32(i))
		rows = append(rows, f)
		r := rests[p]
		r.Observations, r.Bytes, r.Measured, r.Sum = r.Observations-1, r.Bytes-100, r.Measured-1, r.Sum-row.Max
		r.Heavy, r.HeavySum = r.Heavy-1, r.HeavySum-row.Max
	}
	slices.SortStableFunc(rows, func(a, b aggregate.FlowRow) int { return int(a.Signal) - int(b.Signal) })
	for _, p := range order {
		rows = append(rows, *rests[p])
	}
	return rows
}

// wholeToWire converts a block to a message in one part.
func wholeToWire(b *aggregate.Block) *wire.Block {
	m := toWire(b, 0, b.Len())
	m.Flows = flowsToWire(b.Flows)
	m.Flows.Blocks = 1
	return m
}

// flowTotals returns the totals of flows, by signal and kind.
func flowTotals(rows []aggregate.FlowRow) map[flowPair]flowSums {
	totals := map[flowPair]flowSums{}
	for i := range rows {
		f := &rows[i]
		totals[pairOf(f)] = totals[pairOf(f)].plus(flowSums{f.Observations, f.Bytes, f.Measured, f.Sum, f.Heavy, f.HeavySum})
	}
	return totals
}

// TestFoldFlows: totals stay exact, each signal and kind keeps the same number of rows, and the
// result is deterministic.
func TestFoldFlows(t *testing.T) {
	rows := testBlock(newRand(t, 1), time.Now(), 300).Flows
	of := map[flowPair]int{} // named flows; each signal and kind also has a rest
	for i := range rows {
		n := 1
		if rows[i].Flow == (flow.Flow{}) {
			n = 0
		}
		of[pairOf(&rows[i])] += n
	}
	for _, keep := range []int{-5, 0, 1, 3, 20, len(rows) - 1, len(rows), 1000} {
		out, folded := foldFlows(rows, keep)
		if again, _ := foldFlows(rows, keep); !slices.Equal(out, again) {
			t.Fatalf("keep %d: differs from one time to the next", keep)
		}
		if diff := cmp.Diff(flowTotals(rows), flowTotals(out), cmp.AllowUnexported(flowPair{}, flowSums{})); diff != "" {
			t.Errorf("keep %d: totals (-want +got):\n%s", keep, diff)
		}
		if keep >= len(rows) {
			if folded != 0 || len(out) != len(rows) {
				t.Errorf("keep %d: folded %d rows", keep, folded)
			}
			continue
		}
		named := 0
		for i := range out {
			if out[i].Flow != (flow.Flow{}) {
				named++
			}
		}
		if err := (&aggregate.Block{Resolution: int64(time.Second), Flows: out}).Check(); err != nil {
			t.Errorf("keep %d: %v", keep, err)
		}
		want := 0
		for _, n := range of {
			want += min(n, max(keep, 0)/len(of))
		}
		if named != want || named+folded != len(rows)-len(of) || !flowsApart(out) {
			t.Errorf("keep %d: %d named and %d folded of %d, want %d named", keep, named, folded, len(rows)-len(of), want)
		}
	}
}

// TestFlowsTravel: flows arrive unchanged, in the last part of a large block.
func TestFlowsTravel(t *testing.T) {
	l := newLedger()
	s := startCollector(t, testConfig(t), l, "")
	c := startClient(t, clientConfig(t, s.url))
	stream := c.stream(t, "eth0")
	now := time.Now()
	var want []aggregate.FlowRow
	for i, rows := range []int{30, partRows + 5, 3} {
		b := testBlock(newRand(t, uint64(i)), now.Add(time.Duration(i-9)*time.Second), rows)
		want = append(want, b.Flows...)
		if err := stream.WriteBlock(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	c.flush(t)
	var got []aggregate.FlowRow
	for id, f := range l.flows {
		if id.Producer != Producer("tester", "eth0") || id.start%int64(time.Second) != 0 || id.seq == 2 {
			t.Errorf("%+v", id)
		}
		got = append(got, f)
	}
	order := func(rows []aggregate.FlowRow) []aggregate.FlowRow {
		slices.SortFunc(rows, func(a, b aggregate.FlowRow) int { return slices.Compare(orderOf(&a), orderOf(&b)) })
		return rows
	}
	if diff := cmp.Diff(order(want), order(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := s.Stats().Total.StoredFlows; n != uint64(len(want)) {
		t.Errorf("%d rows of flows were counted, want %d", n, len(want))
	}
}

func orderOf(f *aggregate.FlowRow) []uint64 {
	return []uint64{uint64(f.Signal), uint64(f.SrcPort), f.SrcGroup, f.DstGroup, f.Observations, f.Bytes, f.Sum}
}

// TestFlowsRefused: a block with flows that no aggregator could have produced is refused.
func TestFlowsRefused(t *testing.T) {
	block := testBlock(newRand(t, 1), time.Now(), 12)
	for name, change := range map[string]func(m *wire.Block){
		"fine window":     func(m *wire.Block) { m.ResolutionNs = int64(10 * time.Millisecond) },
		"short column":    func(m *wire.Block) { m.Flows.Sum = m.Flows.Sum[1:] },
		"long column":     func(m *wire.Block) { m.Flows.Location = append(m.Flows.Location, 1) },
		"short addresses": func(m *wire.Block) { m.Flows.Source = m.Flows.Source[1:] },
		"port":            func(m *wire.Block) { m.Flows.SourcePort[0] = 1 << 16 },
		"signal":          func(m *wire.Block) { m.Flows.Signal[0] = csig.NumSignals },
		"kind":            func(m *wire.Block) { m.Flows.Kind[0] = 3 },
		"nothing":         func(m *wire.Block) { m.Flows.Observations[0] = 0 },
		"heavy":           func(m *wire.Block) { m.Flows.Heavy[0]++ },
		"sum":             func(m *wire.Block) { m.Flows.Sum[0]++ },
		"min":             func(m *wire.Block) { m.Flows.Min[0] = m.Flows.Max[0] + 1 },
		"location":        func(m *wire.Block) { m.Flows.LocationHeavy[0] = 2 },
		"samples":         func(m *wire.Block) { m.Flows.Sampled[0] = 2 },
		"short samples":   func(m *wire.Block) { m.Flows.Sampled = m.Flows.Sampled[1:] },
		"twice": func(m *wire.Block) {
			m.Flows.SourcePort[1], m.Flows.Source[16+7] = m.Flows.SourcePort[0], m.Flows.Source[7]
		},
		"more than the rows": func(m *wire.Block) { m.Flows.Bytes[0]++ },
		"of a signal alone":  func(m *wire.Block) { m.Flows.Kind[0] = uint8(decode.Reflection) },
	} {
		m := wholeToWire(block)
		if _, err := fromWire(m); err != nil {
			t.Fatal(err)
		}
		m = proto.CloneOf(m)
		if change(m); name == "fine window" {
			m.WindowStartNs -= m.WindowStartNs % m.ResolutionNs
		}
		if _, err := fromWire(m); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
}
