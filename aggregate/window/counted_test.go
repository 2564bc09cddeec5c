package window_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// counted adds observations up that are alike, in windows of a length: wide ones with values by buckets of codes.
func counted(t *testing.T, d *csig.Domain, obs []decode.Observation, resolution time.Duration) (list []window.Counted) {
	t.Helper()
	type key struct {
		o       decode.Observation
		bucket  uint32
		segment int
	}
	index := map[key]int{}
	for _, o := range obs {
		bytes := o.Bytes
		o.TimeNS -= o.TimeNS % int64(resolution)
		o.Bytes, o.Packet, o.SrcPort, o.DstPort, o.Ack, o.Flags = 0, 0, 0, 0, 0, o.Flags&decode.HasAddrs
		k, codes := key{o: o}, window.Codes{}
		if table := d.Table(o.Tag.Layout, o.Tag.T); table != nil && o.Tag.Layout.Format == csig.Wide && !o.Tag.D {
			code := table.Code(o.Tag.S)
			splits, err := window.CodeSplits(table, []uint64{100e6, 400e6}, 12)
			if err != nil {
				t.Fatal(err)
			}
			k.segment, _ = slices.BinarySearch(splits, code+1)
			k.bucket = uint32(csig.DistIndex(code))
			if k.o.Tag.S != table.Initial() {
				k.o.Tag.S = table.Initial() ^ 1
			}
			codes = window.Codes{Bucket: k.bucket, Sum: uint64(code), Min: code, Max: code}
		}
		at, ok := index[k]
		if !ok {
			at = len(list)
			index[k] = at
			list = append(list, window.Counted{Observation: k.o, Codes: window.Codes{Bucket: codes.Bucket, Min: math.MaxUint32}})
		}
		c := &list[at].Codes
		c.Sum, c.Min, c.Max = c.Sum+codes.Sum, min(c.Min, codes.Min), max(c.Max, codes.Max)
		list[at].N++
		list[at].Bytes += uint64(bytes)
	}
	slices.SortStableFunc(list, func(a, b window.Counted) int { return cmp.Compare(a.TimeNS, b.TimeNS) })
	return list
}

// mixedObservations returns observations over 3 s, of few cells, with values of all sizes.
func mixedObservations(format csig.Format, n int) []decode.Observation {
	r := rand.New(rand.NewPCG(5, uint64(format)))
	obs := make([]decode.Observation, n)
	for i := range obs {
		o := &obs[i]
		o.TimeNS = benchStart + int64(i)*int64(3*time.Second)/int64(len(obs))
		o.Kind, o.Flags, o.Bytes = decode.Tag, decode.HasAddrs, 60+r.Uint32N(1400)
		if r.Uint32N(3) == 0 {
			o.Kind = decode.Reflection
		}
		if r.Uint32N(50) == 0 {
			o.Flags = 0
		}
		o.Tag = csig.Tag{
			Layout: csig.Layout{Format: format, Profile: csig.UEC050}, T: uint8(r.Uint32N(5)),
			LM: uint16(r.Uint32N(4)), D: r.Uint32N(20) == 0,
		}
		o.Tag.S = r.Uint32N(32)
		if format == csig.Wide {
			o.Tag.S = r.Uint32N(1<<20) >> (r.Uint32N(3) * 5)
		}
		setAddr(&o.Src, r.Uint32N(3), 1)
		setAddr(&o.Dst, r.Uint32N(2), 2)
	}
	return obs
}

// withFlows gives observations ports of flows, of which the first ones have most of them.
func withFlows(obs []decode.Observation) []decode.Observation {
	r := rand.New(rand.NewPCG(7, 7))
	for i := range obs {
		n := r.Uint32N(1 << r.Uint32N(10))
		obs[i].SrcPort, obs[i].DstPort, obs[i].Proto = uint16(1000+n), 4791, 17
	}
	return obs
}

