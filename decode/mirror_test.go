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
	"github.com/csigscope/csigscope/decode/csig"
)

// join reads a frame written in groups for readability.
func join(tb testing.TB, groups ...string) []byte {
	tb.Helper()
	p, err := unhex(strings.Join(groups, ""))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// Parts of mirrored frames. The IP lengths fit an inner frame of mirrored bytes
// behind headers of the size in their name.
const (
	outerMAC  = "020000000001 020000000002"
	mirrored  = "0a0000000001 0a0000000002 9900 2b85 0800"
	gre88be   = "1000 88be 00000007"
	gre22eb   = "1000 22eb 00000008"
	ipv4Gre4  = "0800 4500 002a 0000 4000 402f 0000 c0000201 c0000202" // 20 + 4 + 18
	ipv4Gre16 = "0800 4500 0036 0000 4000 402f 0000 c0000201 c0000202"
	ipv4Gre20 = "0800 4500 003a 0000 4000 402f 0000 c0000201 c0000202"
	ipv4Gre28 = "0800 4500 0042 0000 4000 402f 0000 c0000201 c0000202"
)

var switchV4 = netip.MustParseAddr("192.0.2.1")

// mirrorCases are frames with ERSPAN, with the expected sessions.
var mirrorCases = []struct {
	name  string
	outer []string // before the mirrored frame
	want  decode.Session
}{
	{
		"type I",
		[]string{outerMAC, ipv4Gre4, "0000 88be"},
		decode.Session{Type: 1},
	},
	{
		"type II",
		[]string{outerMAC, ipv4Gre16, gre88be, "1064 b555 000abcde"},
		decode.Session{Type: 2, ID: 0x155, VLAN: 100, CoS: 5, Encap: 2, Truncated: true, Index: 0xabcde, Sequenced: true, Sequence: 7},
	},
	{
		"type III in 100 us",
		[]string{outerMAC, ipv4Gre20, gre22eb, "2fff f803 00000003 beef 83f8"},
		decode.Session{
			Type: 3, ID: 3, VLAN: 4095, CoS: 7, Integrity: 3, Hardware: 63, Egress: true, Sequenced: true, Sequence: 8,
			SwitchClock: decode.Clock100us, SwitchNS: 300_000, SwitchBits: 32,
		},
	},
	{
		"type III in 100 ns behind two VLAN tags",
		[]string{outerMAC, "88a8 0064 8100 e00a", ipv4Gre20, gre22eb, "2001 0001 ffffffff 0000 0002"},
		decode.Session{
			Type: 3, ID: 1, VLAN: 1, Sequenced: true, Sequence: 8,
			SwitchClock: decode.Clock100ns, SwitchNS: 0xffffffff * 100, SwitchBits: 32,
		},
	},
	{
		"type III with upper bits",
		[]string{outerMAC, ipv4Gre28, gre22eb, "2001 0001 00000002 0000 0003", "0c00 0001 00000001"},
		decode.Session{
			Type: 3, ID: 1, VLAN: 1, Sequenced: true, Sequence: 8,
			SwitchClock: decode.Clock100ns, SwitchNS: (1<<32 + 2) * 100, SwitchBits: 64,
		},
	},
	{
		"type III with upper bits beyond what ns can say",
		[]string{outerMAC, ipv4Gre28, gre22eb, "2001 0001 00000002 0000 0001", "1c00 0001 ffffffff"},
		decode.Session{
			Type: 3, ID: 1, VLAN: 1, Sequenced: true, Sequence: 8,
			SwitchClock: decode.Clock100us, SwitchNS: 1<<63 - 1, SwitchBits: 64,
		},
	},
	{
		"type III with IEEE 1588 time",
		[]string{outerMAC, ipv4Gre28, gre22eb, "2001 0001 075bcd15 0000 0005", "1400 0001 6553f100"},
		decode.Session{
			Type: 3, ID: 1, VLAN: 1, Sequenced: true, Sequence: 8,
			SwitchClock: decode.ClockPTP, SwitchNS: 1700000000_123456789, SwitchBits: 64,
		},
	},
	{
		"type III with the ns of IEEE 1588 alone",
		[]string{outerMAC, ipv4Gre20, gre22eb, "2001 0001 075bcd15 0000 0004"},
		decode.Session{
			Type: 3, ID: 1, VLAN: 1, Sequenced: true, Sequence: 8,
			SwitchClock: decode.ClockNanos, SwitchNS: 123456789, SwitchBits: 32,
		},
	},
	{
		"type III in ticks of its own",
		[]string{outerMAC, ipv4Gre20, gre22eb, "2001 0001 00000009 0000 0006"},
		decode.Session{
			Type: 3, ID: 1, VLAN: 1, Sequenced: true, Sequence: 8,
			SwitchClock: decode.ClockCustom, SwitchNS: 9, SwitchBits: 32,
		},
	},
	{
		"type II over IPv6 with options, GRE with checksum and key",
		[]string{
			outerMAC, "86dd 60000000 003a 00 40", "20010db8000000000000000000000001 20010db8000000000000000000000002",
			"3c00 0104 00000000", "2f00 0104 00000000",
			"b000 88be 12340000 00000005 00000009", "1000 0001 00000000",
		},
		decode.Session{Type: 2, ID: 1, Source: netip.MustParseAddr("2001:db8::1"), Sequenced: true, Sequence: 9},
	},
	{
		"type I behind an Authentication Header",
		[]string{
			outerMAC, "86dd 60000000 0022 33 40", "20010db8000000000000000000000001 20010db8000000000000000000000002",
			"2f01 0000 00000005 00000001", "0000 88be",
		},
		decode.Session{Type: 1, Source: netip.MustParseAddr("2001:db8::1")},
	},
}

// Unwrappers of ERSPAN alone, and of all kinds.
var (
	onlyERSPAN  = decode.NewUnwrapper(decode.Mirrors{ERSPAN: true})
	everyMirror = decode.NewUnwrapper(everyKind)
)

// TestUnwrap checks the inner frame of each kind of session, with padding behind it and a truncated
// outer packet, and that other kinds are left alone.
func TestUnwrap(t *testing.T) {
	payload := join(t, mirrored)
	for _, tt := range mirrorCases {
		t.Run(tt.name, func(t *testing.T) {
			head := join(t, tt.outer...)
			padded := slices.Concat(head, payload, []byte{0, 0, 0, 0})
			f := decode.Frame{Data: padded, WireLen: uint32(len(padded))}
			for _, other := range []decode.Mirrors{{}, {GRETAP: true, VXLAN: decode.DefaultVXLANPort, TZSP: decode.TZSPPort}} {
				if inner, s, m := decode.NewUnwrapper(other).Unwrap(&f); m != decode.MirrorNone || inner.Data != nil || s != (decode.Session{}) {
					t.Errorf("%q takes ERSPAN out: %s", other, m)
				}
			}
			inner, got, m := onlyERSPAN.Unwrap(&f)
			if m != decode.MirrorOK {
				t.Fatal(m)
			}
			want := decode.Frame{Data: payload, WireLen: uint32(len(payload))}
			if diff := cmp.Diff(want, inner); diff != "" {
				t.Error(diff)
			}
			session := tt.want
			if !session.Source.IsValid() {
				session.Source = switchV4
			}
			if diff := cmp.Diff(session, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUnwrapCutAtEveryByte checks that a truncated frame gives its first bytes or MirrorCut, never
// a wrong session.
func TestUnwrapCutAtEveryByte(t *testing.T) {
	payload := join(t, mirrored)
	for _, tt := range mirrorCases {
		t.Run(tt.name, func(t *testing.T) {
			head := join(t, tt.outer...)
			whole := slices.Concat(head, payload)
			seen := map[decode.Mirror]int{}
			for size := range whole {
				f := decode.Frame{Data: whole[:size], WireLen: uint32(len(whole))}
				inner, s, m := onlyERSPAN.Unwrap(&f)
				seen[m]++
				switch {
				case m == decode.MirrorOK && (string(inner.Data) != string(payload[:size-len(head)]) || inner.WireLen != uint32(len(payload))):
					t.Errorf("cut at %d: inner frame % x of %d bytes", size, inner.Data, inner.WireLen)
				case m == decode.MirrorOK && size <= len(head), m != decode.MirrorOK && size > len(head):
					t.Errorf("cut at %d, the headers have %d bytes: %s", size, len(head), m)
				case m != decode.MirrorOK && (inner.Data != nil || s != decode.Session{}):
					t.Errorf("cut at %d: %s with session %+v", size, m, s)
				}
			}
			if seen[decode.MirrorOK] != len(payload)-1 || seen[decode.MirrorCut] == 0 || seen[decode.MirrorCut]+seen[decode.MirrorNone]+seen[decode.MirrorOK] != len(whole) {
				t.Errorf("results %v", seen)
			}
		})
	}
}

// TestUnwrapRefuses checks the reasons for which there is no inner frame.
func TestUnwrapRefuses(t *testing.T) {
	typeII := []string{gre88be, "1000 0001 00000000", mirrored}
	ip := func(s string, rest ...string) []string { return append([]string{outerMAC, s}, rest...) }
	const v6 = "20010db8000000000000000000000001 20010db8000000000000000000000002"
	tests := []struct {
		name  string
		frame []string
		want  decode.Mirror
	}{
		{"nothing", nil, decode.MirrorNone},
		{"ARP", ip("0806 0001"), decode.MirrorNone},
		{"five VLAN tags", ip(strings.Repeat("8100 0001", 5)+ipv4Gre16, typeII...), decode.MirrorNone},
		{"TCP", ip("0800 4500 0036 0000 4000 4006 0000 c0000201 c0000202", typeII...), decode.MirrorNone},
		{"not version 4", ip("0800 5500 0036 0000 4000 402f 0000 c0000201 c0000202", typeII...), decode.MirrorNone},
		{"IPv4 header of 16 bytes", ip("0800 4400 0036 0000 4000 402f 0000 c0000201 c0000202", typeII...), decode.MirrorNone},
		{"packet shorter than its header", ip("0800 4500 0013 0000 4000 402f 0000 c0000201 c0000202", typeII...), decode.MirrorNone},
		{"later fragment", ip("0800 4500 0036 0000 0001 402f 0000 c0000201 c0000202", typeII...), decode.MirrorNone},
		{"later fragment of IPv6", ip("86dd 60000000 002a 2c 40"+v6+"2f00 0009 00000001", typeII...), decode.MirrorNone},
		{"nine IPv6 headers", ip("86dd 60000000 006a 00 40"+v6+strings.Repeat("0000 0104 00000000", 8)+"2f00 0104 00000000", typeII...), decode.MirrorNone},
		{"ESP behind IPv6", ip("86dd 60000000 0022 32 40"+v6, typeII...), decode.MirrorNone},
		{"plain GRE", ip(ipv4Gre16, "1000 0800 00000007", mirrored), decode.MirrorNone},
		{"GRE version 1", ip(ipv4Gre16, "1001 88be 00000007", mirrored), decode.MirrorNone},
		{"GRE with routing", ip(ipv4Gre16, "5000 88be 00000007", mirrored), decode.MirrorMalformed},
		{"packet ends inside GRE", ip("0800 4500 001a 0000 4000 402f 0000 c0000201 c0000202", typeII...), decode.MirrorMalformed},
		{"packet ends inside ERSPAN", ip("0800 4500 0021 0000 4000 402f 0000 c0000201 c0000202", typeII...), decode.MirrorMalformed},
		{"nothing mirrored", ip("0800 4500 0024 0000 4000 402f 0000 c0000201 c0000202", typeII...), decode.MirrorMalformed},
		{"type III header in 88be", ip(ipv4Gre20, gre88be, "2001 0001 00000000 0000 0000", mirrored), decode.MirrorVersion},
		{"type II header in 22eb", ip(ipv4Gre16, gre22eb, "1000 0001 00000000", mirrored), decode.MirrorVersion},
		{"version 3", ip(ipv4Gre16, gre22eb, "3000 0001 00000000", mirrored), decode.MirrorVersion},
		{"IP packet mirrored", ip(ipv4Gre20, gre22eb, "2001 0001 00000000 0000 0800", mirrored), decode.MirrorNotEthernet},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := join(t, tt.frame...)
			inner, s, m := onlyERSPAN.Unwrap(&decode.Frame{Data: data, WireLen: uint32(len(data))})
			if m != tt.want || inner.Data != nil || s != (decode.Session{}) {
				t.Errorf("%s with %+v, want %s", m, s, tt.want)
			}
		})
	}
}

// TestUnwrapOffloaded takes the length from the frame if offloading left the packet without one.
func TestUnwrapOffloaded(t *testing.T) {
	data := join(t, outerMAC, "0800 4500 0000 0000 4000 402f 0000 c0000201 c0000202", "0000 88be", mirrored)
	inner, _, m := onlyERSPAN.Unwrap(&decode.Frame{Data: data, WireLen: uint32(len(data)) + 70000})
	if m != decode.MirrorOK || inner.WireLen != 70018 {
		t.Errorf("%s, inner frame of %d bytes, want 70018", m, inner.WireLen)
	}
}

// TestUnwrapNested unwraps a mirror of a mirror, one session at a time.
func TestUnwrapNested(t *testing.T) {
	first := join(t, append(mirrorCases[0].outer, mirrored)...)
	outer := join(t, outerMAC, "0800 4500 0050 0000 4000 402f 0000 c0000209 c0000202", "0000 88be")
	f := decode.Frame{Data: append(outer, first...), WireLen: 94}
	inner, s, m := onlyERSPAN.Unwrap(&f)
	if m != decode.MirrorOK || s.Source != netip.MustParseAddr("192.0.2.9") || string(inner.Data) != string(first) {
		t.Fatalf("%s, %+v", m, s)
	}
	if inner, s, m = onlyERSPAN.Unwrap(&inner); m != decode.MirrorOK || s.Source != switchV4 || string(inner.Data) != string(join(t, mirrored)) {
		t.Fatalf("%s, %+v", m, s)
	}
	if _, _, m = onlyERSPAN.Unwrap(&inner); m != decode.MirrorNone {
		t.Errorf("a third session: %s", m)
	}
}

func TestMirrorString(t *testing.T) {
	seen := map[string]bool{}
	for m := decode.MirrorNone; m <= decode.MirrorNotEthernet; m++ {
		seen[m.String()] = true
	}
	if len(seen) != 6 || seen["mirror_unknown"] || decode.Mirror(6).String() != "mirror_unknown" {
		t.Errorf("reason codes %v", seen)
	}
}

func TestUnwrapAllocatesNothing(t *testing.T) {
	for _, tt := range mirrorCases {
		data := join(t, append(tt.outer, mirrored)...)
		f := decode.Frame{Data: data, WireLen: uint32(len(data))}
		if allocs := testing.AllocsPerRun(100, func() {
			if _, _, m := onlyERSPAN.Unwrap(&f); m != decode.MirrorOK {
				t.Fatal(m)
			}
		}); allocs != 0 {
			t.Errorf("%s: %v allocations", tt.name, allocs)
		}
	}
}

var everyKind = decode.Mirrors{ERSPAN: true, GRETAP: true, VXLAN: decode.DefaultVXLANPort, TZSP: decode.TZSPPort}

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

// TestMirrorsText: kinds survive a round trip, in flags and in YAML.
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

// TestUnwrapStripped: a tag stripped by the kernel may precede a session only if it is a VLAN tag,
// as in the frame.
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
	} {
		data := join(t, append([]string{outerMAC}, tt.groups...)...)
		f := decode.Frame{Data: data, WireLen: uint32(len(data))}
		if inner, s, m := everyMirror.Unwrap(&f); m != tt.want || inner.Data != nil || s != (decode.Session{}) {
			t.Errorf("%s: %s, want %s", tt.name, m, tt.want)
		}
	}
}

// carried is a mirrored frame with a tag and a reflection, whose source is 10.0.0.1.
const carried = "0a0000000001 0a0000000002 9900 4483 0800" +
	"4500 0030 0001 0000 4006 0000 0a000001 0a000102 9c40 01bb 00000001 00001000 7010 ffff 0000 0000 fd06c516 4483 0101"

// TestMirroredOnEveryLink: on every link type a mirrored frame gives the same observations as
// alone, and a tag of the carrying packet is an observation of its own.
func TestMirroredOnEveryLink(t *testing.T) {
	t.Parallel()
	dom := domain(t, csig.DefaultSpec())
	inner := join(t, carried)
	var alone decode.Result
	decoder(t, dom).DecodeFrame(decode.Framing{Link: decode.Ethernet}, &decode.Frame{Data: inner, WireLen: 66}, &alone)
	if alone.N != 2 || len(inner) != 66 {
		t.Fatalf("%d observations in %d bytes", alone.N, len(inner))
	}
	const (
		session  = "1000 88be 00000007 1064 b555 000abcde"
		whole    = "4500 0066 0000 4000 402f 0000 c0000201 c0000202"
		fragment = "4500 0066 0000 2000 402f 0000 c0000201 c0000202"
	)
	for name, tc := range map[string]struct {
		before  string // the IP header
		packet  string
		carrier int
		encap   []decode.Layer // of the carrier's tags
	}{
		"no tag":             {"", whole, 0, nil},
		"behind a VLAN tag":  {"8100 0007", whole, 0, nil},
		"own tag":            {"9900 2b85", whole, 1, nil},
		"own tag in a VLAN":  {"8100 0007 9900 2b85", whole, 1, []decode.Layer{{Encap: decode.VLAN, ID: 7}}},
		"own tag twice":      {"9900 2b85 9900 2b85", whole, 2, nil},
		"a first fragment":   {"", fragment, 0, nil},
		"own tag, fragment":  {"9900 2b85", fragment, 1, nil},
		"behind a fifth tag": {strings.Repeat("8100 0007", 5), whole, -1, nil},
	} {
		frame := join(t, outerMAC, tc.before, "0800", tc.packet, session, carried)
		for _, link := range []decode.Link{decode.Ethernet, decode.LinuxSLL, decode.LinuxSLL2} {
			packet := decode.Frame{Data: asLink(link, frame), WireLen: 300}
			var r decode.Result
			d := decoder(t, dom)
			d.DecodeFrame(decode.Framing{Link: link, Mirrors: decode.Mirrors{ERSPAN: true}}, &packet, &r)
			if tc.carrier < 0 {
				if _, _, ok := d.Mirrored(); ok || r.N == 0 || r.Obs[0].Flags&decode.Orphan == 0 {
					t.Errorf("link type %d, %s: mirrored %t, %+v", link, name, ok, r.Obs[:r.N])
				}
				continue
			}
			if r.Carrier != tc.carrier || !cmp.Equal(alone.Obs[:alone.N], r.Obs[r.Carrier:r.N]) || len(r.Encap.Layers()) != 0 {
				t.Errorf("link type %d, %s: %d of the carrier, then %+v in %v; want %d, %+v", link, name, r.Carrier, r.Obs[r.Carrier:r.N], r.Encap.Layers(), tc.carrier, alone.Obs[:alone.N])
			}
			for i := range r.Carrier {
				o := &r.Obs[i]
				if src, _ := o.Addrs(); src != switchV4 || o.Proto != 47 || o.Bytes != 300 || (o.Flags&decode.Orphan != 0) != (i+1 < r.Carrier) || !slices.Equal(r.EncapOf(i).Layers(), tc.encap) {
					t.Errorf("link type %d, %s: the carrier's tag is %+v in %v", link, name, *o, r.EncapOf(i).Layers())
				}
			}
		}
	}
}

// TestMirroredTooMany: the carrier and the mirrored frame share the room for observations.
func TestMirroredTooMany(t *testing.T) {
	t.Parallel()
	d := decoder(t, domain(t, csig.DefaultSpec()))
	frame := join(t, outerMAC, strings.Repeat("9900 2b85", 3), "0800 4500 0066 0000 4000 402f 0000 c0000201 c0000202", "1000 88be 00000007 1064 b555 000abcde", carried)
	var r decode.Result
	d.DecodeFrame(decode.Framing{Link: decode.Ethernet, Mirrors: everyKind}, &decode.Frame{Data: frame}, &r)
	if r.N != 3 || r.Carrier != 3 || r.Reason != decode.TooDeep {
		t.Errorf("%d observations, %d of the carrier, %s", r.N, r.Carrier, r.Reason)
	}
}

// TestUnwrapFragment: the first fragment of a packet holds the session and the start of the frame,
// whose length is in the UDP header.
func TestUnwrapFragment(t *testing.T) {
	t.Parallel()
	const v6 = "20010db8000000000000000000000001 20010db8000000000000000000000002"
	payload := join(t, mirrored)
	for name, tc := range map[string]struct {
		head []string
		wire uint32
	}{
		"ERSPAN":         {[]string{"0800 4500 0036 0000 2000 402f 0000 c0000201 c0000202", gre88be, "1000 0001 00000000"}, 18},
		"ERSPAN in IPv6": {[]string{"86dd 60000000 002a 2c 40", v6, "2f00 0001 00000001", gre88be, "1000 0001 00000000"}, 18},
		"VXLAN":          {[]string{"0800 4500 0036 0000 2000 4011 0000 c0000201 c0000202 d431 12b5 05ec 0000 08000000 00000700"}, 1500},
		"TZSP":           {[]string{"0800 4500 0033 0000 2000 4011 0000 c0000201 c0000202 d431 9090 05e9 0000 0100 0001 01"}, 1500},
	} {
		head := join(t, append([]string{outerMAC}, tc.head...)...)
		whole := slices.Concat(head, payload)
		for n := range len(whole) + 1 {
			inner, _, m := everyMirror.Unwrap(&decode.Frame{Data: whole[:n], WireLen: uint32(len(whole))})
			switch {
			case n <= len(head) && (m == decode.MirrorOK || inner.Data != nil):
				t.Errorf("%s cut at %d: %s", name, n, m)
			case n > len(head) && (m != decode.MirrorOK || string(inner.Data) != string(payload[:n-len(head)]) || inner.WireLen != tc.wire):
				t.Errorf("%s cut at %d: %s, % x of %d bytes, want %d", name, n, m, inner.Data, inner.WireLen, tc.wire)
			}
		}
	}
}
