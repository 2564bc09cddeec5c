package decode_test

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// datagram is an IPv4 UDP datagram to the port.
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

// A datagram in a tunnel reflects too, and a tag stands before the reflection.
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
