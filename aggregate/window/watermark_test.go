package window_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// at returns a tag seen at a time after the start of the tests.
func at(d time.Duration) decode.Observation {
	o := decode.Observation{TimeNS: benchStart + int64(d), Bytes: 100, Kind: decode.Tag, Flags: decode.HasAddrs}
	setAddr(&o.Src, 1, 1)
	setAddr(&o.Dst, 2, 1)
	o.Tag = csig.Tag{Layout: csig.Layout{Format: csig.Compact, Profile: csig.IETF01}, T: 1, S: 3, LM: 5}
	return o
}

func repeated(o decode.Observation, n int) []decode.Observation {
	obs := make([]decode.Observation, n)
	for i := range obs {
		obs[i] = o
		obs[i].TimeNS += int64(i)
	}
	return obs
}

// written is a short form of a block.
type written struct {
	start        time.Duration // after the start of the tests
	seq          uint64
	observations uint64
}

func (c *collector) written(resolution time.Duration) []written {
	var out []written
	for i := range c.blocks {
		b := &c.blocks[i]
		if b.Resolution != int64(resolution) {
			continue
		}
		w := written{start: time.Duration(b.WindowStart - benchStart), seq: b.Seq}
		for _, n := range b.Observations {
			w.observations += n
		}
		out = append(out, w)
	}
	return out
}

func TestWatermark(t *testing.T) {
	s, ms := time.Second, time.Millisecond
	for _, test := range []struct {
		name    string
		obs     []decode.Observation
		open    []written // written before Flush
		flushed []written // added by Flush
		want    aggregate.Counts
	}{
		{
			"closes when the lateness has passed",
			[]decode.Observation{at(0), at(2 * s), at(999 * ms), at(3*s - 1), at(3 * s)},
			[]written{{0, 9, 2}},
			[]written{{2 * s, 10, 2}, {3 * s, 11, 1}},
			aggregate.Counts{Stored: 5},
		},
		{
			"late observations make a delta",
			[]decode.Observation{at(0), at(3 * s), at(1), at(4 * s), at(2), at(5 * s), at(3)},
			[]written{{0, 9, 1}, {0, 10, 2}},
			[]written{{0, 11, 1}, {3 * s, 12, 1}, {4 * s, 13, 1}, {5 * s, 14, 1}},
			aggregate.Counts{Stored: 7, Deltas: 2},
		},
		{
			"older than the horizon",
			[]decode.Observation{at(0), at(40 * s), at(30 * s), at(30*s - 1)},
			[]written{{0, 9, 1}},
			[]written{{30 * s, 10, 1}, {40 * s, 11, 1}},
			aggregate.Counts{Stored: 3, Late: 1, Deltas: 1},
		},
		{
			"one wild time",
			[]decode.Observation{at(0), at(1), at(time.Hour), at(2)},
			nil,
			[]written{{0, 9, 3}},
			aggregate.Counts{Stored: 3, Rejected: rejected(aggregate.RejectFuture, 1)},
		},
		{
			"wild first time",
			[]decode.Observation{at(time.Hour), at(1), at(2)},
			nil,
			[]written{{0, 9, 2}},
			aggregate.Counts{Stored: 2, Rejected: rejected(aggregate.RejectFuture, 1)},
		},
		{
			"wild times that disagree",
			[]decode.Observation{at(0), at(1), at(2 * time.Hour), at(time.Hour)},
			nil,
			[]written{{0, 9, 2}, {time.Hour, 10, 1}},
			aggregate.Counts{Stored: 3, Rejected: rejected(aggregate.RejectFuture, 1)},
		},
		{
			"gap that enough observations confirm",
			append([]decode.Observation{at(0)}, repeated(at(time.Hour), 64)...),
			[]written{{0, 9, 1}},
			[]written{{time.Hour, 10, 64}},
			aggregate.Counts{Stored: 65},
		},
		{
			"gap before the end of the capture",
			[]decode.Observation{at(0), at(time.Hour), at(time.Hour + 1)},
			nil,
			[]written{{0, 9, 1}, {time.Hour, 10, 2}},
			aggregate.Counts{Stored: 3},
		},
		{
			"one packet an hour, and a wild time",
			[]decode.Observation{at(0), at(time.Hour), at(9 * time.Hour), at(2 * time.Hour), at(3 * time.Hour)},
			nil,
			[]written{{0, 9, 1}, {time.Hour, 10, 1}, {2 * time.Hour, 11, 1}, {3 * time.Hour, 12, 1}},
			aggregate.Counts{Stored: 4, Rejected: rejected(aggregate.RejectFuture, 1)},
		},
		{
			"time comes near what waits",
			[]decode.Observation{at(0), at(1), at(70 * s), at(20 * s), at(65 * s)},
			[]written{{0, 9, 2}, {20 * s, 10, 1}},
			[]written{{65 * s, 11, 1}, {70 * s, 12, 1}},
			aggregate.Counts{Stored: 5, Deltas: 1},
		},
		{"one observation", []decode.Observation{at(5 * s)}, nil, []written{{5 * s, 9, 1}}, aggregate.Counts{Stored: 1}},
		{"none", nil, nil, nil, aggregate.Counts{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var sink collector
			shard := newShard(t, window.Config{
				Tap: window.Tap{Tags: true}, SeqBase: 9, Resolutions: []time.Duration{s}, Lateness: []time.Duration{2 * s}, Horizon: 10 * s,
			}, &sink)
			if err := shard.Add(context.Background(), test.obs); err != nil {
				t.Fatal(err)
			}
			if got := sink.written(s); !reflect.DeepEqual(got, test.open) {
				t.Errorf("before flush: wrote %v, expected %v", got, test.open)
			}
			sink.blocks = nil
			c := run(t, shard, nil, 1)
			if got := sink.written(s); !reflect.DeepEqual(got, test.flushed) {
				t.Errorf("flush: wrote %v, expected %v", got, test.flushed)
			}
			if c.Stored != test.want.Stored || c.Late != test.want.Late || c.Deltas != test.want.Deltas || c.Rejected != test.want.Rejected {
				t.Errorf("counts %+v, expected %+v", c, test.want)
			}
		})
	}
}

