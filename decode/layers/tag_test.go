package layers_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode/csig"
	csiglayers "github.com/csigscope/csigscope/decode/layers"
)

// TestTagVectors are the example bytes of public switch code, and wide tags by hand.
func TestTagVectors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		data []byte
		want csiglayers.Tag
		text string
	}{
		{
			"ratio",
			[]byte{0x2b, 0x85, 0x08, 0x00},
			csiglayers.Tag{Tag: csig.Tag{Layout: compactIETF, T: 1, S: 0x17, LM: 5}, Next: layers.EthernetTypeIPv4},
			"CSIG compact/ietf01 min_abw_ratio S=23 LM=5 Next=IPv4",
		},
		{
			"trimmed",
			[]byte{0x2b, 0x85, 0x86, 0xdd},
			csiglayers.Tag{Tag: csig.Tag{Layout: compactUEC, T: 1, S: 0x17, LM: 2, D: true}, Next: layers.EthernetTypeIPv6},
			"CSIG compact/uec050 min_abw_ratio S=23 LM=2 D Next=IPv6",
		},
		{
			"wide",
			[]byte{0x12, 0x34, 0x2a, 0xbc, 0xde, 0x07, 0x12, 0x34},
			csiglayers.Tag{Tag: csig.Tag{Layout: wideIETF, T: 2, S: 0xabcde, LM: 0x1234, R: 7}, Next: 0x1234},
			"CSIG wide/ietf01 max_delay S=703710 LM=4660 R=7 Next=0x1234",
		},
		{
			"wide with length",
			[]byte{0x12, 0x35, 0x3a, 0xbc, 0xde, 0, 0, 0},
			csiglayers.Tag{Tag: csig.Tag{Layout: wideUEC, T: 3, S: 0xabcde, LM: 0x91a, D: true}},
			"CSIG wide/uec050 max_nqd S=703710 LM=2330 D Next=LLC",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := csiglayers.NewTag(c.want.Layout)
			if err := got.DecodeFromBytes(c.data, gopacket.NilDecodeFeedback); err != nil {
				t.Fatal(err)
			}
			if got.Tag != c.want.Tag || got.Next != c.want.Next || !bytes.Equal(got.Contents, c.data) || len(got.Payload) != 0 {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if text := gopacket.LayerString(got); !strings.HasSuffix(text, c.text) {
				t.Errorf("%q, want %q", text, c.text)
			}
			if b := serialize(t, gopacket.SerializeOptions{}, got); !bytes.Equal(b, c.data) {
				t.Errorf("serialized %x, want %x", b, c.data)
			}
		})
	}
}

// TestTagRoundTrip writes and reads random tags, and reads them truncated at every byte.
func TestTagRoundTrip(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range csig.NumLayouts {
		l := csig.LayoutAt(i)
		for range 500 {
			in := csiglayers.Tag{Tag: randomTag(rng, l), Next: layers.EthernetType(rng.Uint32())}
			b := append(serialize(t, gopacket.SerializeOptions{}, &in), 1, 2, 3)
			checkCuts(t, b, &in)
		}
	}
}

func checkCuts(t *testing.T, b []byte, in *csiglayers.Tag) {
	t.Helper()
	n := in.Layout.Format.DataLen()
	for cut := range len(b) + 1 {
		var truncated feedback
		out := csiglayers.NewTag(in.Layout)
		err := out.DecodeFromBytes(b[:cut:cut], &truncated)
		switch {
		case cut >= n && out.Tag != in.Tag, cut >= n+2 && out.Next != in.Next:
			t.Fatalf("cut at %d: %v, want %v", cut, out, in)
		case (err != nil) != (cut < n+2), err != nil && truncated == 0, (len(out.Contents) > 0) != (cut >= n):
			t.Fatalf("cut at %d: error %v, truncated %d times, contents %x", cut, err, truncated, out.Contents)
		}
	}
}

func TestTagErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		tag  csig.Tag
		want string
	}{
		{"no layout", csig.Tag{}, "set Layout"},
		{"no profile", csig.Tag{Layout: csig.Layout{Format: csig.Compact}}, "set Layout"},
		{"signal", csig.Tag{Layout: compactIETF, S: 32}, "signal 32 does not fit compact/ietf01: expected at most 31"},
		{"type", csig.Tag{Layout: wideIETF, T: 16}, "signal type 16 does not fit"},
		{"locator", csig.Tag{Layout: compactUEC, LM: 64}, "locator metadata 64 does not fit"},
		{"reserved", csig.Tag{Layout: compactUEC, R: 2}, "reserved field 2 does not fit"},
		{"trimmed", csig.Tag{Layout: wideIETF, D: true}, "no bit for a trimmed tag"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := gopacket.NewSerializeBuffer()
			err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{}, &csiglayers.Tag{Tag: c.tag})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	var none csiglayers.Tag
	if err := none.DecodeFromBytes(make([]byte, 8), gopacket.NilDecodeFeedback); err == nil {
		t.Error("a tag without layout is decoded")
	}
}

func TestNextLayerType(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		data []byte
		want gopacket.LayerType
	}{
		{"IPv6", []byte{0, 0, 0x86, 0xdd, 0x60}, layers.LayerTypeIPv6},
		{"another tag", []byte{0, 0, 0x88, 0xb6, 0}, csiglayers.LayerTypeWideUEC050},
		{"LLC", []byte{0, 0, 0, 1, 0x42}, layers.LayerTypeLLC},
		{"unknown", []byte{0, 0, 0x12, 0x34, 0}, gopacket.LayerTypeZero},
		{"the end", []byte{0, 0, 0x86, 0xdd}, gopacket.LayerTypeZero},
	} {
		tag := csiglayers.NewTag(compactIETF)
		if err := tag.DecodeFromBytes(c.data, gopacket.NilDecodeFeedback); err != nil {
			t.Fatal(err)
		}
		if got := tag.NextLayerType(); got != c.want || !tag.CanDecode().Contains(csiglayers.LayerTypeCompactIETF01) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