// TestSampled: flows of samples that left nothing out are those of single observations.
func TestSampled(t *testing.T) {
	sequential(t)
	for _, weight := range []uint64{1, 3} {
		for _, format := range []csig.Format{csig.Compact, csig.Wide} {
			t.Run(fmt.Sprintf("%s/weight %d", format, weight), func(t *testing.T) {
				cfg := window.Config{
					Tap: window.Tap{Tags: true, Weight: weight}, Flows: window.FlowLimits{Top: 100, Budget: 1 << 16},
					Resolutions: []time.Duration{10 * time.Millisecond, time.Second, time.Minute},
				}
				obs := withFlows(mixedObservations(format, 50_000))
				var want, got collector
				run(t, newShard(t, cfg, &want), obs, 256)
				sampled(t, cfg, obs, 1, 1, &got)
				if len(got.blocks) != len(want.blocks) {
					t.Fatalf("%d blocks, expected %d", len(got.blocks), len(want.blocks))
				}
				for i := range got.blocks {
					for j := range got.blocks[i].Flows {
						f := &got.blocks[i].Flows[j]
						if named := f.Flow != (flow.Flow{}); named && f.Sampled*weight != f.Heavy || !named && f.Sampled != 0 {
							t.Fatalf("%d observations of %+v were sampled", f.Sampled, f)
						}
						f.Sampled = 0
					}
					if flows := want.blocks[i].Flows; !slices.Equal(got.blocks[i].Flows, flows) {
						t.Fatalf("%d flows at %d differ from the %d expected", len(got.blocks[i].Flows), got.blocks[i].WindowStart, len(flows))
					}
				}
			})
		}
	}
}

// sampled runs a shard with counts of observations, and with samples of them: one of every so many stands for that
// number, times a factor by which it is wrong.
func sampled(t *testing.T, cfg window.Config, obs []decode.Observation, every, wrong uint32, sink *collector) aggregate.Counts {
	t.Helper()
	s := newShard(t, cfg, sink)
	r := rand.New(rand.NewPCG(uint64(every), uint64(wrong)))
	const reading = 200 // 12 ms: no window closes in it
	for from := 0; from < len(obs); from += reading {
		part := obs[from:min(from+reading, len(obs))]
		if err := s.AddCounted(context.Background(), counted(t, defaultDomain(t), part, cfg.Resolutions[0])); err != nil {
			t.Fatal(err)
		}
		var list []window.Sampled
		for i := range part {
			o := part[i]
			if !o.Tag.D && r.Uint32N(every) == 0 {
				o.TimeNS -= o.TimeNS % int64(cfg.Resolutions[0])
				list = append(list, window.Sampled{Observation: o, N: every * wrong})
			}
		}
		s.AddSampled(list)
	}
	return run(t, s, nil, 1)
}

// TestSampledFits: whatever samples are said to stand for, flows and rests add up to the rows of their window, no row
// contradicts itself, and the counts of observations do not change. Right samples name one of the heaviest flows:
// of equal ones in several cells, 33 samples cannot tell which is the first.
func TestSampledFits(t *testing.T) {
	sequential(t)
	for _, format := range []csig.Format{csig.Compact, csig.Wide} {
		obs := withFlows(mixedObservations(format, 50_000))
		for _, tt := range []struct{ every, wrong uint32 }{{1, 1}, {7, 1}, {60, 1}, {500, 1}, {1, 2}, {3, 50}, {60, 1 << 20}} {
			t.Run(fmt.Sprintf("%s/one in %d, times %d", format, tt.every, tt.wrong), func(t *testing.T) {
				cfg := window.Config{
					Tap: window.Tap{Tags: true, Weight: 3}, Flows: window.FlowLimits{Top: 20, Budget: 1 << 10},
					Resolutions: []time.Duration{time.Second, time.Minute},
				}
				var want, got collector
				wantCounts := run(t, newShard(t, cfg, &want), obs, 256)
				counts := sampled(t, cfg, obs, tt.every, tt.wrong, &got)
				counts.FlowsForgotten, wantCounts.FlowsForgotten = 0, 0
				if counts != wantCounts || !reflect.DeepEqual(got.rows, want.rows) {
					t.Errorf("samples change counts from %+v to %+v", wantCounts, counts)
				}
				named := 0
				for i := range got.blocks {
					checkFlowTotals(t, &got.blocks[i])
					first, expected := heaviestFlow(&got.blocks[i]), heaviestFlow(&want.blocks[i])
					if got.blocks[i].Resolution == int64(time.Minute) && tt.wrong == 1 && tt.every < 100 && 2*heavyOf(&want.blocks[i], &first) < expected.Heavy {
						t.Errorf("heaviest flow %+v, expected %+v", first, expected)
					}
					named += int(first.Sampled)
				}
				if named == 0 {
					t.Error("no flow was sampled")
				}
			})
		}
	}
}

