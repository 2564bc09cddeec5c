package decode_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// FuzzDecode checks properties of every frame for any bytes, however tunnels are treated: bounds,
// counters that add up, valid JSON, and that a truncated frame gives a prefix of the whole one's
// observations.
func FuzzDecode(f *testing.F) {
	for i, g := range goldens(f) {
		f.Add(g.Data, uint16(len(g.Data)/2), uint8(i))
	}
	dom := domain(f, reflectingSpec())
	f.Fuzz(func(t *testing.T, frame []byte, at uint16, how uint8) {
		cfg := decode.Config{Domain: dom, Endpoints: decode.Endpoints(how & 1), InnerTags: how&2 != 0}
		d := decoderOf(t, cfg)
		var whole, cut decode.Result
		d.Decode(frame, &whole)
		checkResult(t, d, dom, &whole)

		n := int(at) % (len(frame) + 1)
		d.Decode(frame[:n:n], &cut)
		checkPrefix(t, "frame", n, &cut, &whole)
		if c := d.Counters(); c.Frames != 2 {
			t.Fatalf("%d frames counted", c.Frames)
		}
		walker := walkerOf(t, cfg)
		checkWalked(t, walker, frame, &whole)
		checkWalked(t, walker, frame[:n:n], &cut)
		checkPlain(t, decoderOf(t, cfg), walker, frame[:n], append(frame[n:len(frame):len(frame)], frame...))

		// A frame has the same endpoints with its tag and without.
		var bare decode.Observation
		if _, ok := d.DecodeUntagged(decode.Ethernet, frame, &bare); ok && whole.N > 0 {
			if o := &whole.Obs[0]; o.Flags&(decode.HasPorts|decode.Orphan) == decode.HasPorts && bare.Flags&decode.HasPorts != 0 && o.Kind == decode.Tag && len(whole.Encap.Layers()) == 0 &&
				(o.Src != bare.Src || o.Dst != bare.Dst || o.SrcPort != bare.SrcPort || o.DstPort != bare.DstPort || o.Proto != bare.Proto) {
				t.Fatalf("bare %+v, tagged %+v", bare, o)
			}
		}
		decodeStripped(d, frame, at, at, &whole)
		for _, link := range []decode.Link{decode.LinuxSLL, decode.LinuxSLL2} {
			d.DecodeFrame(decode.Framing{Link: link, Mirrors: everyKind}, &decode.Frame{Data: frame}, &whole)
		}
	})
}

// reflectingSpec has reflections of every kind.
func reflectingSpec() csig.Spec {
	spec := csig.DefaultSpec()
	spec.Reflections = append(spec.Reflections,
		csig.ReflectionSpec{Kind: 200},
		csig.ReflectionSpec{Kind: 200, Length: "payload"},
		csig.ReflectionSpec{Kind: 254, ExID: 0xc5160001, ExIDBits: 32},
	)
	spec.UDPReflections = []csig.UDPReflectionSpec{
		{Ports: []uint16{4791}, Offset: 2, Format: "compact", Profile: "ietf01"},
		{Ports: []uint16{4791}, Offset: 6, Format: "wide", Profile: "uec050", ValidOffset: 4, ValidMask: 0x80},
		{Offset: 8, Format: "wide", Profile: "uec050", PDSType: new(uint8(8)), ValidOffset: 1, ValidMask: 1},
	}
	return spec
}

func checkResult(t *testing.T, d *decode.Decoder, dom *csig.Domain, r *decode.Result) {
	t.Helper()
	c := d.Counters()
	if c.Reasons[r.Reason] != 1 || int(c.Tags+c.Reflections) != r.N || c.Orphans > c.Tags+c.Reflections {
		t.Fatalf("reason %s, %d observations: %+v", r.Reason, r.N, c)
	}
	mirrored := slices.ContainsFunc(r.Encap.Layers(), func(l decode.Layer) bool { return l.Encap == decode.ERSPAN || l.Encap == decode.TZSP })
	valid, orphans := 0, 0
	for i := range r.Obs[:r.N] {
		o := &r.Obs[i]
		switch {
		case o.Kind == decode.Reflection && mirrored != (o.Flags&decode.Orphan != 0):
			t.Fatalf("reflection %+v, in a mirror session: %t", *o, mirrored)
		case o.Flags&decode.Orphan != 0:
			orphans++
		case o.Kind == decode.Tag:
			valid++
		}
		if i > 0 && o.Kind == decode.Tag && r.Obs[i-1].Kind == decode.Reflection {
			t.Fatal("a reflection comes before a tag")
		}
		if line := o.AppendJSON(nil, dom, &r.Encap); !json.Valid(line) {
			t.Fatalf("not JSON: %s", line)
		}
	}
	if valid > 1 || uint64(orphans) != c.Orphans {
		t.Fatalf("%d valid tags and %d orphans, %d counted", valid, orphans, c.Orphans)
	}
}

