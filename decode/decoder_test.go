package decode_test

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

func TestNewNeedsADomain(t *testing.T) {
	t.Parallel()
	if _, err := decode.New(decode.Config{}); err == nil {
		t.Error("New without a domain succeeds")
	}
}

func TestCounters(t *testing.T) {
	t.Parallel()
	d := decoder(t, domain(t, csig.DefaultSpec()))
	var r decode.Result
	for _, name := range []string{"two_tags_and_reflection", "two_tags", "untagged_udp", "macsec_encrypted", "reflection_empty", "reflections_excess"} {
		d.Decode(goldenFrame(t, name), &r)
	}
	d.Decode(nil, &r)
	want := decode.Counters{Frames: 7, Tags: 7, Orphans: 4, Reflections: 3, EmptyReflections: 1, ExcessReflections: 1}
	want.Reasons[decode.OK] = 3
	want.Reasons[decode.NoCSIG] = 2
	want.Reasons[decode.Hidden] = 1
	want.Reasons[decode.CutEthernet] = 1
	got := d.Counters()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	sum := got
	sum.Add(&got)
	if sum.Frames != 14 || sum.Reasons[decode.OK] != 6 || sum.Tags != 14 || sum.Orphans != 8 ||
		sum.Reflections != 6 || sum.EmptyReflections != 2 || sum.ExcessReflections != 2 {
		t.Errorf("twice %+v is %+v", got, sum)
	}
	for _, name := range []string{"reflection_empty", "compact_ietf01_tcp"} { // DecodePlain counts apart
		d.DecodeFrame(decode.Framing{Link: decode.Ethernet}, &decode.Frame{Data: slices.Grow(goldenFrame(t, name), 100)}, &r)
	}
	d.SetCounters(got)
	if diff := cmp.Diff(got, d.Counters()); diff != "" {
		t.Errorf("set again (-want +got):\n%s", diff)
	}
}

// The result for a frame does not depend on the previous one, in a reused Result: only the caller's
// own members remain.
func TestResultIsReused(t *testing.T) {
	t.Parallel()
	dom := domain(t, csig.DefaultSpec())
	d := decoder(t, dom)
	var used decode.Result
	for _, g := range goldens(t) {
		var fresh decode.Result
		d.Decode(g.Data, &fresh)
		d.Decode(goldenFrame(t, "two_tags_and_reflection"), &used)
		d.Decode(g.Data, &used)
		if used.N != fresh.N || used.Reason != fresh.Reason ||
			!cmp.Equal(used.Obs[:used.N], fresh.Obs[:fresh.N]) ||
			!cmp.Equal(append([]decode.Layer{}, used.Encap.Layers()...), append([]decode.Layer{}, fresh.Encap.Layers()...)) {
			t.Errorf("%s: %+v after another frame, %+v alone", g.Name, used, fresh)
		}
	}
}

func TestReasonNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for r := range decode.Reason(decode.NumReasons) {
		if seen[r.String()] || r.String() == "" || r.String() == "unknown" {
			t.Errorf("reason %d is named %q", r, r)
		}
		seen[r.String()] = true
	}
	if decode.Reason(200).String() != "unknown" {
		t.Error("a reason out of range has a name")
	}
}

func TestKindNames(t *testing.T) {
	t.Parallel()
	if decode.Tag.String() != "tag" || decode.Reflection.String() != "reflection" {
		t.Errorf("%s, %s", decode.Tag, decode.Reflection)
	}
}