// heavyOf returns the heavy observations of a row's flow and cell in a block.
func heavyOf(b *aggregate.Block, of *aggregate.FlowRow) (heavy uint64) {
	for i := range b.Flows {
		if f := &b.Flows[i]; f.Flow == of.Flow && f.Cell() == of.Cell() {
			heavy += f.Heavy
		}
	}
	return heavy
}

// heaviestFlow returns the row of the flow of a block with the most heavy observations.
func heaviestFlow(b *aggregate.Block) (most aggregate.FlowRow) {
	for _, f := range b.Flows {
		if f.Flow != (flow.Flow{}) && f.Heavy > most.Heavy {
			most = f
		}
	}
	return most
}

// TestSampledElsewhere: samples of observations that no window has counted name no flow, leave no row, and are forgotten with
// their window.
func TestSampledElsewhere(t *testing.T) {
	cfg := window.Config{Tap: window.Tap{Tags: true}, Flows: window.FlowLimits{Top: 10}, Resolutions: []time.Duration{time.Second}}
	var got collector
	s := newShard(t, cfg, &got)
	o := decode.Observation{
		TimeNS: benchStart, Kind: decode.Tag, Flags: decode.HasAddrs, Bytes: 100,
		Tag: csig.Tag{Layout: csig.Layout{Format: csig.Compact, Profile: csig.UEC050}, T: 2, S: 30, LM: 1},
	}
	setAddr(&o.Src, 1, 1)
	setAddr(&o.Dst, 1, 2)
	if err := s.AddCounted(context.Background(), []window.Counted{{Observation: o, N: 2, Bytes: 200}}); err != nil {
		t.Fatal(err)
	}
	other, late := o, o
	setAddr(&other.Src, 2, 1)
	late.TimeNS -= int64(time.Hour)
	s.AddSampled([]window.Sampled{{Observation: o, N: 1}, {Observation: o, N: 1}, {Observation: o, N: 1}, {Observation: other, N: 5}, {Observation: late, N: 5}})
	c := run(t, s, nil, 1)
	if len(got.blocks) != 1 || len(got.rows) != 1 || c.FlowsForgotten != 1 {
		t.Fatalf("%d blocks, %d rows, %d samples forgotten", len(got.blocks), len(got.rows), c.FlowsForgotten)
	}
	checkFlowTotals(t, &got.blocks[0])
	if first := heaviestFlow(&got.blocks[0]); first.Heavy != 0 {
		t.Errorf("%+v was named by three samples of two observations", first)
	}
}

// TestCounted: observations that were counted before make the blocks that they make one by one, with values,
// codes that hosts do not know, and more observations in a cell than a counter of an entry holds.
func TestCounted(t *testing.T) {
	sequential(t)
	for _, weight := range []uint64{1, 3} {
		for _, format := range []csig.Format{csig.Compact, csig.Wide} {
			t.Run(fmt.Sprintf("%s/weight %d", format, weight), func(t *testing.T) {
				cfg := window.Config{
					Tap: window.Tap{Tags: true, Weight: weight}, FineHeavyOnly: true,
					Resolutions: []time.Duration{10 * time.Millisecond, time.Second, time.Minute},
				}
				obs := mixedObservations(format, 200_000)
				var want, got collector
				wantCounts := run(t, newShard(t, cfg, &want), obs, 256)
				s := newShard(t, cfg, &got)
				if err := s.AddCounted(context.Background(), counted(t, defaultDomain(t), obs, cfg.Resolutions[0])); err != nil {
					t.Fatal(err)
				}
				counts := run(t, s, nil, 1)
				if !reflect.DeepEqual(got.rows, want.rows) {
					t.Errorf("%d rows of counts differ from %d of observations", len(got.rows), len(want.rows))
				}
				if counts != wantCounts {
					t.Errorf("counts %+v, expected %+v", counts, wantCounts)
				}
			})
		}
	}
}

