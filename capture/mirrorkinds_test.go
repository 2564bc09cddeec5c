package capture

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"
)

var everyMirror = Mirrors{ERSPAN: true, GRETAP: true, VXLAN: DefaultVXLANPort, TZSP: DefaultTZSPPort}

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
	want  Session
}{
	{"GRE-TAP", []string{outerMAC, ipv4Gre4, "0000 6558"}, Session{Kind: MirrorGRETAP}},
	{
		"GRE-TAP with key and sequence",
		[]string{outerMAC, "0800 4500 0032 0000 4000 402f 0000 c0000201 c0000202", "3000 6558 0000004d 00000009"},
		Session{Kind: MirrorGRETAP, ID: 77, Sequenced: true, Sequence: 9},
	},
	{"VXLAN", []string{outerMAC, ipv4VXLAN, "08000000 01e24000"}, Session{Kind: MirrorVXLAN, ID: 123456}},
	{
		"VXLAN in IPv6 behind a VLAN tag",
		[]string{outerMAC, "8100 0005", ipv6VXLAN, "08000000 00000700"},
		Session{Kind: MirrorVXLAN, ID: 7, Source: netip.MustParseAddr("2001:db8::1")},
	},
	{"TZSP", []string{outerMAC, ipv4TZSP5, "0100 0001 01"}, Session{Kind: MirrorTZSP}},
	{
		"TZSP of a sensor",
		[]string{outerMAC, "0800 4500 003b 0000 4000 4011 0000 c0000201 c0000202 d431 9090 0027 0000", "0100 0001 3c06 020000000001 01"},
		Session{Kind: MirrorTZSP, ID: 0x020000000001},
	},
	{
		"TZSP with fields",
		[]string{outerMAC, ipv4TZSP24, "0100 0001 00 0d04 00000fff 2804 00000003 2902 05dc ff 00 01"},
		Session{Kind: MirrorTZSP, SwitchClock: ClockCustom, SwitchNS: 4095, SwitchBits: 32, Sequenced: true, Sequence: 3, Length: 1500},
	},
}

