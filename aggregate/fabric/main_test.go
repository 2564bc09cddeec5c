package fabric

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/csigscope/csigscope/decode/csig"
)

var (
	compact = csig.Layout{Format: csig.Compact, Profile: csig.IETF01}
	wide    = csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
)

func load(t testing.TB, file string) (*Spec, *Fabric) {
	t.Helper()
	s, err := Load(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return s, compile(t, s)
}

func compile(t testing.TB, s *Spec) *Fabric {
	t.Helper()
	f, err := New(s, domainOf(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func domainOf(t testing.TB, s *Spec) *csig.Domain {
	t.Helper()
	d, err := csig.DefaultSpec().Overlay(s.CSIG).Compile()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// addr returns the zero Addr for an empty text.
func addr(text string) netip.Addr {
	if text == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(text)
}

// class returns a value of the 7-bit locator that both fabrics in testdata have.
func class(stage, orientation, capacity uint16) uint16 {
	return stage<<5 | orientation<<3 | capacity
}

// Values of the class locator.
const (
	leaf, spine, agg, core = 1, 2, 2, 3
	up, down               = 1, 2
	g25, g50, g100, g400   = 1, 2, 3, 4
)

func locate(t testing.TB, f *Fabric, l csig.Layout, sig csig.Signal, lm uint16, src, dst string) (Location, uint64) {
	t.Helper()
	id, capacity := f.Locate(l, sig.Type(), lm, addr(src), addr(dst))
	loc, ok := f.Location(id)
	if !ok || loc.ID != id {
		t.Fatalf("location %x of lm 0x%x is not known", id, lm)
	}
	return loc, capacity
}
