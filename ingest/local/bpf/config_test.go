package bpf

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// rack has groups inside of groups, hosts, and addresses in none of them.
var rack = &fabric.Spec{
	Version: 1,
	Devices: []fabric.DeviceSpec{{Name: "leaf", Stage: "leaf", Ports: []fabric.PortSpec{{Name: "h1", Orientation: "down", Peer: "a", Speed: "100Gbps"}}}},
	Hosts:   []fabric.HostSpec{{Name: "a", Addresses: []string{"10.0.0.1", "2001:db8::1"}}},
	Groups: []fabric.GroupSpec{
		{Name: "all", Level: "cluster", Prefixes: []string{"10.0.0.0/8", "2001:db8::/32"}},
		{Name: "one", Level: "rack", Parent: "all", Prefixes: []string{"10.0.0.0/24", "2001:db8::/64"}},
		{Name: "two", Level: "rack", Parent: "all", Prefixes: []string{"10.0.1.0/25", "192.0.2.0/24"}},
	},
}

// fabricOf compiles a fabric.
func fabricOf(t *testing.T, spec *fabric.Spec) *fabric.Fabric {
	t.Helper()
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fabric.New(spec, domain)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestCheck names what the program cannot serve.
func TestCheck(t *testing.T) {
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		t.Fatal(err)
	}
	hosts := *rack
	hosts.Groups = nil
	hashing := *rack
	hashing.ECMP = []fabric.ECMPSpec{{Hash: "crc32"}}
	sound := window.Settings{Decode: decode.Config{Domain: domain}, Resolver: fabric.None(domain), Resolutions: []time.Duration{time.Second}}
	for _, tt := range []struct {
		name, want string
		change     func(*window.Settings, *window.Tap)
	}{
		{"sound", "", func(*window.Settings, *window.Tap) {}},
		{"groups", "", func(s *window.Settings, _ *window.Tap) { s.Resolver = fabricOf(t, rack) }},
		{"inner ends", "decode: endpoints: inner", func(s *window.Settings, _ *window.Tap) { s.Decode.Endpoints = decode.Inner }},
		{"inner tags", "decode: inner_tags", func(s *window.Settings, _ *window.Tap) { s.Decode.InnerTags = true }},
		{"mirrors", "mirrors", func(_ *window.Settings, at *window.Tap) { at.Mirrors.ERSPAN = true }},
		{"place", "taps: at", func(_ *window.Settings, at *window.Tap) { at.ObservationPoint = 1 }},
		{"hashes", "paths, ecmp", func(s *window.Settings, _ *window.Tap) { s.Resolver = fabricOf(t, &hashing) }},
		{"hosts", "hosts with IPv6 addresses", func(s *window.Settings, _ *window.Tap) { s.Resolver = fabricOf(t, &hosts) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, at := sound, window.TapAt("receiver", 1)
			tt.change(&s, &at)
			err := Check(&s, at)
			if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestEnds: addresses that stand for classes have the groups and classes of all addresses of their prefixes.
func TestEnds(t *testing.T) {
	f := fabricOf(t, rack)
	e := newEnds(f)
	for _, text := range []string{
		"10.0.0.1", "10.0.0.2", "10.0.1.1", "10.0.1.200", "10.9.9.9", "192.0.2.7", "198.51.100.1", "2001:db8::1", "2001:db8::2", "2001:db8:1::1", "fe80::1",
	} {
		a := netip.MustParseAddr(text)
		src, dst := 0, 0 // of the longest prefix, as the trie has it
		for i, p, bits := 0, e.prefixes, -1; i < len(p); i++ {
			if p[i].Contains(a) && p[i].Bits() > bits {
				src, dst, bits = int(e.classes[i]>>32), int(uint32(e.classes[i])), p[i].Bits()
			}
		}
		wantSrc, wantDst := f.Classes(a)
		gotSrc, _ := f.Classes(e.src[src])
		_, gotDst := f.Classes(e.dst[dst])
		if f.Group(e.src[src]) != f.Group(a) || f.Group(e.dst[dst]) != f.Group(a) || gotSrc != wantSrc || gotDst != wantDst {
			t.Errorf("%s: %s and %s stand for it", a, e.src[src], e.dst[dst])
		}
	}
}