// TestMirrorsText: kinds are read back as they are written, in flags and in YAML.
func TestMirrorsText(t *testing.T) {
	for text, want := range map[string]Mirrors{
		"":                         {},
		"erspan":                   {ERSPAN: true},
		"gretap,tzsp":              {GRETAP: true, TZSP: 37008},
		"erspan,gretap,vxlan,tzsp": everyMirror,
	} {
		var m, fromYAML Mirrors
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
	var m Mirrors
	if err := m.UnmarshalText([]byte("vxlan, erspan")); err != nil || m != (Mirrors{ERSPAN: true, VXLAN: 4789}) {
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
	packet := append(unhex(t, mirrorCases[0].outer...), unhex(t, mirrored)...)
	for tpid, want := range map[uint16]Mirror{0x8100: MirrorOK, 0x88a8: MirrorOK, 0x9100: MirrorOK, 0x9900: MirrorNone, 0x88e5: MirrorNone} {
		f := Frame{Data: packet, WireLen: uint32(len(packet)) + 4, TPID: tpid, TCI: 7}
		if _, _, m := onlyERSPAN.Unwrap(&f); m != want {
			t.Errorf("behind a stripped %#x: %s, want %s", tpid, m, want)
		}
	}
}

func TestUnwrapKinds(t *testing.T) {
	payload := unhex(t, mirrored)
	for _, tt := range kindCases {
		t.Run(tt.name, func(t *testing.T) {
			packet := slices.Concat(unhex(t, tt.outer...), payload)
			f := Frame{Data: slices.Concat(packet, make([]byte, 6)), TimeNS: 5, WireLen: uint32(len(packet) + 6), Packet: 9}
			inner, got, m := everyMirror.Unwrap(&f)
			if m != MirrorOK {
				t.Fatal(m)
			}
			if string(inner.Data) != string(payload) || inner.WireLen != max(uint32(len(payload)), uint32(tt.want.Length)) || inner.TimeNS != 5 || inner.Packet != 9 {
				t.Errorf("%+v", inner)
			}
			want := tt.want
			if !want.Source.IsValid() {
				want.Source = switchV4
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Error(diff)
			}
			if _, _, m := onlyERSPAN.Unwrap(&f); m != MirrorNone {
				t.Errorf("%s is taken for a mirror session unasked", m)
			}
			for n := range len(packet) - len(payload) + 1 {
				cut := Frame{Data: packet[:n], WireLen: uint32(len(packet))}
				if _, _, m := everyMirror.Unwrap(&cut); m != MirrorCut && m != MirrorNone {
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
		want   Mirror
	}{
		{"VXLAN without identifier", []string{ipv4VXLAN, "00000000 00000700", mirrored}, MirrorMalformed},
		{"VXLAN alone", []string{"0800 4500 0024 0000 4000 4011 0000 c0000201 c0000202 d431 12b5 0010 0000 08000000 00000700"}, MirrorMalformed},
		{"another port", []string{"0800 4500 0036 0000 4000 4011 0000 c0000201 c0000202 d431 12b6 0022 0000", mirrored}, MirrorNone},
		{"UDP longer than its packet", []string{"0800 4500 0036 0000 4000 4011 0000 c0000201 c0000202 d431 12b5 0122 0000 08000000 00000700", mirrored}, MirrorMalformed},
		{"UDP shorter than its header", []string{"0800 4500 0036 0000 4000 4011 0000 c0000201 c0000202 d431 12b5 0007 0000 08000000 00000700", mirrored}, MirrorMalformed},
		{"TZSP of another version", []string{ipv4TZSP5, "0200 0001 01", mirrored}, MirrorVersion},
		{"TZSP that keeps alive", []string{ipv4TZSP5, "0104 0001 01", mirrored}, MirrorNotEthernet},
		{"TZSP of IEEE 802.11", []string{ipv4TZSP5, "0100 0012 01", mirrored}, MirrorNotEthernet},
		{"TZSP without end", []string{ipv4TZSP5, "0100 0001 00", "0000000000000000 0000000000000000 0000"}, MirrorMalformed},
		{"TZSP with a field beyond", []string{ipv4TZSP5, "0100 0001 0d", "ff00000000000000 00000000000000 0000"}, MirrorMalformed},
		{"a fragment", []string{"0800 4500 0036 0000 2000 4011 0000 c0000201 c0000202 d431 12b5 0022 0000 08000000 00000700", mirrored}, MirrorFragment},
	} {
		data := unhex(t, append([]string{outerMAC}, tt.groups...)...)
		f := Frame{Data: data, WireLen: uint32(len(data))}
		if inner, s, m := everyMirror.Unwrap(&f); m != tt.want || inner.Data != nil || s != (Session{}) {
			t.Errorf("%s: %s, want %s", tt.name, m, tt.want)
		}
	}
}

// batches is a source of batches made by hand; their frames have the data given.
type batches struct {
	list   [][][]byte
	from   int64 // time of the first frame of each
	closed bool
}

func (b *batches) ReadBatch(to *Batch) error {
	to.N = 0
	if len(b.list) == 0 {
		return nil
	}
	for i, data := range b.list[0] {
		to.Frames[i] = Frame{Data: data, WireLen: uint32(len(data)), TimeNS: b.from + int64(i), Interface: 9}
	}
	to.N, b.list = len(b.list[0]), b.list[1:]
	return nil
}

func (b *batches) QuietUntil() int64 { return 42 }

func (b *batches) Close() error {
	b.closed = true
	return nil
}

// TestMirrorReader tells sessions apart, leaves out what is none, and counts what is
// lost on the way.
func TestMirrorReader(t *testing.T) {
	gretap := func(key, sequence byte) []byte {
		p := unhex(t, outerMAC, "0800 4500 0032 0000 4000 402f 0000 c0000201 c0000202", "3000 6558 00000000 00000000", mirrored)
		p[41], p[45] = key, sequence
		return p
	}
	erspan := unhex(t, append(mirrorCases[1].outer, mirrored)...)
	plain := unhex(t, mirrored, "4500 0014 0000 4000 4006 0000 c0000201 c0000202")
	source := &batches{list: [][][]byte{
		{gretap(1, 5), plain, gretap(2, 9), gretap(1, 6), gretap(1, 9), gretap(1, 8)},
		{plain},
		{erspan, gretap(3, 0), gretap(2, 10)},
	}}
	r := NewMirrorReader(source, MirrorConfig{Mirrors: everyMirror, MaxSessions: 3})
	var b Batch
	var got []string
	for range 4 {
		if err := r.ReadBatch(&b); err != nil {
			t.Fatal(err)
		}
		for i := range b.N {
			f := &b.Frames[i]
			s, name := r.SessionOf(i), r.Interfaces()[f.Interface].Name
			if name != s.Key().String() && name != OtherSessions || string(f.Data) != string(unhex(t, mirrored)) {
				t.Errorf("%+v of %+v", f, s)
			}
			got = append(got, name)
		}
	}
	one, two, three := "gretap/192.0.2.1/1", "gretap/192.0.2.1/2", "erspan/192.0.2.1/341"
	if diff := cmp.Diff([]string{one, two, one, one, one, three, OtherSessions, two}, got); diff != "" {
		t.Error(diff)
	}
	c := r.Counters()
	if c.Results[MirrorOK] != 8 || c.Results[MirrorNone] != 2 || c.Excess != 1 || c.Lost != 2 || c.Foreign != 0 {
		t.Errorf("%+v", c)
	}
	wantCounts := []SessionCounters{{Name: OtherSessions, Frames: 1}, {Name: one, Frames: 4, Lost: 2}, {Name: two, Frames: 2}, {Name: three, Frames: 1}}
	if diff := cmp.Diff(wantCounts, r.Sessions()); diff != "" || r.Received() != 2 {
		t.Error(diff, r.Received())
	}
	if err := r.Close(); err != nil || !source.closed || r.QuietUntil() != 42 {
		t.Errorf("the source is not closed, %v", err)
	}
	only := NewMirrorReader(&batches{list: [][][]byte{{gretap(1, 5), gretap(2, 9)}}}, MirrorConfig{
		Mirrors: everyMirror, Only: []SessionKey{{MirrorGRETAP, switchV4, 2}},
	})
	if err := only.ReadBatch(&b); err != nil || b.N != 1 || only.SessionOf(0).ID != 2 || only.Counters().Foreign != 1 {
		t.Errorf("%d frames, %+v, %v", b.N, only.Counters(), err)
	}
}

// TestSequences counts gaps of frames, not of switches that begin anew or packets that
// overtake each other.
func TestSequences(t *testing.T) {
	for _, tc := range []struct {
		name string
		list []uint32
		want uint64
	}{
		{"in order", []uint32{7, 8, 9}, 0},
		{"a gap", []uint32{7, 10, 11}, 2},
		{"overtaken", []uint32{7, 9, 8, 10}, 1},
		{"wraps", []uint32{1<<32 - 1, 0, 1}, 0},
		{"wraps with a gap", []uint32{1<<32 - 2, 1}, 2},
		{"begins anew", []uint32{1 << 30, 1, 2}, 0},
		{"jumps", []uint32{1, 1 << 29, 1<<29 + 2}, 1},
	} {
		r := NewMirrorReader(nil, MirrorConfig{})
		var state sessionState
		for _, n := range tc.list {
			r.follow(&state, &Session{Sequenced: true, Sequence: n})
		}
		if r.local.Lost != tc.want {
			t.Errorf("%s: %d lost, want %d", tc.name, r.local.Lost, tc.want)
		}
	}
}

func TestMirrorReaderAllocatesNothing(t *testing.T) {
	erspan := unhex(t, append(mirrorCases[1].outer, mirrored)...)
	source := &batches{}
	r := NewMirrorReader(source, MirrorConfig{Mirrors: everyMirror})
	list := [][][]byte{slices.Repeat([][]byte{erspan}, BatchSize)}
	var b Batch
	if allocs := testing.AllocsPerRun(50, func() {
		source.list = list
		if err := r.ReadBatch(&b); err != nil || b.N != BatchSize {
			t.Fatalf("%d frames, %v", b.N, err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations a batch, want none", allocs)
	}
}
