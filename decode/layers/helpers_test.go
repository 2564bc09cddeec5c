package layers_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode/csig"
	csiglayers "github.com/csigscope/csigscope/decode/layers"
)

var (
	compactIETF = csig.Layout{Format: csig.Compact, Profile: csig.IETF01}
	compactUEC  = csig.Layout{Format: csig.Compact, Profile: csig.UEC050}
	wideIETF    = csig.Layout{Format: csig.Wide, Profile: csig.IETF01}
	wideUEC     = csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
)

const wideIETFTPID = 0x88b7

// testSpec returns the default domain with a TPID for every layout and a reflection for every kind
// of encoding.
func testSpec() csig.Spec {
	spec := csig.DefaultSpec()
	spec.TPIDs = append(slices.Clone(spec.TPIDs), csig.TPIDSpec{TPID: wideIETFTPID, Format: "wide", Profile: "ietf01"})
	spec.Reflections = append(slices.Clone(spec.Reflections),
		csig.ReflectionSpec{Kind: 200},
		csig.ReflectionSpec{Kind: 200, Length: "payload"},
		csig.ReflectionSpec{Kind: 254, ExID: 0xc5160001, ExIDBits: 32},
		csig.ReflectionSpec{Kind: 254, ExID: 0xc516, ExIDBits: 16, Length: "payload", Compact: "uec050", Wide: "ietf01"},
	)
	return spec
}

// TestMain registers testSpec before any test runs, because other tests decode at the same time.
func TestMain(m *testing.M) {
	domain, err := testSpec().Compile()
	if err == nil {
		err = csiglayers.Register(domain)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// gopacket's decoder of GTP-U prints to standard output.
	layers.RegisterUDPPortLayerType(2152, gopacket.LayerTypePayload)
	os.Exit(m.Run())
}

func compile(t testing.TB, s csig.Spec) *csig.Domain {
	t.Helper()
	d, err := s.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// randomTag returns any tag of the layout.
func randomTag(rng *rand.Rand, l csig.Layout) csig.Tag {
	return csig.Parse(l, randomBytes(rng, l.Format.DataLen()))
}

func serialize(t testing.TB, o gopacket.SerializeOptions, stack ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, o, stack...); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(b.Bytes())
}

// feedback counts calls of SetTruncated.
type feedback int

func (f *feedback) SetTruncated() { *f++ }
