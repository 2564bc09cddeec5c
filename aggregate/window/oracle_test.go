package window_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// acknowledged is the last reflection of a flow.
type acknowledged struct {
	number uint32
	exact  uint32 // of a connection inside a tunnel
	tag    csig.Tag
}

// oracle computes the expected result of a shard, one observation at a time and with maps.
type oracle struct {
	cfg     window.Config
	rows    collector
	last    int64
	waiting uint64
	repeats map[string]acknowledged

	late     uint64
	rejected [aggregate.NumRejections]uint64

	flows   map[flowKey]flowSums // nil if not requested
	flowsAt map[flowAt]uint64
}

func (or *oracle) add(o *decode.Observation) {
	switch reason := or.reject(o); {
	case reason < aggregate.NumRejections:
		or.rejected[reason] += or.cfg.Weight
		return
	case or.last != 0 && o.TimeNS > or.last+int64(time.Minute):
		or.waiting++
		return
	}
	or.rejected[aggregate.RejectFuture] += or.waiting * or.cfg.Weight
	or.waiting = 0
	or.last = max(or.last, o.TimeNS)
	res, late := int64(or.cfg.Resolutions[0]), int64(or.cfg.Lateness[0])
	if o.TimeNS/res*res+res+late <= or.last && or.last-o.TimeNS > int64(or.cfg.Horizon) {
		or.late += or.cfg.Weight
		return
	}
	for _, r := range or.cfg.Resolutions {
		or.count(o, int64(r))
	}
}

func (or *oracle) reject(o *decode.Observation) aggregate.Rejection {
	switch {
	case o.Flags&decode.Orphan != 0:
		return aggregate.RejectOrphan
	case o.Kind == decode.Tag && !or.cfg.Tags, o.Kind == decode.Reflection && !or.cfg.Reflections:
		return aggregate.RejectPlace
	case o.Flags&decode.NoTime != 0:
		return aggregate.RejectNoTime
	}
	if o.Kind == decode.Reflection && o.Flags&decode.HasAck != 0 {
		flow := fmt.Sprint(o.Src, o.Dst, o.SrcPort, o.DstPort, o.Proto, o.Tag.Layout, o.Tag.T)
		last, known := or.repeats[flow]
		now := acknowledged{number: o.Ack, tag: o.Tag}
		if o.Proto != 6 || o.Flags&decode.HasPorts == 0 {
			now.exact = o.Ack
		}
		if known && o.Ack-last.number >= 1<<31 {
			now.number = last.number // overtaken
		}
		or.repeats[flow] = now
		if known && now == last {
			return aggregate.RejectRepeat
		}
	}
	return aggregate.NumRejections
}

func (or *oracle) count(o *decode.Observation, resolution int64) {
	table := or.cfg.Domain.Table(o.Tag.Layout, o.Tag.T)
	untouched := table != nil && table.Untouched(o.Tag.S)
	k := rowKey{
		resolution: resolution, start: o.TimeNS / resolution * resolution,
		signal: o.Tag.Signal(), kind: o.Kind, encoding: aggregate.Encoding(o.Tag.Layout.Index()),
	}
	src, dst := o.Addrs()
	if o.Kind == decode.Reflection {
		src, dst = dst, src
	}
	k.src, k.dst = fakeResolver{}.Group(src), fakeResolver{}.Group(dst)
	if table != nil {
		k.signal = table.Signal()
	}
	summed := table != nil && table.Aggregation() >= csig.AggregateSum
	var capacity uint64
	if !summed && (!untouched || or.cfg.LocateUntouched) {
		k.location, capacity = fakeResolver{}.Locate(o.Tag.Layout, o.Tag.T, o.Tag.LM, src, dst)
	}
	w := or.cfg.Weight
	s := &rowSums{observations: w, bytes: uint64(o.Bytes) * w, dist: map[uint16]uint64{}}
	defer func() {
		or.rows.add(k, s)
		or.countFlow(o, k, s)
	}()
	switch {
	case o.Tag.D:
		s.trimmed = w
		return
	case table == nil:
		s.samples = 1
		if o.Tag.Layout.Format == csig.Compact {
			s.dist[uint16(o.Tag.S)] = w
		}
		return
	}
	s.samples = 1
	code := table.Code(o.Tag.S)
	v := table.Value(code)
	s.sum, s.min, s.max = v*w, v, v
	s.dist[csig.DistIndex(code)] = w
	if untouched {
		s.untouched = w
	} else if lo, hi, ok := table.HeavyCodes(capacity); !ok {
		s.unjudged = w
	} else if lo <= code && code <= hi {
		s.heavy, s.heavySum = w, v*w
	}
}

