package window_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestObservation checks the outcome of single observations.
func TestObservation(t *testing.T) {
	compact := csig.Layout{Format: csig.Compact, Profile: csig.UEC050}
	wide := csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
	heavy := rowSums{observations: 1, samples: 1, bytes: 100, sum: 109375, min: 109375, max: 109375, heavy: 1, heavySum: 109375, dist: map[uint16]uint64{3: 1}}
	for _, test := range []struct {
		name   string
		change func(o *decode.Observation)
		locate bool
		want   rowKey
		sums   rowSums
	}{
		{"heavy", func(o *decode.Observation) {}, false, rowKey{src: 1001, dst: 1002, location: 5005}, heavy},
		{"reflection", func(o *decode.Observation) { o.Kind = decode.Reflection }, false, rowKey{src: 1002, dst: 1001, location: 5005}, heavy},
		{"no addresses", func(o *decode.Observation) { o.Flags = 0 }, false, rowKey{location: 5005}, heavy},
		{
			"light", func(o *decode.Observation) { o.Tag.S = 16 }, false,
			rowKey{src: 1001, dst: 1002, location: 5005},
			rowSums{observations: 1, samples: 1, bytes: 100, sum: 515625, min: 515625, max: 515625, dist: map[uint16]uint64{16: 1}},
		},
		{
			"untouched", func(o *decode.Observation) { o.Tag.S = 31 }, false,
			rowKey{src: 1001, dst: 1002},
			rowSums{observations: 1, samples: 1, bytes: 100, sum: 984375, min: 984375, max: 984375, untouched: 1, dist: map[uint16]uint64{31: 1}},
		},
		{
			"untouched that is located", func(o *decode.Observation) { o.Tag.S = 31 }, true,
			rowKey{src: 1001, dst: 1002, location: 5005},
			rowSums{observations: 1, samples: 1, bytes: 100, sum: 984375, min: 984375, max: 984375, untouched: 1, dist: map[uint16]uint64{31: 1}},
		},
		{
			"trimmed", func(o *decode.Observation) { o.Tag.D = true }, false,
			rowKey{src: 1001, dst: 1002, location: 5005},
			rowSums{observations: 1, bytes: 100, trimmed: 1, dist: map[uint16]uint64{}},
		},
		{
			"trimmed before any hop", func(o *decode.Observation) { o.Tag.D, o.Tag.S = true, 31 }, false,
			rowKey{src: 1001, dst: 1002},
			rowSums{observations: 1, bytes: 100, trimmed: 1, dist: map[uint16]uint64{}},
		},
		{
			"unknown type", func(o *decode.Observation) { o.Tag.T = 6 }, false,
			rowKey{signal: 22, src: 1001, dst: 1002, location: 5005},
			rowSums{observations: 1, samples: 1, bytes: 100, dist: map[uint16]uint64{3: 1}},
		},
		{
			"unknown wide type", func(o *decode.Observation) { o.Tag.Layout, o.Tag.T = wide, 15 }, false,
			rowKey{signal: 31, src: 1001, dst: 1002, location: 5005, encoding: aggregate.Encoding(wide.Index())},
			rowSums{observations: 1, samples: 1, bytes: 100, dist: map[uint16]uint64{}},
		},
		{
			"wide", func(o *decode.Observation) { o.Tag.Layout, o.Tag.S = wide, 199999 }, false,
			rowKey{src: 1001, dst: 1002, location: 5005, encoding: aggregate.Encoding(wide.Index())},
			rowSums{
				observations: 1, samples: 1, bytes: 100, sum: 199999, min: 199999, max: 199999, heavy: 1, heavySum: 199999,
				dist: map[uint16]uint64{csig.DistIndex(199999): 1},
			},
		},
		{
			"relative threshold without a capacity",
			func(o *decode.Observation) { o.Tag.T, o.Tag.S, o.Tag.LM = 0, 0, 3 }, false,
			rowKey{src: 1001, dst: 1002, location: 5003},
			rowSums{observations: 1, samples: 1, unjudged: 1, bytes: 100, sum: 6250000, min: 6250000, max: 6250000, dist: map[uint16]uint64{0: 1}},
		},
		{
			"relative threshold", func(o *decode.Observation) { o.Tag.T, o.Tag.S, o.Tag.LM = 0, 0, 5 }, false,
			rowKey{src: 1001, dst: 1002, location: 5005},
			rowSums{
				observations: 1, samples: 1, bytes: 100, sum: 6250000, min: 6250000, max: 6250000, heavy: 1, heavySum: 6250000,
				dist: map[uint16]uint64{0: 1},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := at(0)
			o.Tag.Layout = compact
			test.change(&o)
			var sink collector
			run(t, newShard(t, window.Config{
				Tap: window.Tap{Tags: true, Reflections: true}, LocateUntouched: test.locate, Resolutions: []time.Duration{time.Second},
			}, &sink), []decode.Observation{o}, 1)
			test.want.resolution, test.want.start, test.want.kind = int64(time.Second), benchStart, o.Kind
			test.want.signal = o.Tag.Signal()
			if test.want.encoding == 0 {
				test.want.encoding = aggregate.Encoding(compact.Index())
			}
			if want := map[rowKey]*rowSums{test.want: &test.sums}; !reflect.DeepEqual(sink.rows, want) {
				for k, s := range sink.rows {
					t.Errorf("got  %+v %+v", k, *s)
				}
				t.Errorf("want %+v %+v", test.want, test.sums)
			}
		})
	}
}

