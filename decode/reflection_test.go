package decode_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// ack returns an IPv4 TCP acknowledgement with the given options, padded to words.
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
				const flags = decode.HasAddrs | decode.HasPorts | decode.HasAck | decode.HasProto
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

// datagram returns an IPv4 UDP datagram to the port.
func datagram(t testing.TB, port uint16, payload string) []byte {
	t.Helper()
	data, err := unhex(payload)
	if err != nil {
		t.Fatal(err)
	}
	frame, err := unhex("020000000002 020000000001 0800 4500 0000 0001 0000 4011 0000 0a000001 0a000102 c350 0000 0000 0000")
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint16(frame[16:], uint16(28+len(data)))
	binary.BigEndian.PutUint16(frame[36:], port)
	binary.BigEndian.PutUint16(frame[38:], uint16(8+len(data)))
	return append(frame, data...)
}

func TestUDPReflections(t *testing.T) {
	t.Parallel()
	plain := csig.UDPReflectionSpec{Ports: []uint16{7000, 7001}, Offset: 2, Format: "compact", Profile: "ietf01"}
	flagged := csig.UDPReflectionSpec{Ports: []uint16{7000}, Offset: 4, Format: "wide", Profile: "uec050", ValidOffset: 1, ValidMask: 0x40}
	uet := csig.UDPReflectionSpec{Offset: 4, Format: "compact", Profile: "uec050", PDSType: new(uint8(8)), ValidOffset: 1, ValidMask: 1}
	matched := csig.UDPReflectionSpec{Ports: []uint16{7000}, Offset: 0, Format: "compact", Profile: "ietf01", MatchOffset: 2, MatchMask: 0xff, MatchValue: 7}

	compact := csig.Tag{Layout: csig.Layout{Format: csig.Compact, Profile: csig.IETF01}, T: 1, S: 0x17, LM: 5}
	compactD := csig.Tag{Layout: csig.Layout{Format: csig.Compact, Profile: csig.UEC050}, T: 1, S: 0x17, LM: 2, D: true}
	wide := csig.Tag{Layout: csig.Layout{Format: csig.Wide, Profile: csig.UEC050}, LM: 300, S: 100_000}

	for _, tc := range []struct {
		name           string
		specs          []csig.UDPReflectionSpec
		port           uint16
		payload        string
		want           []csig.Tag
		empty, invalid uint64
	}{
		{name: "compact", specs: []csig.UDPReflectionSpec{plain}, port: 7000, payload: "0000 2b85", want: []csig.Tag{compact}},
		{name: "second port", specs: []csig.UDPReflectionSpec{plain}, port: 7001, payload: "0000 2b85 ffff", want: []csig.Tag{compact}},
		{name: "other port", specs: []csig.UDPReflectionSpec{plain}, port: 7002, payload: "0000 2b85"},
		{name: "none configured", port: 7000, payload: "0000 2b85"},
		{name: "valid", specs: []csig.UDPReflectionSpec{flagged}, port: 7000, payload: "0040 0000 0258 0186a000", want: []csig.Tag{wide}},
		{name: "without the Valid bit", specs: []csig.UDPReflectionSpec{flagged}, port: 7000, payload: "ffbf 0000 0258 0186a000", empty: 1},
		{name: "too short", specs: []csig.UDPReflectionSpec{flagged}, port: 7000, payload: "0040 0000 0258 0186", invalid: 1},
		{name: "too short for the Valid bit", specs: []csig.UDPReflectionSpec{flagged}, port: 7000, payload: "00", invalid: 1},
		{name: "no payload", specs: []csig.UDPReflectionSpec{plain}, port: 7000, invalid: 1},
		{name: "two signals", specs: []csig.UDPReflectionSpec{plain, flagged}, port: 7000, payload: "0040 2b85 0258 0186a000", want: []csig.Tag{compact, wide}},
		{name: "match", specs: []csig.UDPReflectionSpec{matched}, port: 7000, payload: "2b85 07", want: []csig.Tag{compact}},
		{name: "no match", specs: []csig.UDPReflectionSpec{matched}, port: 7000, payload: "2b85 08"},
		{name: "too short to match", specs: []csig.UDPReflectionSpec{matched}, port: 7000, payload: "2b85"},
		{name: "packet type", specs: []csig.UDPReflectionSpec{uet}, port: 4793, payload: "4301 0000 2b85", want: []csig.Tag{compactD}},
		{name: "other packet type", specs: []csig.UDPReflectionSpec{uet}, port: 4793, payload: "4b01 0000 2b85"},
		{name: "packet type without the Valid bit", specs: []csig.UDPReflectionSpec{uet}, port: 4793, payload: "4300 0000 2b85", empty: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := decoder(t, domain(t, csig.Spec{UDPReflections: tc.specs}))
			frame := datagram(t, tc.port, tc.payload)
			var r decode.Result
			d.Decode(frame, &r)
			var got []csig.Tag
			for i := range r.Obs[:r.N] {
				got = append(got, r.Obs[i].Tag)
				if b := brief(&r.Obs[i]); r.Obs[i].Kind != decode.Reflection || r.Obs[i].DstPort != tc.port || r.Obs[i].Proto != 17 {
					t.Errorf("observation %d is %s", i, b)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", r.Reason, diff)
			}
			if c := d.Counters(); c.EmptyReflections != tc.empty || c.InvalidReflections != tc.invalid || c.Reflections != uint64(len(tc.want)) {
				t.Errorf("%+v, want %d empty, %d invalid", c, tc.empty, tc.invalid)
			}
			for n := range frame {
				var cut decode.Result
				d.Decode(frame[:n:n], &cut)
				checkPrefix(t, tc.name, n, &cut, &r)
			}
		})
	}
}

