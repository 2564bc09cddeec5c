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
	places := map[key]int{}
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
		at, ok := places[k]
		if !ok {
			at = len(list)
			places[k] = at
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
				r := rand.New(rand.NewPCG(5, uint64(format)))
				obs := make([]decode.Observation, 200_000)
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
