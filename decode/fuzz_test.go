package decode_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// FuzzDecode asserts of any bytes what holds of every frame, however tunnels are
// read: bounds, counters that add up, JSON that is valid, and that a cut frame says
// a prefix of the whole one.
func FuzzDecode(f *testing.F) {
	for i, g := range goldens(f) {
		f.Add(g.frame, uint16(len(g.frame)/2), uint8(i))
	}
	dom := domain(f, reflectingSpec())
	f.Fuzz(func(t *testing.T, frame []byte, at uint16, how uint8) {
		d := decoderOf(t, decode.Config{Domain: dom, Endpoints: decode.Endpoints(how & 1), InnerTags: how&2 != 0})
		var whole, cut decode.Result
		d.Decode(frame, &whole)
		checkResult(t, d, dom, &whole)

		n := int(at) % (len(frame) + 1)
		d.Decode(frame[:n:n], &cut)
		checkPrefix(t, "frame", n, &cut, &whole)
		if c := d.Counters(); c.Frames != 2 {
			t.Fatalf("%d frames counted", c.Frames)
		}

		// A frame has the same ends with its tag and without.
		var bare decode.Observation
		if _, ok := d.Bare(frame, &bare); ok && whole.N > 0 {
			if o := &whole.Obs[0]; o.Flags&(decode.HasPorts|decode.Orphan) == decode.HasPorts && bare.Flags&decode.HasPorts != 0 && o.Kind == decode.Tag && len(whole.Encap.Layers()) == 0 &&
				(o.Src != bare.Src || o.Dst != bare.Dst || o.SrcPort != bare.SrcPort || o.DstPort != bare.DstPort || o.Proto != bare.Proto) {
				t.Fatalf("bare %+v, tagged %+v", bare, o)
			}
		}
		d.DecodeStripped(frame, at, at, &whole)
		d.DecodeLink(decode.LinuxSLL, frame, &whole)
		d.DecodeLink(decode.LinuxSLL2, frame, &whole)
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