// Without a table there is no value, and without a time no time.
func TestJSONLeavesOut(t *testing.T) {
	t.Parallel()
	o := decode.Observation{Packet: 3, Kind: decode.Tag, Tag: csig.Tag{Layout: csig.Layout{Format: csig.Compact, Profile: csig.IETF01}, S: 31}}
	o.TimeNS, o.Src[0], o.SrcPort, o.Proto, o.Flags = 1, 1, 1, 6, decode.NoTime // not set, as the flags say
	const want = `{"packet":3,"kind":"tag","format":"compact","profile":"ietf01","signal":"min_abw","signal_type":0,` +
		`"code":31,"lm":0,"untouched":false,"trimmed":false,"orphan":false,"path":"forward"}`
	if got := string(o.AppendJSON(nil, domain(t, csig.Spec{}), nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestText: a line for people has the same content as JSON, in words, and omits the same fields.
func TestText(t *testing.T) {
	t.Parallel()
	dom := domain(t, csig.DefaultSpec())
	compact := csig.Layout{Format: csig.Compact, Profile: csig.IETF01}
	full := decode.Observation{Packet: 3, TimeNS: 1_700_000_000_000_456_789, Kind: decode.Tag, Tag: csig.Tag{Layout: compact, T: 1, S: 5, LM: 9}}
	full.Src, full.Dst = netip.MustParseAddr("10.0.1.1").As16(), netip.MustParseAddr("10.0.2.1").As16()
	full.SrcPort, full.DstPort, full.Flags = 4001, 80, decode.HasAddrs|decode.HasPorts
	v6 := full
	v6.Kind, v6.Tag.S, v6.Tag.D = decode.Reflection, 31, true
	v6.Src, v6.Dst = netip.MustParseAddr("2001:db8::1").As16(), netip.MustParseAddr("2001:db8::2").As16()
	v6.Flags = decode.HasAddrs | decode.IPv6
	bare := decode.Observation{Packet: 1, Kind: decode.Tag, Tag: csig.Tag{Layout: compact, T: 5, S: 7}}
	bare.Flags = decode.NoTime | decode.Orphan
	for _, tt := range []struct {
		o    *decode.Observation
		want string
	}{
		{&full, "2023-11-14T22:13:20.000456789Z 1700000000000456789 packet 3 10.0.1.1:4001 > 10.0.2.1:80 tag min_abw_ratio 15.6 % to 18.8 % code 5 lm 9"},
		{&v6, "2023-11-14T22:13:20.000456789Z 1700000000000456789 packet 3 2001:db8::1 > 2001:db8::2 reflection min_abw_ratio 96.9 % to 100.0 % code 31 lm 9 untouched trimmed of the reverse path"},
		{&bare, "packet 1 tag type_5 code 7 lm 0 orphan"},
	} {
		if got := string(tt.o.AppendText(nil, dom, nil)); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

// TestBare: the endpoints of untagged frames, and whether they carry data.
func TestBare(t *testing.T) {
	d := decoder(t, domain(t, csig.DefaultSpec()))
	for _, c := range []struct {
		name     string
		frame    []byte
		data, ok bool
	}{
		{"data over TCP", bareFrame(t, 4, layers.IPProtocolTCP, 10), true, true},
		{"an acknowledgement", bareFrame(t, 4, layers.IPProtocolTCP, 0), false, true},
		{"over UDP", bareFrame(t, 4, layers.IPProtocolUDP, 10), true, true},
		{"over IPv6", bareFrame(t, 6, layers.IPProtocolTCP, 10), true, true},
		{"before segmentation", withoutLength(bareFrame(t, 4, layers.IPProtocolTCP, 2000)), true, true},
		{"before segmentation, over IPv6", withoutLength(bareFrame(t, 6, layers.IPProtocolTCP, 2000)), true, true},
		{"padding is no data", append(bareFrame(t, 4, layers.IPProtocolTCP, 0), make([]byte, 6)...), false, true},
		{"nothing", nil, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var o decode.Observation
			data, ok := d.DecodeUntagged(decode.Ethernet, c.frame, &o)
			if data != c.data || ok != c.ok {
				t.Fatalf("data %t, ok %t", data, ok)
			}
			if !ok {
				return
			}
			if src, dst := o.Addrs(); !src.IsValid() || src.As16()[15] != 1 || dst.As16()[15] != 2 || o.SrcPort != 1000 || o.DstPort != 2000 || o.Flags&decode.HasPorts == 0 {
				t.Errorf("%s to %s, ports %d and %d", src, dst, o.SrcPort, o.DstPort)
			}
			for cut := range c.frame {
				if _, ok := d.DecodeUntagged(decode.Ethernet, c.frame[:cut:cut], &o); ok && cut < 42 {
					t.Errorf("cut at %d is whole", cut)
				}
			}
		})
	}
	inner := decoderOf(t, decode.Config{Domain: domain(t, csig.DefaultSpec()), Endpoints: decode.Inner})
	if _, ok := inner.DecodeUntagged(decode.Ethernet, bareFrame(t, 4, layers.IPProtocolUDP, 10), new(decode.Observation)); ok {
		t.Error("the innermost header is not looked for, and yet named")
	}
	frame := bareFrame(t, 4, layers.IPProtocolTCP, 10)
	var o decode.Observation
	if n := testing.AllocsPerRun(100, func() { d.DecodeUntagged(decode.Ethernet, frame, &o) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

// withoutLength sets the length in an untagged frame's IP header to 0, as before segmentation offload.
func withoutLength(frame []byte) []byte {
	at := 14 + 2
	if frame[14]>>4 == 6 {
		at = 14 + 4
	}
	clear(frame[at : at+2])
	return frame
}

// bareFrame returns a frame from an address that ends in 1 to one that ends in 2.
func bareFrame(t *testing.T, version int, proto layers.IPProtocol, payload int) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
	src, dst := make([]byte, 4), make([]byte, 4)
	if version == 6 {
		eth.EthernetType, src, dst = layers.EthernetTypeIPv6, make([]byte, 16), make([]byte, 16)
	}
	src[0], src[len(src)-1], dst[0], dst[len(dst)-1] = 10, 1, 10, 2
	var ip gopacket.SerializableLayer = &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: src, DstIP: dst}
	if version == 6 {
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: src, DstIP: dst}
	}
	var transport gopacket.SerializableLayer = &layers.TCP{SrcPort: 1000, DstPort: 2000, ACK: true}
	if proto == layers.IPProtocolUDP {
		transport = &layers.UDP{SrcPort: 1000, DstPort: 2000}
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, eth, ip, transport, gopacket.Payload(make([]byte, payload))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Network returns the same packet behind added L2 headers, and survives any truncation.
func TestNetwork(t *testing.T) {
	t.Parallel()
	d := decoder(t, domain(t, csig.DefaultSpec()))
	headers := [][]byte{
		{0x81, 0x00, 0x00, 0x64},                                     // VLAN
		{0x99, 0x00, 0x2b, 0x85},                                     // compact tag
		{0x88, 0xb6, 0x00, 0x0a, 0x20, 0x00, 0x9c, 0x00},             // wide tag
		{0x88, 0xe5, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01},             // SecTAG in clear
		{0x88, 0xe5, 0x20, 0x00, 0, 0, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7}, // with a channel
	}
	found := 0
	for _, g := range goldens(t) {
		for n := range g.Data {
			d.Network(decode.Ethernet, g.Data[:n])
		}
		etherType, packet, ok := d.Network(decode.Ethernet, g.Data)
		if !ok {
			continue
		}
		found++
		for _, h := range headers {
			longer := append(append(append([]byte(nil), g.Data[:12]...), h...), g.Data[12:]...)
			e, p, ok := d.Network(decode.Ethernet, longer)
			if !ok || e != etherType || !bytes.Equal(p, packet) {
				t.Errorf("%s behind %x: %#x %x, want %#x %x", g.Name, h, e, p, etherType, packet)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d frames carry a packet", found)
	}
	label := []byte{0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64}
	ip := []byte{0x45, 0, 0, 20}
	if e, p, ok := d.Network(decode.Ethernet, append(append(make([]byte, 12), label...), ip...)); !ok || e != 0x0800 || !bytes.Equal(p, ip) {
		t.Errorf("below labels: %#x %x %t", e, p, ok)
	}
	if _, _, ok := d.Network(decode.Ethernet, append(make([]byte, 12), 0x88, 0xe5, 0x0c, 0, 0, 0, 0, 1, 8, 0)); ok {
		t.Error("what is encrypted is found")
	}
}
