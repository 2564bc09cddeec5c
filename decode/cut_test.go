package decode_test

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TestCutEverywhere truncates every frame at every byte: the observations of a truncated frame are
// a prefix of those of the whole one, whichever header names the endpoints.
func TestCutEverywhere(t *testing.T) {
	t.Parallel()
	for name, cfg := range configs(domain(t, reflectingSpec())) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, walker := decoderOf(t, cfg), walkerOf(t, cfg)
			for _, g := range goldens(t) {
				var whole decode.Result
				d.Decode(g.Data, &whole)
				checkWalked(t, walker, g.Data, &whole)
				for n := range g.Data {
					var cut decode.Result
					d.Decode(g.Data[:n:n], &cut)
					checkPrefix(t, g.Name, n, &cut, &whole)
					checkWalked(t, walker, g.Data[:n:n], &cut)
				}
			}
		})
	}
}

// walkerOf returns a decoder that keeps segments, and so parses headers one by one.
func walkerOf(t *testing.T, cfg decode.Config) *decode.Decoder {
	cfg.Segments = true
	return decoderOf(t, cfg)
}

// checkWalked checks that parsing headers one by one gives the same result.
func checkWalked(t *testing.T, walker *decode.Decoder, frame []byte, got *decode.Result) {
	t.Helper()
	var want decode.Result
	walker.Decode(frame, &want)
	if !cmp.Equal(got.Obs[:got.N], want.Obs[:want.N]) || got.Reason != want.Reason || got.Encap != want.Encap {
		t.Fatalf("%x:\n%+v, header by header\n%+v", frame, got, want)
	}
}

// configs returns decoder configurations that treat tunnels differently.
func configs(dom *csig.Domain) map[string]decode.Config {
	return map[string]decode.Config{
		"outer":            {Domain: dom},
		"inner":            {Domain: dom, Endpoints: decode.Inner},
		"outer inner tags": {Domain: dom, InnerTags: true},
		"inner inner tags": {Domain: dom, Endpoints: decode.Inner, InnerTags: true},
	}
}

func checkPrefix(t *testing.T, name string, n int, cut, whole *decode.Result) {
	t.Helper()
	if cut.N > whole.N {
		t.Fatalf("%s cut at %d: %d observations of %d", name, n, cut.N, whole.N)
	}
	for i := range cut.Obs[:cut.N] {
		if why := contradicts(&cut.Obs[i], &whole.Obs[i]); why != "" {
			t.Fatalf("%s cut at %d: observation %d: %s:\ncut   %+v\nwhole %+v", name, n, i, why, cut.Obs[i], whole.Obs[i])
		}
	}
	got, want := cut.Encap.Layers(), whole.Encap.Layers()
	if len(got) > len(want) || !cmp.Equal(append([]decode.Layer{}, got...), append([]decode.Layer{}, want[:len(got)]...)) {
		t.Fatalf("%s cut at %d: encapsulation %v is no prefix of %v", name, n, got, want)
	}
}

// contradicts returns a field that a has and b does not have.
func contradicts(a, b *decode.Observation) string {
	switch {
	case a.Kind != b.Kind || a.Tag != b.Tag:
		return "another tag"
	case a.Flags&^decode.Cut&^b.Flags != 0:
		return "more flags"
	case a.Flags&decode.HasAddrs != 0 && (a.Src != b.Src || a.Dst != b.Dst):
		return "other addresses"
	case a.Flags&decode.HasAddrs == 0 && (a.Src != [16]byte{} || a.Dst != [16]byte{}):
		return "addresses without HasAddrs"
	case a.Flags&decode.HasProto != 0 && a.Proto != b.Proto:
		return "another protocol"
	case a.Flags&decode.HasProto == 0 && a.Proto != 0:
		return "a protocol without HasProto"
	case a.Flags&decode.HasPorts != 0 && (a.SrcPort != b.SrcPort || a.DstPort != b.DstPort):
		return "other ports"
	case a.Flags&decode.HasAck != 0 && a.Ack != b.Ack:
		return "another acknowledgement"
	}
	return ""
}