// randomObservations are in and out of order, late, far ahead, trimmed, untouched, of every layout,
// kind and flaw.
func randomObservations(r *rand.Rand, n int) []decode.Observation {
	obs := make([]decode.Observation, n)
	now := benchStart
	for i := range obs {
		o := &obs[i]
		now += r.Int64N(int64(20 * time.Millisecond))
		o.TimeNS = now - r.Int64N(int64(30*time.Millisecond))
		if i >= 2 && i < n-1 {
			o.TimeNS += randomShift(r)
		}
		o.Kind, o.Flags, o.Bytes = decode.Tag, decode.HasAddrs, 64+r.Uint32N(9000)
		setAddr(&o.Src, r.Uint32N(3), r.Uint32N(2))
		setAddr(&o.Dst, r.Uint32N(3), r.Uint32N(2))
		o.SrcPort, o.DstPort, o.Proto = uint16(i%3), 4791, 17
		if i%2 == 0 {
			o.Proto = 6
			o.Flags |= decode.HasPorts
		}
		o.Tag = randomTag(r)
		if r.IntN(3) == 0 {
			o.Kind = decode.Reflection
			o.Flags |= decode.HasAck
			o.Ack = r.Uint32N(2)
			o.Tag.S &= 1
			o.Tag.T &= 1
		}
		if i < 2 || i == n-1 {
			continue
		}
		switch r.IntN(60) {
		case 0:
			o.Flags |= decode.Orphan
		case 1:
			o.TimeNS = 0
		case 2:
			o.Flags &^= decode.HasAddrs
			o.Src, o.Dst = [16]byte{}, [16]byte{}
		}
	}
	return obs
}

func randomShift(r *rand.Rand) int64 {
	switch r.IntN(40) {
	case 0:
		return -r.Int64N(int64(5 * time.Second))
	case 1:
		return -r.Int64N(int64(8 * time.Minute))
	case 2:
		return int64(2*time.Minute) + r.Int64N(int64(time.Hour))
	}
	return 0
}

func randomTag(r *rand.Rand) csig.Tag {
	l := csig.LayoutAt(r.IntN(csig.NumLayouts))
	t := csig.Tag{Layout: l, T: uint8(r.IntN(5)), LM: uint16(r.IntN(4)), D: l.Profile == csig.UEC050 && r.IntN(8) == 0}
	t.S = r.Uint32N(l.MaxS() + 1)
	switch r.IntN(6) {
	case 0:
		t.S = 0
	case 1:
		t.S = l.MaxS()
	case 2, 3:
		t.S = min(t.S, 400)
	}
	return t
}

// domainWithTypes has tables for types that the profiles do not define. Type 4 of ietf01 has none.
func domainWithTypes(t testing.TB) *csig.Domain {
	t.Helper()
	table := func(format, profile, signal, unit, aggregation, quantum, heavy string) csig.TableSpec {
		return csig.TableSpec{
			Format: format, Profile: profile, Signal: signal, Unit: unit, Aggregation: aggregation, Quantum: quantum, Heavy: heavy,
		}
	}
	d, err := csig.DefaultSpec().Overlay(csig.Spec{Tables: []csig.TableSpec{
		table("compact", "ietf01", "type_3", "ns", "max", "1us", "20us"),
		table("wide", "ietf01", "type_3", "bit/s", "min", "1Mbps", "100Mbps"),
		table("compact", "uec050", "type_4", "count", "sum", "2", "10"),
		table("wide", "uec050", "type_4", "count", "count", "1", "100"),
	}}).Compile()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestShardAgainstOracle(t *testing.T) {
	ms := time.Millisecond
	for _, cfg := range []window.Config{
		{Tap: window.Tap{Tags: true, Reflections: true, Weight: 1}, Resolutions: []time.Duration{time.Second, time.Minute}},
		{Tap: window.Tap{Tags: true, Reflections: true, Weight: 7}, Resolutions: []time.Duration{10 * ms, time.Second, time.Minute}},
		{Tap: window.Tap{Tags: true, Weight: 1}, Resolutions: []time.Duration{100 * ms}, LocateUntouched: true},
		{Tap: window.Tap{Reflections: true, Weight: 2}, Resolutions: []time.Duration{ms, 10 * ms, 100 * ms, time.Second, time.Hour}},
	} {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%v/%d", cfg.Resolutions, seed), func(t *testing.T) {
				checkOracle(t, cfg, randomObservations(rand.New(rand.NewPCG(seed, 1)), 4000))
			})
		}
	}
}

func checkOracle(t *testing.T, cfg window.Config, obs []decode.Observation) {
	t.Helper()
	cfg.Domain, cfg.Horizon = domainWithTypes(t), 5*time.Minute
	for _, r := range cfg.Resolutions {
		cfg.Lateness = append(cfg.Lateness, max(2*r, 50*time.Millisecond))
	}
	or := oracle{cfg: cfg, repeats: map[string]acknowledged{}}
	for i := range obs {
		or.add(&obs[i])
	}
	cfg.Lateness = nil // the oracle uses the defaults
	var got collector
	counts := run(t, newShard(t, cfg, &got), obs, 100)

	if counts.Late != or.late || counts.Rejected != or.rejected {
		t.Errorf("late %d, rejected %v, expected %d, %v", counts.Late, counts.Rejected, or.late, or.rejected)
	}
	for k, want := range or.rows.rows {
		if have := got.rows[k]; have == nil || !reflect.DeepEqual(have, want) {
			t.Fatalf("row %+v:\n got %+v\nwant %+v", k, have, want)
		}
	}
	if len(got.rows) != len(or.rows.rows) {
		t.Errorf("%d rows, expected %d", len(got.rows), len(or.rows.rows))
	}

	var again collector
	run(t, newShard(t, cfg, &again), obs, 17)
	if !reflect.DeepEqual(got.blocks, again.blocks) {
		t.Error("the same observations in other batches made other blocks")
	}
}
