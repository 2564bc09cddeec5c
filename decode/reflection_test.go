package decode_test

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// ack is an IPv4 TCP acknowledgement with the given options, padded to words.
func ack(t testing.TB, options string) []byte {
	t.Helper()
	opts, err := unhex(options)
	if err != nil {
		t.Fatal(err)
	}
	for len(opts)%4 != 0 {
		opts = append(opts, 1)
	}
	frame, err := unhex("020000000002 020000000001 0800 4500 0000 0001 0000 4006 0000 0a000001 0a000102")
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint16(frame[16:], uint16(40+len(opts)))
	tcp, err := unhex("9c40 01bb 00000001 00001000 5010 ffff 0000 0000")
	if err != nil {
		t.Fatal(err)
	}
	tcp[12] = byte(5+len(opts)/4) << 4
	return append(append(frame, tcp...), opts...)
}

func TestReflectionEncodings(t *testing.T) {
	t.Parallel()
	plain := csig.ReflectionSpec{Kind: 200}
	payload := csig.ReflectionSpec{Kind: 200, Length: "payload"}
	exid16 := csig.ReflectionSpec{Kind: 253, ExID: 0xc516, ExIDBits: 16}
	exid32 := csig.ReflectionSpec{Kind: 254, ExID: 0xc5160001, ExIDBits: 32, Compact: "uec050", Wide: "ietf01"}
	exidPayload := csig.ReflectionSpec{Kind: 253, ExID: 0xc516, ExIDBits: 16, Length: "payload"}

	compact := csig.Tag{Layout: csig.Layout{Format: csig.Compact, Profile: csig.IETF01}, T: 1, S: 0x17, LM: 5}
	compactD := csig.Tag{Layout: csig.Layout{Format: csig.Compact, Profile: csig.UEC050}, T: 1, S: 0x17, LM: 2, D: true}
	wide := csig.Tag{Layout: csig.Layout{Format: csig.Wide, Profile: csig.UEC050}, LM: 300, S: 100_000}
	wideIETF := csig.Tag{Layout: csig.Layout{Format: csig.Wide, Profile: csig.IETF01}, LM: 600, S: 100_000}

	for _, tc := range []struct {
		name    string
		specs   []csig.ReflectionSpec
		options string
		reason  decode.Reason
		want    []csig.Tag
		empty   uint64
		invalid uint64
	}{
		{name: "plain compact", specs: []csig.ReflectionSpec{plain}, options: "c804 2b85", want: []csig.Tag{compact}},
		{name: "plain wide", specs: []csig.ReflectionSpec{plain}, options: "c808 0258 0186a000", want: []csig.Tag{wide}},
		{name: "plain, draft's length", specs: []csig.ReflectionSpec{payload}, options: "c802 2b85", want: []csig.Tag{compact}},
		{name: "plain wide, draft's length", specs: []csig.ReflectionSpec{payload}, options: "c806 0258 0186a000", want: []csig.Tag{wide}},
		{name: "both lengths", specs: []csig.ReflectionSpec{plain, payload}, options: "c804 2b85 c802 2b85 c806 0258 0186a000", want: []csig.Tag{compact, compact, wide}},
		{name: "16-bit experiment", specs: []csig.ReflectionSpec{exid16}, options: "fd06 c516 2b85", want: []csig.Tag{compact}},
		{name: "16-bit experiment wide", specs: []csig.ReflectionSpec{exid16}, options: "fd0a c516 0258 0186a000", want: []csig.Tag{wide}},
		{name: "16-bit experiment, draft's length", specs: []csig.ReflectionSpec{exidPayload}, options: "fd02 c516 2b85 0101", want: []csig.Tag{compact}},
		{name: "32-bit experiment", specs: []csig.ReflectionSpec{exid32}, options: "fe08 c5160001 2b85", want: []csig.Tag{compactD}},
		{name: "32-bit experiment wide", specs: []csig.ReflectionSpec{exid32}, options: "fe0c c5160001 0258 0186a000", want: []csig.Tag{wideIETF}},
		{name: "other experiment", specs: []csig.ReflectionSpec{exid16}, options: "fd06 c517 2b85"},
		{name: "other kind", specs: []csig.ReflectionSpec{exid16}, options: "fe06 c516 2b85"},
		{name: "none configured", options: "fd06 c516 2b85"},
		{name: "empty", specs: []csig.ReflectionSpec{plain}, options: "c802", empty: 1},
		{name: "empty, draft's length", specs: []csig.ReflectionSpec{payload}, options: "c800 c802 2b85", want: []csig.Tag{compact}, empty: 1},
		{name: "empty experiment", specs: []csig.ReflectionSpec{exid32}, options: "fe06 c5160001", empty: 1},
		{name: "invalid", specs: []csig.ReflectionSpec{plain}, options: "c805 000000 c804 2b85", want: []csig.Tag{compact}, invalid: 1},
		{name: "too short for its experiment", specs: []csig.ReflectionSpec{exid16}, options: "fd02 0101"},
		{name: "experiment past the end", specs: []csig.ReflectionSpec{exid32}, options: "01 fe08 c5", reason: decode.BadOptions},
		{name: "length 1", specs: []csig.ReflectionSpec{plain}, options: "c801 2b85", reason: decode.BadOptions, invalid: 1},
		{name: "at most four", specs: []csig.ReflectionSpec{plain}, options: "c804 2b85 c804 2b85 c804 2b85 c804 2b85 c804 2b85", want: []csig.Tag{compact, compact, compact, compact}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := decoder(t, domain(t, csig.Spec{Reflections: tc.specs}))
			var r decode.Result
			d.Decode(ack(t, tc.options), &r)
			want := tc.reason
			if want == 0 && len(tc.want) > 0 {
				want = decode.OK
			}
			if r.Reason != want {
				t.Errorf("reason %s, want %s", r.Reason, want)
			}
			var got []csig.Tag
			for i := range r.Obs[:r.N] {
				o := &r.Obs[i]
				got = append(got, o.Tag)
				const flags = decode.HasAddrs | decode.HasPorts | decode.HasAck
				if o.Kind != decode.Reflection || o.Flags != flags || o.Proto != 6 || o.Ack != 4096 || o.SrcPort != 40000 {
					t.Errorf("observation %d: %+v", i, *o)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if c := d.Counters(); c.EmptyReflections != tc.empty || c.InvalidReflections != tc.invalid {
				t.Errorf("%d empty, %d invalid, want %d, %d", c.EmptyReflections, c.InvalidReflections, tc.empty, tc.invalid)
			}
		})
	}
}

// A reflection on a packet from B to A measured the path from A to B.
func TestMeasured(t *testing.T) {
	t.Parallel()
	d := decoder(t, domain(t, csig.DefaultSpec()))
	var r decode.Result
	d.Decode(goldenFrame(t, "tag_and_reflection"), &r)
	tag, reflection := &r.Obs[0], &r.Obs[1]
	src, dst := tag.Measured()
	if *src != tag.Src || *dst != tag.Dst {
		t.Error("a tag measures the packet's own path")
	}
	src, dst = reflection.Measured()
	if *src != reflection.Dst || *dst != reflection.Src || reflection.Src != tag.Src {
		t.Error("a reflection measures the reverse path")
	}
}
