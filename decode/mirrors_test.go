package decode_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/decode"
)

var everyKind = decode.Mirrors{ERSPAN: true, GRETAP: true, VXLAN: decode.DefaultVXLANPort, TZSP: decode.DefaultTZSPPort}

// Headers before mirrored bytes in UDP: the ports are those of VXLAN and TZSP.
const (
	ipv4VXLAN  = "0800 4500 0036 0000 4000 4011 0000 c0000201 c0000202 d431 12b5 0022 0000"
	ipv4TZSP5  = "0800 4500 0033 0000 4000 4011 0000 c0000201 c0000202 d431 9090 001f 0000"
	ipv4TZSP24 = "0800 4500 0046 0000 4000 4011 0000 c0000201 c0000202 d431 9090 0032 0000"
	ipv6VXLAN  = "86dd 60000000 0022 1140 20010db8000000000000000000000001 20010db8000000000000000000000002 d431 12b5 0022 0000"
)

var kindCases = []struct {
	name  string
	outer []string
	want  decode.Session
}{
	{"GRE-TAP", []string{outerMAC, ipv4Gre4, "0000 6558"}, decode.Session{Kind: decode.MirrorGRETAP}},
	{
		"GRE-TAP with key and sequence",
		[]string{outerMAC, "0800 4500 0032 0000 4000 402f 0000 c0000201 c0000202", "3000 6558 0000004d 00000009"},
		decode.Session{Kind: decode.MirrorGRETAP, ID: 77, Sequenced: true, Sequence: 9},
	},
	{"VXLAN", []string{outerMAC, ipv4VXLAN, "08000000 01e24000"}, decode.Session{Kind: decode.MirrorVXLAN, ID: 123456}},
	{
		"VXLAN in IPv6 behind a VLAN tag",
		[]string{outerMAC, "8100 0005", ipv6VXLAN, "08000000 00000700"},
		decode.Session{Kind: decode.MirrorVXLAN, ID: 7, Source: netip.MustParseAddr("2001:db8::1")},
	},
	{"TZSP", []string{outerMAC, ipv4TZSP5, "0100 0001 01"}, decode.Session{Kind: decode.MirrorTZSP}},
	{
		"TZSP of a sensor",
		[]string{outerMAC, "0800 4500 003b 0000 4000 4011 0000 c0000201 c0000202 d431 9090 0027 0000", "0100 0001 3c06 020000000001 01"},
		decode.Session{Kind: decode.MirrorTZSP, ID: 0x020000000001},
	},
	{
		"TZSP with fields",
		[]string{outerMAC, ipv4TZSP24, "0100 0001 00 0d04 00000fff 2804 00000003 2902 05dc ff 00 01"},
		decode.Session{Kind: decode.MirrorTZSP, SwitchClock: decode.ClockCustom, SwitchNS: 4095, SwitchBits: 32, Sequenced: true, Sequence: 3, Length: 1500},
	},
}