// FuzzUnwrap treats any bytes as a mirrored frame: the inner frame lies at the end of the outer
// packet, and repeated unwrapping ends.
func FuzzUnwrap(f *testing.F) {
	for _, tt := range mirrorCases {
		f.Add(join(f, append(tt.outer, mirrored)...), uint32(0))
	}
	for _, tt := range kindCases {
		f.Add(join(f, append(tt.outer, mirrored)...), uint32(0))
	}
	for _, outer := range []string{
		"9900 2b85" + ipv4Gre4 + "0000 88be", "8100 0007 9900 2b85 9900 2b85" + ipv4Gre4 + "0000 6558", // tags of the carrier
		"0800 4500 0036 0000 2000 4011 0000 c0000201 c0000202 d431 12b5 05ec 0000 08000000 00000700", // a first fragment
	} {
		f.Add(join(f, outerMAC, outer, mirrored), uint32(0))
	}
	dom := domain(f, reflectingSpec())
	f.Fuzz(func(t *testing.T, data []byte, more uint32) {
		frame := decode.Frame{Data: data, WireLen: uint32(len(data)) + more%70000}
		checkHeld(t, dom, &frame)
		for depth := 0; ; depth++ {
			inner, s, m := everyMirror.Unwrap(&frame)
			if m != decode.MirrorOK {
				if inner.Data != nil || s != (decode.Session{}) {
					t.Fatalf("%s with session %+v", m, s)
				}
				return
			}
			if len(inner.Data) == 0 || len(inner.Data) >= len(frame.Data) || inner.WireLen < uint32(len(inner.Data)) ||
				!bytes.Contains(frame.Data, inner.Data) {
				t.Fatalf("depth %d: inner frame of %d bytes on the wire, % x of % x", depth, inner.WireLen, inner.Data, frame.Data)
			}
			erspan := s.Kind == decode.MirrorERSPAN
			if erspan && (s.Type < 1 || s.Type > 3 || s.ID > 1023 || s.VLAN > 4095 || (s.SwitchClock != decode.ClockNone) != (s.Type == 3)) ||
				!erspan && s.Type != 0 || s.Kind > decode.MirrorTZSP || s.SwitchNS < 0 {
				t.Fatalf("session %+v", s)
			}
			frame = inner
		}
	})
}

// checkHeld: at a tap that holds sessions, a session gives the results of its mirrored frame
// elsewhere, and a frame without a session the same results as anywhere.
func checkHeld(t *testing.T, dom *csig.Domain, frame *decode.Frame) {
	t.Helper()
	held, elsewhere := decoder(t, dom), decoder(t, dom)
	var got, want decode.Result
	held.DecodeFrame(decode.Framing{Link: decode.Ethernet, Mirrors: everyKind}, frame, &got)
	inner, session, m := everyMirror.Unwrap(frame)
	mirrored, s, ok := held.Mirrored()
	if got.Carrier > 0 { // the Unwrapper does not parse CSIG
		checkCarried(t, elsewhere, mirrored, &got)
		return
	}
	if m != decode.MirrorOK {
		inner = *frame
	}
	elsewhere.DecodeFrame(decode.Framing{Link: decode.Ethernet}, &inner, &want)
	if got.Reason != want.Reason || held.Counters() != elsewhere.Counters() ||
		!slices.Equal(got.Obs[:got.N], want.Obs[:want.N]) || !slices.Equal(got.Encap.Layers(), want.Encap.Layers()) {
		t.Fatalf("%s: %+v, want %+v", m, got, want)
	}
	if ok != (m == decode.MirrorOK) || ok && (*s != session || !bytes.Equal(mirrored.Data, inner.Data)) {
		t.Fatalf("%s, but the decoder has session %+v, want %+v", m, *s, session)
	}
}

// checkCarried: behind tags of its carrier, a mirrored frame gives the same observations as
// elsewhere, as far as there is room.
func checkCarried(t *testing.T, elsewhere *decode.Decoder, mirrored *decode.Frame, got *decode.Result) {
	t.Helper()
	var want decode.Result
	elsewhere.DecodeFrame(decode.Framing{Link: decode.Ethernet}, mirrored, &want)
	own := got.Obs[got.Carrier:got.N]
	if len(own) > want.N || len(own) < min(want.N, decode.MaxObservations-got.Carrier) && got.Reason != decode.TooDeep {
		t.Fatalf("%d observations behind %d of the carrier, want %d", len(own), got.Carrier, want.N)
	}
	for i := range own {
		if got.Reason != decode.TooDeep && own[i] != want.Obs[i] {
			t.Fatalf("%+v behind the carrier, want %+v", own[i], want.Obs[i])
		}
	}
}