func rejected(r aggregate.Rejection, n uint64) (all [aggregate.NumRejections]uint64) {
	all[r] = n
	return all
}

// A minute closes after its seconds, and observations that are too late for it are also a delta of
// the minute.
func TestCoarseDelta(t *testing.T) {
	var sink collector
	s := newShard(t, window.Config{Tap: window.Tap{Tags: true}}, &sink)
	obs := []decode.Observation{at(0), at(time.Minute), at(2 * time.Minute), at(3 * time.Minute), at(1), at(3*time.Minute + 1)}
	c := run(t, s, obs, 1)
	want := []written{{0, 3, 1}, {0, 5, 1}, {time.Minute, 8, 1}, {2 * time.Minute, 9, 1}, {3 * time.Minute, 10, 2}}
	got := sink.written(time.Minute)
	for i := range got {
		got[i].seq = want[i].seq
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("wrote %v, expected %v", got, want)
	}
	if c.Deltas != 2 {
		t.Errorf("%d deltas, expected one of the second and one of the minute", c.Deltas)
	}
}

func TestManyDeltas(t *testing.T) {
	var sink collector
	s := newShard(t, window.Config{Tap: window.Tap{Tags: true}}, &sink)
	obs := []decode.Observation{at(0), at(time.Minute), at(2 * time.Minute), at(3 * time.Minute), at(4 * time.Minute)}
	for range 3 {
		for i := range 200 {
			obs = append(obs, at(time.Duration(i)*time.Second))
		}
	}
	c := run(t, s, obs, 100)
	if c.Stored != uint64(len(obs)) || c.Late != 0 {
		t.Errorf("counts %+v, expected all of %d stored", c, len(obs))
	}
	var total uint64
	for _, w := range sink.written(time.Minute) {
		total += w.observations
	}
	if total != uint64(len(obs)) {
		t.Errorf("%d observations in minutes, expected %d", total, len(obs))
	}
}