// TestMirrorsText: kinds are read back as they are written, in flags and in YAML.
func TestMirrorsText(t *testing.T) {
	for text, want := range map[string]decode.Mirrors{
		"":                         {},
		"erspan":                   {ERSPAN: true},
		"gretap,tzsp":              {GRETAP: true, TZSP: 37008},
		"erspan,gretap,vxlan,tzsp": everyKind,
	} {
		var m, fromYAML decode.Mirrors
		if err := m.UnmarshalText([]byte(text)); err != nil || m != want || m.String() != text {
			t.Errorf("%q is %v, %v; want %v", text, m, err, want)
		}
		b, err := yaml.Marshal(want)
		if err == nil {
			err = yaml.Unmarshal(b, &fromYAML)
		}
		if err != nil || fromYAML != want {
			t.Errorf("%q in YAML is %s, which is %v, %v", text, b, fromYAML, err)
		}
	}
	var m decode.Mirrors
	if err := m.UnmarshalText([]byte("vxlan, erspan")); err != nil || m != (decode.Mirrors{ERSPAN: true, VXLAN: 4789}) {
		t.Errorf("in any order: %v, %v", m, err)
	}
	for text, want := range map[string]string{
		"[erspan, gre-tap]": `line 1: mirror kind "gre-tap": expected erspan, gretap, vxlan or tzsp`,
		"erspan":            "line 1: expected a list of mirror kinds such as [erspan, vxlan]",
		"{erspan: true}":    "line 1: expected a list of mirror kinds such as [erspan, vxlan]",
	} {
		if err := yaml.Unmarshal([]byte(text), &m); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
}

// TestUnwrapStripped: a tag that the kernel took out is in front of a session only if it is
// one of a VLAN, as in the frame.
func TestUnwrapStripped(t *testing.T) {
	packet := append(join(t, mirrorCases[0].outer...), join(t, mirrored)...)
	for tpid, want := range map[uint16]decode.Mirror{0x8100: decode.MirrorOK, 0x88a8: decode.MirrorOK, 0x9100: decode.MirrorOK, 0x9900: decode.MirrorNone, 0x88e5: decode.MirrorNone} {
		f := decode.Frame{Data: packet, WireLen: uint32(len(packet)) + 4, TPID: tpid, TCI: 7}
		if _, _, m := onlyERSPAN.Unwrap(&f); m != want {
			t.Errorf("behind a stripped %#x: %s, want %s", tpid, m, want)
		}
	}
}

func TestUnwrapKinds(t *testing.T) {
	payload := join(t, mirrored)
	for _, tt := range kindCases {
		t.Run(tt.name, func(t *testing.T) {
			packet := slices.Concat(join(t, tt.outer...), payload)
			f := decode.Frame{Data: slices.Concat(packet, make([]byte, 6)), WireLen: uint32(len(packet) + 6)}
			inner, got, m := everyMirror.Unwrap(&f)
			if m != decode.MirrorOK {
				t.Fatal(m)
			}
			if string(inner.Data) != string(payload) || inner.WireLen != max(uint32(len(payload)), uint32(tt.want.Length)) {
				t.Errorf("%+v", inner)
			}
			want := tt.want
			if !want.Source.IsValid() {
				want.Source = switchV4
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Error(diff)
			}
			if _, _, m := onlyERSPAN.Unwrap(&f); m != decode.MirrorNone {
				t.Errorf("%s is taken for a mirror session unasked", m)
			}
			for n := range len(packet) - len(payload) + 1 {
				cut := decode.Frame{Data: packet[:n], WireLen: uint32(len(packet))}
				if _, _, m := everyMirror.Unwrap(&cut); m != decode.MirrorCut && m != decode.MirrorNone {
					t.Errorf("cut at %d: %s", n, m)
				}
			}
		})
	}
}

func TestUnwrapKindsRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		groups []string
		want   decode.Mirror
	}{
		{"VXLAN without identifier", []string{ipv4VXLAN, "00000000 00000700", mirrored}, decode.MirrorMalformed},
		{"VXLAN alone", []string{"0800 4500 0024 0000 4000 4011 0000 c0000201 c0000202 d431 12b5 0010 0000 08000000 00000700"}, decode.MirrorMalformed},
		{"another port", []string{"0800 4500 0036 0000 4000 4011 0000 c0000201 c0000202 d431 12b6 0022 0000", mirrored}, decode.MirrorNone},
		{"UDP longer than its packet", []string{"0800 4500 0036 0000 4000 4011 0000 c0000201 c0000202 d431 12b5 0122 0000 08000000 00000700", mirrored}, decode.MirrorMalformed},
		{"UDP shorter than its header", []string{"0800 4500 0036 0000 4000 4011 0000 c0000201 c0000202 d431 12b5 0007 0000 08000000 00000700", mirrored}, decode.MirrorMalformed},
		{"TZSP of another version", []string{ipv4TZSP5, "0200 0001 01", mirrored}, decode.MirrorVersion},
		{"TZSP that keeps alive", []string{ipv4TZSP5, "0104 0001 01", mirrored}, decode.MirrorNotEthernet},
		{"TZSP of IEEE 802.11", []string{ipv4TZSP5, "0100 0012 01", mirrored}, decode.MirrorNotEthernet},
		{"TZSP without end", []string{ipv4TZSP5, "0100 0001 00", "0000000000000000 0000000000000000 0000"}, decode.MirrorMalformed},
		{"TZSP with a field beyond", []string{ipv4TZSP5, "0100 0001 0d", "ff00000000000000 00000000000000 0000"}, decode.MirrorMalformed},
		{"a fragment", []string{"0800 4500 0036 0000 2000 4011 0000 c0000201 c0000202 d431 12b5 0022 0000 08000000 00000700", mirrored}, decode.MirrorFragment},
	} {
		data := join(t, append([]string{outerMAC}, tt.groups...)...)
		f := decode.Frame{Data: data, WireLen: uint32(len(data))}
		if inner, s, m := everyMirror.Unwrap(&f); m != tt.want || inner.Data != nil || s != (decode.Session{}) {
			t.Errorf("%s: %s, want %s", tt.name, m, tt.want)
		}
	}
}