func TestRejections(t *testing.T) {
	for _, test := range []struct {
		reason aggregate.Rejection
		name   string
		change func(o *decode.Observation)
	}{
		{aggregate.RejectOrphan, "orphan", func(o *decode.Observation) { o.Flags |= decode.Orphan }},
		{aggregate.RejectPlace, "place", func(o *decode.Observation) { o.Kind = decode.Reflection }},
		{aggregate.RejectNoTime, "no_time", func(o *decode.Observation) { o.TimeNS, o.Flags = 0, o.Flags|decode.NoTime }},
		{aggregate.RejectInvalid, "invalid", func(o *decode.Observation) { o.TimeNS = -1 }},
		{aggregate.RejectInvalid, "invalid", func(o *decode.Observation) { o.TimeNS = 1<<63 - 1 }},
		{aggregate.RejectInvalid, "invalid", func(o *decode.Observation) { o.TimeNS = aggregate.EndOfTime }},
		{aggregate.RejectInvalid, "invalid", func(o *decode.Observation) { o.Kind = 3 }},
		{aggregate.RejectInvalid, "invalid", func(o *decode.Observation) { o.Kind = 0 }},
		{aggregate.RejectInvalid, "invalid", func(o *decode.Observation) { o.Tag.Layout = csig.Layout{} }},
		{aggregate.RejectInvalid, "invalid", func(o *decode.Observation) { o.Tag.Layout.Profile = 3 }},
		{aggregate.RejectInvalid, "invalid", func(o *decode.Observation) { o.Tag.Layout.Format = 3 }},
	} {
		o := at(1)
		test.change(&o)
		var sink collector
		c := run(t, newShard(t, window.Config{Tap: window.Tap{Tags: true, Weight: 3}}, &sink), []decode.Observation{at(0), o, at(2)}, 2)
		if want := rejected(test.reason, 3); c.Rejected != want {
			t.Errorf("rejected %v, expected %v", c.Rejected, want)
		}
		if test.reason.String() != test.name {
			t.Errorf("reason %q, expected %q", test.reason, test.name)
		}
	}
}