func TestAdvanceTo(t *testing.T) {
	ctx := context.Background()
	advance := func(s *window.Shard, d time.Duration) {
		t.Helper()
		if err := s.AdvanceTo(ctx, benchStart+int64(d)); err != nil {
			t.Fatal(err)
		}
	}
	var sink collector
	s := newShard(t, window.Config{Tap: window.Tap{Tags: true}, Resolutions: []time.Duration{time.Second}}, &sink)
	advance(s, time.Hour) // nothing to close: there is no time yet
	if err := s.Add(ctx, []decode.Observation{at(0)}); err != nil {
		t.Fatal(err)
	}
	advance(s, 3*time.Second-1)
	if len(sink.blocks) != 0 {
		t.Error("closed a window before its lateness had passed")
	}
	advance(s, 3*time.Second)
	if got, want := sink.written(time.Second), []written{{0, 0, 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("wrote %v, expected %v", got, want)
	}
	advance(s, time.Second)
	if got, want := s.Watermark(), benchStart+int64(3*time.Second); got != want {
		t.Errorf("watermark %d went back from %d", got, want)
	}
	// Waiting observations are accepted once the clock has come near them.
	if err := s.Add(ctx, []decode.Observation{at(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	advance(s, time.Hour)
	if err := s.Add(ctx, []decode.Observation{at(time.Hour + 1)}); err != nil {
		t.Fatal(err)
	}
	// But not those that are far ahead of the clock too.
	if err := s.Add(ctx, []decode.Observation{at(2 * time.Hour), at(240 * time.Hour)}); err != nil {
		t.Fatal(err)
	}
	advance(s, 2*time.Hour)
	if err := s.Add(ctx, []decode.Observation{at(2*time.Hour + 1)}); err != nil {
		t.Fatal(err)
	}
	if c := run(t, s, nil, 1); c.Stored != 5 || c.Late != 0 || c.Rejected[aggregate.RejectFuture] != 1 {
		t.Errorf("counts %+v, expected 5 stored and 1 from the future", c)
	}
}

// TestRejectAfter: observations after the limit are rejected and do not move the watermark, and
// others count, in whatever order they come and the limit moves.
func TestRejectAfter(t *testing.T) {
	var sink collector
	s := newShard(t, window.Config{Tap: window.Tap{Tags: true}, Resolutions: []time.Duration{time.Second}}, &sink)
	for _, step := range []struct{ limit, at time.Duration }{
		{2 * time.Second, time.Hour},
		{2 * time.Second, 0},
		{2 * time.Second, 1},
		{2 * time.Second, 2*time.Second + 1},
		{2 * time.Second, time.Second},
		{900 * time.Millisecond, time.Second + 1},
		{900 * time.Millisecond, 3},
		{4 * time.Second, 3 * time.Second},
		{4 * time.Second, 240 * time.Hour},
		{4 * time.Second, 2},
	} {
		s.RejectAfter(benchStart + int64(step.limit))
		if err := s.Add(t.Context(), []decode.Observation{at(step.at)}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := s.Watermark(), benchStart+int64(3*time.Second); got != want {
		t.Errorf("watermark %d, want %d", got, want)
	}
	if c := run(t, s, nil, 1); c.Stored != 6 || c.Rejected[aggregate.RejectFuture] != 4 {
		t.Errorf("counts %+v, want 6 stored and 4 from the future", c)
	}
}

// TestRestart: after a restart, windows of earlier times close as the first ones did, their rows have numbers of their own,
// and the limit still holds.
func TestRestart(t *testing.T) {
	var sink collector
	s := newShard(t, window.Config{Tap: window.Tap{Tags: true}, Resolutions: []time.Duration{time.Second}}, &sink)
	s.RejectAfter(benchStart + int64(time.Hour))
	for range 2 {
		for _, o := range []time.Duration{0, 1, 2 * time.Hour, time.Second, 10 * time.Second, 11 * time.Second, 12 * time.Second} {
			if err := s.Add(t.Context(), []decode.Observation{at(o)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Restart(t.Context()); err != nil || s.Watermark() != 0 {
			t.Fatalf("watermark %d, %v", s.Watermark(), err)
		}
	}
	if c := s.Counts(); c.Stored != 12 || c.Late+c.Deltas != 0 || c.Rejected[aggregate.RejectFuture] != 2 {
		t.Errorf("counts %+v, want 12 stored, none late and 2 from the future", c)
	}
	seqs := map[uint64]bool{}
	for _, b := range sink.blocks {
		seqs[b.Seq] = true
	}
	if len(sink.blocks) != 10 || len(seqs) != 10 {
		t.Errorf("%d blocks with %d numbers, want 10", len(sink.blocks), len(seqs))
	}
}

// TestSuspend: of the windows that are closed early, since another configuration goes on with the tap, those that are not due
// may get more rows.
func TestSuspend(t *testing.T) {
	for _, resumes := range []bool{false, true} {
		var sink collector
		s := newShard(t, window.Config{Tap: window.Tap{Tags: true}, Resolutions: []time.Duration{time.Second}}, &sink)
		if err := s.Add(t.Context(), []decode.Observation{at(0), at(time.Second), at(1400 * time.Millisecond), at(3 * time.Second)}); err != nil {
			t.Fatal(err)
		}
		end := s.Flush
		if resumes {
			end = s.Suspend
		}
		if err := errors.Join(s.AdvanceTo(t.Context(), benchStart+int64(3500*time.Millisecond)), end(t.Context())); err != nil {
			t.Fatal(err)
		}
		for _, b := range sink.blocks {
			if open := b.WindowStart > benchStart; b.More != (resumes && open) {
				t.Errorf("suspended: %t: more rows of the window at %s come: %t", resumes, time.Duration(b.WindowStart-benchStart), b.More)
			}
		}
		if len(sink.blocks) != 3 {
			t.Errorf("%d blocks, want 3", len(sink.blocks))
		}
	}
}

type failingSink struct{ err error }

func (f failingSink) WriteBlock(context.Context, *aggregate.Block) error { return f.err }

func TestSinkError(t *testing.T) {
	full := errors.New("disk full")
	s := newShard(t, window.Config{Tap: window.Tap{Tags: true}}, failingSink{full})
	ctx := context.Background()
	if err := s.Add(ctx, []decode.Observation{at(0), at(time.Second)}); err != nil {
		t.Fatal(err)
	}
	for i, err := range []error{
		s.Add(ctx, []decode.Observation{at(5 * time.Second)}), s.Add(ctx, nil), s.AdvanceTo(ctx, benchStart), s.Flush(ctx),
	} {
		if !errors.Is(err, full) {
			t.Errorf("call %d: error %v, expected the sink's", i, err)
		}
	}
}