// TestCountedMany: counts of billions come out whole, in several entries where one has no room.
func TestCountedMany(t *testing.T) {
	sequential(t)
	const n, times = 3 << 30, 3
	codes := window.Codes{Bucket: 3, Sum: 3 * n, Min: 3, Max: 3}
	for _, format := range []csig.Format{csig.Compact, csig.Wide} {
		cfg := window.Config{Tap: window.Tap{Tags: true}, Resolutions: []time.Duration{time.Second}}
		var got collector
		s := newShard(t, cfg, &got)
		o := decode.Observation{TimeNS: benchStart, Kind: decode.Tag, Tag: csig.Tag{Layout: csig.Layout{Format: format, Profile: csig.UEC050}, S: 3}}
		for range times {
			if err := s.AddCounted(context.Background(), []window.Counted{{Observation: o, N: n, Bytes: 100 * n, Codes: codes}}); err != nil {
				t.Fatal(err)
			}
		}
		run(t, s, nil, 1)
		if len(got.rows) != 1 {
			t.Fatalf("%s: %d rows, expected 1", format, len(got.rows))
		}
		for _, sums := range got.rows {
			if sums.observations != n*times || sums.bytes != 100*n*times || sums.dist[3] != n*times || sums.heavy+sums.unjudged != n*times {
				t.Errorf("%s: %+v, expected %d observations", format, *sums, uint64(n*times))
			}
		}
	}
}

// TestCountedApart: repeats, observations of kinds that a place does not admit, and those past the bound of who
// counted them are accounted for, and stay out of other rows.
func TestCountedApart(t *testing.T) {
	sequential(t)
	cfg := window.Config{Tap: window.Tap{Reflections: true}, Resolutions: []time.Duration{time.Second}}
	var got collector
	s := newShard(t, cfg, &got)
	compact := decode.Observation{TimeNS: benchStart, Kind: decode.Reflection, Tag: csig.Tag{Layout: csig.Layout{Format: csig.Compact, Profile: csig.UEC050}, S: 3}}
	wide, tag, past := compact, compact, compact
	wide.Tag.Layout.Format, wide.Tag.S = csig.Wide, 0
	tag.Kind = decode.Tag
	past.TimeNS = math.MaxInt64
	list := []window.Counted{
		{Observation: compact, N: 7, As: window.AsRepeat},
		{Observation: tag, N: 11},
		{Observation: compact, N: 13, Bytes: 1300, As: window.AsOverflow},
		{Observation: wide, N: 17, Bytes: 1700, As: window.AsOverflow},
		{Observation: past, N: 19},
	}
	if err := s.AddCounted(context.Background(), list); err != nil {
		t.Fatal(err)
	}
	c := run(t, s, nil, 1)
	if c.Rejected[aggregate.RejectRepeat] != 7 || c.Rejected[aggregate.RejectPlace] != 11 || c.Rejected[aggregate.RejectInvalid] != 19 || c.Overflow != 30 {
		t.Errorf("%+v", c)
	}
	for k, sums := range got.rows {
		if k.src != aggregate.OverflowGroup || k.location != aggregate.OverflowLocation || sums.bytes != 100*sums.observations {
			t.Errorf("row %+v: %+v", k, *sums)
		}
		if valued := len(sums.dist) > 0; valued != (k.encoding.Layout().Format == csig.Compact) {
			t.Errorf("row %+v has values: %t", k, valued)
		}
	}
}
