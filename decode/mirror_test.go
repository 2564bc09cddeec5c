package decode_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csigscope/csigscope/decode"
)

// join reads a frame written in groups for the reader's eye.
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

// mirrorCases are frames that carry ERSPAN, with what is to come out.
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

// TestUnwrap checks what comes out of each kind of session, with padding behind
// it and an outer packet that was cut, and that nothing does unasked.
func TestUnwrap(t *testing.T) {
	payload := join(t, mirrored)
	for _, tt := range mirrorCases {
		t.Run(tt.name, func(t *testing.T) {
			head := join(t, tt.outer...)
			padded := slices.Concat(head, payload, []byte{0, 0, 0, 0})
			f := decode.Frame{Data: padded, WireLen: uint32(len(padded))}
			for _, other := range []decode.Mirrors{{}, {GRETAP: true, VXLAN: decode.DefaultVXLANPort, TZSP: decode.DefaultTZSPPort}} {
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

// TestUnwrapCutAtEveryByte checks that a cut frame gives its first bytes or the
// word that it is cut, never a session made up.
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
		{"first fragment", ip("0800 4500 0036 0000 2000 402f 0000 c0000201 c0000202", typeII...), decode.MirrorFragment},
		{"first fragment of IPv6", ip("86dd 60000000 002a 2c 40"+v6+"2f00 0001 00000001", typeII...), decode.MirrorFragment},
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

// TestUnwrapOffloaded takes the length from the frame where offloading left the
// packet without one.
func TestUnwrapOffloaded(t *testing.T) {
	data := join(t, outerMAC, "0800 4500 0000 0000 4000 402f 0000 c0000201 c0000202", "0000 88be", mirrored)
	inner, _, m := onlyERSPAN.Unwrap(&decode.Frame{Data: data, WireLen: uint32(len(data)) + 70000})
	if m != decode.MirrorOK || inner.WireLen != 70018 {
		t.Errorf("%s, inner frame of %d bytes, want 70018", m, inner.WireLen)
	}
}

// TestUnwrapNested takes a mirror of a mirror apart, one session at a time.
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
	if len(seen) != 7 || seen["mirror_unknown"] || decode.Mirror(7).String() != "mirror_unknown" {
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