// A datagram in a tunnel reflects too, and a tag comes before the reflection.
func TestUDPReflectionInTunnel(t *testing.T) {
	t.Parallel()
	dom := domain(t, csig.Spec{
		TPIDs:          []csig.TPIDSpec{{TPID: 0x9900, Format: "compact", Profile: "ietf01"}},
		UDPReflections: []csig.UDPReflectionSpec{{Ports: []uint16{7000}, Offset: 0, Format: "compact", Profile: "ietf01"}},
	})
	frame := goldenFrame(t, "gre_ethernet")
	frame = append(frame[:42:42], datagram(t, 7000, "4483")...) // Ethernet, tag, IPv4, GRE
	binary.BigEndian.PutUint16(frame[20:], uint16(len(frame)-18))
	for name, want := range map[string][]string{
		"outer": {"tag 10.0.0.1 > 10.0.1.2 proto 47", "reflection 10.0.0.1 > 10.0.1.2 proto 47"},
		"inner": {"tag 10.0.0.1 > 10.0.1.2 proto 17 ports 50000 > 7000", "reflection 10.0.0.1 > 10.0.1.2 proto 17 ports 50000 > 7000"},
	} {
		var r decode.Result
		decoderOf(t, configs(dom)[name]).Decode(frame, &r)
		if diff := cmp.Diff(want, briefs(&r)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, r.Reason, diff)
		}
	}
}

// Flows in a tunnel that names the endpoints differ by their own addresses, ports and protocol.
func TestFlowsInTunnel(t *testing.T) {
	t.Parallel()
	dom := domain(t, csig.Spec{
		Reflections:    []csig.ReflectionSpec{{Kind: 200}},
		UDPReflections: []csig.UDPReflectionSpec{{Ports: []uint16{7000}, Format: "compact", Profile: "ietf01"}},
	})
	first, overTCP := datagram(t, 7000, "4483")[14:], ack(t, "c804 4483")[14:]
	changed := func(places ...int) []byte {
		inner := slices.Clone(first)
		for _, at := range places {
			inner[at] ^= 1
		}
		return inner
	}
	seen := make(map[uint32]string)
	for name, inner := range map[string][]byte{
		"first": first, "other source": changed(15), "other destination": changed(19), "other port": changed(21), "over TCP": overTCP,
		"other destination and port": changed(17, 21), // as of hosts and ports that are numbered alike
	} {
		outer := []byte{0x45, 0, 0, byte(20 + len(inner)), 0, 0, 0, 0, 64, 4, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
		frame := slices.Concat(make([]byte, 12), []byte{8, 0}, outer, inner)
		for _, endpoints := range []decode.Endpoints{decode.Outer, decode.Inner} {
			var r decode.Result
			decoderOf(t, decode.Config{Domain: dom, Endpoints: endpoints}).Decode(frame, &r)
			if r.N != 1 || (r.Obs[0].Flow == 0) != (endpoints == decode.Inner) {
				t.Errorf("%s, endpoints %d: %s, %+v", name, endpoints, r.Reason, r.Obs[:r.N])
			}
			if flow := r.Obs[0].Flow; flow != 0 && seen[flow] != "" {
				t.Errorf("%s and %s are one flow", name, seen[flow])
			}
			seen[r.Obs[0].Flow] = name
		}
	}
}

func TestUDPReflectionCutReasons(t *testing.T) {
	t.Parallel()
	spec := csig.UDPReflectionSpec{Ports: []uint16{7000}, Offset: 4, Format: "compact", Profile: "ietf01", ValidOffset: 6, ValidMask: 1, MatchOffset: 1, MatchMask: 1, MatchValue: 1}
	d := decoder(t, domain(t, csig.Spec{UDPReflections: []csig.UDPReflectionSpec{spec}}))
	frame := datagram(t, 7000, "0001 0000 2b85 01 00")
	for n := 34; n <= len(frame); n++ {
		want := decode.OK
		if n < 42+7 { // the byte with the Valid bit is the last one that matters
			want = decode.CutTransport
		}
		var r decode.Result
		d.Decode(frame[:n], &r)
		if r.Reason != want {
			t.Errorf("cut at %d: %s, want %s", n, r.Reason, want)
		}
	}
}

// Reflections in front of the cut count, whichever is configured first.
func TestUDPReflectionsInFrontOfCut(t *testing.T) {
	t.Parallel()
	front := csig.UDPReflectionSpec{Ports: []uint16{7000}, Offset: 2, Format: "compact", Profile: "ietf01"}
	behind := csig.UDPReflectionSpec{Ports: []uint16{7000}, Offset: 8, Format: "wide", Profile: "uec050", ValidOffset: 6, ValidMask: 1}
	frame := datagram(t, 7000, "0000 2b85 0000 0100 0258 0186a000")
	for _, specs := range [][]csig.UDPReflectionSpec{{front, behind}, {behind, front}} {
		d := decoder(t, domain(t, csig.Spec{UDPReflections: specs}))
		for n := 42; n <= len(frame); n++ {
			want, reason := 0, decode.CutTransport
			if n >= 42+4 {
				want++
			}
			if n == len(frame) {
				want, reason = 2, decode.OK
			}
			var r decode.Result
			d.Decode(frame[:n:n], &r)
			if r.N != want || r.Reason != reason {
				t.Errorf("offset %d first, cut at %d: %d reflections, %s; want %d, %s", specs[0].Offset, n, r.N, r.Reason, want, reason)
			}
		}
	}
}
