package layers_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode/csig"
	csiglayers "github.com/csigscope/csigscope/decode/layers"
)

// encoding returns compact/ietf01 and wide/uec050 data in the option of the kind.
func encoding(kind uint8, exID uint32, exIDLen uint8, payload bool) csig.Reflection {
	return csig.Reflection{
		Kind: kind, ExID: exID, ExIDLen: exIDLen, Payload: payload,
		Profiles: [2]csig.Profile{csig.IETF01, csig.UEC050},
	}
}

func TestReflectionVectors(t *testing.T) {
	t.Parallel()
	compact := csig.Tag{Layout: compactIETF, T: 1, S: 0x17, LM: 5}
	wide := csig.Tag{Layout: wideUEC, T: 3, S: 0xabcde, LM: 0x91a, D: true}
	for _, c := range []struct {
		name string
		r    csig.Reflection
		tag  csig.Tag
		want []byte
	}{
		{"plain", encoding(200, 0, 0, false), compact, []byte{200, 4, 0x2b, 0x85}},
		{"plain, draft's length", encoding(200, 0, 0, true), compact, []byte{200, 2, 0x2b, 0x85}},
		{"16-bit experiment", encoding(253, 0xc516, 2, false), compact, []byte{253, 6, 0xc5, 0x16, 0x2b, 0x85}},
		{"32-bit experiment", encoding(254, 0xc5160001, 4, false), wide, []byte{254, 12, 0xc5, 0x16, 0, 1, 0x12, 0x35, 0x3a, 0xbc, 0xde, 0}},
		{"wide, draft's length", encoding(253, 0xc516, 2, true), wide, []byte{253, 6, 0xc5, 0x16, 0x12, 0x35, 0x3a, 0xbc, 0xde, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			option, err := csiglayers.NewReflectionOption(c.r, c.tag)
			if err != nil {
				t.Fatal(err)
			}
			if b := slices.Concat([]byte{byte(option.OptionType), option.OptionLength}, option.OptionData); !bytes.Equal(b, c.want) {
				t.Errorf("option %x, want %x", b, c.want)
			}
			if tag, ok := csiglayers.ReadReflection(option, c.r); !ok || tag != c.tag {
				t.Errorf("read %+v, %t", tag, ok)
			}
			checkOptionLayer(t, c.r, c.tag, c.want)
		})
	}
}

func checkOptionLayer(t *testing.T, r csig.Reflection, tag csig.Tag, want []byte) {
	t.Helper()
	b := serialize(t, gopacket.SerializeOptions{}, &csiglayers.ReflectionOption{Encoding: r, Tag: tag})
	if !bytes.Equal(b, want) {
		t.Errorf("layer %x, want %x", b, want)
	}
	b = append(b, 1, 0)
	for n := range len(b) + 1 {
		o := csiglayers.ReflectionOption{Encoding: r}
		var truncated feedback
		err := o.DecodeFromBytes(b[:n:n], &truncated)
		if whole := n >= len(want); (err == nil) != whole || (truncated > 0) == whole {
			t.Fatalf("cut at %d: error %v, truncated %d times", n, err, truncated)
		}
		if err == nil && (o.Tag != tag || len(o.Contents) != len(want) || len(o.Payload) != n-len(want)) {
			t.Fatalf("cut at %d: %+v", n, o)
		}
	}
}

func TestReflectionErrors(t *testing.T) {
	t.Parallel()
	r := encoding(253, 0xc516, 2, false)
	for _, c := range []struct {
		name   string
		option []byte
		want   error
	}{
		{"another kind", []byte{8, 6, 0xc5, 0x16, 1, 2}, csiglayers.ErrOtherOption},
		{"another experiment", []byte{253, 6, 0xc5, 0x17, 1, 2}, csiglayers.ErrOtherOption},
		{"empty", []byte{253, 4, 0xc5, 0x16}, csiglayers.ErrEmptyReflection},
		{"three bytes", []byte{253, 7, 0xc5, 0x16, 1, 2, 3}, csiglayers.ErrInvalidReflection},
		{"shorter than its head", []byte{253, 2, 0xc5, 0x16}, csiglayers.ErrInvalidReflection},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := csiglayers.ReflectionOption{Encoding: r}
			if err := o.DecodeFromBytes(c.option, gopacket.NilDecodeFeedback); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			option := layers.TCPOption{
				OptionType: layers.TCPOptionKind(c.option[0]), OptionLength: c.option[1], OptionData: c.option[2:],
			}
			if tag, ok := csiglayers.ReadReflection(option, r); ok {
				t.Errorf("read %+v", tag)
			}
		})
	}
	for _, c := range []struct {
		tag  csig.Tag
		want string
	}{
		{csig.Tag{Layout: compactUEC}, "expected compact/ietf01 as kind 253 is configured"},
		{csig.Tag{Layout: compactIETF, S: 99}, "signal 99 does not fit"},
		{csig.Tag{}, "set Layout"},
	} {
		if _, err := csiglayers.NewReflectionOption(r, c.tag); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// TestReflections writes segments with both meanings of the length octet and reads the same
// reflections back.
func TestReflections(t *testing.T) {
	t.Parallel()
	domain := compile(t, testSpec())
	rng := rand.New(rand.NewPCG(5, 5))
	for range 2000 {
		n := rng.IntN(3)
		tcp := layers.TCP{DataOffset: 5}
		var want []csig.Tag
		for range n {
			r := domain.Reflections()[rng.IntN(len(domain.Reflections()))]
			l, _ := r.Layout([]int{2, 6}[rng.IntN(2)])
			tag := randomTag(rng, l)
			o, err := csiglayers.NewReflectionOption(r, tag)
			if err != nil {
				t.Fatal(err)
			}
			tcp.Options = append(tcp.Options, layers.TCPOption{OptionType: layers.TCPOptionKindNop}, o)
			tcp.DataOffset += uint8(2+len(o.OptionData)+4) / 4
			want = append(want, tag)
		}
		tcp.Padding = make([]byte, int(tcp.DataOffset)*4-len(serialize(t, gopacket.SerializeOptions{}, &tcp)))
		read := layers.TCP{}
		// gopacket refuses some options whose length octet counts the data alone, but still sets
		// the header.
		_ = read.DecodeFromBytes(serialize(t, gopacket.SerializeOptions{}, &tcp), gopacket.NilDecodeFeedback)
		if got := csiglayers.Reflections(&read, domain); !slices.Equal(got, want) {
			t.Fatalf("%+v, want %+v, in %x", got, want, read.Contents)
		}
	}
	if got := csiglayers.Reflections(&layers.TCP{}, domain); got != nil {
		t.Errorf("%+v in a segment without bytes", got)
	}
}

func TestReflectionIsPrintable(t *testing.T) {
	t.Parallel()
	o := &csiglayers.ReflectionOption{Tag: csig.Tag{Layout: compactIETF, T: 1, S: 23, LM: 5}}
	const want = "CSIGReflection\tCSIG reflection compact/ietf01 min_abw_ratio S=23 LM=5"
	if got := gopacket.LayerString(o); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if !o.CanDecode().Contains(o.LayerType()) || o.NextLayerType() != gopacket.LayerTypeZero {
		t.Errorf("decodes %v, next %v", o.CanDecode(), o.NextLayerType())
	}
}