func TestRepeatedReflections(t *testing.T) {
	const within = time.Microsecond
	reflection := func(ack, s uint32, typ uint8, port uint16) decode.Observation {
		o := at(0)
		o.Kind, o.Flags = decode.Reflection, decode.HasAddrs|decode.HasPorts|decode.HasAck
		o.Ack, o.Tag.S, o.Tag.T, o.SrcPort, o.Proto = ack, s, typ, port, 6
		return o
	}
	tunnel := func(ack uint32) decode.Observation { // IP in IP, by its outer addresses
		o := reflection(ack, 3, 1, 0)
		o.Flags, o.Proto = o.Flags&^decode.HasPorts, 4
		return o
	}
	inside := func(o decode.Observation, flow uint32) decode.Observation { // likewise, with its own flow
		o.Flags, o.Proto, o.Flow = o.Flags&^decode.HasPorts, 4, flow
		return o
	}
	udp := func(after time.Duration, s uint32) decode.Observation {
		o := reflection(1, s, 1, 80)
		o.Flags &^= decode.HasAck
		o.TimeNS += after.Nanoseconds()
		return o
	}
	for _, test := range []struct {
		name string
		obs  []decode.Observation
		want uint64
	}{
		{"same acknowledgement", []decode.Observation{reflection(1, 3, 1, 80), reflection(1, 3, 1, 80), reflection(1, 3, 1, 80)}, 2},
		{"new acknowledgement", []decode.Observation{reflection(1, 3, 1, 80), reflection(2, 3, 1, 80)}, 0},
		{"new signal", []decode.Observation{reflection(1, 3, 1, 80), reflection(1, 4, 1, 80)}, 0},
		{"other flow", []decode.Observation{reflection(1, 3, 1, 80), reflection(1, 3, 1, 81), reflection(1, 3, 1, 80)}, 1},
		{"alternating types", []decode.Observation{reflection(1, 3, 1, 80), reflection(1, 3, 2, 80), reflection(1, 3, 1, 80)}, 1},
		{"over the wrap", []decode.Observation{reflection(1<<32-1, 3, 1, 80), reflection(1, 3, 1, 80), reflection(1<<32-1, 3, 1, 80)}, 1},
		{"overtaken", []decode.Observation{reflection(9, 3, 1, 80), reflection(5, 3, 1, 80), reflection(9, 3, 1, 80), reflection(10, 3, 1, 80)}, 2},
		{"duplicate acknowledgement of another tag", []decode.Observation{reflection(9, 3, 1, 80), reflection(9, 4, 1, 80), reflection(9, 4, 1, 80)}, 1},
		{"older acknowledgement of another tag", []decode.Observation{reflection(9, 3, 1, 80), reflection(5, 4, 1, 80), reflection(8, 4, 1, 80), reflection(10, 4, 1, 80)}, 1},
		{"other connection", []decode.Observation{reflection(1<<30, 3, 1, 80), reflection(5, 3, 1, 80), reflection(6, 3, 1, 80)}, 0},
		{"connections in a tunnel", []decode.Observation{tunnel(900), tunnel(5), tunnel(901), tunnel(6)}, 0},
		{"a copy in a tunnel", []decode.Observation{tunnel(900), tunnel(900), tunnel(901)}, 1},
		{"flows in a tunnel", []decode.Observation{
			inside(reflection(9, 3, 1, 0), 1), inside(reflection(9, 3, 1, 0), 2), inside(reflection(5, 3, 1, 0), 1), inside(reflection(9, 3, 1, 0), 2),
		}, 2},
		{"flows in a tunnel without acknowledgement", []decode.Observation{inside(udp(0, 3), 1), inside(udp(1, 3), 2), inside(udp(2, 3), 1), inside(udp(3, 3), 3)}, 1},
		{"no acknowledgement, at once", []decode.Observation{udp(0, 3), udp(0, 3), udp(within-1, 3)}, 2},
		{"no acknowledgement, other fields", []decode.Observation{udp(0, 3), udp(1, 4), udp(2, 3)}, 0},
		{"no acknowledgement, in time", []decode.Observation{udp(0, 3), udp(within, 3)}, 0},
		{"no acknowledgement, steadily", []decode.Observation{udp(0, 3), udp(within*2/3, 3), udp(within*4/3, 3), udp(within*2, 3)}, 2},
		{"no acknowledgement, overtaken", []decode.Observation{udp(10, 3), udp(9, 3)}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var sink collector
			c := run(t, newShard(t, window.Config{UDPRepeat: within, Tap: window.Tap{Reflections: true}}, &sink), test.obs, 9)
			if c.Rejected != rejected(aggregate.RejectRepeat, test.want) {
				t.Errorf("rejected %v, expected %d repeats", c.Rejected, test.want)
			}
		})
	}
}

func TestReflectionEvictions(t *testing.T) {
	obs := repeated(at(0), 200000)
	for i := range obs {
		obs[i].Kind, obs[i].Flags = decode.Reflection, decode.HasAddrs|decode.HasAck
		obs[i].SrcPort, obs[i].DstPort = uint16(i), uint16(i>>16)
	}
	var sink collector
	cfg := window.Config{Domain: defaultDomain(t), Resolver: fakeResolver{}, Tap: window.Tap{Reflections: true}}
	s := newShard(t, cfg, &sink)
	c := run(t, s, obs, 256)
	if forgotten := uint64(len(obs) - 1<<16); c.ReflectionEvictions < forgotten || c.ReflectionEvictions > forgotten+forgotten/10 {
		t.Errorf("%d evictions of %d flows, expected about %d", c.ReflectionEvictions, len(obs), forgotten)
	}
	if c.Stored != uint64(len(obs)) {
		t.Errorf("%d stored, expected all of %d", c.Stored, len(obs))
	}
	for i, reflections := range []bool{true, false, true, true} {
		cfg.Reflections = reflections
		var err error
		if s, err = s.Reconfigure(cfg); err != nil {
			t.Fatal(err)
		}
		if n := s.Counts().ReflectionEvictions; n != c.ReflectionEvictions {
			t.Errorf("configuration %d: %d evictions, expected still %d", i, n, c.ReflectionEvictions)
		}
	}
}

// Reflections measure whole paths at any tap; tags do so only at receivers.
func TestPlaces(t *testing.T) {
	tag, reflection := at(0), at(0)
	reflection.Kind, reflection.Flags = decode.Reflection, decode.HasAddrs|decode.HasPorts|decode.HasAck
	for place, stored := range map[string]uint64{"": 2, "receiver": 2, "mid": 1, "sender": 1} {
		var sink collector
		c := run(t, newShard(t, window.Config{Tap: window.TapAt(place, 1)}, &sink), []decode.Observation{tag, reflection}, 9)
		if c.Stored != stored || c.Rejected != rejected(aggregate.RejectPlace, 2-stored) {
			t.Errorf("place %q: %d stored, rejected %v", place, c.Stored, c.Rejected)
		}
	}
}