// The reasons of truncated frames: a span reaches from its number of bytes to the next one's; the
// last span is one length.
func TestCutReasons(t *testing.T) {
	t.Parallel()
	d := decoder(t, domain(t, csig.DefaultSpec()))
	type span struct {
		from   int
		reason decode.Reason
		n      int // observations
		flags  decode.Flags
	}
	const addrs, proto, ports = decode.HasAddrs, decode.HasAddrs | decode.HasProto, decode.HasAddrs | decode.HasProto | decode.HasPorts | decode.HasAck
	for _, tc := range []struct {
		frame string
		spans []span
	}{
		{"tag_and_reflection", []span{
			{0, decode.CutEthernet, 0, 0},
			{14, decode.CutVLAN, 0, 0},
			{16, decode.CutEthernet, 0, 0},
			{18, decode.CutTag, 0, 0},
			{20, decode.CutEthernet, 1, decode.Cut},
			{22, decode.CutIP, 1, decode.Cut},
			{42, decode.CutTransport, 1, proto},
			{62, decode.CutTransport, 1, ports},
			{68, decode.CutTransport, 2, ports},
			{70, decode.OK, 2, ports},
		}},
		{"macsec_integrity", []span{
			{12, decode.CutEthernet, 0, 0},
			{14, decode.CutMACsec, 0, 0},
			{28, decode.CutEthernet, 0, 0},
			{30, decode.CutVLAN, 0, 0},
		}},
		{"ipv6_extensions", []span{
			{16, decode.CutEthernet, 1, decode.Cut},
			{18, decode.CutIP, 1, decode.Cut},
			{58, decode.CutIP, 1, addrs},
			{114, decode.CutTransport, 1, proto},
			{134, decode.OK, 1, ports},
		}},
		{"compact_uec050_trimmed_ipv6", []span{
			{58, decode.CutTransport, 1, proto},
			{66, decode.OK, 1, proto | decode.HasPorts}, // a truncated payload loses nothing
		}},
		{"ipv4_options", []span{
			{38, decode.CutIP, 1, proto},
			{42, decode.CutTransport, 1, proto},
		}},
		{"ah_ipv4", []span{
			{38, decode.CutIP, 1, addrs},
			{62, decode.CutTransport, 1, proto},
			{82, decode.OK, 1, ports},
		}},
		{"sctp", []span{
			{38, decode.CutTransport, 1, proto},
			{50, decode.OK, 1, proto | decode.HasPorts},
		}},
	} {
		frame := goldenFrame(t, tc.frame)
		for i, s := range tc.spans {
			end := s.from + 1
			if i+1 < len(tc.spans) {
				end = tc.spans[i+1].from
			}
			for n := s.from; n < end; n++ {
				var r decode.Result
				d.Decode(frame[:n], &r)
				if r.Reason != s.reason || r.N != s.n || (r.N > 0 && r.Obs[0].Flags&^decode.IPv6 != s.flags) {
					t.Errorf("%s cut at %d: %s, %d observations, flags %b, want %+v", tc.frame, n, r.Reason, r.N, r.Obs[0].Flags, s)
				}
			}
		}
	}
}

// TestStripped removes the outermost tag from every frame that has one, as network cards do. The
// result must not change.
func TestStripped(t *testing.T) {
	t.Parallel()
	dom := domain(t, csig.DefaultSpec())
	for _, g := range goldens(t) {
		tpid := binary.BigEndian.Uint16(g.Data[12:])
		_, isTag := dom.LayoutOf(tpid)
		if !isTag && tpid != 0x8100 && tpid != 0x88a8 && tpid != 0x9100 {
			continue
		}
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			for n := 16; n <= len(g.Data); n++ {
				var want, got decode.Result
				asSent, d := decoder(t, dom), decoder(t, dom)
				asSent.Decode(g.Data[:n], &want)
				rest := append(append([]byte{}, g.Data[:12]...), g.Data[16:n]...)
				decodeStripped(d, rest, tpid, binary.BigEndian.Uint16(g.Data[14:]), &got)
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(decode.Stack{})); diff != "" {
					t.Fatalf("cut at %d (-as sent +stripped):\n%s", n, diff)
				}
				if diff := cmp.Diff(asSent.Counters(), d.Counters()); diff != "" {
					t.Fatalf("cut at %d: counters (-as sent +stripped):\n%s", n, diff)
				}
			}
		})
	}
}

// decodeStripped decodes a frame with its outermost tag beside it.
func decodeStripped(d *decode.Decoder, frame []byte, tpid, tci uint16, r *decode.Result) {
	d.DecodeFrame(decode.Framing{Link: decode.Ethernet}, &decode.Frame{Data: frame, TPID: tpid, TCI: tci}, r)
}

func TestStrippedOddities(t *testing.T) {
	t.Parallel()
	d := decoder(t, domain(t, csig.DefaultSpec()))
	frame := goldenFrame(t, "compact_ietf01_tcp")
	for _, tc := range []struct {
		name  string
		frame []byte
		tpid  uint16
		want  decode.Reason
	}{
		{"too short for addresses", frame[:11], 0x8100, decode.CutEthernet},
		{"unknown tag", frame, 0x9200, decode.NoCSIG},
		{"no tag but a protocol", frame, 0x0800, decode.NoCSIG},
	} {
		var r decode.Result
		decodeStripped(d, tc.frame, tc.tpid, 1, &r)
		if r.Reason != tc.want || r.N != 0 {
			t.Errorf("%s: %s with %d observations, want %s", tc.name, r.Reason, r.N, tc.want)
		}
	}
}

// TestVLANTPID checks that a VLAN TPID configured for CSIG marks a CSIG tag, in the frame and
// stripped.
func TestVLANTPID(t *testing.T) {
	t.Parallel()
	spec := csig.DefaultSpec()
	spec.TPIDs = append(spec.TPIDs, csig.TPIDSpec{TPID: 0x8100, Format: "compact", Profile: "ietf01"})
	d := decoder(t, domain(t, spec))
	frame := goldenFrame(t, "compact_ietf01_tcp")
	var want, got decode.Result
	d.Decode(frame, &want)
	frame[12], frame[13] = 0x81, 0
	d.Decode(frame, &got)
	if diff := cmp.Diff(want.Obs[:want.N], got.Obs[:got.N]); diff != "" || want.N == 0 || got.Reason != decode.OK {
		t.Errorf("in the frame: %s (-0x9900 +0x8100):\n%s", got.Reason, diff)
	}
	tci := binary.BigEndian.Uint16(frame[14:])
	decodeStripped(d, append(frame[:12:12], frame[16:]...), 0x8100, tci, &got)
	got.Obs[0].Bytes = want.Obs[0].Bytes
	if diff := cmp.Diff(want.Obs[:want.N], got.Obs[:got.N]); diff != "" {
		t.Errorf("stripped (-0x9900 +0x8100):\n%s", diff)
	}
}
